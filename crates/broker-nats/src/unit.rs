//! A unit in this process's hands: opened on its durable, read in order, and given up.
//!
//! Opening takes the batch record first, so that a former owner can begin no further insert. Then the pin is taken from
//! whoever has it and the durable is put back to its ack floor: everything that is not acked comes, in sequence, whoever
//! had it. From then on nothing is ever sent back: what the worker hands back waits on the shelf, and is told to the server
//! to be in hand. So a delivery that comes again only brings a new address.
//!
//! ```text
//!   puller ─► shelf ─► deliveries ─► settles ─► acks, until they are confirmed
//! ```

mod acks;
mod deliveries;
mod puller;
mod shelf;
mod unreadable;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use wavehouse_broker::{Cut, OpenUnit, OpenUnitError, RowBudget};
use wavehouse_core::UnitId;
use wavehouse_nats::{CallError, ConsumerInfo, Settle as Settled};
use wavehouse_topology::limits::{ACK_WAIT, PRIORITY_GROUP};

use self::acks::Acks;
use self::deliveries::{Control, Reader};
use self::shelf::Shelf;
pub use self::unreadable::{UnreadableCount, UnreadableMessages};
use crate::letters::Letters;
use crate::record::{Record, RecordError};
use crate::shared::{Shared, UnitPlace, lock};
use crate::sharing::is_pinned;

/// How long acks may take to be confirmed before a cut is recorded, or a unit is given up.
const FLUSH_WAIT: Duration = Duration::from_secs(5);
/// The same for a unit that may be another's, whose server answers none of them.
const LOST_FLUSH_WAIT: Duration = Duration::from_secs(1);
/// How long the last pull of a unit that is given up may take to end.
const PULL_END_WAIT: Duration = Duration::from_secs(4);
/// How long pulls of a former owner may wait, which the server keeps for a second, and how often that is looked at.
const PULLS_END_WAIT: Duration = Duration::from_millis(1500);
const PULLS_END_LOOK: Duration = Duration::from_millis(100);
/// A held block is told to the server to be in hand so many times in its ack wait.
const TOLD_IN_ACK_WAIT: u32 = 3;

/// The units that are open in this process.
pub(crate) struct Units {
    open: Mutex<HashMap<UnitId, Option<Arc<Unit>>>>,
    /// Where messages go that cannot be read.
    letters: Letters,
    unreadable: Arc<UnreadableMessages>,
}

impl Units {
    pub(crate) fn new(letters: Letters) -> Self {
        Self { open: Mutex::default(), letters, unreadable: Arc::default() }
    }

    /// How many messages could not be read.
    pub(crate) fn unreadable(&self) -> Arc<UnreadableMessages> {
        Arc::clone(&self.unreadable)
    }

    /// Opens a unit.
    ///
    /// # Errors
    /// [`OpenUnitError`].
    pub(crate) async fn open(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        unit: UnitId,
        budget: RowBudget,
    ) -> Result<OpenUnit, OpenUnitError> {
        if shared.is_closed() {
            return Err(OpenUnitError::Closed);
        }
        let place = shared.unit_place(unit).ok_or(OpenUnitError::Unknown(unit))?;
        {
            let mut open = lock(&self.open);
            if open.contains_key(&unit) {
                return Err(OpenUnitError::Open(unit));
            }
            open.insert(unit, None);
        }
        // Given up again if the opening fails, or is dropped.
        let mut slot = Slot { units: Arc::clone(self), unit, kept: false };
        let opened = Unit::open(shared, place, unit, budget, Arc::clone(self)).await;
        let (opened, there) = opened.map_err(|error| error.told(unit))?;
        lock(&self.open).insert(unit, Some(there));
        slot.kept = true;
        Ok(opened)
    }

    /// Gives every unit up.
    pub(crate) async fn close(&self) {
        let open: Vec<Arc<Unit>> = lock(&self.open).values().flatten().cloned().collect();
        join_all(open.iter().map(|unit| unit.release())).await;
    }
}

/// A unit's entry while it is being opened.
struct Slot {
    units: Arc<Units>,
    unit: UnitId,
    kept: bool,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.kept {
            lock(&self.units.open).remove(&self.unit);
        }
    }
}

/// Why a unit could not be opened.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Call(#[from] CallError),
    #[error("{0}")]
    Record(#[from] RecordError),
}

impl Refusal {
    fn told(&self, unit: UnitId) -> OpenUnitError {
        match self {
            Self::Call(error) if error.is_gone() => OpenUnitError::Unknown(unit),
            Self::Call(CallError::Closed { .. }) => OpenUnitError::Closed,
            other => OpenUnitError::Unavailable { unit, reason: other.to_string() },
        }
    }
}

struct Inner {
    shelf: Shelf,
    acks: Acks,
    /// Nothing more is handed out.
    halted: bool,
    /// Nothing more is sent but acks.
    disowned: bool,
    /// It is given up.
    released: bool,
    /// Why delivery ended by itself.
    lost: Option<String>,
    /// The highest sequence that has come, or is known to be acked with all below.
    top: u64,
    /// The mark of the last pin, once something came.
    pin: Option<String>,
}

/// A unit that is open.
struct Unit {
    id: UnitId,
    shared: Arc<Shared>,
    place: UnitPlace,
    record: Record,
    ack_wait: Duration,
    inner: Mutex<Inner>,
    /// There is an ack to send.
    acked: Notify,
    /// An ack was confirmed.
    confirmed: Notify,
    /// Something may be handed out, or delivery has ended.
    changed: Notify,
    /// There may be room, or pulling is to end.
    room: Notify,
    /// The puller, the acks, and what tells the server.
    tasks: Mutex<JoinSet<()>>,
    /// Ends the pulling, and waits until it has ended.
    pulling: tokio::sync::Mutex<()>,
    units: Arc<Units>,
}

impl Unit {
    async fn open(
        shared: &Arc<Shared>,
        place: UnitPlace,
        id: UnitId,
        budget: RowBudget,
        units: Arc<Units>,
    ) -> Result<(OpenUnit, Arc<Self>), Refusal> {
        let jetstream = &shared.jetstream;
        // A durable that does not exist needs no record.
        jetstream.consumer_info(&place.stream, &place.durable).await?;
        let (record, cuts) = Record::take_over(shared, id, place.log).await?;
        let info = take_durable(shared, &place).await?;
        let floor = info.ack_floor.stream_seq;
        record.forget(|cut| cut.last.0 <= floor);
        let cuts: Vec<Cut> = cuts.into_iter().filter(|cut| cut.last.0 > floor).collect();
        let ack_wait = shared.options.ack_wait.unwrap_or_else(|| durable_wait(&info));
        let inner = Inner {
            shelf: Shelf::new(budget, ack_wait),
            acks: Acks::default(),
            halted: false,
            disowned: false,
            released: false,
            lost: None,
            top: floor,
            pin: None,
        };
        let puller = jetstream.puller(&place.stream, &place.durable).await?;
        let inbox = shared.connection.new_inbox();
        let confirmed = shared.connection.subscribe(&format!("{inbox}.*")).await?;
        let unit = Arc::new(Self {
            id,
            shared: Arc::clone(shared),
            place,
            record,
            ack_wait,
            inner: Mutex::new(inner),
            acked: Notify::new(),
            confirmed: Notify::new(),
            changed: Notify::new(),
            room: Notify::new(),
            tasks: Mutex::default(),
            pulling: tokio::sync::Mutex::new(()),
            units,
        });
        let mut tasks = lock(&unit.tasks);
        tasks.spawn(acks::run(Arc::clone(&unit), inbox, confirmed));
        tasks.spawn(puller::run(Arc::clone(&unit), puller, info.delivered.consumer_seq));
        tasks.spawn(tell(Arc::clone(&unit)));
        drop(tasks);
        let opened = OpenUnit {
            deliveries: Box::new(Reader { unit: Arc::clone(&unit), told: false }),
            control: Arc::new(Control { unit: Arc::clone(&unit) }),
            cuts,
        };
        Ok((opened, unit))
    }

    /// Whether it is not this process's any more, or is about to be given up.
    fn is_over(&self) -> bool {
        let inner = lock(&self.inner);
        inner.released || inner.disowned || inner.lost.is_some() || self.shared.is_closed()
    }

    /// Delivery ends by itself.
    fn lose(&self, reason: &str) {
        let mut inner = lock(&self.inner);
        inner.disowned = true;
        let is_news = inner.lost.is_none() && !inner.released;
        if is_news {
            inner.lost = Some(reason.to_owned());
        }
        drop(inner);
        self.wake();
    }

    fn halt(&self) {
        lock(&self.inner).halted = true;
        self.wake();
    }

    fn wake(&self) {
        self.changed.notify_one();
        self.room.notify_one();
    }

    /// Leaves cuts out of the record whose blocks are all acked, and gives back the record's version.
    fn forget_done_cuts(&self) -> u64 {
        let inner = lock(&self.inner);
        let (top, shelf) = (inner.top, &inner.shelf);
        self.record.forget(|cut| cut.last.0 <= top && shelf.is_acked(&cut.table, cut.first.0, cut.last.0))
    }

    /// Whether everything up to a sequence has come that is not acked.
    async fn has_come_to(&self, last: u64) -> bool {
        if lock(&self.inner).top >= last {
            return true;
        }
        let info = self.shared.jetstream.consumer_info(&self.place.stream, &self.place.durable).await;
        let Ok(info) = info else { return false };
        let top = lock(&self.inner).top;
        info.num_pending == 0 && (info.num_ack_pending == 0 || top >= info.delivered.stream_seq)
    }

    /// Gives the unit up: the last pull ends, acks are confirmed, the record forgets what is done, the pin is given back.
    /// Again it does nothing.
    async fn release(self: &Arc<Self>) {
        self.halt();
        // One at a time; the second finds it done.
        let pulling = timeout(PULL_END_WAIT, self.pulling.lock()).await;
        if lock(&self.inner).released {
            return;
        }
        let wait = if self.is_over() { LOST_FLUSH_WAIT } else { FLUSH_WAIT };
        if self.flush_acks(wait).await {
            let version = self.forget_done_cuts();
            if !self.is_over() {
                let flushed = self.record.flush(version).await;
                if let Err(error) = flushed {
                    tracing::debug!(unit = %self.id, %error, "batch record keeps cuts that are done");
                }
            }
        } else {
            tracing::warn!(unit = %self.id, "acks are not confirmed, their rows may come again");
        }
        if !self.is_over() {
            self.unpin().await;
        }
        self.ended();
        drop(pulling);
    }

    /// Gives the pin back, if it is this process's.
    async fn unpin(&self) {
        let Some(pin) = lock(&self.inner).pin.clone() else { return };
        let (jetstream, place) = (&self.shared.jetstream, &self.place);
        let given = async {
            let info = jetstream.consumer_info(&place.stream, &place.durable).await?;
            if info.priority_groups.iter().any(|group| group.pinned_client_id == pin) {
                jetstream.unpin(&place.stream, &place.durable, PRIORITY_GROUP).await?;
            }
            Ok::<(), CallError>(())
        };
        if let Err(error) = given.await {
            tracing::debug!(unit = %self.id, %error, "the pin is left to lapse");
        }
    }

    fn ended(&self) {
        let mut inner = lock(&self.inner);
        inner.released = true;
        let left = inner.shelf.kept().1;
        drop(inner);
        self.shared.pool.let_go(left.rows, left.bytes);
        lock(&self.tasks).abort_all();
        lock(&self.units.open).remove(&self.id);
        self.wake();
    }
}

/// Takes the pin from whoever has it, waits until no pull of a former owner waits any more, and puts the durable back to
/// its ack floor. A former owner reads the record before it pulls, so it pulls no more; but one of its pulls may be out,
/// and could take the pin and blocks along.
async fn take_durable(shared: &Shared, place: &UnitPlace) -> Result<ConsumerInfo, CallError> {
    let (jetstream, stream, durable) = (&shared.jetstream, &place.stream, &place.durable);
    let until = Instant::now() + PULLS_END_WAIT;
    let mut info = jetstream.consumer_info(stream, durable).await?;
    if is_pinned(&info) {
        jetstream.unpin(stream, durable, PRIORITY_GROUP).await?;
        info = jetstream.consumer_info(stream, durable).await?;
    }
    while info.num_waiting > 0 && Instant::now() < until {
        sleep(PULLS_END_LOOK).await;
        info = jetstream.consumer_info(stream, durable).await?;
    }
    if is_pinned(&info) {
        jetstream.unpin(stream, durable, PRIORITY_GROUP).await?;
    }
    if info.num_ack_pending > 0 {
        jetstream.reset(stream, durable).await?;
        info = jetstream.consumer_info(stream, durable).await?;
    }
    Ok(info)
}

fn durable_wait(info: &ConsumerInfo) -> Duration {
    let told = info.config.get("ack_wait").and_then(serde_json::Value::as_u64).filter(|wait| *wait > 0);
    told.map_or(ACK_WAIT, Duration::from_nanos)
}

/// Tells the server what is still in hand, so that it delivers nothing a second time.
async fn tell(unit: Arc<Unit>) {
    let every = unit.ack_wait / TOLD_IN_ACK_WAIT;
    loop {
        sleep(every / 2).await;
        if unit.is_over() {
            return;
        }
        let untold = lock(&unit.inner).shelf.untold(Instant::now(), every);
        for reply in untold {
            if let Err(error) = unit.shared.connection.settle(&reply, Settled::InProgress).await {
                tracing::debug!(unit = %unit.id, %error, "the server is not told what is in hand");
                break;
            }
        }
    }
}
