//! The recorded cut: which blocks one batch is made of, and how it has been split, written down before the insert so
//! that a batch that comes back after a crash is the same batch under the same insert tokens.

use std::fmt;

use wavehouse_core::{FaultKind, Sequence, TableRef};

/// Names a batch towards ClickHouse. The worker makes it from the log's id, the table, the sequence range and a hash of
/// the content, and derives the token of each part from it; the broker only keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct InsertToken(pub u128);

impl fmt::Display for InsertToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for InsertToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InsertToken({self})")
    }
}

/// One batch of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The table.
    pub table: TableRef,
    /// The batch's first block.
    pub first: Sequence,
    /// The batch's last block; every block of the table between belongs to it.
    pub last: Sequence,
    /// How many blocks the batch has. Where sequences have gaps, only this tells whether a batch that comes back is whole.
    pub blocks: u32,
    /// Where the batch's rows are split into parts that are inserted one after the other: ascending row numbers in the
    /// batch, each beginning a new part. Empty for one part.
    pub splits: Vec<u32>,
    /// How many rows from the front are stored in ClickHouse or buried, as far as was known when this was recorded.
    pub done_rows: u32,
    /// The batch's name towards ClickHouse.
    pub token: InsertToken,
}

/// Most split points of a recorded cut. A batch that would need more is ended early by the worker.
pub const SPLITS_MAX: usize = 4096;

/// A cut could not be recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CutError {
    /// The unit is no longer this process's: another has taken it over, or the broker is closed.
    #[error("unit of {table} is no longer owned")]
    Lost {
        /// The table of the cut.
        table: TableRef,
    },
    /// The queue could not store it now.
    #[error("cut of {table} cannot be recorded: {reason}")]
    Unavailable {
        /// The table of the cut.
        table: TableRef,
        /// What was seen.
        reason: String,
    },
}

impl CutError {
    /// What the caller should do; never insert.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        match self {
            Self::Lost { .. } => FaultKind::Stop,
            Self::Unavailable { .. } => FaultKind::Retry { after: None },
        }
    }
}
