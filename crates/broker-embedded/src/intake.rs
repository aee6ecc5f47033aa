//! What waits for the writer. Order is fixed here: whoever is pushed first is stored first.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use wavehouse_broker::{Cut, PublishError, Receipt};
use wavehouse_core::RowBlock;

use crate::options::PENDING_BYTES_MAX;
use crate::shared::Shared;
use crate::tenant::Tenant;

/// Takes a lock. A panic elsewhere ends the process through the supervisor; until then the data behind the lock is only
/// counters and queues that were changed in whole steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One result.
pub(crate) type Outcome = Result<Receipt, PublishError>;

/// A block that was let in.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Which of its call's blocks it is.
    pub(crate) index: usize,
    pub(crate) block: RowBlock,
    /// Of the encoded block; so much of the tenant's budget is reserved.
    pub(crate) bytes: u64,
    pub(crate) tenant: Arc<Tenant>,
}

/// One call to `submit`.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) blocks: Vec<Waiting>,
    /// One for each block of the call, filled as it becomes known.
    pub(crate) outcomes: Vec<Option<Outcome>>,
    pub(crate) done: oneshot::Sender<Answered>,
}

impl Submission {
    /// Answers one block.
    pub(crate) fn refuse(&mut self, index: usize, error: PublishError) {
        if let Some(outcome) = self.outcomes.get_mut(index) {
            *outcome = Some(Err(error));
        }
    }

    /// What its sender is to hear. The refusals in it are counted.
    pub(crate) fn answered(self, shared: &Shared) -> (oneshot::Sender<Answered>, Answered) {
        let refusals = self.outcomes.iter().filter_map(|outcome| outcome.as_ref()?.as_ref().err());
        refusals.for_each(|error| shared.count_refusal(error));
        (self.done, Answered { outcomes: self.outcomes, _blocks: self.blocks })
    }

    /// Tells the sender, once every block has its answer. A sender that has gone needs none.
    pub(crate) fn send(self, shared: &Shared) {
        let (done, answered) = self.answered(shared);
        let _gone = done.send(answered);
    }
}

/// The answer to a call. The blocks go back with it, so that their memory is freed on the thread that made them: freeing
/// it on the writer's thread makes both wait for the allocator.
#[derive(Debug)]
pub(crate) struct Answered {
    outcomes: Vec<Option<Outcome>>,
    _blocks: Vec<Waiting>,
}

impl Answered {
    pub(crate) fn into_outcomes(self) -> Vec<Outcome> {
        let unanswered = || Err(PublishError::Unknown { reason: "the queue lost the answer".to_owned() });
        self.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(unanswered)).collect()
    }

    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self { outcomes: Vec::new(), _blocks: Vec::new() }
    }
}

/// A block to be stored again, further up.
#[derive(Debug)]
pub(crate) struct MovedBlock {
    pub(crate) table: u32,
    pub(crate) entry: crate::footer::Entry,
    /// The encoded block.
    pub(crate) block: Vec<u8>,
}

/// Why something that is no block could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WriteFault {
    /// No room.
    Full,
    /// The disk failed, or the queue is closed.
    Ended(String),
}

/// Told when it is done.
pub(crate) type Done = oneshot::Sender<Result<(), WriteFault>>;

/// What the writer is asked to do.
#[derive(Debug)]
pub(crate) enum Item {
    /// Store blocks.
    Blocks(Submission),
    /// Record a cut, after all settles so far.
    Cut(Cut, Done),
    /// Make all settles so far durable.
    Flush(Done),
    /// Store blocks again.
    Move(Vec<MovedBlock>, Done),
    /// Seal the active file and go on in a new one.
    Roll(Done),
    /// Make everything durable and end.
    Close(Done),
}

#[derive(Debug, Default)]
struct Pending {
    items: VecDeque<Item>,
    bytes: u64,
    closed: bool,
    sleeping: bool,
    /// Since when settles wait for something to carry them.
    settles_since: Option<Instant>,
}

/// The queue in front of the writer.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    pending: Mutex<Pending>,
    wake: Condvar,
}

impl Intake {
    /// Lets blocks in, up to what may wait. What is refused is answered in the submission; nothing is left to wait for if
    /// all were. Returns the submission then.
    pub(crate) fn push_blocks(&self, mut submission: Submission) -> Option<Submission> {
        let mut pending = lock(&self.pending);
        let (waiting, closed) = (pending.bytes, pending.closed);
        let mut bytes = waiting;
        let outcomes = &mut submission.outcomes;
        submission.blocks.retain(|block| {
            let refusal = if closed {
                PublishError::Closed
            } else if bytes > 0 && bytes + block.bytes > PENDING_BYTES_MAX {
                PublishError::Overrun { pending_bytes: bytes }
            } else {
                bytes += block.bytes;
                return true;
            };
            block.tenant.give_back(block.bytes);
            if let Some(outcome) = outcomes.get_mut(block.index) {
                *outcome = Some(Err(refusal));
            }
            false
        });
        if submission.blocks.is_empty() {
            return Some(submission);
        }
        pending.bytes = bytes;
        self.add(pending, Item::Blocks(submission));
        None
    }

    /// Lets anything else in; gives it back when closed.
    pub(crate) fn push(&self, item: Item) -> Result<(), Item> {
        let mut pending = lock(&self.pending);
        if pending.closed {
            return Err(item);
        }
        pending.closed = matches!(item, Item::Close(_));
        self.add(pending, item);
        Ok(())
    }

    fn add(&self, mut pending: MutexGuard<'_, Pending>, item: Item) {
        pending.items.push_back(item);
        let sleeping = std::mem::take(&mut pending.sleeping);
        drop(pending);
        if sleeping {
            self.wake.notify_one();
        }
    }

    /// There are settles that are not in the log yet.
    pub(crate) fn settled(&self) {
        let mut pending = lock(&self.pending);
        if pending.settles_since.is_none() {
            pending.settles_since = Some(Instant::now());
            if std::mem::take(&mut pending.sleeping) {
                self.wake.notify_one();
            }
        }
    }

    /// The settles are in the log.
    pub(crate) fn settles_saved(&self) {
        lock(&self.pending).settles_since = None;
    }

    /// Nobody takes anything any more: who waits is let go.
    pub(crate) fn shut(&self) {
        let mut pending = lock(&self.pending);
        pending.closed = true;
        pending.items.clear();
    }

    /// Everything that waits, and whether settles have waited for `idle`. Waits for the one or the other.
    pub(crate) fn take(&self, idle: Duration) -> (VecDeque<Item>, bool) {
        let mut pending = lock(&self.pending);
        loop {
            if !pending.items.is_empty() {
                // Whoever is ready to run and about to come gets here first, so that a busy processor does not pay for a
                // sync for each few rows. With idle processors this returns at once.
                drop(pending);
                std::thread::yield_now();
                pending = lock(&self.pending);
                pending.bytes = 0;
                return (std::mem::take(&mut pending.items), false);
            }
            pending.sleeping = true;
            let left = pending.settles_since.map(|since| idle.saturating_sub(since.elapsed()));
            pending = match left {
                Some(Duration::ZERO) => {
                    pending.settles_since = None;
                    return (VecDeque::new(), true);
                }
                Some(left) => self.wake.wait_timeout(pending, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.wake.wait(pending).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
