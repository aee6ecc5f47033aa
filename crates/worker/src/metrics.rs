//! What the worker counts. Labels that a client can make up (table names) are only on what is rare.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use wavehouse_core::TableRef;

const ROWS: [f64; 8] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0, 50_000.0, 100_000.0, 500_000.0];
const BYTES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 8e6, 32e6, 64e6];

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TableLabels {
    tenant: String,
    table: String,
}

/// A table and why.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RetryLabels {
    tenant: String,
    table: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TargetLabels {
    target: String,
}

/// Metrics of the worker.
#[derive(Clone)]
pub struct Metrics {
    pub(crate) batches: Counter,
    pub(crate) batch_rows: Histogram,
    pub(crate) batch_bytes: Histogram,
    pub(crate) inserts_in_flight: Gauge,
    pub(crate) held_rows: Gauge,
    pub(crate) held_bytes: Gauge,
    pub(crate) ready_wait_ms: Gauge,
    pub(crate) rebuilt: Counter,
    retries: Family<RetryLabels, Counter>,
    refusals: Family<TableLabels, Counter>,
    buried: Family<TableLabels, Counter>,
    outage: Family<TargetLabels, Gauge>,
}

impl Metrics {
    /// Makes the metrics known to `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            batches: Counter::default(),
            batch_rows: Histogram::new(ROWS),
            batch_bytes: Histogram::new(BYTES),
            inserts_in_flight: Gauge::default(),
            held_rows: Gauge::default(),
            held_bytes: Gauge::default(),
            ready_wait_ms: Gauge::default(),
            rebuilt: Counter::default(),
            retries: Family::default(),
            refusals: Family::default(),
            buried: Family::default(),
            outage: Family::default(),
        };
        let m = &metrics;
        registry.register("wavehouse_ingest_batches", "Batches stored", m.batches.clone());
        registry.register("wavehouse_ingest_batch_rows", "Rows of a stored batch", m.batch_rows.clone());
        registry.register("wavehouse_ingest_batch_bytes", "Bytes of a stored batch", m.batch_bytes.clone());
        let help = "Inserts in flight";
        registry.register("wavehouse_ingest_inserts_in_flight", help, m.inserts_in_flight.clone());
        registry.register("wavehouse_ingest_held_rows", "Rows in hand, not settled", m.held_rows.clone());
        registry.register("wavehouse_ingest_held_bytes", "Bytes in hand, not settled", m.held_bytes.clone());
        let help = "How long the batch started last had been ready, waiting for its turn";
        registry.register("wavehouse_ingest_ready_wait_milliseconds", help, m.ready_wait_ms.clone());
        let help = "Recorded batches that came back and were inserted again as they were";
        registry.register("wavehouse_ingest_rebuilt_batches", help, m.rebuilt.clone());
        let help = "Batches handed back to the queue to be tried again, by reason";
        registry.register("wavehouse_ingest_retries", help, m.retries.clone());
        registry.register("wavehouse_ingest_refusals", "Inserts refused for their rows", m.refusals.clone());
        registry.register("wavehouse_ingest_buried_rows", "Rows made dead letters", m.buried.clone());
        registry.register("wavehouse_ingest_outage", "1 while a ClickHouse is away", m.outage.clone());
        metrics
    }

    pub(crate) fn retry(&self, table: &TableRef, reason: &'static str) {
        let (tenant, table) = (table.tenant.to_string(), table.table.to_string());
        self.retries.get_or_create(&RetryLabels { tenant, table, reason }).inc();
    }

    pub(crate) fn refusal(&self, table: &TableRef) {
        self.refusals.get_or_create(&labels(table)).inc();
    }

    pub(crate) fn buried(&self, table: &TableRef) {
        self.buried.get_or_create(&labels(table)).inc();
    }

    pub(crate) fn outage(&self, target: &str, on: bool) {
        self.outage.get_or_create(&TargetLabels { target: target.to_owned() }).set(i64::from(on));
    }
}

fn labels(table: &TableRef) -> TableLabels {
    TableLabels { tenant: table.tenant.to_string(), table: table.table.to_string() }
}
