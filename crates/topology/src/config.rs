//! The configuration of streams and consumers in JetStream's own JSON, as far as it is judged.
//!
//! One model for both ways: the generator makes these and writes them out as manifests, and what a server answers is read
//! into the same types and judged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::duration::format_duration;

/// A duration in nanoseconds, as JetStream has it; zero means unset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Whether it is zero.
    #[must_use]
    pub fn is_unset(&self) -> bool {
        self.0 == 0
    }

    /// As a duration.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("unset") } else { f.write_str(&format_duration(self.duration())) }
    }
}

/// Something of which only matters that it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Present;

impl Serialize for Present {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(std::iter::empty::<(u8, u8)>())
    }
}

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// The names of fields that are not read: those that change nothing for us, and those that nobody knew of when this was
/// written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OtherFields(pub BTreeSet<String>);

impl Serialize for OtherFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|name| (name, true)))
    }
}

impl<'de> Deserialize<'de> for OtherFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = OtherFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut names = BTreeSet::new();
                while let Some((name, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                    names.insert(name);
                }
                Ok(OtherFields(names))
            }
        }
        deserializer.deserialize_map(Names)
    }
}

/// What a stream republishes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Republish {
    /// Which subjects.
    pub src: String,
    /// Under which subjects.
    pub dest: String,
    /// Whether the bodies are left out.
    #[serde(skip_serializing_if = "is_default")]
    pub headers_only: bool,
}

/// A stream's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names and meanings are JetStream's")]
pub struct StreamConfig {
    pub name: String,
    pub subjects: Vec<String>,
    pub retention: String,
    pub discard: String,
    #[serde(skip_serializing_if = "is_default")]
    pub discard_new_per_subject: bool,
    pub max_msgs: i64,
    pub max_bytes: i64,
    pub max_age: Nanos,
    pub max_msgs_per_subject: i64,
    pub max_msg_size: i64,
    pub storage: String,
    pub num_replicas: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub no_ack: bool,
    #[serde(skip_serializing_if = "Nanos::is_unset")]
    pub duplicate_window: Nanos,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Present>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Present>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_transform: Option<Present>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub republish: Option<Republish>,
    #[serde(skip_serializing_if = "is_default")]
    pub sealed: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub deny_delete: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub deny_purge: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub allow_rollup_hdrs: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub allow_direct: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub allow_msg_counter: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub persist_mode: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// What is not read.
    #[serde(flatten)]
    pub other: OtherFields,
}

/// A consumer's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names and meanings are JetStream's")]
pub struct ConsumerConfig {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub durable_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deliver_subject: String,
    pub deliver_policy: String,
    pub ack_policy: String,
    pub ack_wait: Nanos,
    pub max_deliver: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backoff: Vec<Nanos>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter_subject: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filter_subjects: Vec<String>,
    pub replay_policy: String,
    #[serde(skip_serializing_if = "is_default")]
    pub max_waiting: i64,
    pub max_ack_pending: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub headers_only: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub max_batch: i64,
    #[serde(skip_serializing_if = "Nanos::is_unset")]
    pub max_expires: Nanos,
    #[serde(skip_serializing_if = "is_default")]
    pub max_bytes: i64,
    #[serde(skip_serializing_if = "Nanos::is_unset")]
    pub inactive_threshold: Nanos,
    #[serde(skip_serializing_if = "is_default")]
    pub num_replicas: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub mem_storage: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub priority_policy: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub priority_groups: Vec<String>,
    #[serde(skip_serializing_if = "Nanos::is_unset")]
    pub priority_timeout: Nanos,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_until: Option<String>,
    /// What is not read.
    #[serde(flatten)]
    pub other: OtherFields,
}

/// Fields of a stream that change nothing for us, or that servers fill in.
const STREAM_NOT_JUDGED: [&str; 13] = [
    "allow_atomic",
    "allow_batched",
    "allow_msg_schedules",
    "allow_msg_ttl",
    "compression",
    "consumer_limits",
    "description",
    "first_seq",
    "max_consumers",
    "mirror_direct",
    "placement",
    "subject_delete_marker_ttl",
    "template_owner",
];

/// Fields of a consumer that change nothing for us, or that servers fill in.
const CONSUMER_NOT_JUDGED: [&str; 9] = [
    "description",
    "flow_control",
    "idle_heartbeat",
    "metadata",
    "name",
    "opt_start_seq",
    "opt_start_time",
    "rate_limit_bps",
    "sample_freq",
];

fn beyond(other: &OtherFields, known: &[&str]) -> Vec<String> {
    other.0.iter().filter(|name| !known.contains(&name.as_str())).cloned().collect()
}

impl StreamConfig {
    /// Fields that this version has never heard of.
    #[must_use]
    pub fn unknown_fields(&self) -> Vec<String> {
        beyond(&self.other, &STREAM_NOT_JUDGED)
    }
}

impl ConsumerConfig {
    /// Fields that this version has never heard of.
    #[must_use]
    pub fn unknown_fields(&self) -> Vec<String> {
        beyond(&self.other, &CONSUMER_NOT_JUDGED)
    }

    /// The one filter and the many, together.
    #[must_use]
    pub fn filters(&self) -> Vec<&str> {
        let one = Some(self.filter_subject.as_str()).filter(|filter| !filter.is_empty());
        one.into_iter().chain(self.filter_subjects.iter().map(String::as_str)).collect()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
