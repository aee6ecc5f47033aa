//! What a queue promises.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use wavehouse_core::{Position, RowBlock, TableRef, TenantId, Timestamp, UnitId};

use crate::errors::{CloseError, HistoryError, LetterError, OpenUnitError, PublishError};
use crate::history::{HistoryFilter, HistoryStart, HistoryStream};
use crate::letter::{DeadLetter, LetterCounts, LetterCursor, LetterFilter, LetterPage};
use crate::sharing::UnitSharing;
use crate::unit::{OpenUnit, RowBudget};

/// Proof that a block is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Where the block's first row stands. The block's rows stand together, but a broker may have stored them inside a
    /// larger block, so `row` need not be 0.
    pub first: Position,
}

/// What becomes of submitted blocks: one result a block, in their order. Dropping it does not take the blocks back.
pub type Submitted = Pin<Box<dyn Future<Output = Vec<Result<Receipt, PublishError>>> + Send>>;

/// What a tenant may use of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantLimits {
    /// Most bytes of unwritten rows.
    pub unwritten_bytes_max: u64,
    /// How long rows that ClickHouse has are kept for live streams to resume from, room permitting.
    pub gap_window: Duration,
}

/// How the queue is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokerHealth {
    /// It takes rows.
    Good,
    /// It refuses rows for now and recovers by itself.
    Refusing {
        /// Why, for the operator.
        reason: String,
    },
    /// It is broken; the process must stop.
    Failed {
        /// Why, for the operator.
        reason: String,
    },
}

/// How much of one table waits for ClickHouse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDepth {
    /// Which table.
    pub table: TableRef,
    /// Rows that are not settled.
    pub unwritten_rows: u64,
    /// Their bytes as stored.
    pub unwritten_bytes: u64,
    /// Receipt time of the oldest unsettled row; none when all are settled.
    pub oldest_unwritten: Option<Timestamp>,
}

/// What one sweep gave back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepReport {
    /// Bytes of disk freed.
    pub freed_bytes: u64,
    /// Bytes of unwritten rows moved so that the space around them could be freed.
    pub moved_bytes: u64,
}

/// The queue between the gateway and ClickHouse.
///
/// # Publishing
/// - **Durable.** `Ok` means that the rows survive the death of this process and, on the embedded queue, of the machine.
/// - **One result a block**, in the order of the blocks. A block that is refused does not keep the others out.
/// - **Order at the call.** Rows of one table are numbered in the order of the calls to [`submit`](Broker::submit), fixed
///   when it is called and not when its future is polled.
/// - **Definite errors.** An error says whether the rows are certainly not stored or may be ([`PublishError::stored`]). A
///   refused publish whose outcome is unknown may still be delivered.
/// - **Merge.** A broker may store several blocks of one table as one and never splits a row from its segment's receipt
///   time and scope. Sequences are per table, without gaps.
/// - **Tenants apart.** A tenant over its budget is refused; others go on. Only *unwritten* bytes count.
///
/// # Delivery
/// - A unit is read by one opener at a time. Blocks of one table come in sequence order.
/// - **Settle** ends a delivery: ack, or retry after a while. A delivery dropped unsettled is retried. What is neither
///   settled nor dropped within the ack wait is delivered again, as a later attempt of the same sequence.
/// - A retried block comes back before any later block of its table that has not been handed out.
/// - **Pause** stops a table's deliveries until a moment, or until it is paused again with an earlier one; what has been
///   handed back holds no budget; other tables go on.
/// - **Budget**: no more than the budget is handed out unsettled, but at least one block.
/// - **Acked stays acked**: once its settle is durable, an acked block is not delivered again. An ack is durable at the
///   latest when a later cut is recorded, when the unit is released, or when the broker closes.
/// - **Recorded cuts**: a cut recorded with [`UnitControl::record_cut`](crate::UnitControl::record_cut) is durable when
///   that returns, replaces the table's earlier one, and is given to the next opener of the unit until every block of
///   the cut is acked.
///
/// # History
/// Settled rows stay readable for a while, best effort: see [`HistoryStream`]. Publishing never waits for history.
///
/// # Dead letters
/// - A letter is one row. Burying the same position twice leaves one letter. `Ok` from [`bury`](Broker::bury) means
///   durable. Burying does not settle the block that the row came in.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// The units that this broker's queue is divided into.
    fn units(&self) -> Vec<UnitId>;

    /// How units are shared with other processes; none where all of them are this process's own.
    fn sharing(&self) -> Option<Arc<dyn UnitSharing>> {
        None
    }

    /// Largest encoded block that can be published, in bytes.
    fn block_bytes_max(&self) -> usize;

    /// Hands blocks over to be stored; the order is fixed when this returns.
    fn submit(&self, blocks: Vec<RowBlock>) -> Submitted;

    /// Begins delivery of a unit to this process.
    ///
    /// # Errors
    /// [`OpenUnitError`] when there is no such unit, it is open already, or the queue cannot be reached.
    async fn open_unit(&self, unit: UnitId, budget: RowBudget) -> Result<OpenUnit, OpenUnitError>;

    /// Reads stored rows, whether settled or not, and goes on with new ones as they become durable.
    ///
    /// # Errors
    /// [`HistoryError`] when the broker is closed or the history cannot be read.
    async fn open_history(
        &self,
        start: HistoryStart,
        filter: HistoryFilter,
    ) -> Result<Box<dyn HistoryStream>, HistoryError>;

    /// Keeps rows that can never be written; durable on return.
    ///
    /// # Errors
    /// [`LetterError`]; then any of the letters may or may not be kept.
    async fn bury(&self, letters: Vec<DeadLetter>) -> Result<(), LetterError>;

    /// How many letters each table of a tenant has. A tenant that is not known has none.
    ///
    /// # Errors
    /// [`LetterError`] when the store cannot be read.
    async fn letter_counts(&self, tenant: &TenantId) -> Result<LetterCounts, LetterError>;

    /// Letters that match, ordered by table and position, after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`LetterError`] when the store cannot be read.
    async fn letters(
        &self,
        filter: &LetterFilter,
        after: Option<&LetterCursor>,
        limit: usize,
    ) -> Result<LetterPage, LetterError>;

    /// Removes letters by position; durable on return. Positions that hold no letter are passed over.
    /// Returns how many were removed.
    ///
    /// # Errors
    /// [`LetterError`]; then any of the letters may be gone.
    async fn drop_letters(&self, table: &TableRef, positions: &[Position]) -> Result<u64, LetterError>;

    /// Sets what a tenant may use; applies to what comes after. A budget below what is in use only refuses new rows.
    fn set_limits(&self, tenant: &TenantId, limits: TenantLimits);

    /// What a tenant may use.
    fn limits(&self, tenant: &TenantId) -> TenantLimits;

    /// Gives back what is settled and older than its tenant's gap window at `now`. Never an unsettled row.
    async fn sweep(&self, now: Timestamp) -> SweepReport;

    /// How much of each table waits for ClickHouse, tables that have nothing waiting left out.
    fn depths(&self) -> Vec<TableDepth>;

    /// How the queue is, now and as it changes.
    fn health(&self) -> watch::Receiver<BrokerHealth>;

    /// Ends every stream, makes every settle durable and lets the queue go. Later calls fail with `Closed`;
    /// closing again does nothing.
    ///
    /// # Errors
    /// [`CloseError`] when something could not be made durable.
    async fn close(&self) -> Result<(), CloseError>;
}

/// How brokers are passed around.
pub type SharedBroker = Arc<dyn Broker>;
