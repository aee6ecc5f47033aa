//! What the claims tell the worker's loop, and what they hear of a unit that it worked on.

use tokio::sync::oneshot;
use tokio::time::Instant;
use wavehouse_broker::OpenUnit;
use wavehouse_core::UnitId;

/// How work on a unit ended. A loop that ends without a word has let everything go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UnitEnd {
    /// Rows that were in hand and go back to the queue.
    pub(crate) unsettled_rows: u64,
    /// Why, if delivery ended by itself or another process has taken the unit.
    pub(crate) lost: Option<String>,
}

/// What to do with a unit.
pub(crate) enum Command {
    /// Work on it.
    TakeOn {
        /// Which.
        unit: UnitId,
        /// It, opened.
        opened: OpenUnit,
        /// Told when nothing of it is in hand any more.
        ended: oneshot::Sender<UnitEnd>,
    },
    /// Take in no more of it and write what is in hand until then.
    GiveUp {
        /// Which.
        unit: UnitId,
        /// When to let go of what is not written.
        until: Instant,
    },
    /// It may be another's by now: begin nothing more.
    Disown {
        /// Which.
        unit: UnitId,
    },
}

/// Commands on their way to the worker's loop, which takes them before anything else.
pub(crate) const COMMANDS_MAX: usize = 64;
