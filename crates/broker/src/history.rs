//! History: stored rows, settled or not, as live streams read them.

use async_trait::async_trait;
use wavehouse_core::{Position, TableRef, Timestamp};

use crate::errors::HistoryError;
use crate::unit::StoredBlock;

/// Where reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryStart {
    /// With the first block that becomes durable after the stream is open.
    Live,
    /// With the row after this one. A position of another log, or of a table that has never had that sequence, is
    /// answered with a hole and then everything that is kept. Needs a filter on one table.
    After(Position),
    /// With the first kept block that holds a row received at or after this moment.
    Since(Timestamp),
}

/// Which tables are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryFilter {
    /// Every table of every tenant.
    All,
    /// One table.
    Table(TableRef),
}

/// What a history stream yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryEvent {
    /// A block, and the first of its rows that was asked for: rows before `from_row` lie before the start.
    Block {
        /// The block.
        stored: StoredBlock,
        /// The first row asked for.
        from_row: u32,
    },
    /// Rows of a table that were asked for are no longer kept.
    Hole {
        /// Which table.
        table: TableRef,
        /// From when, as far as is known.
        from: Option<Timestamp>,
        /// Up to when: the receipt time of what is read next, if there is any.
        to: Option<Timestamp>,
    },
    /// Everything that was stored when the stream was opened has been read; what follows is live. Told once, at once
    /// for [`HistoryStart::Live`].
    CaughtUp,
}

/// An open history. Blocks of one table come in sequence order, each once, with no gap that is not told as a hole.
#[async_trait]
pub trait HistoryStream: Send {
    /// The next event. Safe to cancel: nothing is lost.
    ///
    /// # Errors
    /// [`HistoryError`]; the reader resumes with a new stream after its last position.
    async fn next(&mut self) -> Result<HistoryEvent, HistoryError>;
}
