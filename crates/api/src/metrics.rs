//! What the HTTP face counts.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds of the request-time histogram, in seconds.
const SECONDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// Metrics of the HTTP face.
#[derive(Clone)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    records: Family<OutcomeLabels, Counter>,
    /// Connections that are open.
    pub(crate) connections: Gauge,
    /// Connections refused because too many are open.
    pub(crate) connections_refused: Counter,
    /// Operator keys that did not match.
    pub(crate) operator_key_failures: Counter,
    /// Handlers that panicked.
    pub(crate) panics: Counter,
}

impl Metrics {
    /// Makes the metrics known to `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(SECONDS);
        let metrics = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            records: Family::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            operator_key_failures: Counter::default(),
            panics: Counter::default(),
        };
        registry.register("wavehouse_http_requests", "Requests answered", metrics.requests.clone());
        registry.register(
            "wavehouse_http_request_duration_seconds",
            "Time from a request's head to its answer's",
            metrics.seconds.clone(),
        );
        registry.register("wavehouse_api_records", "Records sent to ingest", metrics.records.clone());
        registry.register("wavehouse_http_connections", "Open connections", metrics.connections.clone());
        registry.register(
            "wavehouse_http_connections_refused",
            "Connections closed at once because too many were open",
            metrics.connections_refused.clone(),
        );
        registry.register(
            "wavehouse_auth_operator_key_failures",
            "Requests with an operator key that does not match",
            metrics.operator_key_failures.clone(),
        );
        registry.register("wavehouse_http_panics", "Handlers that panicked", metrics.panics.clone());
        metrics
    }

    pub(crate) fn request(&self, route: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&RequestLabels { route, status }).inc();
        self.seconds.get_or_create(&RouteLabels { route }).observe(took.as_secs_f64());
    }

    /// Counts a batch of `total` records of which `refused` were not accepted by the checks.
    pub(crate) fn records(&self, total: u64, refused: u64) {
        self.records.get_or_create(&OutcomeLabels { outcome: "accepted" }).inc_by(total - refused);
        if refused > 0 {
            self.records.get_or_create(&OutcomeLabels { outcome: "refused" }).inc_by(refused);
        }
    }
}
