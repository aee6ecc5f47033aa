//! What the worker counts: `wavehouse_ingest_*`. Ten thousand tables must not become tens of thousands of series: the first
//! tables that are written have series of their own, all others stand together.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use wavehouse_core::TableRef;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct TableLabels {
    tenant: String,
    table: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct RetryLabels {
    tenant: String,
    table: String,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct TargetLabels {
    target: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct EventLabels {
    event: &'static str,
}

/// A gauge that has no series until it is set, and none after it is cleared.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct NoLabels {}

/// Tables that have series of their own.
const TABLES_NAMED_MAX: usize = 200;
/// What can happen to a shard.
const SHARD_EVENTS: [&str; 6] = ["taken", "released", "reset", "handover_timeout", "lost", "bind_failed"];
/// The name under which the rest stands.
const OTHER: &str = "other";

/// Counters and gauges of the worker. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct WorkerMetrics {
    inserts: Family<TableLabels, Counter>,
    rows: Family<TableLabels, Counter>,
    pub(crate) batch_rows: Histogram,
    pub(crate) batch_bytes: Histogram,
    in_flight: Family<TargetLabels, Gauge>,
    retries: Family<RetryLabels, Counter>,
    refusals: Family<TableLabels, Counter>,
    buried: Family<TableLabels, Counter>,
    pub(crate) held_rows: Gauge,
    pub(crate) held_bytes: Gauge,
    stretch: Family<TargetLabels, Gauge>,
    outage: Family<TargetLabels, Gauge>,
    slowed: Family<TableLabels, Gauge>,
    shards_owned: Family<NoLabels, Gauge>,
    shard_members: Family<NoLabels, Gauge>,
    shards_unowned: Family<NoLabels, Gauge>,
    shard_events: Family<EventLabels, Counter>,
    shard_handover: Histogram,
    named: Arc<Mutex<HashSet<TableRef>>>,
}

impl Default for WorkerMetrics {
    fn default() -> Self {
        Self {
            inserts: Family::default(),
            rows: Family::default(),
            batch_rows: Histogram::new(exponential_buckets(1.0, 10.0, 7)),
            batch_bytes: Histogram::new(exponential_buckets(128.0, 8.0, 8)),
            in_flight: Family::default(),
            retries: Family::default(),
            refusals: Family::default(),
            buried: Family::default(),
            held_rows: Gauge::default(),
            held_bytes: Gauge::default(),
            stretch: Family::default(),
            outage: Family::default(),
            slowed: Family::default(),
            shards_owned: Family::default(),
            shard_members: Family::default(),
            shards_unowned: Family::default(),
            shard_events: Family::default(),
            shard_handover: Histogram::new(exponential_buckets(0.01, 3.0, 9)),
            named: Arc::default(),
        }
    }
}

fn target_labels(target: &Arc<str>) -> TargetLabels {
    TargetLabels { target: target.to_string() }
}

impl WorkerMetrics {
    /// Counters that show up in `registry` as `wavehouse_ingest_*`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let all = registry.sub_registry_with_prefix("wavehouse_ingest");
        all.register("batches", "Batches, or parts of them, written to ClickHouse", metrics.inserts.clone());
        all.register("rows", "Rows written to ClickHouse", metrics.rows.clone());
        all.register("batch_rows", "Rows of a batch", metrics.batch_rows.clone());
        all.register("batch_bytes", "Bytes of a batch", metrics.batch_bytes.clone());
        all.register("inserts_in_flight", "Batches being inserted, by ClickHouse", metrics.in_flight.clone());
        all.register("retries", "Batches put off, by table and reason", metrics.retries.clone());
        all.register("refusals", "Inserts refused because of a row", metrics.refusals.clone());
        all.register("buried_rows", "Rows that became dead letters", metrics.buried.clone());
        all.register("held_rows", "Rows in hand, not yet written", metrics.held_rows.clone());
        all.register("held_bytes", "Bytes in hand, not yet written", metrics.held_bytes.clone());
        all.register(
            "linger_stretch_ms",
            "How long the table that inserts next has waited for its turn after it was ready",
            metrics.stretch.clone(),
        );
        all.register("outage", "1 while a ClickHouse takes no inserts", metrics.outage.clone());
        all.register("table_slowed", "1 while a table is tried only now and then", metrics.slowed.clone());
        metrics.register_shards(all);
        metrics
    }

    /// What only a queue that many processes read has something to show for.
    fn register_shards(&self, all: &mut Registry) {
        all.register(
            "rows_held",
            "Rows delivered and not yet settled, over all shards",
            self.held_rows.clone(),
        );
        all.register("shards_owned", "Shards that this process reads", self.shards_owned.clone());
        all.register(
            "shard_members",
            "Processes that share the shards, as this one last counted them",
            self.shard_members.clone(),
        );
        all.register(
            "shards_unowned",
            "Shards with rows that nobody reads; told by one process, above 0 for a minute is an alarm",
            self.shards_unowned.clone(),
        );
        all.register(
            "shard_events",
            "Shards taken, released, reset, lost, handed over too late, or not opened",
            self.shard_events.clone(),
        );
        all.register(
            "shard_handover_seconds",
            "Time from the decision to give a shard up until it is released",
            self.shard_handover.clone(),
        );
    }

    /// Counts one of everything, so that a listing has every name and label.
    pub fn count_each(&self, table: &TableRef) {
        let target: Arc<str> = "clickhouse".into();
        self.stored(table, 1);
        self.retried(table, "outage");
        self.refused(table);
        self.buried(table);
        self.slowed(table, 1);
        self.in_flight(&target, 1);
        self.stretch(&target, std::time::Duration::ZERO);
        self.outage(&target, 1);
        self.shards_owned(0);
        self.shard_members(0);
        self.shards_unowned(Some(0));
        for event in SHARD_EVENTS {
            self.shard_event(event);
        }
        self.handover(std::time::Duration::ZERO);
    }

    /// So many more shards are read by this process.
    pub(crate) fn shards_owned(&self, more: i64) {
        self.shards_owned.get_or_create(&NoLabels {}).inc_by(more);
    }

    pub(crate) fn shard_members(&self, count: usize) {
        self.shard_members.get_or_create(&NoLabels {}).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// `None` when another process tells.
    pub(crate) fn shards_unowned(&self, count: Option<usize>) {
        match count {
            Some(count) => {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                self.shards_unowned.get_or_create(&NoLabels {}).set(count);
            }
            None => self.shards_unowned.clear(),
        }
    }

    pub(crate) fn shard_event(&self, event: &'static str) {
        self.shard_events.get_or_create(&EventLabels { event }).inc();
    }

    pub(crate) fn handover(&self, lasted: std::time::Duration) {
        self.shard_handover.observe(lasted.as_secs_f64());
    }

    fn table_labels(&self, table: &TableRef) -> TableLabels {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if !named.contains(table) {
            if named.len() >= TABLES_NAMED_MAX {
                return TableLabels { tenant: OTHER.to_owned(), table: OTHER.to_owned() };
            }
            named.insert(table.clone());
        }
        TableLabels { tenant: table.tenant.to_string(), table: table.table.to_string() }
    }

    pub(crate) fn stored(&self, table: &TableRef, rows: u32) {
        let labels = self.table_labels(table);
        self.inserts.get_or_create(&labels).inc();
        self.rows.get_or_create(&labels).inc_by(u64::from(rows));
    }

    pub(crate) fn retried(&self, table: &TableRef, reason: &'static str) {
        let TableLabels { tenant, table } = self.table_labels(table);
        self.retries.get_or_create(&RetryLabels { tenant, table, reason }).inc();
    }

    pub(crate) fn refused(&self, table: &TableRef) {
        self.refusals.get_or_create(&self.table_labels(table)).inc();
    }

    pub(crate) fn buried(&self, table: &TableRef) {
        self.buried.get_or_create(&self.table_labels(table)).inc();
    }

    pub(crate) fn in_flight(&self, target: &Arc<str>, count: usize) {
        self.in_flight.get_or_create(&target_labels(target)).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn stretch(&self, target: &Arc<str>, waited: std::time::Duration) {
        let ms = i64::try_from(waited.as_millis()).unwrap_or(i64::MAX);
        self.stretch.get_or_create(&target_labels(target)).set(ms);
    }

    pub(crate) fn outage(&self, target: &Arc<str>, on: i64) {
        self.outage.get_or_create(&target_labels(target)).set(on);
    }

    pub(crate) fn slowed(&self, table: &TableRef, on: i64) {
        self.slowed.get_or_create(&self.table_labels(table)).set(on);
    }
}

#[cfg(test)]
mod tests {
    use wavehouse_core::{TableName, TenantId};

    use super::*;

    #[test]
    fn series_of_tables_are_bounded() {
        let metrics = WorkerMetrics::default();
        let table =
            |n: usize| TableRef::new(TenantId::default(), TableName::parse(&format!("t{n}")).unwrap());
        let label = |n| metrics.table_labels(&table(n)).table;
        for n in 0..TABLES_NAMED_MAX {
            assert_eq!(label(n), format!("t{n}"));
        }
        assert_eq!(label(TABLES_NAMED_MAX), OTHER);
        assert_eq!(label(0), "t0");
    }
}
