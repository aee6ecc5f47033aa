//! The operator's commands that make what is there what it should be, with every setting that is not the default.

use wavehouse_core::Placement;

use crate::duration::format_duration;
use crate::limits;
use crate::size::{FILE_STORE_BYTES, format_size};
use crate::spec::{TopologyInput, TopologySpec};

/// A command under construction.
struct Line(String);

impl Line {
    fn always(mut self, flag: &str, value: &str) -> Self {
        self.0.push_str(&format!(" --{flag} {value}"));
        self
    }

    fn given(self, flag: &str, value: Option<&String>) -> Self {
        match value {
            Some(value) => self.always(flag, value),
            None => self,
        }
    }

    fn unless(self, usual: bool, flag: &str, value: &str) -> Self {
        if usual { self } else { self.always(flag, value) }
    }
}

/// History, bucket and dead letters, where they are not called as usual.
fn names(spec: &TopologySpec) -> [Option<String>; 3] {
    let (usual, input) = (spec.usual_names(), spec.input());
    let other = |name: &Option<String>, usual: String| name.clone().filter(|name| *name != usual);
    [
        other(&input.history_stream, usual.history),
        other(&input.coord_bucket, usual.bucket),
        other(&input.dlq_stream, usual.dlq),
    ]
}

/// The command that writes these manifests again.
#[must_use]
pub fn manifests_command(spec: &TopologySpec) -> String {
    let input = spec.input();
    manifests_line(spec, Some(&input.replicas.to_string()), Some(&format_size(input.file_store_bytes)))
}

/// The same, asked for by a process that knows neither the servers' disks nor their number.
#[must_use]
pub(crate) fn manifests_command_in_general(spec: &TopologySpec) -> String {
    manifests_line(spec, None, None)
}

fn manifests_line(spec: &TopologySpec, replicas: Option<&String>, file_store: Option<&String>) -> String {
    let (input, usual) = (spec.input(), TopologyInput::default());
    let [history, bucket, letters] = names(spec);
    let default_partition =
        input.partition_bytes.is_none_or(|bytes| bytes == input.file_store_bytes / 100 * 15);
    let partition_bytes = format_size(input.partition_bytes.unwrap_or(FILE_STORE_BYTES));
    Line("wavehouse mq manifests".to_owned())
        .always("partitions", &spec.placement().partitions().to_string())
        .always("shards", &spec.placement().shards().to_string())
        .always("prefix", spec.prefix().as_str())
        .given("replicas", replicas)
        .given("file-store", file_store)
        .unless(default_partition, "partition-max-bytes", &partition_bytes)
        .unless(input.ingest_consumer == usual.ingest_consumer, "ingest-consumer", &input.ingest_consumer)
        .given("history-stream", history.as_ref())
        .unless(
            input.publish_timeout == limits::PUBLISH_TIMEOUT,
            "publish-timeout",
            &format_duration(input.publish_timeout),
        )
        .given("coord-bucket", bucket.as_ref())
        .given("dlq-stream", letters.as_ref())
        .unless(
            input.dedupe_lease == limits::DEDUPE_LEASE,
            "dedupe-lease",
            &format_duration(input.dedupe_lease),
        )
        .0
}

/// The command that writes the permissions of the connecting user.
#[must_use]
pub fn permissions_command(spec: &TopologySpec) -> String {
    let (input, usual) = (spec.input(), TopologyInput::default());
    let [history, bucket, letters] = names(spec);
    Line("wavehouse mq permissions".to_owned())
        .always("shards", &spec.placement().shards().to_string())
        .unless(input.prefix == usual.prefix, "prefix", &input.prefix)
        .unless(input.ingest_consumer == usual.ingest_consumer, "ingest-consumer", &input.ingest_consumer)
        .given("history-stream", history.as_ref())
        .given("coord-bucket", bucket.as_ref())
        .given("dlq-stream", letters.as_ref())
        .given("js-domain", input.js_domain.as_ref())
        .0
}

/// How many durables these counts make.
#[must_use]
pub(crate) fn durables(placement: Placement) -> u32 {
    u32::from(placement.partitions()) * u32::from(placement.shards())
}
