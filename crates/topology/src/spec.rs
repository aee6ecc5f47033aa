//! What a deployment asks for, checked: names, counts and times, and the names that follow from them.

use std::fmt;
use std::time::Duration;

use wavehouse_core::{PartitionId, Placement, PlacementError, ShardId, SubjectPrefix, UnitId};

use crate::duration::format_duration;
use crate::limits;
use crate::size::FILE_STORE_BYTES;

/// What a deployment asks for, as it was written. The default is a queue that needs no settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyInput {
    /// The first token of every subject, and the root of the names.
    pub prefix: String,
    /// N.
    pub partitions: u64,
    /// V, in each partition.
    pub shards: u64,
    /// Of every stream and of the bucket; for manifests alone.
    pub replicas: u32,
    /// Durables are called this, a dash, and the shard.
    pub ingest_consumer: String,
    /// The name of the history; `<PREFIX>_HISTORY` when there is none.
    pub history_stream: Option<String>,
    /// The name of the stream of dead letters; `<PREFIX>_DLQ` when there is none.
    pub dlq_stream: Option<String>,
    /// The lease bucket; `<prefix>_coord` when there is none.
    pub coord_bucket: Option<String>,
    /// Whether leases are kept in the bucket, so that it is judged.
    pub coord_on_nats: bool,
    /// The JetStream domain that requests are sent to.
    pub js_domain: Option<String>,
    /// How long a publish waits for its answer.
    pub publish_timeout: Duration,
    /// How long a claim of a row id lasts; zero when row ids are not claimed.
    pub dedupe_lease: Duration,
    /// How long a silent reader stays pinned.
    pub pinned_ttl: Duration,
    /// How long the history keeps rows.
    pub history_age: Duration,
    /// Most bytes that one pull asks for.
    pub pull_bytes: u64,
    /// Each server's file store, in bytes; for manifests alone.
    pub file_store_bytes: u64,
    /// Each partition's bytes, when they are not 15 % of the store; for manifests alone.
    pub partition_bytes: Option<u64>,
}

impl Default for TopologyInput {
    fn default() -> Self {
        Self {
            prefix: "wh".to_owned(),
            partitions: 1,
            shards: 32,
            replicas: limits::REPLICAS,
            ingest_consumer: "wh-ingest".to_owned(),
            history_stream: None,
            dlq_stream: None,
            coord_bucket: None,
            coord_on_nats: true,
            js_domain: None,
            publish_timeout: limits::PUBLISH_TIMEOUT,
            dedupe_lease: limits::DEDUPE_LEASE,
            pinned_ttl: limits::PINNED_TTL_MIN,
            history_age: limits::HISTORY_AGE,
            pull_bytes: limits::PULL_BYTES,
            file_store_bytes: FILE_STORE_BYTES,
            partition_bytes: None,
        }
    }
}

/// One thing that is wrong with an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecFinding {
    /// Which of the settings, as the operator's commands call it, without the dashes.
    pub setting: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for SpecFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.problem)
    }
}

/// What a deployment asks for, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologySpec {
    input: TopologyInput,
    prefix: SubjectPrefix,
    placement: Placement,
}

/// What objects are called unless told otherwise.
pub(crate) struct UsualNames {
    pub(crate) history: String,
    pub(crate) dlq: String,
    pub(crate) bucket: String,
}

impl TopologyInput {
    /// Checks everything and tells everything that is wrong.
    ///
    /// # Errors
    /// Every finding: a name outside its grammar, a count out of bounds, a time that cannot work, one name for two streams.
    pub fn check(self) -> Result<TopologySpec, Vec<SpecFinding>> {
        let mut found = self.name_findings();
        found.extend(self.number_findings());
        let prefix = SubjectPrefix::parse(&self.prefix)
            .map_err(|error| found.insert(0, SpecFinding { setting: "prefix", problem: error.to_string() }));
        let placement = Placement::new(self.partitions, self.shards).map_err(|error| {
            let setting = match error {
                PlacementError::Partitions(_) => "partitions",
                PlacementError::Shards(_) => "shards",
            };
            found.push(SpecFinding { setting, problem: error.to_string() });
            // The first wrong count hides the second.
            if setting == "partitions"
                && let Err(error) = Placement::new(1, self.shards)
            {
                found.push(SpecFinding { setting: "shards", problem: error.to_string() });
            }
        });
        match (prefix, placement) {
            (Ok(prefix), Ok(placement)) if found.is_empty() => {
                let spec = TopologySpec { input: self, prefix, placement };
                let same = spec.same_names();
                if same.is_empty() { Ok(spec) } else { Err(same) }
            }
            _ => Err(found),
        }
    }

    /// Names of servers' objects are kept to one grammar: one token of a subject, which needs no quoting anywhere.
    fn name_findings(&self) -> Vec<SpecFinding> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let names = [
            ("ingest-consumer", Some(&self.ingest_consumer)),
            ("history-stream", self.history_stream.as_ref()),
            ("dlq-stream", self.dlq_stream.as_ref()),
            ("coord-bucket", self.coord_bucket.as_ref()),
            ("js-domain", self.js_domain.as_ref()),
        ];
        let given = names.into_iter().filter_map(|(setting, name)| Some((setting, name?)));
        let wrong = given.filter(|(_, name)| name.is_empty() || !name.bytes().all(legal));
        let mut found: Vec<_> = wrong
            .map(|(setting, name)| SpecFinding {
                setting,
                problem: format!("{name:?} is not one token of ASCII letters, digits, '_' and '-'"),
            })
            .collect();
        let long = names.into_iter().chain([("prefix", Some(&self.prefix))]);
        let long = long.filter(|(_, name)| name.is_some_and(|name| name.len() > limits::NAME_BYTES_MAX));
        found.extend(long.map(|(setting, _)| SpecFinding {
            setting,
            problem: format!("is longer than {} bytes", limits::NAME_BYTES_MAX),
        }));
        found
    }

    fn number_findings(&self) -> Vec<SpecFinding> {
        let shortest = format_duration(limits::PINNED_TTL_MIN);
        let wrong = [
            (
                !(1..=limits::REPLICAS_MAX).contains(&self.replicas),
                "replicas",
                format!("{} is not 1 to {}", self.replicas, limits::REPLICAS_MAX),
            ),
            (self.publish_timeout.is_zero(), "publish-timeout", "must be longer than zero".to_owned()),
            (
                self.pinned_ttl < limits::PINNED_TTL_MIN,
                "pinned-ttl",
                format!("{} is shorter than {shortest}", format_duration(self.pinned_ttl)),
            ),
            (self.history_age.is_zero(), "history-max-age", "must be longer than zero".to_owned()),
        ];
        let wrong = wrong.into_iter().filter(|(wrong, ..)| *wrong);
        wrong.map(|(_, setting, problem)| SpecFinding { setting, problem }).collect()
    }
}

impl TopologySpec {
    /// Everything that was asked for.
    #[must_use]
    pub fn input(&self) -> &TopologyInput {
        &self.input
    }

    /// The prefix, which writes subjects.
    #[must_use]
    pub fn prefix(&self) -> &SubjectPrefix {
        &self.prefix
    }

    /// How the queue is divided.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// What the generator calls the stream of a partition. Any name is accepted; streams are found by subject.
    #[must_use]
    pub fn partition_stream(&self, partition: PartitionId) -> String {
        format!("{}_INGEST_{}", self.upper_prefix(), partition.0)
    }

    /// The durable of a shard.
    #[must_use]
    pub fn durable(&self, shard: ShardId) -> String {
        format!("{}-{}", self.input.ingest_consumer, shard.0)
    }

    /// Which shard a durable is of; `None` when it is another's. A padded number is no shard's.
    #[must_use]
    pub fn shard_of(&self, durable: &str) -> Option<u32> {
        let digits = durable.strip_prefix(&self.input.ingest_consumer)?.strip_prefix('-')?;
        let decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
        let padded = digits.len() > 1 && digits.starts_with('0');
        digits.parse().ok().filter(|shard| decimal && !padded && *shard < 1 << 31)
    }

    /// A unit as all processes call it among themselves: the generated stream and its durable.
    #[must_use]
    pub fn unit_name(&self, unit: UnitId) -> String {
        format!("{}/{}", self.partition_stream(unit.partition), self.durable(unit.shard))
    }

    /// The stream of the history; it is looked up by this name.
    #[must_use]
    pub fn history_stream(&self) -> String {
        self.input.history_stream.clone().unwrap_or_else(|| self.usual_names().history)
    }

    /// The stream of the dead letters; they are read and removed by this name.
    #[must_use]
    pub fn dlq_stream(&self) -> String {
        self.input.dlq_stream.clone().unwrap_or_else(|| self.usual_names().dlq)
    }

    /// The lease bucket.
    #[must_use]
    pub fn coord_bucket(&self) -> String {
        self.input.coord_bucket.clone().unwrap_or_else(|| self.usual_names().bucket)
    }

    /// The stream behind the lease bucket.
    #[must_use]
    pub fn coord_stream(&self) -> String {
        format!("KV_{}", self.coord_bucket())
    }

    /// What requests to JetStream begin with.
    #[must_use]
    pub fn api_prefix(&self) -> String {
        match &self.input.js_domain {
            Some(domain) => format!("$JS.{domain}.API."),
            None => "$JS.API.".to_owned(),
        }
    }

    /// The names that follow from the prefix.
    pub(crate) fn usual_names(&self) -> UsualNames {
        let upper = self.upper_prefix();
        UsualNames {
            history: format!("{upper}_HISTORY"),
            dlq: format!("{upper}_DLQ"),
            bucket: format!("{}_coord", self.prefix),
        }
    }

    fn upper_prefix(&self) -> String {
        self.prefix.as_str().to_ascii_uppercase()
    }

    /// Two streams under one name.
    fn same_names(&self) -> Vec<SpecFinding> {
        let (history, letters) = (self.history_stream(), self.dlq_stream());
        let root = format!("{}_INGEST_", self.upper_prefix());
        let taken = |name: &str| name.starts_with(&root) || name == self.coord_stream();
        let same = [
            ("history-stream", &history, taken(&history)),
            ("dlq-stream", &letters, taken(&letters) || letters == history),
        ];
        let same = same.into_iter().filter(|(_, _, wrong)| *wrong);
        same.map(|(setting, name, _)| SpecFinding {
            setting,
            problem: format!("{name} is the name of another stream"),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests;
