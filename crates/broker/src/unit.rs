//! Delivery: the blocks of a unit, handed out in order and settled one by one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use wavehouse_core::{LogId, Position, RowBlock, Sequence, TableRef};

use crate::cut::{Cut, CutError};
use crate::errors::UnitLost;

/// Most rows and bytes of a unit that may be handed out and unsettled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowBudget {
    /// Most rows.
    pub rows: u64,
    /// Most bytes of lines.
    pub bytes: u64,
}

/// A block with its place in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlock {
    /// The log that numbered it.
    pub log: LogId,
    /// Its sequence in its table.
    pub sequence: Sequence,
    /// When it was stored; see [`Position::stored_ms`].
    pub stored_ms: u64,
    /// The rows.
    pub block: RowBlock,
}

impl StoredBlock {
    /// The position of a row of this block.
    #[must_use]
    pub fn position(&self, row: u32) -> Position {
        Position { log: self.log, sequence: self.sequence, row, stored_ms: self.stored_ms }
    }
}

/// An opened unit: what comes out of it, how to steer it, and the cuts that must be honoured first.
pub struct OpenUnit {
    /// The blocks.
    pub deliveries: Box<dyn Deliveries>,
    /// Steering, usable while a call to [`Deliveries::next`] is waiting.
    pub control: Arc<dyn UnitControl>,
    /// Cuts that an earlier opener recorded and whose blocks are not all acked; at most one a table. Their blocks will
    /// be delivered first among their tables.
    pub cuts: Vec<Cut>,
}

/// The blocks of a unit.
#[async_trait]
pub trait Deliveries: Send {
    /// The next block; `None` once the unit is halted and everything fetched has been handed out. Safe to cancel: no
    /// block is lost.
    ///
    /// # Errors
    /// [`UnitLost`], once, when delivery ends on its own; never after a halt.
    async fn next(&mut self) -> Result<Option<Delivery>, UnitLost>;
}

/// Steering of an open unit.
#[async_trait]
pub trait UnitControl: Send + Sync + 'static {
    /// Changes the budget; deliveries already out stay out.
    fn set_budget(&self, budget: RowBudget);

    /// Delivers nothing of `table` before `until`; an earlier moment than before, such as now, lifts a pause.
    fn pause(&self, table: &TableRef, until: Instant);

    /// Stores what is about to be inserted, in place of the table's earlier cut; durable on return, together with every
    /// ack given before.
    ///
    /// # Errors
    /// [`CutError`]; the insert must not be sent then.
    async fn record_cut(&self, cut: Cut) -> Result<(), CutError>;

    /// Whether one of these blocks of `table` was passed over because it cannot be read. Such a block is kept and told, and
    /// never handed out; that it is missing does not mean that it was acked, so a recorded cut with such a block cannot be
    /// honoured.
    fn damaged(&self, table: &TableRef, first: Sequence, last: Sequence) -> bool;

    /// Whether every block of the unit up to `last` that is not acked has been handed out since the unit was opened, so
    /// that a recorded cut that ends there and is not whole lacks blocks that are acked. `None` where
    /// [`depths`](crate::Broker::depths) are exact and tell it.
    async fn passed(&self, table: &TableRef, last: Sequence) -> Option<bool> {
        let _unused = (table, last);
        None
    }

    /// Hands out no new blocks; the unit stays owned.
    fn halt(&self);

    /// The unit may be another process's by now: nothing is handed out any more, and from here on acks are all that is
    /// sent for what is out.
    fn disown(&self) {
        self.halt();
    }

    /// Makes every settle durable and gives the unit up; what is unsettled goes to the next opener.
    async fn release(&self);
}

/// How a delivery ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// ClickHouse or the dead letters have every row.
    Ack,
    /// Deliver it again, not before so long.
    Retry {
        /// How long; zero for at once.
        after: Duration,
    },
}

/// What a broker needs to recognise a delivery when it is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The broker's own number of the table.
    pub table: u32,
    /// The block.
    pub sequence: Sequence,
    /// Which attempt; a settle of an attempt that has been overtaken must not end the later one, except by ack.
    pub attempt: u32,
}

/// Where settles go. Must not block; what it does becomes durable as [`Broker`](crate::Broker) says.
pub trait Settle: Send + Sync {
    /// Ends a delivery.
    fn settle(&self, ticket: Ticket, how: Settlement);
}

/// A block handed out and not yet settled. Dropped unsettled it is retried, never acked.
#[must_use = "a delivery that is dropped is delivered again"]
pub struct Delivery {
    stored: StoredBlock,
    ticket: Ticket,
    settle: Option<Arc<dyn Settle>>,
}

impl Delivery {
    /// For brokers: a delivery whose settling goes to `settle`.
    pub fn new(stored: StoredBlock, ticket: Ticket, settle: Arc<dyn Settle>) -> Self {
        Self { stored, ticket, settle: Some(settle) }
    }

    /// The block and its place.
    #[must_use]
    pub fn stored(&self) -> &StoredBlock {
        &self.stored
    }

    /// The table of the block.
    #[must_use]
    pub fn table(&self) -> &TableRef {
        &self.stored.block.table
    }

    /// The block's sequence in its table.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.stored.sequence
    }

    /// How often the block has been handed out to this opener or, where the broker knows, at all; 1 for the first time.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.ticket.attempt
    }

    /// ClickHouse or the dead letters have every row of the block.
    pub fn ack(mut self) {
        self.end(Settlement::Ack);
    }

    /// Deliver the block again, not before `after`.
    pub fn retry(mut self, after: Duration) {
        self.end(Settlement::Retry { after });
    }

    fn end(&mut self, how: Settlement) {
        if let Some(settle) = self.settle.take() {
            settle.settle(self.ticket, how);
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.end(Settlement::Retry { after: Duration::ZERO });
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("table", self.table())
            .field("sequence", &self.stored.sequence)
            .field("attempt", &self.ticket.attempt)
            .finish_non_exhaustive()
    }
}
