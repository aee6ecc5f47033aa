//! Messages on the shelf that cannot be read. They are handed out to nobody.

use tokio::time::Instant;
use wavehouse_core::TableRef;

use super::{Held, Shelf, State, add, take};

impl Shelf {
    /// Keeps a message that cannot be read from being delivered for ever.
    pub(in crate::unit) fn put_damaged(
        &mut self,
        table: &TableRef,
        sequence: u64,
        reply: String,
        now: Instant,
    ) {
        let number = self.number(table);
        if let Some(table) = self.tables.get_mut(number as usize) {
            table.damaged.insert(sequence);
        }
        let state = State::Damaged;
        let held = Held { table: number, stored: None, reply, rows: 0, bytes: 0, attempt: 0, state };
        self.held.insert(sequence, held);
        add(&mut self.kept, 0, 0);
        self.told.push_back((now, sequence));
    }

    /// A message that cannot be read lies with the dead letters: it only wants its ack.
    pub(in crate::unit) fn buried(&mut self, table: &TableRef, sequence: u64) {
        let Some(held) = self.held.get_mut(&sequence).filter(|held| matches!(held.state, State::Damaged))
        else {
            return;
        };
        held.state = State::Acked;
        take(&mut self.kept, 0, 0);
        let number = self.number(table);
        if let Some(table) = self.tables.get_mut(number as usize) {
            table.damaged.remove(&sequence);
        }
    }

    /// Forgets a message that cannot be read until it comes again; that there is one stays known.
    pub(in crate::unit) fn let_go(&mut self, sequence: u64) {
        if self.held.get(&sequence).is_some_and(|held| matches!(held.state, State::Damaged)) {
            self.held.remove(&sequence);
            take(&mut self.kept, 0, 0);
        }
    }

    /// Whether a block of the table between these cannot be read.
    pub(in crate::unit) fn is_damaged(&self, table: &TableRef, first: u64, last: u64) -> bool {
        first <= last && self.table(table).is_some_and(|table| Self::has(&table.damaged, first, last))
    }
}
