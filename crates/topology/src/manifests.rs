//! The objects as resources of nack, JetStream's Kubernetes controller.
//!
//! Every field that is judged is written, since nack's own defaults are not JetStream's (memory storage, one nanosecond of
//! ack wait).

use crate::commands::{durables, manifests_command};
use crate::config::{ConsumerConfig, Nanos, StreamConfig};
use crate::desired::{BucketConfig, Desired, PARTITION_KEY, PARTITIONS_KEY, SHARDS_KEY};
use crate::duration::format_duration;
use crate::size::{SizingError, format_size};
use crate::spec::TopologySpec;
use crate::yaml::{Value, mapping};

const API_VERSION: &str = "jetstream.nats.io/v1beta2";

type Entries = Vec<(&'static str, Value)>;

/// Writes everything that must exist as one YAML stream.
///
/// # Errors
/// [`SizingError`] when the streams do not fit the file store.
pub fn manifests(spec: &TopologySpec) -> Result<String, SizingError> {
    let desired = Desired::new(spec)?;
    let root = resource_root(spec.prefix().as_str());
    let mut documents = Vec::new();
    for (partition, (stream, consumers)) in desired.partitions.iter().enumerate() {
        let name = format!("{root}ingest-{partition}");
        documents.push(document("Stream", &name, stream_spec(stream, true)));
        for (shard, consumer) in consumers.iter().enumerate() {
            documents.push(document(
                "Consumer",
                &format!("{name}-{shard}"),
                consumer_spec(&stream.name, consumer),
            ));
        }
    }
    documents.push(document("Stream", &format!("{root}history"), stream_spec(&desired.history, false)));
    documents.push(document("Stream", &format!("{root}dlq"), stream_spec(&desired.dead_letters, false)));
    documents.push(document("KeyValue", &format!("{root}coord"), bucket_spec(&desired.bucket)));
    Ok(comment(spec, &desired) + &documents.join("---\n"))
}

/// What resources are called before their kind. Kubernetes takes no underscore and no dash in front.
fn resource_root(prefix: &str) -> String {
    let name = prefix.replace('_', "-");
    match name.trim_start_matches('-') {
        "" => String::new(),
        name => format!("{name}-"),
    }
}

fn comment(spec: &TopologySpec, desired: &Desired) -> String {
    let (input, placement, sizing) = (spec.input(), spec.placement(), &desired.sizing);
    let text = format!(
        "WaveHouse's streams, durables and lease bucket on NATS JetStream, as resources of nack
({API_VERSION}).

Ingest partitions (work-queue streams): {}. Shards in each: {}. Durables: {}, named {}-<shard>.
History: {}. Dead letters: {}. Leases: bucket {}.

Generated; do not edit. To write it again:

  {}

Sized for servers with a file store (max_file_store) of {}, of which the streams reserve {}.
The NATS Helm chart sets it from config.jetstream.fileStore.maxSize, else from the size of the volume claim.
The sizes are starting points: change the flags, not this file.

The history keeps rows for {}; that should cover the longest stream.gap_window_minutes of any tenant.

Apply in any order: a partition keeps its rows even while it has no durable. The history is best effort:
what is published while it is missing or full reaches ClickHouse, but not the live streams.",
        placement.partitions(),
        placement.shards(),
        durables(placement),
        input.ingest_consumer,
        spec.history_stream(),
        spec.dlq_stream(),
        spec.coord_bucket(),
        manifests_command(spec),
        format_size(sizing.file_store_bytes),
        format_size(sizing.reserved_bytes),
        format_duration(input.history_age),
    );
    text.lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect()
}

fn document(kind: &str, name: &str, spec: Entries) -> String {
    mapping(&[
        ("apiVersion", Value::text(API_VERSION)),
        ("kind", Value::text(kind)),
        ("metadata", Value::Map(vec![("name", Value::text(name))])),
        ("spec", Value::Map(spec)),
    ])
}

fn duration(nanos: Nanos) -> Value {
    Value::Bare(if nanos.is_unset() { String::new() } else { format_duration(nanos.duration()) })
}

/// JetStream says "no bound" with a number below zero, nack by leaving the key out.
fn bound(number: i64) -> Value {
    Value::Number(number.max(0))
}

/// Keeps the keys that must be there and those that say something.
fn kept(entries: Vec<(bool, &'static str, Value)>) -> Entries {
    let kept = entries.into_iter().filter(|(always, _, value)| *always || !value.is_empty());
    kept.map(|(_, key, value)| (key, value)).collect()
}

fn stream_spec(stream: &StreamConfig, prevent_delete: bool) -> Entries {
    // The map's keys in their order; a manifest has only ours.
    let metadata = [PARTITION_KEY, PARTITIONS_KEY, SHARDS_KEY]
        .into_iter()
        .filter_map(|key| Some((key, Value::text(stream.metadata.get(key)?))));
    let republish = stream.republish.iter().flat_map(|republish| {
        [("source", Value::text(&republish.src)), ("destination", Value::text(&republish.dest))]
    });
    kept(vec![
        (true, "name", Value::text(&stream.name)),
        (false, "subjects", Value::List(stream.subjects.clone())),
        (true, "retention", Value::text(&stream.retention)),
        (true, "discard", Value::text(&stream.discard)),
        (false, "discardPerSubject", Value::Bool(stream.discard_new_per_subject)),
        (true, "maxBytes", Value::Number(stream.max_bytes)),
        (false, "maxAge", duration(stream.max_age)),
        (false, "maxMsgsPerSubject", bound(stream.max_msgs_per_subject)),
        (true, "storage", Value::text(&stream.storage)),
        (true, "replicas", Value::Number(stream.num_replicas.into())),
        (false, "duplicateWindow", duration(stream.duplicate_window)),
        (false, "denyPurge", Value::Bool(stream.deny_purge)),
        (false, "denyDelete", Value::Bool(stream.deny_delete)),
        (false, "metadata", Value::Map(metadata.collect())),
        (false, "preventDelete", Value::Bool(prevent_delete)),
        (false, "republish", Value::Map(republish.collect())),
    ])
}

fn consumer_spec(stream: &str, consumer: &ConsumerConfig) -> Entries {
    kept(vec![
        (true, "streamName", Value::text(stream)),
        (true, "durableName", Value::text(&consumer.durable_name)),
        (true, "deliverPolicy", Value::text(&consumer.deliver_policy)),
        (true, "ackPolicy", Value::text(&consumer.ack_policy)),
        (true, "ackWait", duration(consumer.ack_wait)),
        (true, "maxDeliver", Value::Number(consumer.max_deliver)),
        (true, "maxAckPending", Value::Number(consumer.max_ack_pending)),
        (false, "filterSubject", Value::text(&consumer.filter_subject)),
        (false, "priorityPolicy", Value::text(&consumer.priority_policy)),
        (false, "priorityGroups", Value::List(consumer.priority_groups.clone())),
        (false, "pinnedTtl", duration(consumer.priority_timeout)),
        (false, "preventDelete", Value::Bool(true)),
    ])
}

fn bucket_spec(bucket: &BucketConfig) -> Entries {
    vec![
        ("bucket", Value::text(&bucket.bucket)),
        ("history", Value::Number(bucket.history)),
        ("storage", Value::text(&bucket.storage)),
        ("replicas", Value::Number(bucket.replicas.into())),
    ]
}
