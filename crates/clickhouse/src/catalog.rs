//! The tables of a target's database as last seen. Read whole, swapped whole: a reader holds one [`Snapshot`] and never
//! sees half of a change.

mod discovery;
mod pace;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Mutex, Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wavehouse_rows::{ServerFacts, TableSchema};

use crate::client::Client;
use crate::error::ClickHouseError;
use crate::metrics::ClickHouseMetrics;

/// Time between refreshes where the operator names none.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// A refused insert asks for a refresh at most so often.
const NUDGE_SPACING: Duration = Duration::from_secs(2);

type Refreshed = Result<Arc<Snapshot>, ClickHouseError>;

/// How a catalogue is kept fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogOptions {
    /// Time between refreshes once the first has worked; the first of them comes at a random point of it.
    pub refresh_interval: Duration,
}

impl Default for CatalogOptions {
    fn default() -> Self {
        Self { refresh_interval: REFRESH_INTERVAL }
    }
}

/// One table.
#[derive(Debug, Clone)]
pub struct TableInfo {
    /// Its columns, as rows are checked against them.
    pub schema: TableSchema,
    /// Its engine, such as `MergeTree`.
    pub engine: String,
    /// How many of the latest inserts a partition remembers, so that a repeated one is stored once; 0: none.
    pub dedup_window: u64,
    /// Active data parts, at the last refresh; none for tables without parts, or where `system.parts` may not be read.
    pub active_parts: Option<u64>,
}

/// All tables of the database at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// By name.
    pub tables: BTreeMap<String, Arc<TableInfo>>,
    /// Version and time zone of the server.
    pub server: ServerFacts,
    /// The server's full version, such as `26.7.2.1`.
    pub version: String,
}

/// How discovery goes.
#[derive(Debug, Clone, Default)]
pub struct CatalogStatus {
    /// Whether it ever worked.
    pub loaded: bool,
    /// Why the last try failed; none if it worked or there was none yet.
    pub last_error: Option<ClickHouseError>,
    /// When it last worked.
    pub refreshed_at: Option<Instant>,
}

/// The catalogue of one target. Cheap to clone; clones see the same.
#[derive(Debug, Clone)]
pub struct Catalog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    options: CatalogOptions,
    metrics: ClickHouseMetrics,
    current: RwLock<Option<Arc<Snapshot>>>,
    status: watch::Sender<CatalogStatus>,
    /// How many refreshes have begun.
    begun: AtomicU64,
    /// The refresh that ended last and its result; locked while one is under way.
    flight: Mutex<Option<(u64, Refreshed)>>,
    nudged: Notify,
}

impl Catalog {
    /// An empty catalogue; asks nothing yet.
    #[must_use]
    pub fn new(client: Client, options: CatalogOptions, metrics: ClickHouseMetrics) -> Self {
        let inner = Inner {
            client,
            options,
            metrics,
            current: RwLock::new(None),
            status: watch::Sender::new(CatalogStatus::default()),
            begun: AtomicU64::new(0),
            flight: Mutex::new(None),
            nudged: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The tables as last seen; none before the first success.
    #[must_use]
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.inner.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A table as last seen.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<Arc<TableInfo>> {
        let current = self.inner.current.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().and_then(|snapshot| snapshot.tables.get(name)).cloned()
    }

    /// How discovery goes, now and as it changes.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<CatalogStatus> {
        self.inner.status.subscribe()
    }

    /// Reads the tables anew. Callers that come while it is under way share the next one, which begins after they came,
    /// so that each sees what was true when it asked.
    ///
    /// # Errors
    /// [`ClickHouseError`]; then what was seen before stays.
    pub async fn refresh(&self) -> Result<Arc<Snapshot>, ClickHouseError> {
        let inner = &self.inner;
        let wanted = inner.begun.load(Ordering::SeqCst) + 1;
        let mut flight = inner.flight.lock().await;
        if let Some((number, result)) = flight.as_ref()
            && *number >= wanted
        {
            return result.clone();
        }
        let number = inner.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let result = discovery::discover(&inner.client).await.map(Arc::new);
        self.take_in(&result);
        *flight = Some((number, result.clone()));
        result
    }

    /// Asks for a refresh soon, because something did not fit what is known.
    pub fn nudge(&self) {
        self.inner.nudged.notify_one();
    }

    /// Keeps the catalogue fresh until `stop`: tries with growing waits until the first success, then at intervals and
    /// when nudged.
    pub async fn run(self, stop: CancellationToken) {
        let mut tries = 0;
        loop {
            let loaded = self.inner.status.borrow().loaded;
            let (wait, nudgeable) = match (loaded, tries) {
                (false, 0) => (Duration::ZERO, false),
                (false, failed) => (pace::retry_wait(failed, pace::random()), false),
                (true, 0) => (self.inner.options.refresh_interval.mul_f64(pace::random()), true),
                (true, _) => (self.inner.options.refresh_interval, true),
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.inner.nudged.notified(), if nudgeable => {}
                () = tokio::time::sleep(wait) => {}
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                result = self.refresh() => tries = if loaded == result.is_ok() { tries + 1 } else { 0 },
            }
            if nudgeable {
                // However often it is nudged, the server is not asked more often.
                tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(NUDGE_SPACING) => {} }
            }
        }
    }

    fn take_in(&self, result: &Result<Arc<Snapshot>, ClickHouseError>) {
        let inner = &self.inner;
        inner.metrics.refreshes.inc();
        match result {
            Ok(snapshot) => {
                *inner.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(snapshot));
                let before = inner.status.send_replace(CatalogStatus {
                    loaded: true,
                    last_error: None,
                    refreshed_at: Some(Instant::now()),
                });
                if !before.loaded || before.last_error.is_some() {
                    let (target, tables) = (inner.client.target().name(), snapshot.tables.len());
                    tracing::info!(clickhouse = %target, tables, version = %snapshot.version, "schema read");
                }
            }
            Err(error) => {
                inner.metrics.refresh_failures.inc();
                let text = wavehouse_core::chain(error);
                tracing::warn!(clickhouse = %inner.client.target().name(), error = %text, "schema cannot be read");
                inner.status.send_modify(|status| status.last_error = Some(error.clone()));
            }
        }
    }
}
