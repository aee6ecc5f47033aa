//! Sharing the units of a queue among processes.
//!
//! A queue that many processes read divides its units among them. Who reads which is agreed on through leases by those
//! who read; the broker lends them the bucket and does what only it can: take a unit from an owner that is gone, tell
//! which units nobody reads, and let processes see whether one of them still answers.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use wavehouse_core::{FaultKind, Placement, UnitId};

use crate::lease::LeaseBucket;

/// Why a unit is taken from its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOver {
    /// The owner's lease has lapsed. Refused while somebody still reads the unit, or did a moment ago.
    Lapsed,
    /// The owner does not answer and its lease has not lapsed yet. Safe, since a former owner cannot record a batch any
    /// more; so neither a reader nor recent activity is waited for.
    Suspected,
}

/// What a question to another process brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It answered.
    Alive,
    /// The servers say that nobody listens under its name. No proof: a cut network looks the same.
    Nobody,
    /// Neither came in time.
    Silence,
}

/// Why something about shared units could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SharingError {
    /// Somebody reads the unit, or did a moment ago.
    #[error("unit {unit} is held by another process")]
    Held {
        /// Which.
        unit: UnitId,
    },
    /// There is no such unit on the servers; the operator must make it.
    #[error("unit {unit} does not exist")]
    Gone {
        /// Which.
        unit: UnitId,
    },
    /// Nobody answered, or the answer was an error.
    #[error("shared units cannot be reached: {reason}")]
    Unavailable {
        /// What was seen.
        reason: String,
    },
}

impl SharingError {
    /// What the caller should do.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        match self {
            Self::Gone { .. } => FaultKind::Stop,
            Self::Held { .. } | Self::Unavailable { .. } => FaultKind::Retry { after: None },
        }
    }
}

/// The units of a queue that many processes read.
#[async_trait]
pub trait UnitSharing: Send + Sync + 'static {
    /// The bucket that the processes agree through.
    fn leases(&self) -> Arc<dyn LeaseBucket>;

    /// How many partitions and shards this process was told of. Its units are
    /// [`Broker::units`](crate::Broker::units).
    fn placement(&self) -> Placement;

    /// The unit's name, the same in every process.
    fn unit_name(&self, unit: UnitId) -> String;

    /// Units that exist beside the configured ones, as last seen: an earlier, larger number left them, and they are read
    /// until they are empty.
    fn extras(&self) -> Vec<UnitId>;

    /// Looks for extras now.
    ///
    /// # Errors
    /// [`SharingError`]; what was known stays.
    async fn refresh_extras(&self) -> Result<(), SharingError>;

    /// Fences a unit's former owner off and makes what it held come back at once. `false` if it held nothing. Never called
    /// for a unit that is open here.
    ///
    /// # Errors
    /// [`SharingError`].
    async fn take_over(&self, unit: UnitId, how: TakeOver) -> Result<bool, SharingError>;

    /// Which of these units have rows that nobody reads. A unit that does not exist is passed over.
    ///
    /// # Errors
    /// [`SharingError`].
    async fn unread(&self, units: &[UnitId]) -> Result<Vec<UnitId>, SharingError>;

    /// Begins to answer other processes that ask for `session`. `false` where the servers do not permit it; then nothing
    /// is to be concluded from silence.
    ///
    /// # Errors
    /// [`SharingError`].
    async fn answer_as(&self, session: &str) -> Result<bool, SharingError>;

    /// Asks whether the process of that session is there.
    async fn ask(&self, session: &str) -> Answer;

    /// Tells all other processes that the members have changed.
    async fn nudge(&self);

    /// How often this process has been nudged; changes when it is again.
    fn nudges(&self) -> watch::Receiver<u64>;
}
