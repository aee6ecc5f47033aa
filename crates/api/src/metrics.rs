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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FrameLabels {
    kind: &'static str,
}

/// What was sent on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Rows as they became durable.
    Event,
    /// Rows from history.
    Replay,
    /// A sign of life.
    Keepalive,
}

impl FrameKind {
    fn label(self) -> FrameLabels {
        let kind = match self {
            Self::Event => "event",
            Self::Replay => "replay",
            Self::Keepalive => "keepalive",
        };
        FrameLabels { kind }
    }
}

/// Upper bounds of the histogram of how long streams last, in seconds.
const STREAM_SECONDS: [f64; 7] = [1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0];

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
    /// Streams that are open.
    pub(crate) streams: Gauge,
    /// How long streams lasted.
    pub(crate) stream_seconds: Histogram,
    /// Streams closed because the client did not keep up.
    pub(crate) streams_lagged: Counter,
    /// Times that rows which were asked for were no longer kept.
    pub(crate) stream_holes: Counter,
    frames: Family<FrameLabels, Counter>,
    frame_bytes: Family<FrameLabels, Counter>,
}

/// Frames of one kind and their bytes, looked up once.
#[derive(Clone)]
pub(crate) struct FrameCounters {
    frames: Counter,
    bytes: Counter,
}

impl FrameCounters {
    pub(crate) fn add(&self, frames: u64, bytes: usize) {
        self.frames.inc_by(frames);
        self.bytes.inc_by(bytes as u64);
    }
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
            streams: Gauge::default(),
            stream_seconds: Histogram::new(STREAM_SECONDS),
            streams_lagged: Counter::default(),
            stream_holes: Counter::default(),
            frames: Family::default(),
            frame_bytes: Family::default(),
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
        metrics.register_streams(registry);
        for outcome in ["accepted", "refused"] {
            metrics.records.get_or_create(&OutcomeLabels { outcome }).inc_by(0);
        }
        for kind in [FrameKind::Event, FrameKind::Replay, FrameKind::Keepalive] {
            metrics.frames(kind);
        }
        metrics
    }

    /// Counts one of everything, so that a listing has every name and label.
    pub fn count_each(&self) {
        self.request("/v1/ingest", 200, Duration::ZERO);
    }

    fn register_streams(&self, registry: &mut Registry) {
        registry.register("wavehouse_sse_active_streams", "Streams that are open", self.streams.clone());
        let help = "How long streams lasted";
        registry.register("wavehouse_sse_stream_duration_seconds", help, self.stream_seconds.clone());
        let help = "Streams closed because the client did not keep up";
        registry.register("wavehouse_sse_lagged", help, self.streams_lagged.clone());
        let help = "Times that rows which were asked for were no longer kept";
        registry.register("wavehouse_sse_holes", help, self.stream_holes.clone());
        registry.register("wavehouse_sse_frames_sent", "Frames sent on streams", self.frames.clone());
        registry.register("wavehouse_sse_bytes_sent", "Bytes sent on streams", self.frame_bytes.clone());
    }

    /// What counts frames of one kind.
    pub(crate) fn frames(&self, kind: FrameKind) -> FrameCounters {
        let label = kind.label();
        FrameCounters {
            frames: self.frames.get_or_create(&label).clone(),
            bytes: self.frame_bytes.get_or_create(&label).clone(),
        }
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
