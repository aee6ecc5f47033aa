//! The subjects of a queue on a message server: what lies where, written and read back.
//!
//! ```text
//! <prefix>.ingest.<partition>.<shard>.<tenant>.<table>[.<scope>]   rows on their way
//! <prefix>.hist.<tenant>.<table>[.<scope>]                         the same rows for live streams
//! <prefix>.dlq.<tenant>.<table>[.<scope>]                          rows that can never be written
//! <prefix>.live.<session>                                          is this process there?
//! $KV.<bucket>.lease.<name>                                        who holds what
//! ```
//!
//! The tail, from the tenant on, is the topic's key. It survives republishing and burying unchanged.

mod lease;
mod topic;

use std::fmt;

pub use lease::{LeaseKey, lease_filter, lease_subject};
pub use topic::{Topic, TopicKey};

use crate::ids::{PartitionId, TenantId, UnitId};

/// Why a text is no prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("prefix {0:?} is not one or more of lower-case ASCII letters, digits, '_' and '-'")]
pub struct PrefixError(String);

/// The first token of every subject of a queue, and the root of the names of its streams.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SubjectPrefix(String);

/// What a subject is for, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Rows on their way. The numbers may be of partitions and shards that are no longer configured.
    Ingest {
        /// The partition, below 2^31.
        partition: u32,
        /// The shard, below 2^31.
        shard: u32,
        /// Tenant, table and scope.
        key: TopicKey,
    },
    /// Rows for live streams.
    History(TopicKey),
    /// Rows that can never be written.
    DeadLetter(TopicKey),
}

impl SubjectPrefix {
    /// Checks and takes a prefix.
    ///
    /// # Errors
    /// [`PrefixError`] when it is not one token of `[a-z0-9_-]+`.
    pub fn parse(text: &str) -> Result<Self, PrefixError> {
        let legal =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
        if text.is_empty() || !text.bytes().all(legal) {
            return Err(PrefixError(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    /// The prefix as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where a topic's rows are published.
    #[must_use]
    pub fn ingest(&self, unit: UnitId, topic: &Topic) -> String {
        format!("{self}.ingest.{unit}.{topic}")
    }

    /// Where live streams read a topic.
    #[must_use]
    pub fn history(&self, topic: &Topic) -> String {
        format!("{self}.hist.{topic}")
    }

    /// Where a topic's dead letters lie.
    #[must_use]
    pub fn dead_letter(&self, topic: &Topic) -> String {
        format!("{self}.dlq.{topic}")
    }

    /// Where a row's dead letter goes when all that is known of it is the subject it came under: the tail is kept, nothing
    /// is decoded.
    #[must_use]
    pub fn dead_letter_of(&self, subject: &str) -> String {
        format!("{self}.dlq.{}", self.tail(subject).map_or(subject, |(_, tail)| tail))
    }

    /// Where a process answers that it is there.
    #[must_use]
    pub fn live(&self, session: &str) -> String {
        format!("{self}.live.{session}")
    }

    /// All of a partition.
    #[must_use]
    pub fn partition_filter(&self, partition: PartitionId) -> String {
        format!("{self}.ingest.{}.>", partition.0)
    }

    /// All of a unit.
    #[must_use]
    pub fn unit_filter(&self, unit: UnitId) -> String {
        format!("{self}.ingest.{unit}.>")
    }

    /// All rows on their way.
    #[must_use]
    pub fn ingest_filter(&self) -> String {
        format!("{self}.ingest.>")
    }

    /// All of the history.
    #[must_use]
    pub fn history_filter(&self) -> String {
        format!("{self}.hist.>")
    }

    /// All dead letters.
    #[must_use]
    pub fn dead_letter_filter(&self) -> String {
        format!("{self}.dlq.>")
    }

    /// All dead letters of a tenant.
    #[must_use]
    pub fn dead_letters_of(&self, tenant: &TenantId) -> String {
        format!("{self}.dlq.{tenant}.>")
    }

    /// Every process's answer.
    #[must_use]
    pub fn live_filter(&self) -> String {
        format!("{self}.live.>")
    }

    /// What a partition republishes; the one-token wildcard swallows the shard, so that only the key goes on.
    #[must_use]
    pub fn republish_source(&self, partition: PartitionId) -> String {
        format!("{self}.ingest.{}.*.>", partition.0)
    }

    /// A subject that only the stream of this partition holds; nothing is ever published under it.
    #[must_use]
    pub fn partition_probe(&self, partition: PartitionId) -> String {
        format!("{self}.ingest.{}.x", partition.0)
    }

    /// A subject that only the stream of the dead letters holds; nothing is ever published under it.
    #[must_use]
    pub fn dead_letter_probe(&self) -> String {
        format!("{self}.dlq.x")
    }

    /// What a subject is for; `None` when it is not of this queue.
    #[must_use]
    pub fn parse_subject(&self, subject: &str) -> Option<Subject> {
        let (place, tail) = self.tail(subject)?;
        let key = TopicKey::parse(tail);
        Some(match place {
            Place::Ingest(partition, shard) => Subject::Ingest { partition, shard, key },
            Place::History => Subject::History(key),
            Place::DeadLetter => Subject::DeadLetter(key),
        })
    }

    /// The topic of whatever came under a subject. One that is not of this queue is a key as a whole.
    #[must_use]
    pub fn topic_key(&self, subject: &str) -> TopicKey {
        TopicKey::parse(self.tail(subject).map_or(subject, |(_, tail)| tail))
    }

    /// Takes off what stands before the key; the key is not empty.
    fn tail<'a>(&self, subject: &'a str) -> Option<(Place, &'a str)> {
        let rest = subject.strip_prefix(self.as_str())?.strip_prefix('.')?;
        let (kind, rest) = rest.split_once('.')?;
        let (place, tail) = match kind {
            "dlq" => (Place::DeadLetter, rest),
            "hist" => (Place::History, rest),
            "ingest" => {
                let (partition, rest) = rest.split_once('.')?;
                let (shard, rest) = rest.split_once('.')?;
                (Place::Ingest(number(partition)?, number(shard)?), rest)
            }
            _ => return None,
        };
        (!tail.is_empty()).then_some((place, tail))
    }
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Ingest(u32, u32),
    History,
    DeadLetter,
}

impl fmt::Display for SubjectPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A decimal number below 2^31, without a sign.
pub(crate) fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && *number < 1 << 31)
}

/// Whether some subject is matched by both patterns; `*` stands for one token and `>` for one or more at the end.
#[must_use]
pub fn subjects_overlap(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('.'), other.split('.'));
    loop {
        match (one.next(), other.next()) {
            (None, None) => return true,
            (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (Some(a), Some(b)) if a == b || a == "*" || b == "*" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests;
