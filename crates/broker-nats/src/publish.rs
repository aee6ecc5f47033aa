//! Publishing: blocks wait in a lane of their table, travel one message a lane at a time, and are answered one by one.
//!
//! One message in flight a table is what keeps the order when an attempt is lost or refused. What waits meanwhile travels
//! together in the next message, so a busy table needs few messages and an idle one no wait.

mod attempt;
mod lane;
mod verdict;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use wavehouse_broker::{PublishError, Receipt, Submitted};
use wavehouse_core::{Position, RowBlock, Sequence, TableRef};

use self::attempt::{Sealed, publish};
use self::lane::{Waiting, seal};
use crate::flood::Floods;
use crate::shared::{Shared, lock, wall_clock};

/// Longest wait, when closing, for messages that are on their way.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// Takes blocks and gets them stored.
pub(crate) struct Publisher {
    inner: Arc<Inner>,
    lanes: TaskTracker,
    runtime: Handle,
}

struct Inner {
    shared: Arc<Shared>,
    floods: Arc<Floods>,
    intake: Mutex<Intake>,
    /// Messages sealed so far; with the session it makes their ids.
    sealed: AtomicU64,
}

#[derive(Default)]
struct Intake {
    /// Tables that have a message in flight, and what waits behind it.
    lanes: HashMap<TableRef, VecDeque<Waiting>>,
    /// Bytes of blocks that wait or are in flight.
    bytes: u64,
    /// Such blocks.
    blocks: usize,
    closed: bool,
}

impl Publisher {
    pub(crate) fn new(shared: Arc<Shared>, floods: Arc<Floods>) -> Self {
        let inner = Inner { shared, floods, intake: Mutex::default(), sealed: AtomicU64::new(0) };
        Self { inner: Arc::new(inner), lanes: TaskTracker::new(), runtime: Handle::current() }
    }

    /// Takes blocks in; their order is fixed when this returns.
    pub(crate) fn submit(&self, blocks: Vec<RowBlock>) -> Submitted {
        let mut answers = Vec::with_capacity(blocks.len());
        let now = Instant::now();
        let mut intake = lock(&self.inner.intake);
        for block in blocks {
            let (done, answer) = oneshot::channel();
            match self.inner.admit(&intake, &block) {
                Ok(()) => {
                    let waiting = Waiting { bytes: block.encoded_len(), block, since: now, done };
                    self.enter(&mut intake, waiting);
                }
                Err(error) => drop(done.send(Err(error))),
            }
            answers.push(answer);
        }
        drop(intake);
        Box::pin(async move {
            let mut results = Vec::with_capacity(answers.len());
            for answer in answers {
                let lost = || Err(PublishError::Unconfirmed { reason: "its lane has ended".to_owned() });
                results.push(answer.await.unwrap_or_else(|_| lost()));
            }
            results
        })
    }

    fn enter(&self, intake: &mut Intake, waiting: Waiting) {
        intake.bytes += waiting.bytes as u64;
        intake.blocks += 1;
        if let Some(lane) = intake.lanes.get_mut(&waiting.block.table) {
            lane.push_back(waiting);
            return;
        }
        let table = waiting.block.table.clone();
        intake.lanes.insert(table.clone(), VecDeque::from([waiting]));
        self.lanes.spawn_on(run(Arc::clone(&self.inner), table), &self.runtime);
    }

    /// Takes in no more, and waits for what is on its way.
    pub(crate) async fn close(&self) {
        lock(&self.inner.intake).closed = true;
        self.lanes.close();
        let _late = tokio::time::timeout(CLOSE_WAIT, self.lanes.wait()).await;
    }

    /// Waits until nothing is on its way any more; called once the queue is closed.
    pub(crate) async fn ended(&self) {
        self.lanes.wait().await;
    }
}

impl Inner {
    /// What can be said of a block before it waits.
    fn admit(&self, intake: &Intake, block: &RowBlock) -> Result<(), PublishError> {
        let (bytes, bytes_max) = (block.encoded_len(), self.shared.block_bytes_max);
        let options = &self.shared.options;
        if intake.closed {
            return Err(PublishError::Closed);
        }
        if bytes > bytes_max {
            return Err(PublishError::TooLarge { bytes: bytes as u64, bytes_max: bytes_max as u64 });
        }
        let full = intake.bytes + bytes as u64 > options.pending_bytes_max;
        if intake.blocks > 0 && (full || intake.blocks >= options.pending_blocks_max) {
            return Err(PublishError::Overrun { pending_bytes: intake.bytes });
        }
        self.floods.touch(self.shared.spec().placement().unit_for(&block.table).partition);
        self.floods.judge(&block.table, lane::scope_of(block))
    }

    /// The next message of a lane; none ends the lane.
    fn next(&self, table: &TableRef) -> Option<Sealed> {
        let now = Instant::now();
        let mut intake = lock(&self.intake);
        let lane = intake.lanes.get_mut(table)?;
        let (parts, late) = seal(lane, now, self.budget(), self.shared.options.message_bytes_target);
        if parts.is_empty() {
            intake.lanes.remove(table);
        }
        self.let_go(&mut intake, &late);
        drop(intake);
        for waiting in late {
            let reason = "what was before it in its table took all of its time".to_owned();
            waiting.answer(Err(PublishError::Unavailable { reason }));
        }
        let number = self.sealed.fetch_add(1, Ordering::Relaxed);
        (!parts.is_empty()).then(|| Sealed::new(&self.shared, parts, number, now, self.budget()))
    }

    fn let_go(&self, intake: &mut Intake, parts: &[Waiting]) {
        intake.blocks -= parts.len();
        intake.bytes -= parts.iter().map(|waiting| waiting.bytes as u64).sum::<u64>();
    }

    /// How long a block is tried: three attempts and the waits between them.
    fn budget(&self) -> Duration {
        wavehouse_topology::limits::publish_floor(self.shared.options.publish_timeout)
    }
}

/// Sends a lane's messages one after the other until nothing waits.
async fn run(inner: Arc<Inner>, table: TableRef) {
    while let Some(sealed) = inner.next(&table) {
        let sent_ms = wall_clock().as_millis();
        let outcome = publish(&inner.shared, &sealed).await;
        inner.let_go(&mut lock(&inner.intake), &sealed.parts);
        let log = inner.shared.partition(sealed.unit.partition).map(|partition| partition.log);
        let mut row = 0;
        for waiting in sealed.parts {
            let rows = waiting.block.rows();
            let receipt = |sequence| {
                let log = log.unwrap_or(wavehouse_core::LogId(0));
                Receipt { first: Position { log, sequence: Sequence(sequence), row, stored_ms: sent_ms } }
            };
            let result = outcome.clone().map(receipt);
            waiting.answer(result);
            row += rows;
        }
    }
}
