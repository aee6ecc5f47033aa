//! What this crate counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Bounds of the insert time histogram, in seconds.
const SECONDS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct OutcomeLabel {
    pub(crate) outcome: &'static str,
}

/// Counters of inserts and of catalogue refreshes. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct ClickHouseMetrics {
    pub(crate) inserts: Family<OutcomeLabel, Counter>,
    pub(crate) insert_seconds: Histogram,
    pub(crate) rows: Counter,
    pub(crate) bytes: Counter,
    pub(crate) refreshes: Counter,
    pub(crate) refresh_failures: Counter,
}

impl Default for ClickHouseMetrics {
    fn default() -> Self {
        Self {
            inserts: Family::default(),
            insert_seconds: Histogram::new(SECONDS),
            rows: Counter::default(),
            bytes: Counter::default(),
            refreshes: Counter::default(),
            refresh_failures: Counter::default(),
        }
    }
}

impl ClickHouseMetrics {
    /// Counters that show up in `registry` as `wavehouse_clickhouse_*`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let all = registry.sub_registry_with_prefix("wavehouse_clickhouse");
        all.register("inserts", "Inserts sent, by outcome", metrics.inserts.clone());
        all.register("insert_seconds", "Time an insert takes", metrics.insert_seconds.clone());
        all.register("rows", "Rows inserted", metrics.rows.clone());
        all.register("bytes", "Bytes of rows inserted", metrics.bytes.clone());
        all.register("schema_refreshes", "Catalogue refreshes tried", metrics.refreshes.clone());
        all.register(
            "schema_refresh_failures",
            "Catalogue refreshes failed",
            metrics.refresh_failures.clone(),
        );
        metrics
    }

    /// Counts one of everything, so that a listing has every name and label.
    pub fn count_each(&self) {
        self.inserts.get_or_create(&OutcomeLabel { outcome: "stored" }).inc();
    }
}
