//! What can go wrong, one enum an operation. Each error says what the caller should do ([`FaultKind`]).

use std::time::Duration;

use wavehouse_core::{FaultKind, TenantId, UnitId};

/// Wait before trying a full queue again.
const FULL_RETRY: Duration = Duration::from_secs(30);
/// Wait before trying a queue again that does not answer, or is overrun for the moment.
const UNAVAILABLE_RETRY: Duration = Duration::from_secs(5);

/// Whether the rows of a failed publish are in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// Certainly not.
    No,
    /// Unknown: they may be delivered.
    Maybe,
}

/// Why a block was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The tenant's unwritten rows fill its byte budget.
    #[error("queue of tenant {tenant} is full: its unwritten rows fill its budget of {budget_bytes} bytes")]
    TenantFull {
        /// Whose budget.
        tenant: TenantId,
        /// The budget.
        budget_bytes: u64,
    },
    /// The disk is full up to the reserve that keeps acks and deletes possible.
    #[error("queue is full: no room is left on its disk")]
    DiskFull,
    /// More is waiting to be stored than the queue takes in at once.
    #[error("queue takes in no more at once: {pending_bytes} bytes are waiting to be stored")]
    Overrun {
        /// Bytes that wait.
        pending_bytes: u64,
    },
    /// The block is larger than the queue can store.
    #[error("block of {bytes} bytes is larger than the {bytes_max} that the queue stores")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The queue is closed or closing.
    #[error("queue is closed")]
    Closed,
    /// The queue cannot be reached or does not answer; nothing was stored.
    #[error("queue is unavailable: {reason}")]
    Unavailable {
        /// What was seen.
        reason: String,
    },
    /// The queue failed after it took the block; the rows may be stored.
    #[error("queue failed with the block in hand: {reason}")]
    Unknown {
        /// What was seen.
        reason: String,
    },
    /// The queue, or the part of it that the rows belong to, takes no more for now.
    #[error("queue is full: {reason}")]
    Full {
        /// What was seen.
        reason: String,
    },
    /// Nobody answered in time; the rows may be stored all the same.
    #[error("queue did not answer: {reason}")]
    Unconfirmed {
        /// What was seen.
        reason: String,
    },
}

impl PublishError {
    /// What the sender should do.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        match self {
            Self::TenantFull { .. } | Self::DiskFull | Self::Full { .. } => {
                FaultKind::Retry { after: Some(FULL_RETRY) }
            }
            Self::Overrun { .. } | Self::Closed | Self::Unavailable { .. } | Self::Unconfirmed { .. } => {
                FaultKind::Retry { after: Some(UNAVAILABLE_RETRY) }
            }
            Self::TooLarge { .. } => FaultKind::Reject,
            Self::Unknown { .. } => FaultKind::Stop,
        }
    }

    /// Whether the rows may be in the queue all the same.
    #[must_use]
    pub fn stored(&self) -> Stored {
        match self {
            Self::Unknown { .. } | Self::Unconfirmed { .. } => Stored::Maybe,
            _ => Stored::No,
        }
    }
}

/// Why a unit could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenUnitError {
    /// The broker has no such unit.
    #[error("unit {0} does not exist")]
    Unknown(UnitId),
    /// This process has it open.
    #[error("unit {0} is open already")]
    Open(UnitId),
    /// The broker is closed.
    #[error("broker is closed")]
    Closed,
    /// The queue cannot be reached.
    #[error("unit {unit} cannot be opened now: {reason}")]
    Unavailable {
        /// Which.
        unit: UnitId,
        /// What was seen.
        reason: String,
    },
}

impl OpenUnitError {
    /// What the caller should do.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        match self {
            Self::Unavailable { .. } => FaultKind::Retry { after: Some(UNAVAILABLE_RETRY) },
            _ => FaultKind::Stop,
        }
    }
}

/// Delivery of a unit ended on its own. Told once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("delivery of unit {unit} ended: {reason}")]
pub struct UnitLost {
    /// Which unit.
    pub unit: UnitId,
    /// What was seen.
    pub reason: String,
}

/// Why history could not be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The broker was closed while the stream was open.
    #[error("broker was closed")]
    Closed,
    /// Reading failed.
    #[error("history cannot be read: {reason}")]
    Unreadable {
        /// What was seen.
        reason: String,
    },
}

impl HistoryError {
    /// What the caller should do: resume from the last position it saw.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        FaultKind::Retry { after: Some(UNAVAILABLE_RETRY) }
    }
}

/// Why dead letters could not be kept, read or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LetterError {
    /// The broker is closed.
    #[error("broker is closed")]
    Closed,
    /// No room is left for another letter.
    #[error("no room is left for dead letters")]
    Full,
    /// The store failed.
    #[error("dead letters cannot be reached: {reason}")]
    Unavailable {
        /// What was seen.
        reason: String,
    },
    /// This broker cannot do it; `instead` says what the operator can type.
    #[error("this queue cannot do that itself; use: {instead}")]
    Unsupported {
        /// The command that does it.
        instead: String,
    },
}

impl LetterError {
    /// What the caller should do.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        match self {
            Self::Unsupported { .. } => FaultKind::Reject,
            Self::Full => FaultKind::Retry { after: Some(FULL_RETRY) },
            _ => FaultKind::Retry { after: Some(UNAVAILABLE_RETRY) },
        }
    }
}

/// Closing could not make everything durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("broker did not close cleanly: {reason}")]
pub struct CloseError {
    /// What was seen.
    pub reason: String,
}
