//! The objects that a deployment asks for, as the configuration of each.

use std::collections::BTreeMap;

use wavehouse_core::{PartitionId, ShardId, UnitId};

use crate::config::{ConsumerConfig, Nanos, Republish, StreamConfig};
use crate::limits;
use crate::size::{Sizing, SizingError};
use crate::spec::TopologySpec;

/// The key of a partition's metadata that tells which it is.
pub const PARTITION_KEY: &str = "wavehouse.dev/partition";
/// The key that tells how many there are.
pub const PARTITIONS_KEY: &str = "wavehouse.dev/partitions";
/// The key that tells how many shards each has.
pub const SHARDS_KEY: &str = "wavehouse.dev/shards";

/// Everything that must exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// How the file store is shared out.
    pub sizing: Sizing,
    /// The partitions, each with its durables, by number.
    pub partitions: Vec<(StreamConfig, Vec<ConsumerConfig>)>,
    /// The history.
    pub history: StreamConfig,
    /// The dead letters.
    pub dead_letters: StreamConfig,
    /// The lease bucket.
    pub bucket: BucketConfig,
}

/// A key-value bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketConfig {
    /// Its name.
    pub bucket: String,
    /// Values kept of each key.
    pub history: i64,
    /// Where it is kept.
    pub storage: String,
    /// On how many servers.
    pub replicas: u32,
}

impl BucketConfig {
    /// The stream behind it.
    #[must_use]
    pub fn stream(&self) -> StreamConfig {
        StreamConfig {
            name: format!("KV_{}", self.bucket),
            subjects: vec![format!("$KV.{}.>", self.bucket)],
            discard: "new".to_owned(),
            max_msgs_per_subject: self.history,
            max_bytes: -1,
            num_replicas: self.replicas,
            storage: self.storage.clone(),
            deny_delete: true,
            allow_rollup_hdrs: true,
            allow_direct: true,
            ..limits_stream()
        }
    }
}

/// A stream that keeps what it is given, without bounds.
fn limits_stream() -> StreamConfig {
    StreamConfig {
        retention: "limits".to_owned(),
        discard: "old".to_owned(),
        storage: "file".to_owned(),
        max_msgs: -1,
        max_msg_size: -1,
        max_msgs_per_subject: -1,
        ..StreamConfig::default()
    }
}

fn bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Desired {
    /// Works everything out.
    ///
    /// # Errors
    /// [`SizingError`] when the streams do not fit the file store.
    pub fn new(spec: &TopologySpec) -> Result<Self, SizingError> {
        let (input, placement) = (spec.input(), spec.placement());
        let sizing = Sizing::new(input.file_store_bytes, input.partition_bytes, placement.partitions())?;
        let partitions = (0..placement.partitions()).map(PartitionId).map(|partition| {
            let shards = (0..placement.shards()).map(|shard| UnitId { partition, shard: ShardId(shard) });
            (partition_stream(spec, partition, &sizing), shards.map(|unit| durable(spec, unit)).collect())
        });
        let history = StreamConfig {
            name: spec.history_stream(),
            subjects: vec![spec.prefix().history_filter()],
            max_bytes: bytes(sizing.history_bytes),
            max_age: input.history_age.into(),
            num_replicas: input.replicas,
            ..limits_stream()
        };
        let dead_letters = StreamConfig {
            name: spec.dlq_stream(),
            subjects: vec![spec.prefix().dead_letter_filter()],
            max_bytes: bytes(sizing.dead_letter_bytes),
            max_msgs_per_subject: limits::TOPIC_LETTERS_MAX,
            num_replicas: input.replicas,
            ..limits_stream()
        };
        let bucket = BucketConfig {
            bucket: spec.coord_bucket(),
            history: 1,
            storage: "file".to_owned(),
            replicas: input.replicas,
        };
        Ok(Self { sizing, partitions: partitions.collect(), history, dead_letters, bucket })
    }
}

/// The configuration of a partition's stream.
fn partition_stream(spec: &TopologySpec, partition: PartitionId, sizing: &Sizing) -> StreamConfig {
    let (input, placement) = (spec.input(), spec.placement());
    let numbers = [
        (PARTITION_KEY, partition.0),
        (PARTITIONS_KEY, placement.partitions()),
        (SHARDS_KEY, placement.shards()),
    ];
    StreamConfig {
        name: spec.partition_stream(partition),
        subjects: vec![spec.prefix().partition_filter(partition)],
        retention: "workqueue".to_owned(),
        discard: "new".to_owned(),
        discard_new_per_subject: true,
        max_bytes: bytes(sizing.partition_bytes),
        max_msgs_per_subject: limits::TOPIC_MESSAGES_MAX,
        num_replicas: input.replicas,
        duplicate_window: limits::duplicate_window(input.publish_timeout, input.dedupe_lease).into(),
        deny_purge: true,
        deny_delete: true,
        metadata: BTreeMap::from(numbers.map(|(key, number)| (key.to_owned(), number.to_string()))),
        republish: Some(Republish {
            src: spec.prefix().republish_source(partition),
            dest: spec.prefix().history_filter(),
            headers_only: false,
        }),
        ..limits_stream()
    }
}

/// The configuration of a unit's durable.
fn durable(spec: &TopologySpec, unit: UnitId) -> ConsumerConfig {
    ConsumerConfig {
        durable_name: spec.durable(unit.shard),
        deliver_policy: "all".to_owned(),
        ack_policy: "explicit".to_owned(),
        ack_wait: limits::ACK_WAIT.into(),
        max_deliver: -1,
        max_ack_pending: limits::ACK_PENDING_MAX,
        filter_subject: spec.prefix().unit_filter(unit),
        replay_policy: "instant".to_owned(),
        priority_policy: "pinned_client".to_owned(),
        priority_groups: vec![limits::PRIORITY_GROUP.to_owned()],
        priority_timeout: Nanos::from(spec.input().pinned_ttl),
        ..ConsumerConfig::default()
    }
}
