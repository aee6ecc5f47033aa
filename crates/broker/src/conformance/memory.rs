//! A broker in memory that keeps every promise as long as its [`MemoryStore`] lives: the reference for the suite, and a
//! queue for the tests of those who use a broker.
//!
//! All state is behind one lock in the store. A broker and an opener of the unit each carry a number, and whoever's
//! number is no longer the store's current one is dead: that is all that closing, crashing and releasing are.

mod delivery;
mod fixture;
mod history;
mod kept;

use std::collections::HashMap;
use std::future::ready;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use wavehouse_core::{LogId, Position, RowBlock, Sequence, TableRef, TenantId, Timestamp, UnitId};

pub use fixture::MemoryFixture;

use self::delivery::Opened;
use self::kept::Kept;
use crate::contract::{Broker, BrokerHealth, Submitted, SweepReport, TableDepth, TenantLimits};
use crate::errors::{CloseError, HistoryError, LetterError, OpenUnitError, PublishError};
use crate::history::{HistoryFilter, HistoryStart, HistoryStream};
use crate::letter::{DeadLetter, LetterCounts, LetterCursor, LetterFilter, LetterPage};
use crate::unit::{OpenUnit, RowBudget};

/// How a [`MemoryBroker`] behaves.
#[derive(Debug, Clone, Copy)]
pub struct MemoryOptions {
    /// How long a delivery may stay unsettled.
    pub ack_wait: Duration,
    /// Largest encoded block, in bytes.
    pub block_bytes_max: usize,
    /// Neighbouring blocks of one table in one submit are merged up to so many bytes of lines.
    pub merge_bytes: usize,
    /// What a tenant may use until told otherwise.
    pub limits: TenantLimits,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            ack_wait: Duration::from_secs(60),
            block_bytes_max: 16 << 20,
            merge_bytes: 128 << 10,
            limits: TenantLimits { unwritten_bytes_max: 256 << 20, gap_window: Duration::from_secs(3600) },
        }
    }
}

struct State {
    kept: Kept,
    /// The number of the broker that is open.
    broker: u64,
    /// The number of the latest opener of the unit.
    opener: u64,
    open: Option<Opened>,
    /// Openers whose delivery ended on its own and who have not been told.
    lost: HashMap<u64, String>,
    limits: HashMap<TenantId, TenantLimits>,
}

struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if the broker with this number is still the open one.
    fn lock_for(&self, broker: u64) -> Option<MutexGuard<'_, State>> {
        Some(self.lock()).filter(|state| state.broker == broker)
    }

    fn notify(&self) {
        self.changed.send_replace(());
    }
}

/// What outlives a [`MemoryBroker`], as a directory outlives an embedded one.
#[derive(Clone)]
pub struct MemoryStore(Arc<Shared>);

impl Default for MemoryStore {
    fn default() -> Self {
        let log = LogId(RandomState::new().build_hasher().finish());
        let state = State {
            kept: Kept::new(log),
            broker: 0,
            opener: 0,
            open: None,
            lost: HashMap::new(),
            limits: HashMap::new(),
        };
        Self(Arc::new(Shared { state: Mutex::new(state), changed: watch::Sender::new(()) }))
    }
}

impl MemoryStore {
    /// Ends the broker that is open as a crash would: acks that were not made durable are forgotten.
    pub fn crash(&self) {
        let mut state = self.0.lock();
        state.kept.forget_acks();
        state.broker += 1;
        state.open = None;
        drop(state);
        self.0.notify();
    }

    /// Makes a stored block unreadable, as a disk may.
    pub fn damage(&self, table: &TableRef, sequence: Sequence) {
        let mut state = self.0.lock();
        let block = state.kept.tables.get_mut(table).and_then(|table| table.blocks.get_mut(&sequence));
        if let Some(block) = block {
            block.damaged = true;
        }
    }

    /// Ends delivery of the unit as a take-over by another process would.
    pub fn end_delivery(&self) {
        let mut state = self.0.lock();
        if let Some(open) = state.open.take().filter(|open| !open.halted()) {
            state.lost.insert(open.opener, "taken over by another process".to_owned());
        }
        drop(state);
        self.0.notify();
    }
}

/// A broker in memory. See the file's head.
pub struct MemoryBroker {
    shared: Arc<Shared>,
    number: u64,
    options: MemoryOptions,
    health: watch::Sender<BrokerHealth>,
}

impl MemoryBroker {
    /// A broker over a store of its own.
    #[must_use]
    pub fn new(options: MemoryOptions) -> Self {
        Self::open(&MemoryStore::default(), options)
    }

    /// A broker over a store; one that was open on it is dead from now on, as after [`MemoryStore::crash`].
    #[must_use]
    pub fn open(store: &MemoryStore, options: MemoryOptions) -> Self {
        store.crash();
        let mut state = store.0.lock();
        state.broker += 1;
        state.limits.clear();
        let number = state.broker;
        drop(state);
        Self { shared: Arc::clone(&store.0), number, options, health: watch::Sender::new(BrokerHealth::Good) }
    }

    fn kept<T, E>(&self, closed: E, act: impl FnOnce(&mut State) -> Result<T, E>) -> Result<T, E> {
        self.shared.lock_for(self.number).map_or(Err(closed), |mut state| act(&mut state))
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    fn units(&self) -> Vec<UnitId> {
        vec![UnitId::WHOLE]
    }

    fn block_bytes_max(&self) -> usize {
        self.options.block_bytes_max
    }

    fn submit(&self, blocks: Vec<RowBlock>) -> Submitted {
        let count = blocks.len();
        let stored = self.kept((), |state| {
            let State { kept, limits, .. } = state;
            let limit_of = |tenant: &TenantId| *limits.get(tenant).unwrap_or(&self.options.limits);
            Ok(kept.publish(blocks, &self.options, limit_of))
        });
        self.shared.notify();
        Box::pin(ready(stored.unwrap_or_else(|()| vec![Err(PublishError::Closed); count])))
    }

    async fn open_unit(&self, unit: UnitId, budget: RowBudget) -> Result<OpenUnit, OpenUnitError> {
        self.kept(OpenUnitError::Closed, |state| {
            if unit != UnitId::WHOLE {
                return Err(OpenUnitError::Unknown(unit));
            }
            if state.open.is_some() {
                return Err(OpenUnitError::Open(unit));
            }
            state.opener += 1;
            state.open = Some(Opened::new(state.opener, budget, self.options.ack_wait));
            Ok(delivery::open(&self.shared, state.opener, state.kept.open_cuts()))
        })
    }

    async fn open_history(
        &self,
        start: HistoryStart,
        filter: HistoryFilter,
    ) -> Result<Box<dyn HistoryStream>, HistoryError> {
        self.kept(HistoryError::Closed, |state| {
            history::open(&self.shared, self.number, &state.kept, start, filter)
        })
    }

    async fn bury(&self, letters: Vec<DeadLetter>) -> Result<(), LetterError> {
        self.kept(LetterError::Closed, |state| {
            state.kept.bury(letters);
            Ok(())
        })
    }

    async fn letter_counts(&self, tenant: &TenantId) -> Result<LetterCounts, LetterError> {
        self.kept(LetterError::Closed, |state| Ok(state.kept.letter_counts(tenant)))
    }

    async fn letters(
        &self,
        filter: &LetterFilter,
        after: Option<&LetterCursor>,
        limit: usize,
    ) -> Result<LetterPage, LetterError> {
        self.kept(LetterError::Closed, |state| Ok(state.kept.letters(filter, after, limit)))
    }

    async fn drop_letters(&self, table: &TableRef, positions: &[Position]) -> Result<u64, LetterError> {
        self.kept(LetterError::Closed, |state| Ok(state.kept.drop_letters(table, positions)))
    }

    fn set_limits(&self, tenant: &TenantId, limits: TenantLimits) {
        self.shared.lock().limits.insert(tenant.clone(), limits);
    }

    fn limits(&self, tenant: &TenantId) -> TenantLimits {
        *self.shared.lock().limits.get(tenant).unwrap_or(&self.options.limits)
    }

    async fn sweep(&self, now: Timestamp) -> SweepReport {
        let swept = self.kept((), |state| {
            let State { kept, limits, .. } = state;
            let window = |tenant: &TenantId| limits.get(tenant).unwrap_or(&self.options.limits).gap_window;
            Ok(kept.sweep(now, window))
        });
        self.shared.notify();
        swept.unwrap_or_default()
    }

    fn depths(&self) -> Vec<TableDepth> {
        self.kept((), |state| Ok(state.kept.depths())).unwrap_or_default()
    }

    fn health(&self) -> watch::Receiver<BrokerHealth> {
        self.health.subscribe()
    }

    async fn close(&self) -> Result<(), CloseError> {
        let closed = self.kept((), |state| {
            state.kept.keep_acks();
            state.broker += 1;
            state.open = None;
            Ok(())
        });
        // Closing a broker that is closed changes nothing.
        if closed.is_ok() {
            self.shared.notify();
        }
        Ok(())
    }
}
