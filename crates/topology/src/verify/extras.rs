//! What older counts left behind: never a reason not to start.

use std::collections::BTreeSet;

use wavehouse_core::PartitionId;

use super::Check;
use crate::rules::{EXTRA_DURABLE, EXTRA_STREAM};

impl Check<'_> {
    pub(super) fn extras(&mut self) {
        let (observed, filter) = (self.observed, self.spec.prefix().ingest_filter());
        let configured = self.holders_of_configured();
        let shards = u32::from(self.spec.placement().shards());
        for stream in observed.holding(&filter) {
            let extra = !configured.contains(stream.name());
            let consumers = stream.consumers.iter();
            let durables: Vec<_> =
                consumers.filter_map(|one| Some((one, self.spec.shard_of(&one.name)?))).collect();
            if extra && durables.is_empty() {
                let object = format!("stream {}", stream.name());
                let messages = stream.info.state.messages;
                let found = format!("beyond the configured partitions, with {messages} messages");
                self.want(false, EXTRA_STREAM, &object, "of a configured partition", found);
            }
            for (consumer, _) in durables.into_iter().filter(|(_, shard)| extra || *shard >= shards) {
                let object = format!("consumer {}/{}", stream.name(), consumer.name);
                let messages = consumer.num_pending.saturating_add(consumer.num_ack_pending);
                let found = format!("beyond the configured counts, with {messages} messages");
                self.want(false, EXTRA_DURABLE, &object, "of a configured shard", found);
            }
        }
    }

    /// The streams that other rules speak of: those that hold a configured partition, alone or with others.
    fn holders_of_configured(&self) -> BTreeSet<String> {
        let probes = (0..self.spec.placement().partitions())
            .map(|partition| self.spec.prefix().partition_probe(PartitionId(partition)));
        let mut holders = BTreeSet::new();
        for probe in probes {
            holders.extend(self.observed.holding(&probe).map(|stream| stream.name().to_owned()));
        }
        holders
    }
}
