//! What is delivered: taken, put aside for a batch that comes back, or handed back.

use std::time::Duration;

use tokio::time::Instant;
use wavehouse_broker::{Delivery, TableDepth};
use wavehouse_core::{Sequence, TableRef};

use super::Core;
use crate::batcher::Load;
use crate::cut::Offer;
use crate::gate::Verdict;
use crate::table::{Held, PAUSE};

/// A block that came before its turn is handed back for so long, so that a queue out of order is not asked in a circle.
const RETURN_AFTER: Duration = Duration::from_millis(10);
/// A batch that is being brought back and gets no block for so long is compared with what the queue still holds.
pub(crate) const REBUILD_QUIET: Duration = Duration::from_secs(10);

impl Core {
    /// Takes in a block.
    pub(crate) fn delivered(&mut self, unit: usize, delivery: Delivery, now: Instant) {
        if self.is_fenced(unit) {
            // Dropped, it goes back.
            return;
        }
        let Some(index) = self.table(delivery.table(), unit) else { return };
        let sequence = delivery.sequence();
        let table = &mut self.tables[index];
        let held = table.held_mut(sequence).is_some();
        match table.gate.judge(sequence, held) {
            // The old handle is overtaken and settles nothing.
            Verdict::Replace => {
                if let Some(held) = self.tables[index].held_mut(sequence) {
                    held.delivery = delivery;
                }
            }
            Verdict::Done => delivery.ack(),
            Verdict::Take if self.tables[index].open => self.take(index, Held::new(delivery, now), now),
            Verdict::Take | Verdict::Return => self.turn_away(index, delivery, now),
        }
    }

    fn turn_away(&mut self, index: usize, delivery: Delivery, now: Instant) {
        let table = &mut self.tables[index];
        table.gate.gave_back(delivery.sequence());
        let mut after = RETURN_AFTER;
        if !table.open {
            self.pause(index, now + PAUSE);
            after = Duration::ZERO;
        }
        delivery.retry(after);
        // A table that is shut although nothing is wrong any more, or whose ClickHouse waits for someone to probe it.
        let target = self.tables[index].target;
        self.wake(index, now);
        if self.targets[target].down.as_ref().is_some_and(|down| down.probe.is_none()) {
            self.check_target(target, now);
        }
    }

    fn take(&mut self, index: usize, held: Held, now: Instant) {
        let sequence = held.delivery.sequence();
        let table = &mut self.tables[index];
        table.gate.took(sequence);
        let Some(pending) = &mut table.pending else {
            self.enqueue(index, held, now);
            return;
        };
        pending.touched = now;
        let (offer, whole) = (pending.rebuild.offer(sequence), pending.whole);
        match offer {
            Offer::Collect | Offer::Complete => {
                let load = held.load;
                pending.collected.push(held);
                pending.whole = offer == Offer::Complete;
                self.holds(index, load);
                self.check(index, now);
            }
            Offer::Stored if self.is_broken(index) => {
                self.begin_anew(index, now);
                self.enqueue(index, held, now);
            }
            Offer::Stored => {
                held.delivery.ack();
                self.ack_collected(index);
            }
            Offer::Past => {
                if !whole && self.is_broken(index) {
                    self.begin_anew(index, now);
                } else if !whole {
                    self.ack_collected(index);
                    self.end_pending(index, now);
                }
                self.enqueue(index, held, now);
            }
        }
    }

    fn enqueue(&mut self, index: usize, held: Held, now: Instant) {
        let load = held.load;
        let table = &mut self.tables[index];
        if let Some(unit) = self.units.get_mut(&table.unit) {
            unit.busy += usize::from(table.queue.is_empty());
        }
        table.waiting.add(load);
        table.queue.push_back(held);
        self.holds(index, load);
        self.check(index, now);
        self.throttle(index, now);
    }

    /// Has enough of a table in hand that cannot insert yet: no more of it until it can.
    fn throttle(&mut self, index: usize, now: Instant) {
        let share = self.share(index);
        let table = &mut self.tables[index];
        let Load { rows, bytes } = table.waiting;
        let full = rows >= share.rows || bytes >= share.bytes;
        if full && table.open && !table.throttled && !self.stopping {
            table.throttled = true;
            self.pause(index, now + PAUSE);
        }
    }

    /// The batch that was being brought back is stored: its blocks need only their ack.
    fn ack_collected(&mut self, index: usize) {
        let pending = self.tables[index].pending.as_mut();
        let collected = pending.map(|pending| std::mem::take(&mut pending.collected)).unwrap_or_default();
        self.lets_go(index, &collected);
        for held in collected {
            held.delivery.ack();
        }
    }

    /// Whether a batch that is being brought back has a block that cannot be read.
    fn is_broken(&self, index: usize) -> bool {
        let table = &self.tables[index];
        table.pending.as_ref().is_some_and(|pending| {
            let cut = pending.rebuild.cut();
            let unit = self.units.get(&table.unit);
            unit.is_some_and(|unit| unit.control.damaged(&table.name, cut.first, cut.last))
        })
    }

    /// A batch that cannot come back whole: what there is of it is inserted as if it came for the first time. Nobody can
    /// tell whether ClickHouse has it already, and rows that are there twice are better than none.
    fn begin_anew(&mut self, index: usize, now: Instant) {
        let table = &mut self.tables[index];
        let collected = table.pending.as_mut().map(|pending| std::mem::take(&mut pending.collected));
        tracing::error!(table = %table.name, "a batch of an earlier run has a block that cannot be read; its other rows are inserted anew and may be stored twice");
        self.end_pending(index, now);
        let collected = collected.unwrap_or_default();
        self.lets_go(index, &collected);
        for held in collected {
            self.enqueue(index, held, now);
        }
    }

    /// There is no batch to bring back any more.
    fn end_pending(&mut self, index: usize, now: Instant) {
        self.tables[index].pending = None;
        self.give_up_permit(index, now);
    }

    /// The batches that are being brought back and have had no block for a while.
    pub(crate) fn stalled(&self, now: Instant) -> Vec<Stalled> {
        let stalled = self.tables.iter().enumerate().filter(|(_, table)| stalled(table, now));
        let told = stalled.filter_map(|(index, table)| {
            let last = table.pending.as_ref()?.rebuild.cut().last;
            Some(Stalled { index, unit: table.unit, table: table.name.clone(), last, passed: None })
        });
        told.collect()
    }

    /// Ends the bringing back of batches of which the queue holds no block that is not in hand: their missing blocks are
    /// acked, so they are stored. A unit that tells whether it has handed out everything up to a batch's end is believed,
    /// once all that went back has come again; where none tells, `depths` do.
    pub(crate) fn compare(&mut self, candidates: Vec<Stalled>, depths: &[TableDepth], now: Instant) {
        for Stalled { index, unit, passed, .. } in candidates {
            let table = &self.tables[index];
            if table.unit != unit {
                continue;
            }
            let Some(pending) = table.pending.as_ref().filter(|_| stalled(table, now)) else { continue };
            if self.is_broken(index) {
                self.begin_anew(index, now);
                self.check(index, now);
                continue;
            }
            let none_missing = || {
                let in_hand: u64 = pending.collected.iter().map(|held| held.load.rows).sum();
                let depth = depths.iter().find(|depth| depth.table == table.name);
                depth.map_or(0, |depth| depth.unwritten_rows) <= in_hand
            };
            if passed.map_or_else(none_missing, |passed| passed && !table.gate.owes()) {
                tracing::info!(table = %table.name, "batch of an earlier run was stored, nothing to bring back");
                self.ack_collected(index);
                self.end_pending(index, now);
                self.check(index, now);
            }
        }
    }
}

/// A batch that is being brought back and does not come on.
#[derive(Debug)]
pub(crate) struct Stalled {
    index: usize,
    /// The opening of the unit that its table was delivered by.
    pub(crate) unit: usize,
    pub(crate) table: TableRef,
    /// Its last block.
    pub(crate) last: Sequence,
    /// Whether the unit has handed out everything up to there, if it tells.
    pub(crate) passed: Option<bool>,
}

fn stalled(table: &crate::table::Table, now: Instant) -> bool {
    let quiet = |pending: &crate::table::Pending| now >= pending.touched + REBUILD_QUIET && !pending.whole;
    table.open && table.permit && table.flight.is_none() && table.pending.as_ref().is_some_and(quiet)
}
