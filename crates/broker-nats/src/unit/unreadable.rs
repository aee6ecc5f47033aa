//! Messages that cannot be read: whoever published them, they go to the dead letters as they came, and are acked once they
//! are there. So they neither come for ever nor fill the durable.
//!
//! Two kinds stay in the queue instead. A block of a later version waits for a process that reads it. One within a recorded
//! batch waits until a later batch of its table is recorded and the unit is opened anew: were it acked before, the whole
//! batch would be taken for stored.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::timeout;
use wavehouse_broker::DeadLetter;
use wavehouse_core::{BlockError, Position, Sequence, TableRef};
use wavehouse_nats::Delivered;

use super::Unit;
use crate::shared::{lock, wall_clock};

/// How long one burial may take; whoever is to keep the pin cannot wait for longer.
const BURY_WAIT: Duration = Duration::from_secs(3);
/// Tables that are counted by name; all others are counted together.
const TABLES_NAMED_MAX: usize = 200;
/// What those are called.
const OTHER: &str = "other";

/// Why a message cannot be read.
#[derive(Debug)]
pub(super) enum Reason {
    /// It is no block, or not a whole one.
    Block(BlockError),
    /// Its subject names no table.
    NoTable,
}

impl Reason {
    pub(super) fn of(error: BlockError) -> Self {
        Self::Block(error)
    }

    /// As metrics say it.
    fn label(&self) -> &'static str {
        match self {
            Self::Block(BlockError::Version(_) | BlockError::Magic) => "unknown_format",
            Self::Block(_) => "malformed",
            Self::NoTable => "unpairable",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(error) => write!(f, "message cannot be read: {error}"),
            Self::NoTable => f.write_str("message's subject names no table"),
        }
    }
}

/// A message that is to be buried.
pub(super) struct Burial {
    sequence: u64,
    reason: Reason,
    letter: DeadLetter,
}

/// How many messages of a table could not be read for one reason, and what became of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnreadableCount {
    /// Whose.
    pub tenant: String,
    /// Of which table; `other` past the first 200 tables.
    pub table: String,
    /// `malformed`, `unknown_format`, or `unpairable` where the subject names no table.
    pub reason: &'static str,
    /// `parked` among the dead letters, or `kept` in the queue.
    pub disposition: &'static str,
}

/// Counts of what could not be read.
#[derive(Debug, Default)]
pub struct UnreadableMessages(Mutex<BTreeMap<UnreadableCount, u64>>);

impl UnreadableMessages {
    /// All that there were since the queue was opened.
    #[must_use]
    pub fn counts(&self) -> Vec<(UnreadableCount, u64)> {
        lock(&self.0).iter().map(|(count, messages)| (count.clone(), *messages)).collect()
    }

    fn add(&self, table: &TableRef, reason: &Reason, disposition: &'static str) {
        let mut counts = lock(&self.0);
        let named = |tenant: &str, table: &str| UnreadableCount {
            tenant: tenant.to_owned(),
            table: table.to_owned(),
            reason: reason.label(),
            disposition,
        };
        let mut count = named(table.tenant.as_str(), table.table.as_str());
        if counts.len() >= TABLES_NAMED_MAX && !counts.contains_key(&count) {
            count = named(OTHER, OTHER);
        }
        *counts.entry(count).or_default() += 1;
    }
}

impl Unit {
    /// What is to be buried of a message that cannot be read; nothing if it stays in the queue.
    pub(super) fn burial_of(&self, table: TableRef, reason: Reason, message: Delivered) -> Option<Burial> {
        let (sequence, at) = (message.address.stream_sequence, message.address.time);
        let is_later = matches!(reason, Reason::Block(BlockError::Version(_)));
        if is_later || self.record.covers(&table, sequence) {
            tracing::error!(unit = %self.id, sequence, %table, %reason, "a message cannot be read, it is kept");
            self.units.unreadable.add(&table, &reason, "kept");
            return None;
        }
        let position =
            Position { stored_ms: at.as_millis(), ..Position::new(self.place.log, Sequence(sequence), 0) };
        let letter = DeadLetter {
            table,
            position,
            received_at: at,
            buried_at: wall_clock(),
            code: None,
            reason: reason.to_string(),
            line: message.payload,
        };
        Some(Burial { sequence, reason, letter })
    }

    /// Buries and acks. What does not get there is let go of: it is delivered again when its ack wait has passed.
    pub(super) async fn bury(&self, burials: impl Iterator<Item = Burial>) {
        let (mut parked, mut failure) = (0_u64, None);
        for Burial { sequence, reason, letter } in burials {
            let table = letter.table.clone();
            if failure.is_none() {
                failure = self.bury_one(letter).await.err();
            }
            let mut inner = lock(&self.inner);
            if failure.is_some() {
                inner.shelf.let_go(sequence);
                continue;
            }
            inner.shelf.buried(&table, sequence);
            inner.acks.push(sequence);
            drop(inner);
            self.acked.notify_one();
            self.units.unreadable.add(&table, &reason, "parked");
            // One line a pull, whoever floods the queue.
            if parked == 0 {
                tracing::warn!(
                    unit = %self.id, sequence, %table, %reason,
                    "messages that cannot be read become dead letters: `wavehouse dlq ls` shows them"
                );
            }
            parked += 1;
        }
        if let Some(error) = failure {
            tracing::error!(unit = %self.id, error, "messages that cannot be read could not be buried, they come again");
        }
    }

    async fn bury_one(&self, letter: DeadLetter) -> Result<(), String> {
        let buried = timeout(BURY_WAIT, self.units.letters.bury(vec![letter])).await;
        buried.map_or_else(
            |_| Err("no answer in time".to_owned()),
            |buried| buried.map_err(|error| error.to_string()),
        )
    }
}
