//! The flags of `wavehouse mq` and what they may be.

use std::time::Duration;

use clap::Args;
use wavehouse_topology::{TopologyInput, parse_duration, parse_size};

/// Names, which all commands share.
#[derive(Debug, Args)]
pub(super) struct NameFlags {
    /// First token of every subject, and the root of the names.
    #[arg(long, default_value = "wh", value_name = "TOKEN")]
    prefix: String,
    /// Durables are called this, a dash, and the shard.
    #[arg(long, default_value = "wh-ingest", value_name = "NAME")]
    ingest_consumer: String,
}

/// Names of single objects.
#[derive(Debug, Args)]
pub(super) struct ObjectFlags {
    /// Name of the history [default: <PREFIX>_HISTORY]
    #[arg(long, default_value = "", hide_default_value = true, value_name = "STREAM")]
    history_stream: String,
    /// Name of the stream of dead letters [default: <PREFIX>_DLQ]
    #[arg(long, default_value = "", hide_default_value = true, value_name = "STREAM")]
    dlq_stream: String,
    /// Lease bucket [default: <prefix>_coord]
    #[arg(long, default_value = "", hide_default_value = true, value_name = "BUCKET")]
    coord_bucket: String,
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(super) struct ManifestsArgs {
    /// Partitions: streams that rows are spread over.
    #[arg(long, default_value = "1", value_name = "N", allow_negative_numbers = true, value_parser = partitions)]
    partitions: i64,
    /// Shards of each partition, at most 256; each is read by one process at a time.
    #[arg(long, default_value = "32", value_name = "V", allow_negative_numbers = true, value_parser = at_least_one)]
    shards: u32,
    #[command(flatten)]
    names: NameFlags,
    /// Replicas of every stream and of the lease bucket.
    #[arg(long, default_value = "3", value_name = "R", allow_negative_numbers = true, value_parser = at_least_one)]
    replicas: u32,
    #[command(flatten)]
    objects: ObjectFlags,
    /// How long a publish waits for its answer (mq.nats.publish_timeout); widens the duplicate window.
    #[arg(long, default_value = "5s", value_name = "DURATION", allow_hyphen_values = true, value_parser = above_zero)]
    publish_timeout: Duration,
    /// How long a claim of a row id lasts (dedupe.lease), 0 for none; widens the duplicate window.
    #[arg(long, default_value = "30s", value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_duration)]
    dedupe_lease: Duration,
    /// File store of each server, which the streams share.
    #[arg(long, default_value = "100Gi", value_name = "SIZE", allow_hyphen_values = true, value_parser = size)]
    file_store: u64,
    /// Size of each partition [default: 15 % of the file store]
    #[arg(long, default_value = "", hide_default_value = true, value_name = "SIZE", allow_hyphen_values = true, value_parser = size_or_none)]
    partition_max_bytes: PartitionBytes,
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(super) struct PermissionsArgs {
    /// Shards of each partition; while a lower count's leftovers drain, the higher one.
    #[arg(long, default_value = "32", value_name = "V", allow_negative_numbers = true, value_parser = at_least_one)]
    shards: u32,
    #[command(flatten)]
    names: NameFlags,
    #[command(flatten)]
    objects: ObjectFlags,
    /// JetStream domain that requests are sent to, if any.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TOKEN")]
    js_domain: String,
    /// As JSON, which servers take in their own configuration: `permissions: { ... }` of a user.
    #[arg(long)]
    pub(super) json: bool,
}

/// A size that may be left out; a type of its own, because clap reads more into an `Option`.
#[derive(Debug, Clone, Copy)]
struct PartitionBytes(Option<u64>);

/// The number of partitions. Zero is wrong usage; below zero is for the library to refuse.
fn partitions(text: &str) -> Result<i64, String> {
    let number = text.parse::<i64>().map_err(|error| error.to_string())?;
    if number == 0 { Err("must be 1 or more".to_owned()) } else { Ok(number) }
}

pub(super) fn at_least_one(text: &str) -> Result<u32, String> {
    let number = text.parse::<i64>().map_err(|error| error.to_string())?;
    u32::try_from(number).ok().filter(|number| *number >= 1).ok_or_else(|| "must be 1 or more".to_owned())
}

pub(super) fn above_zero(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).map_err(|error| error.to_string())?;
    if duration.is_zero() { Err("must be longer than zero".to_owned()) } else { Ok(duration) }
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes == 0 { Err("must be above zero".to_owned()) } else { Ok(bytes) }
}

fn size_or_none(text: &str) -> Result<PartitionBytes, String> {
    let bytes = if text.is_empty() { None } else { Some(size(text)?) };
    Ok(PartitionBytes(bytes))
}

/// An empty name is the usual one.
fn given(name: &str) -> Option<String> {
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

impl NameFlags {
    pub(super) fn input(&self) -> TopologyInput {
        TopologyInput {
            prefix: self.prefix.clone(),
            ingest_consumer: self.ingest_consumer.clone(),
            ..TopologyInput::default()
        }
    }
}

impl ObjectFlags {
    pub(super) fn of(&self, input: TopologyInput) -> TopologyInput {
        TopologyInput {
            history_stream: given(&self.history_stream),
            dlq_stream: given(&self.dlq_stream),
            coord_bucket: given(&self.coord_bucket),
            ..input
        }
    }
}

impl ManifestsArgs {
    pub(super) fn input(&self) -> TopologyInput {
        TopologyInput {
            // Below zero is as far out of bounds as zero.
            partitions: u64::try_from(self.partitions).unwrap_or(0),
            shards: self.shards.into(),
            replicas: self.replicas,
            publish_timeout: self.publish_timeout,
            dedupe_lease: self.dedupe_lease,
            file_store_bytes: self.file_store,
            partition_bytes: self.partition_max_bytes.0,
            ..self.objects.of(self.names.input())
        }
    }
}

impl PermissionsArgs {
    pub(super) fn input(&self) -> TopologyInput {
        TopologyInput {
            shards: self.shards.into(),
            js_domain: given(&self.js_domain),
            ..self.objects.of(self.names.input())
        }
    }
}
