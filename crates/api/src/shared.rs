//! What every request of this process works with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderValue;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{Broker, BrokerHealth};
use wavehouse_clickhouse::{Connection, TableInfo};
use wavehouse_core::TenantId;

use crate::auth::Access;
use crate::body::BodyBudget;
use crate::clock::ReceiptClock;
use crate::cors::Cors;
use crate::error::ApiError;
use crate::health::PingMemory;
use crate::live::Hub;
use crate::metrics::Metrics;

/// What is running, for `GET /version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionInfo {
    /// The release.
    pub version: String,
    /// The commit it was built from, if known.
    pub git_commit: String,
    /// When it was built, RFC 3339, if known.
    pub build_time: String,
    /// The compiler.
    pub rust_version: String,
}

impl VersionInfo {
    /// What `GET /version` answers, on every process.
    #[must_use]
    pub fn answer(&self) -> serde_json::Value {
        serde_json::json!({
            "version": self.version,
            "git_commit": self.git_commit,
            "build_time": self.build_time,
            // A key that clients of the reference expect; there is no Go in here.
            "go_version": "",
            "rust_version": self.rust_version,
        })
    }
}

/// Over how many moments the signs of life of quiet streams are spread.
const KEEPALIVE_STEPS: u32 = 64;

/// How the HTTP face behaves.
#[derive(Debug, Clone)]
pub struct ApiOptions {
    /// Who may call what.
    pub access: Access,
    /// Which browsers' pages may read answers.
    pub cors: Cors,
    /// Set in development: only requests whose `Host` is this machine itself, with this port or none, are answered.
    pub loopback_port: Option<u16>,
    /// Where metrics are served on the main listener, if they are.
    pub metrics_path: Option<String>,
    /// Most bytes of request bodies held at once; at least two of the largest bodies.
    pub bodies_in_flight_bytes_max: usize,
    /// How long a stream is quiet before it gets a sign of life; each stream waits between two thirds of it and all of it.
    pub keepalive: Duration,
    /// Whether `/readyz` is 503 while the queue takes no rows: where other processes have the same queue, so that load goes
    /// to one that reaches it.
    pub ready_with_queue: bool,
    /// What is running.
    pub version: VersionInfo,
}

/// What the HTTP face stands on.
pub struct ApiParts {
    /// The queue.
    pub broker: Arc<dyn Broker>,
    /// The ClickHouse of tenant `0`.
    pub connection: Arc<Connection>,
    /// Everything that `GET /metrics` prints.
    pub registry: Arc<Registry>,
    /// Our own metrics, registered in it.
    pub metrics: Metrics,
    /// A random number, different in each process, that request ids begin with.
    pub process_id: u64,
}

pub(crate) struct Shared {
    pub(crate) options: ApiOptions,
    pub(crate) tenant: TenantId,
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) connection: Arc<Connection>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) metrics: Metrics,
    pub(crate) bodies: BodyBudget,
    pub(crate) clock: ReceiptClock,
    pub(crate) ping: PingMemory,
    pub(crate) hub: Arc<Hub>,
    /// Ends every stream.
    pub(crate) stop_streams: CancellationToken,
    streams: AtomicU32,
    unready: AtomicBool,
    stopping: AtomicBool,
    process_id: u64,
    requests: AtomicU64,
}

impl Shared {
    pub(crate) fn new(options: ApiOptions, parts: ApiParts) -> Self {
        let stop_streams = CancellationToken::new();
        let hub = Hub::new(Arc::clone(&parts.broker), parts.metrics.clone(), stop_streams.clone());
        Self {
            bodies: BodyBudget::new(options.bodies_in_flight_bytes_max),
            hub: Arc::new(hub),
            stop_streams,
            streams: AtomicU32::new(0),
            options,
            tenant: TenantId::default(),
            broker: parts.broker,
            connection: parts.connection,
            registry: parts.registry,
            metrics: parts.metrics,
            clock: ReceiptClock::default(),
            ping: PingMemory::default(),
            unready: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            process_id: parts.process_id,
            requests: AtomicU64::new(0),
        }
    }

    /// A table as it was last discovered.
    pub(crate) fn table(&self, name: &str) -> Result<Arc<TableInfo>, ApiError> {
        match self.connection.catalog.table(name) {
            Some(table) => Ok(table),
            None if self.undiscovered().is_some() => Err(ApiError::SchemaNotLoaded),
            None => Err(ApiError::UnknownTable(name.to_owned())),
        }
    }

    /// Why no tables are known yet; none once they were discovered.
    pub(crate) fn undiscovered(&self) -> Option<String> {
        let status = self.connection.catalog.status();
        let status = status.borrow();
        if status.loaded {
            return None;
        }
        let cause = status.last_error.as_ref().map(|error| wavehouse_core::chain(error));
        Some(cause.unwrap_or_else(|| "not tried yet".to_owned()))
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.unready.load(Ordering::Relaxed)
    }

    /// Why the queue takes no rows, where that matters for readiness.
    pub(crate) fn queue_trouble(&self) -> Option<String> {
        if !self.options.ready_with_queue {
            return None;
        }
        match &*self.broker.health().borrow() {
            BrokerHealth::Good => None,
            BrokerHealth::Refusing { reason } | BrokerHealth::Failed { reason } => Some(reason.clone()),
        }
    }

    pub(crate) fn set_unready(&self) {
        self.unready.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.stop_streams.cancel();
    }

    /// The keepalive of the next stream: spread, so that streams which fall silent together do not all speak together.
    pub(crate) fn next_keepalive(&self) -> Duration {
        let nth = self.streams.fetch_add(1, Ordering::Relaxed) % KEEPALIVE_STEPS;
        self.options.keepalive - self.options.keepalive / 3 * nth / KEEPALIVE_STEPS
    }

    /// An id that no other request of this process has, and most likely none of another.
    pub(crate) fn fresh_request_id(&self) -> HeaderValue {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let text = format!("{:016x}-{number:x}", self.process_id);
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("none"))
    }
}
