//! What the queue counts, under `wavehouse_queue_*`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// All reasons for which blocks are refused; each is a series from the start, so that the first refusal is seen as one.
const REFUSALS: [&str; 7] =
    ["tenant_full", "disk_full", "overrun", "too_large", "closed", "unavailable", "unknown"];

/// Why blocks were refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusedLabel {
    /// `tenant_full`, `disk_full`, `overrun`, `too_large`, `closed`, `unavailable` or `unknown`.
    pub reason: &'static str,
}

/// The queue's metrics. Cheap to clone; all clones count together.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(crate) fsyncs: Counter,
    pub(crate) fsync_seconds: Histogram,
    pub(crate) commit_blocks: Histogram,
    pub(crate) commit_bytes: Histogram,
    pub(crate) published_rows: Counter,
    pub(crate) published_bytes: Counter,
    pub(crate) refused: Family<RefusedLabel, Counter>,
    pub(crate) disk_bytes: Gauge,
    pub(crate) history_bytes: Gauge,
    pub(crate) moved_bytes: Counter,
    pub(crate) reclaimed_files: Counter,
    pub(crate) damaged_records: Counter,
    pub(crate) history_holes: Counter,
    pub(crate) letters_dropped: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            fsyncs: Counter::default(),
            fsync_seconds: Histogram::new(doubling(20e-6, 18)),
            commit_blocks: Histogram::new(doubling(1.0, 12)),
            commit_bytes: Histogram::new(doubling(256.0, 18)),
            published_rows: Counter::default(),
            published_bytes: Counter::default(),
            refused: Family::default(),
            disk_bytes: Gauge::default(),
            history_bytes: Gauge::default(),
            moved_bytes: Counter::default(),
            reclaimed_files: Counter::default(),
            damaged_records: Counter::default(),
            history_holes: Counter::default(),
            letters_dropped: Counter::default(),
        }
    }
}

impl Metrics {
    /// Makes the metrics and names them in `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let queue = registry.sub_registry_with_prefix("wavehouse_queue");
        queue.register("fsyncs", "Syncs of the log to disk", metrics.fsyncs.clone());
        queue.register("fsync_seconds", "How long a sync of the log took", metrics.fsync_seconds.clone());
        let (blocks, bytes) = (metrics.commit_blocks.clone(), metrics.commit_bytes.clone());
        queue.register("commit_blocks", "Blocks of senders that shared one sync", blocks);
        queue.register("commit_bytes", "Bytes written before one sync", bytes);
        queue.register("published_rows", "Rows stored", metrics.published_rows.clone());
        queue.register("published_bytes", "Bytes of blocks stored", metrics.published_bytes.clone());
        queue.register("refused_blocks", "Blocks refused, by reason", metrics.refused.clone());
        queue.register("disk_bytes", "Disk taken by the log", metrics.disk_bytes.clone());
        let history = metrics.history_bytes.clone();
        queue.register("history_bytes", "Disk taken by log files with only written rows", history);
        let moved = metrics.moved_bytes.clone();
        queue.register("moved_bytes", "Unwritten bytes moved to free the space around them", moved);
        queue.register("reclaimed_files", "Log files given back", metrics.reclaimed_files.clone());
        queue.register(
            "damaged_records",
            "Stored blocks that cannot be read",
            metrics.damaged_records.clone(),
        );
        queue.register("history_holes", "Holes told to readers of history", metrics.history_holes.clone());
        let dropped = metrics.letters_dropped.clone();
        queue.register("letters_dropped", "Dead letters given up for newer ones", dropped);
        for reason in REFUSALS {
            metrics.refused.get_or_create(&RefusedLabel { reason }).inc_by(0);
        }
        metrics
    }

    pub(crate) fn refuse(&self, reason: &'static str) {
        self.refused.get_or_create(&RefusedLabel { reason }).inc();
    }
}

/// Bounds of buckets, each twice the one before.
fn doubling(first: f64, count: u16) -> impl Iterator<Item = f64> {
    (0..i32::from(count)).map(move |n| first * 2_f64.powi(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_documented() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.fsyncs.inc();
        metrics.refuse("disk_full");
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let kept =
            |line: &&str| !line.starts_with('#') && !line.contains("_bucket") && !line.ends_with("\"} 0");
        let lines: Vec<&str> = text.lines().filter(kept).collect();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        wavehouse_queue_fsyncs_total 1
        wavehouse_queue_fsync_seconds_sum 0.0
        wavehouse_queue_fsync_seconds_count 0
        wavehouse_queue_commit_blocks_sum 0.0
        wavehouse_queue_commit_blocks_count 0
        wavehouse_queue_commit_bytes_sum 0.0
        wavehouse_queue_commit_bytes_count 0
        wavehouse_queue_published_rows_total 0
        wavehouse_queue_published_bytes_total 0
        wavehouse_queue_refused_blocks_total{reason="disk_full"} 1
        wavehouse_queue_disk_bytes 0
        wavehouse_queue_history_bytes 0
        wavehouse_queue_moved_bytes_total 0
        wavehouse_queue_reclaimed_files_total 0
        wavehouse_queue_damaged_records_total 0
        wavehouse_queue_history_holes_total 0
        wavehouse_queue_letters_dropped_total 0
        "#);
    }
}
