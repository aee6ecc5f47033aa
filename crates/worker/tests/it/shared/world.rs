//! A queue that many processes read, and the processes. Each unit is a queue in memory of its own; what makes it shared is
//! that opening a unit, or taking it over, fences off whoever had it.
//!
//! A process can be frozen: then nothing of it reaches the bucket, the queue or ClickHouse until it is thawed, and nobody
//! answers under its name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;
use wavehouse_broker::conformance::{MemoryBroker, MemoryBucket, MemoryStore};
use wavehouse_broker::{
    Answer, Broker, InsertToken, LeaseBucket, LeaseEntry, LeaseError, Revision, SharingError, TakeOver,
    UnitSharing,
};
use wavehouse_clickhouse::RowBatch;
use wavehouse_core::{Placement, TableRef, UnitId};

use crate::kit::{block, memory};

/// How long a lease counts: by then a process that stood still knows better.
const TERM: Duration = Duration::from_secs(15);

/// Whether somebody may reach the world now.
pub(super) type Gate = watch::Sender<bool>;

pub(super) async fn pass(gate: &Gate) {
    let mut open = gate.subscribe();
    let _sender_lives = open.wait_for(|open| *open).await;
}

/// Who has a unit.
pub(super) struct Unit {
    pub(super) store: MemoryStore,
    pub(super) queue: Arc<MemoryBroker>,
    /// Process and number of the opening.
    pub(super) owner: Option<(usize, u64)>,
    /// When the owner last reached it.
    pub(super) active: Instant,
}

/// What a unit saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    TakenOver(TakeOver, bool),
    Opened,
    Halted,
    Disowned,
    Released,
}

pub(super) struct Inner {
    pub(super) units: BTreeMap<UnitId, Unit>,
    pub(super) openings: u64,
    pub(super) log: Vec<(Instant, usize, UnitId, Seen)>,
    pub(super) gates: BTreeMap<usize, Arc<Gate>>,
    /// Whom the servers know by a session.
    names: HashMap<String, usize>,
    /// Units that do not exist any more.
    pub(super) gone: BTreeSet<UnitId>,
    /// Who believes that it reads a unit.
    pub(super) readers: BTreeMap<UnitId, BTreeSet<usize>>,
    /// Processes that stood still, and until when they may believe what is no longer so; for ever while they stand.
    stood: BTreeMap<usize, Option<Instant>>,
    /// Batches that an owner has recorded, and of which unit.
    pub(super) recorded: HashMap<InsertToken, UnitId>,
    /// Promises that were broken.
    broken: Vec<String>,
}

impl Inner {
    fn stands(&self, process: usize) -> bool {
        self.stood.get(&process).is_some_and(|until| until.is_none_or(|until| Instant::now() < until))
    }

    /// A process opens a unit: nobody else may believe that it reads it, but those who stood still within a term.
    pub(super) fn begins_to_read(&mut self, process: usize, unit: UnitId) {
        let mut readers = self.readers.get(&unit).cloned().unwrap_or_default();
        readers.retain(|reader| *reader == process || !self.stands(*reader));
        for reader in readers {
            self.broken.push(format!("{process} opens {unit} while {reader} reads it"));
        }
        self.readers.entry(unit).or_default().insert(process);
    }

    /// A process begins an insert: of a batch that was recorded, and of a unit that it has not let go of before.
    fn begins_to_insert(&mut self, process: usize, batch: &RowBatch) {
        let token = batch.token.split('-').next().and_then(|token| u128::from_str_radix(token, 16).ok());
        let unit = token.and_then(|token| self.recorded.get(&InsertToken(token)).copied());
        let Some(unit) = unit else {
            self.broken.push(format!("{process} inserts {}, which was never recorded", batch.token));
            return;
        };
        let mine = |seen: &&(Instant, usize, UnitId, Seen)| (seen.1, seen.2) == (process, unit);
        let fenced = self.log.iter().rev().filter(mine).find_map(|(at, .., seen)| match seen {
            Seen::Opened => Some(false),
            Seen::Disowned | Seen::Released => Some(*at < Instant::now()),
            Seen::Halted | Seen::TakenOver(..) => None,
        });
        if fenced != Some(false) {
            self.broken.push(format!("{process} begins to insert rows of {unit} after it was fenced off"));
        }
    }
}

/// The servers.
pub(crate) struct World {
    pub(super) inner: Mutex<Inner>,
    pub(super) bucket: MemoryBucket,
    nudges: watch::Sender<u64>,
    /// Whether processes can be asked.
    pub(crate) askable: bool,
    pub(crate) counts: AtomicU64,
    /// How often a process asked for another.
    pub(crate) asks: AtomicU64,
}

impl World {
    pub(crate) fn new(askable: bool) -> Arc<Self> {
        let inner = Inner {
            units: BTreeMap::new(),
            openings: 0,
            log: Vec::new(),
            gates: BTreeMap::new(),
            names: HashMap::new(),
            gone: BTreeSet::new(),
            readers: BTreeMap::new(),
            stood: BTreeMap::new(),
            recorded: HashMap::new(),
            broken: Vec::new(),
        };
        let (bucket, nudges) = (MemoryBucket::default(), watch::Sender::new(0));
        let (counts, asks) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { inner: Mutex::new(inner), bucket, nudges, askable, counts, asks })
    }

    pub(super) fn queue(&self, unit: UnitId) -> Arc<MemoryBroker> {
        let mut inner = self.inner.lock().unwrap();
        let made = inner.units.entry(unit).or_insert_with(|| {
            let store = MemoryStore::default();
            let queue = Arc::new(MemoryBroker::open(&store, memory()));
            Unit { store, queue, owner: None, active: Instant::now() }
        });
        Arc::clone(&made.queue)
    }

    pub(crate) async fn publish(&self, placement: Placement, table: &TableRef, lines: Vec<String>) {
        let queue = self.queue(placement.unit_for(table));
        for result in queue.submit(vec![block(table, lines)]).await {
            result.unwrap();
        }
    }

    pub(crate) fn unwritten(&self) -> u64 {
        let inner = self.inner.lock().unwrap();
        inner.units.values().flat_map(|unit| unit.queue.depths()).map(|depth| depth.unwritten_rows).sum()
    }

    /// Which process has each unit.
    pub(crate) fn owners(&self) -> BTreeMap<UnitId, usize> {
        let inner = self.inner.lock().unwrap();
        inner.units.iter().filter_map(|(id, unit)| Some((*id, unit.owner?.0))).collect()
    }

    pub(crate) fn log(&self) -> Vec<(Instant, usize, UnitId, Seen)> {
        self.inner.lock().unwrap().log.clone()
    }

    pub(crate) fn remove(&self, unit: UnitId) {
        let mut inner = self.inner.lock().unwrap();
        inner.gone.insert(unit);
        if let Some(unit) = inner.units.get_mut(&unit) {
            unit.owner = None;
            unit.store.end_delivery();
        }
    }

    /// Ends delivery of a unit as a server may.
    pub(crate) fn end_delivery(&self, unit: UnitId) {
        let mut inner = self.inner.lock().unwrap();
        let unit = inner.units.get_mut(&unit).unwrap();
        unit.owner = None;
        unit.store.end_delivery();
    }

    /// From now on the servers believe that the unit is read, whatever its owner does.
    pub(crate) fn keep_active(&self, unit: UnitId) {
        self.inner.lock().unwrap().units.get_mut(&unit).unwrap().active += Duration::from_secs(3600);
    }

    pub(crate) async fn lease(&self, slot: u16) -> Option<LeaseEntry> {
        self.bucket.get(&format!("lease.ingest.m{slot}")).await.unwrap()
    }

    /// The promises that were broken.
    pub(crate) fn broken(&self) -> Vec<String> {
        self.inner.lock().unwrap().broken.clone()
    }

    pub(super) fn note(&self, process: usize, unit: UnitId, seen: Seen) {
        let mut inner = self.inner.lock().unwrap();
        if matches!(seen, Seen::Disowned | Seen::Released) {
            inner.readers.entry(unit).or_default().remove(&process);
        }
        inner.log.push((Instant::now(), process, unit, seen));
    }

    pub(super) fn begins_to_insert(&self, process: usize, batch: &RowBatch) {
        self.inner.lock().unwrap().begins_to_insert(process, batch);
    }

    /// From now on, or up to now, the process stands still.
    pub(super) fn stands(&self, process: usize, still: bool) {
        let until = (!still).then(|| Instant::now() + TERM);
        self.inner.lock().unwrap().stood.insert(process, until);
    }
}

/// One process's hands on everything.
#[derive(Clone)]
pub(super) struct Process {
    pub(super) number: usize,
    pub(super) placement: Placement,
    pub(super) world: Arc<World>,
    pub(super) gate: Arc<Gate>,
    pub(super) bucket: MemoryBucket,
    pub(super) open: Arc<Mutex<BTreeSet<UnitId>>>,
}

impl Process {
    /// The unit, if this opening of it is still the current one.
    pub(super) fn owned<T>(&self, unit: UnitId, opening: u64, act: impl FnOnce(&mut Unit) -> T) -> Option<T> {
        let mut inner = self.world.inner.lock().unwrap();
        let unit = inner.units.get_mut(&unit)?;
        (unit.owner == Some((self.number, opening))).then(|| {
            unit.active = unit.active.max(Instant::now());
            act(unit)
        })
    }
}

#[async_trait]
impl LeaseBucket for Process {
    async fn get(&self, key: &str) -> Result<Option<LeaseEntry>, LeaseError> {
        pass(&self.gate).await;
        self.bucket.get(key).await
    }

    async fn create(&self, key: &str, value: Bytes) -> Result<Revision, LeaseError> {
        pass(&self.gate).await;
        self.bucket.create(key, value).await
    }

    async fn update(&self, key: &str, value: Bytes, last: Revision) -> Result<Revision, LeaseError> {
        pass(&self.gate).await;
        self.bucket.update(key, value, last).await
    }

    async fn delete(&self, key: &str, last: Revision) -> Result<(), LeaseError> {
        pass(&self.gate).await;
        self.bucket.delete(key, last).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>, LeaseError> {
        pass(&self.gate).await;
        self.bucket.list(prefix).await
    }
}

#[async_trait]
impl UnitSharing for Process {
    fn leases(&self) -> Arc<dyn LeaseBucket> {
        Arc::new(self.clone())
    }

    fn placement(&self) -> Placement {
        self.placement
    }

    fn unit_name(&self, unit: UnitId) -> String {
        format!("WH_INGEST_{}/wh-ingest-{}", unit.partition.0, unit.shard.0)
    }

    fn extras(&self) -> Vec<UnitId> {
        let inner = self.world.inner.lock().unwrap();
        inner
            .units
            .keys()
            .copied()
            .filter(|unit| !self.placement.contains(*unit) && !inner.gone.contains(unit))
            .collect()
    }

    async fn refresh_extras(&self) -> Result<(), SharingError> {
        pass(&self.gate).await;
        Ok(())
    }

    async fn take_over(&self, unit: UnitId, how: TakeOver) -> Result<bool, SharingError> {
        pass(&self.gate).await;
        let mut inner = self.world.inner.lock().unwrap();
        if self.open.lock().unwrap().contains(&unit) {
            inner.broken.push(format!("{} takes {unit} over, which it has open", self.number));
        }
        if inner.gone.contains(&unit) {
            return Err(SharingError::Gone { unit });
        }
        let Some(there) = inner.units.get_mut(&unit) else { return Ok(false) };
        let held = there.owner.is_some();
        if held && how == TakeOver::Lapsed && there.active.elapsed() < Duration::from_secs(10) {
            return Err(SharingError::Held { unit });
        }
        there.owner = None;
        there.store.end_delivery();
        inner.log.push((Instant::now(), self.number, unit, Seen::TakenOver(how, held)));
        Ok(held)
    }

    async fn unread(&self, _units: &[UnitId]) -> Result<Vec<UnitId>, SharingError> {
        pass(&self.gate).await;
        self.world.counts.fetch_add(1, Ordering::Relaxed);
        let inner = self.world.inner.lock().unwrap();
        let unread =
            inner.units.iter().filter(|(_, unit)| unit.owner.is_none() && !unit.queue.depths().is_empty());
        Ok(unread.map(|(id, _)| *id).collect())
    }

    async fn answer_as(&self, session: &str) -> Result<bool, SharingError> {
        self.world.inner.lock().unwrap().names.insert(session.to_owned(), self.number);
        Ok(self.world.askable)
    }

    async fn ask(&self, session: &str) -> Answer {
        pass(&self.gate).await;
        self.world.asks.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let inner = self.world.inner.lock().unwrap();
        let gate = inner.names.get(session).and_then(|process| inner.gates.get(process));
        match gate {
            Some(gate) if *gate.borrow() => Answer::Alive,
            _ => Answer::Nobody,
        }
    }

    async fn nudge(&self) {
        pass(&self.gate).await;
        self.world.nudges.send_modify(|count| *count += 1);
    }

    fn nudges(&self) -> watch::Receiver<u64> {
        self.world.nudges.subscribe()
    }
}
