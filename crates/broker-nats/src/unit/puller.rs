//! Pulling: one pull at a time, so that everything comes in order, and never one given up while it may still bring blocks.
//!
//! A pull outlives the link that it was sent over: after a short break the server goes on with it, past what was lost on the
//! way, and ends it as it should. So deliveries are counted by the numbers that the durable gives them. One that does not
//! follow the last is not taken in, nor anything after it: the durable is put back first.
//!
//! A unit that holds all that it may keeps its pin: for a while by taking one block at a time, as a pull that holds a due
//! block back would disorder it; then by pulls that no block fits.

mod end;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use wavehouse_broker::StoredBlock;
use wavehouse_core::{RowBlock, Sequence, Subject, TopicKey, decode_block};
use wavehouse_nats::{CallError, Delivered, PullRequest, PullStatus, Pulled, Puller};
use wavehouse_topology::limits::{PIN_RENEWAL, PRIORITY_GROUP, PULL_MESSAGES_MAX};

use self::end::{End, end_of, follows};
use super::Unit;
use super::shelf::Known;
use super::unreadable::{Burial, Reason};
use crate::letters::table_of;
use crate::shared::lock;

/// How long the server keeps a pull. It bounds how long a halt takes, too.
const EXPIRES: Duration = Duration::from_secs(1);
/// So long after that a pull that has not ended is unanswered.
const GRACE: Duration = Duration::from_secs(2);
/// Wait after an answer that tells nothing good.
const PAUSE: Duration = Duration::from_millis(250);
/// After so many pulls that nobody answered the durable is looked up.
const NOBODY_MAX: u32 = 2;

/// What to do next.
enum Step {
    Pull(u32),
    Renew(String),
    Wait(Option<Instant>),
}

struct Pulling {
    unit: Arc<Unit>,
    puller: Puller,
    /// When the last pull was sent.
    last: Instant,
    /// Rows of the last block.
    block_rows: u64,
    /// Blocks taken past the room, to keep the pin.
    extra: u64,
    nobody: u32,
    /// The durable's number of the last delivery; none when it is not known.
    delivered: Option<u64>,
    /// What the last pull brought that cannot be read.
    burials: Vec<Burial>,
}

/// Pulls until the unit is over. The durable has made so many deliveries since it was put back.
pub(super) async fn run(unit: Arc<Unit>, puller: Puller, delivered: u64) {
    let (last, delivered) = (Instant::now(), Some(delivered));
    let mut pulling =
        Pulling { unit, puller, last, block_rows: 1, extra: 0, nobody: 0, delivered, burials: Vec::new() };
    while !pulling.unit.is_over() {
        match pulling.step() {
            Step::Pull(batch) => pulling.pull(batch).await,
            Step::Renew(pin) => pulling.renew(&pin).await,
            Step::Wait(until) => pulling.wait(until).await,
        }
    }
}

impl Pulling {
    fn step(&mut self) -> Step {
        let room = self.unit.room();
        let halted = lock(&self.unit.inner).halted;
        if !halted && let Some(rows) = room {
            self.extra = 0;
            let most = u64::try_from(PULL_MESSAGES_MAX).unwrap_or(1);
            let batch = (rows / self.block_rows.max(1)).clamp(1, most);
            return Step::Pull(u32::try_from(batch).unwrap_or(1));
        }
        // Without a block there is no pin to keep.
        let Some(pin) = lock(&self.unit.inner).pin.clone() else { return Step::Wait(None) };
        let due = self.last + PIN_RENEWAL;
        if Instant::now() < due {
            return Step::Wait(Some(due));
        }
        let extra_max = (self.unit.ack_wait.as_secs() / PIN_RENEWAL.as_secs()).max(1);
        if halted || self.extra >= extra_max {
            return Step::Renew(pin);
        }
        self.extra += 1;
        Step::Pull(1)
    }

    async fn wait(&self, until: Option<Instant>) {
        let room = self.unit.room.notified();
        tokio::select! {
            () = room => {}
            () = self.unit.shared.closed.cancelled() => {}
            () = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            } => {}
        }
    }

    async fn pull(&mut self, batch: u32) {
        let unit = Arc::clone(&self.unit);
        // Whoever gives the unit up waits until the pull has ended.
        let _pulling = unit.pulling.lock().await;
        // Without a pin nothing but the record tells a former owner that it is one.
        if lock(&unit.inner).pin.is_none() {
            self.lose_if_anothers().await;
        }
        if unit.is_over() || lock(&unit.inner).halted {
            return;
        }
        self.last = Instant::now();
        let end = self.exchange(batch).await;
        unit.bury(self.burials.drain(..)).await;
        self.ended(end).await;
    }

    async fn exchange(&mut self, batch: u32) -> End {
        let request = PullRequest {
            batch,
            expires: EXPIRES,
            max_bytes: Some(self.unit.shared.spec().input().pull_bytes),
            group: Some(PRIORITY_GROUP.to_owned()),
            pin: lock(&self.unit.inner).pin.clone(),
            ..PullRequest::default()
        };
        let number = match self.puller.pull(&request).await {
            Ok(number) => number,
            Err(CallError::Closed { .. }) => return End::Over("the queue is closed".to_owned()),
            Err(error) => return End::Pause(error.to_string()),
        };
        let deadline = Instant::now() + EXPIRES + GRACE;
        let mut left = batch;
        let mut is_whole = true;
        while left > 0 {
            match timeout_at(deadline, self.puller.next()).await {
                Ok(Some(Pulled::Message(message))) => {
                    left -= 1;
                    is_whole = is_whole && follows(&mut self.delivered, message.address.consumer_sequence);
                    if is_whole {
                        self.take_in(message);
                    }
                }
                Ok(Some(Pulled::Status { pull, status })) if pull == number && !status.goes_on() => {
                    return end_of(status).of_a_pull(is_whole);
                }
                Ok(Some(Pulled::Status { .. })) => {}
                Ok(None) => return End::Over("the connection is closed".to_owned()),
                Err(_elapsed) => return End::Unanswered,
            }
        }
        End::Done.of_a_pull(is_whole)
    }

    async fn ended(&mut self, end: End) {
        if !matches!(end, End::Nobody) {
            self.nobody = 0;
        }
        match end {
            End::Done => {}
            End::PinLost => self.pin_lost().await,
            End::Pause(reason) => {
                tracing::debug!(unit = %self.unit.id, %reason, "a pull brought nothing");
                sleep(PAUSE).await;
            }
            End::Nobody => self.nobody().await,
            End::Unanswered => self.recover().await,
            End::Over(reason) => self.unit.lose(&reason),
        }
    }

    /// Nobody answers: an election, or the durable is gone.
    async fn nobody(&mut self) {
        self.nobody += 1;
        if self.nobody >= NOBODY_MAX {
            self.lose_if_gone().await;
        }
        sleep(PAUSE).await;
    }

    async fn lose_if_gone(&self) {
        let (jetstream, place) = (&self.unit.shared.jetstream, &self.unit.place);
        match jetstream.consumer_info(&place.stream, &place.durable).await {
            Err(error) if error.is_gone() => self.unit.lose(&format!("its durable is gone: {error}")),
            Err(error) => tracing::warn!(unit = %self.unit.id, %error, "its durable cannot be looked up"),
            Ok(_there) => {}
        }
    }

    /// The pin lapsed, or another process has taken it. If the unit is this process's all the same, a former owner may
    /// have been sent blocks meanwhile.
    async fn pin_lost(&mut self) {
        lock(&self.unit.inner).pin = None;
        self.recover().await;
    }

    /// Waits until it is known whose the unit is, which the batch record alone tells: a pull of a former owner would take
    /// its successor's pin.
    async fn lose_if_anothers(&self) {
        while !self.unit.is_over() {
            match self.unit.record.is_ours().await {
                Ok(true) => return,
                Ok(false) => self.unit.lose("another process has taken the unit over"),
                Err(error) => {
                    tracing::debug!(unit = %self.unit.id, %error, "batch record cannot be read yet");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Blocks may have been sent that did not come: the durable is put back, so that they come before any later one. What
    /// is here comes again, too, and is known.
    async fn recover(&mut self) {
        tracing::debug!(unit = %self.unit.id, "blocks may be missing, the durable is put back");
        let unit = Arc::clone(&self.unit);
        let (jetstream, place) = (&unit.shared.jetstream, &unit.place);
        loop {
            self.lose_if_anothers().await;
            if self.unit.is_over() {
                return;
            }
            match jetstream.reset(&place.stream, &place.durable).await {
                Ok(()) => {
                    let info = jetstream.consumer_info(&place.stream, &place.durable).await;
                    self.delivered = info.ok().map(|info| info.delivered.consumer_seq);
                    return;
                }
                Err(error) => {
                    tracing::debug!(unit = %self.unit.id, %error, "the durable cannot be put back yet");
                    self.lose_if_gone().await;
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn renew(&mut self, pin: &str) {
        self.last = Instant::now();
        let (jetstream, place) = (&self.unit.shared.jetstream, &self.unit.place);
        match jetstream.renew_pin(&place.stream, &place.durable, PRIORITY_GROUP, pin).await {
            Ok(PullStatus::ConsumerDeleted) => self.unit.lose("its durable was deleted"),
            Ok(PullStatus::PinLost) => self.pin_lost().await,
            Ok(_kept) => {}
            Err(CallError::NoResponders { .. }) => self.lose_if_gone().await,
            Err(error) => tracing::debug!(unit = %self.unit.id, %error, "a renewal was not answered"),
        }
    }

    fn take_in(&mut self, message: Box<Delivered>) {
        let unit = &self.unit;
        let sequence = message.address.stream_sequence;
        let mut inner = lock(&unit.inner);
        if message.pin.is_some() {
            inner.pin.clone_from(&message.pin);
        }
        match inner.shelf.meet(sequence, &message.reply) {
            Known::Held => return,
            Known::Acked => {
                inner.acks.push(sequence);
                drop(inner);
                unit.acked.notify_one();
                return;
            }
            Known::New => {}
        }
        inner.top = inner.top.max(sequence);
        let key = match unit.shared.spec().prefix().parse_subject(&message.subject) {
            Some(Subject::Ingest { key, .. }) => key,
            _ => unit.shared.spec().prefix().topic_key(&message.subject),
        };
        let is_known = matches!(key, TopicKey::Known(_));
        let table = table_of(key);
        let now = Instant::now();
        let block = match decode_block(table.clone(), &message.payload) {
            Ok(block) if is_known => block,
            unreadable => {
                let reason = unreadable.map_or_else(Reason::of, |_| Reason::NoTable);
                inner.shelf.put_damaged(&table, sequence, message.reply.clone(), now);
                drop(inner);
                self.burials.extend(unit.burial_of(table, reason, *message));
                return;
            }
        };
        if block.rows() == 0 {
            inner.shelf.put_acked(sequence, message.reply);
            inner.acks.push(sequence);
            drop(inner);
            unit.acked.notify_one();
            return;
        }
        if inner.shelf.is_behind(&table, sequence) {
            tracing::warn!(unit = %unit.id, sequence, %table, "a block comes after a later one of its table");
        }
        self.block_rows = u64::from(block.rows());
        unit.shared.pool.hold(u64::from(block.rows()), block.lines.len() as u64);
        let stored = stored(unit, &message, block);
        inner.shelf.put(stored, message.reply, now);
        drop(inner);
        unit.changed.notify_one();
    }
}

fn stored(unit: &Unit, message: &Delivered, block: RowBlock) -> StoredBlock {
    StoredBlock {
        log: unit.place.log,
        sequence: Sequence(message.address.stream_sequence),
        stored_ms: message.address.time.as_millis(),
        block,
    }
}

impl Unit {
    /// Rows for which there is room; none when it holds all that it may.
    fn room(&self) -> Option<u64> {
        let inner = lock(&self.inner);
        let (blocks, kept) = inner.shelf.kept();
        let (share, budget) = (self.shared.pool.share(kept.rows, kept.bytes), inner.shelf.budget());
        // A batch that is being brought back needs room for all of it, which the budget has.
        let rows = share.rows.max(budget.rows).saturating_sub(kept.rows);
        let bytes = share.bytes.max(budget.bytes).saturating_sub(kept.bytes);
        if blocks == 0 {
            return Some(rows.max(1));
        }
        (rows > 0 && bytes > 0).then_some(rows)
    }
}
