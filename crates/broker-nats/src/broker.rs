//! The broker itself: where each call goes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinSet;
use wavehouse_broker::{
    Broker, BrokerHealth, CloseError, DeadLetter, HistoryError, HistoryFilter, HistoryStart, HistoryStream,
    LetterCounts, LetterCursor, LetterError, LetterFilter, LetterPage, OpenUnit, OpenUnitError, RowBudget,
    Submitted, SweepReport, TableDepth, TenantLimits, UnitSharing,
};
use wavehouse_core::{Position, RowBlock, TableRef, TenantId, Timestamp, UnitId};
use wavehouse_nats::Link;

use crate::flood::{self, Floods};
use crate::history::History;
use crate::letters::Letters;
use crate::open::{OpenError, open};
use crate::options::Options;
use crate::publish::Publisher;
use crate::record::fence;
use crate::shared::{Shared, lock};
use crate::sharing::{Fence, Sharing};
use crate::topology;
use crate::unit::{Units, UnreadableMessages};

/// What a tenant may use where nobody said otherwise. This queue bounds topics and partitions, not tenants, and its
/// history keeps rows for as long as the stream's age says.
const LIMITS: TenantLimits =
    TenantLimits { unwritten_bytes_max: u64::MAX, gap_window: Duration::from_secs(15 * 60) };
/// Tenants whose limits are kept.
const TENANTS_MAX: usize = 100_000;

/// The queue of many processes, on message servers.
pub struct NatsBroker {
    shared: Arc<Shared>,
    publisher: Publisher,
    history: History,
    letters: Letters,
    sharing: Arc<Sharing>,
    units: Arc<Units>,
    limits: Mutex<HashMap<TenantId, TenantLimits>>,
    health: Arc<watch::Sender<BrokerHealth>>,
    /// They end with the broker.
    _watchers: JoinSet<()>,
}

impl NatsBroker {
    /// Opens the queue: connects, waits for what must be on the servers, and judges it.
    ///
    /// # Errors
    /// [`OpenError`] says what is in the way.
    pub async fn open(options: Options) -> Result<Arc<Self>, OpenError> {
        let shared = open(options).await?;
        let health = Arc::new(watch::Sender::new(BrokerHealth::Good));
        let floods = Arc::new(Floods::default());
        let mut watchers = JoinSet::new();
        watchers.spawn(flood::watch(Arc::clone(&shared), Arc::clone(&floods)));
        watchers.spawn(watch_health(Arc::clone(&shared), Arc::clone(&health)));
        watchers.spawn(topology::watch(Arc::clone(&shared)));
        watchers.spawn(topology::watch_history(Arc::clone(&shared)));
        let publisher = Publisher::new(Arc::clone(&shared), floods);
        let spec = Arc::new(shared.spec().clone());
        let history = History::new(shared.jetstream.clone(), Arc::clone(&spec), shared.closed.clone());
        let letters = Letters::new(shared.jetstream.clone(), spec, shared.topology_ok.clone());
        let sharing = Sharing::new(Arc::clone(&shared), fence_by(Arc::clone(&shared)));
        let units = Units::new(letters.clone());
        Ok(Arc::new(Self {
            shared,
            publisher,
            history,
            letters,
            sharing: Arc::new(sharing),
            units: Arc::new(units),
            limits: Mutex::default(),
            health,
            _watchers: watchers,
        }))
    }

    /// Whether everything that must be on the servers is there, as far as is known.
    #[must_use]
    pub fn topology_ok(&self) -> watch::Receiver<bool> {
        self.shared.topology_ok.subscribe()
    }

    /// Whether a server is connected, as it changes.
    #[must_use]
    pub fn link(&self) -> watch::Receiver<Link> {
        self.shared.connection.link()
    }

    /// How far the history was behind the partitions when last seen, at most half a minute ago; `None` before the first
    /// look.
    #[must_use]
    pub fn history_behind(&self) -> watch::Receiver<Option<Duration>> {
        self.shared.history_behind.subscribe()
    }

    /// How many messages of the units that were open here could not be read.
    #[must_use]
    pub fn unreadable(&self) -> Arc<UnreadableMessages> {
        self.units.unreadable()
    }
}

/// Fences a unit's former owner off by its batch record.
fn fence_by(shared: Arc<Shared>) -> Fence {
    Arc::new(move |unit, log| {
        let shared = Arc::clone(&shared);
        Box::pin(async move { fence(&shared, unit, log).await.map_err(|error| error.to_string()) })
    })
}

#[async_trait]
impl Broker for NatsBroker {
    fn units(&self) -> Vec<UnitId> {
        self.shared.spec().placement().units().collect()
    }

    fn sharing(&self) -> Option<Arc<dyn UnitSharing>> {
        Some(Arc::clone(&self.sharing) as Arc<dyn UnitSharing>)
    }

    fn block_bytes_max(&self) -> usize {
        self.shared.block_bytes_max
    }

    fn submit(&self, blocks: Vec<RowBlock>) -> Submitted {
        self.publisher.submit(blocks)
    }

    async fn open_unit(&self, unit: UnitId, budget: RowBudget) -> Result<OpenUnit, OpenUnitError> {
        self.units.open(&self.shared, unit, budget).await
    }

    async fn open_history(
        &self,
        start: HistoryStart,
        filter: HistoryFilter,
    ) -> Result<Box<dyn HistoryStream>, HistoryError> {
        self.history.open(start, filter).await
    }

    async fn bury(&self, letters: Vec<DeadLetter>) -> Result<(), LetterError> {
        self.letters_open()?.bury(letters).await
    }

    async fn letter_counts(&self, tenant: &TenantId) -> Result<LetterCounts, LetterError> {
        self.letters_open()?.counts(tenant).await
    }

    async fn letters(
        &self,
        filter: &LetterFilter,
        after: Option<&LetterCursor>,
        limit: usize,
    ) -> Result<LetterPage, LetterError> {
        self.letters_open()?.page(filter, after, limit).await
    }

    async fn drop_letters(&self, table: &TableRef, positions: &[Position]) -> Result<u64, LetterError> {
        self.letters_open()?.drop_letters(table, positions).await
    }

    fn set_limits(&self, tenant: &TenantId, limits: TenantLimits) {
        self.shared.gaps.wanted(tenant, limits.gap_window);
        let mut all = lock(&self.limits);
        if all.len() < TENANTS_MAX || all.contains_key(tenant) {
            all.insert(tenant.clone(), limits);
        }
    }

    fn limits(&self, tenant: &TenantId) -> TenantLimits {
        lock(&self.limits).get(tenant).copied().unwrap_or(LIMITS)
    }

    async fn sweep(&self, _now: Timestamp) -> SweepReport {
        // The servers drop what is acked, and what is old in the history.
        SweepReport::default()
    }

    fn depths(&self) -> Vec<TableDepth> {
        // Known to the servers alone; a unit tells by `passed` what a rebuild needs to know.
        Vec::new()
    }

    fn health(&self) -> watch::Receiver<BrokerHealth> {
        self.health.subscribe()
    }

    async fn close(&self) -> Result<(), CloseError> {
        if self.shared.is_closed() {
            return Ok(());
        }
        self.publisher.close().await;
        self.units.close().await;
        self.shared.closed.cancel();
        self.sharing.close();
        self.history.finish().await;
        self.publisher.ended().await;
        self.shared.connection.close().await;
        Ok(())
    }
}

impl NatsBroker {
    fn letters_open(&self) -> Result<&Letters, LetterError> {
        if self.shared.is_closed() { Err(LetterError::Closed) } else { Ok(&self.letters) }
    }
}

/// Tells how the queue is, until it is closed.
async fn watch_health(shared: Arc<Shared>, health: Arc<watch::Sender<BrokerHealth>>) {
    let (mut link, mut topology_ok) = (shared.connection.link(), shared.topology_ok.subscribe());
    loop {
        let reason = match (link.borrow_and_update().connected, *topology_ok.borrow_and_update()) {
            (false, _) => Some("no message server is connected"),
            (true, false) => Some("what must be on the message servers is not there"),
            (true, true) => None,
        };
        let now =
            reason.map_or(BrokerHealth::Good, |reason| BrokerHealth::Refusing { reason: reason.to_owned() });
        health.send_if_modified(|known| std::mem::replace(known, now.clone()) != now);
        tokio::select! {
            () = shared.closed.cancelled() => return,
            _changed = link.changed() => {}
            _changed = topology_ok.changed() => {}
        }
    }
}
