//! One table that floods a partition must not fill it for all others.
//!
//! The servers' bound on messages of a topic counts messages of any size, so a topic of large ones fills a partition long
//! before it. While a partition is over half full, the topics that hold more than their share of it are refused.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wavehouse_broker::PublishError;
use wavehouse_core::{PartitionId, Scope, TableRef, Topic, TopicKey};
use wavehouse_nats::StreamInfo;

use crate::shared::{Partition, Shared, lock};

/// Between two looks at a partition.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A partition is looked into once it is this full: one part in so many.
const FULL_FROM: u64 = 2;
/// A topic's share: one part of the partition's bytes in so many.
const SHARE: u64 = 4;

/// Topics that are refused for now.
#[derive(Default)]
pub(crate) struct Floods {
    refused: Mutex<HashSet<Topic>>,
    /// Partitions that blocks came for since the last look.
    touched: Mutex<HashSet<PartitionId>>,
}

impl Floods {
    /// Whether a topic's blocks are taken.
    pub(crate) fn judge(&self, table: &TableRef, scope: Scope) -> Result<(), PublishError> {
        let refused = lock(&self.refused);
        if refused.is_empty() {
            return Ok(());
        }
        let topic = Topic { table: table.clone(), scope };
        if !refused.contains(&topic) {
            return Ok(());
        }
        let reason = format!("rows of {table} that are not written yet fill a quarter of their partition");
        Err(PublishError::Full { reason })
    }

    /// A block came for a partition.
    pub(crate) fn touch(&self, partition: PartitionId) {
        lock(&self.touched).insert(partition);
    }
}

/// Looks at the partitions that blocks come for, until the queue is closed.
pub(crate) async fn watch(shared: Arc<Shared>, floods: Arc<Floods>) {
    let mut full: Vec<HashSet<Topic>> = vec![HashSet::new(); shared.partitions.len()];
    loop {
        tokio::select! {
            () = shared.closed.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let touched = std::mem::take(&mut *lock(&floods.touched));
        for (partition, refused) in shared.partitions.iter().zip(&mut full) {
            // A partition that is being refused for is looked at until it has room again.
            if touched.contains(&partition.id) || !refused.is_empty() {
                match look(&shared, partition).await {
                    Ok(found) => *refused = found,
                    Err(error) => tracing::debug!(%error, "a partition could not be looked at"),
                }
            }
        }
        *lock(&floods.refused) = full.iter().flatten().cloned().collect();
    }
}

async fn look(shared: &Shared, partition: &Partition) -> Result<HashSet<Topic>, wavehouse_nats::CallError> {
    let info = shared.jetstream.stream_info(&partition.stream).await?;
    if !is_filling(info.state.bytes, partition.bytes_max) {
        return Ok(HashSet::new());
    }
    let filter = shared.spec().prefix().partition_filter(partition.id);
    let info = shared.jetstream.stream_subjects(&partition.stream, &filter).await?;
    let flooding = over_share(&info, partition.bytes_max);
    let topics = flooding.into_iter().filter_map(|subject| match shared.spec().prefix().topic_key(subject) {
        TopicKey::Known(topic) => Some(topic),
        TopicKey::Unknown(_) => None,
    });
    Ok(topics.collect())
}

fn is_filling(bytes: u64, bytes_max: u64) -> bool {
    bytes_max > 0 && bytes > bytes_max / FULL_FROM
}

/// Subjects whose messages, at the mean size, take more than a topic's share.
fn over_share(info: &StreamInfo, bytes_max: u64) -> Vec<&str> {
    let state = &info.state;
    let mean = state.bytes / state.messages.max(1);
    let counts = state.subjects.iter().flatten();
    let over = counts.filter(|(_, count)| count.saturating_mul(mean) > bytes_max / SHARE);
    over.map(|(subject, _)| subject.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_looked_into_from_half_full() {
        for (bytes, bytes_max, filling) in [(50, 100, false), (51, 100, true), (1, 0, false)] {
            assert_eq!(is_filling(bytes, bytes_max), filling, "{bytes} of {bytes_max}");
        }
    }

    #[test]
    fn topics_over_a_quarter_are_told() {
        let info: StreamInfo = serde_json::from_value(serde_json::json!({
            "config": {},
            "state": {"messages": 100, "bytes": 6000, "subjects": {"a": 80, "b": 15, "c": 5}},
        }))
        .unwrap();
        assert_eq!(over_share(&info, 10_000), ["a"]);
        assert_eq!(over_share(&info, 4_000), ["a"]);
        assert_eq!(over_share(&info, 3_000), ["a", "b"]);
    }
}
