//! Which tables are taken from the queue. A table that cannot insert now is shut: what is in hand of it goes back, its
//! delivery is paused, and it costs nothing until it may try again.

use std::time::Duration;

use tokio::time::Instant;

use super::Core;
use crate::table::PAUSE;

impl Core {
    /// Hands back everything of a table but a batch in flight, and takes no more of it.
    pub(super) fn shut(&mut self, index: usize, now: Instant) {
        let table = &mut self.tables[index];
        let target = table.target;
        if table.in_line {
            table.in_line = false;
            self.targets[target].turns.leave(index);
        }
        let table = &mut self.tables[index];
        table.open = false;
        table.throttled = false;
        if let Some(unit) = self.units.get_mut(&table.unit) {
            unit.busy -= usize::from(!table.queue.is_empty());
        }
        // Paused first, so that nothing comes back before all of it is back.
        self.pause(index, now + PAUSE);
        let table = &mut self.tables[index];
        let hand = table.empty_hand();
        for held in &hand {
            table.gate.gave_back(held.delivery.sequence());
        }
        self.lets_go(index, &hand);
        for held in hand {
            held.delivery.retry(Duration::ZERO);
        }
        if self.tables[index].flight.is_none() {
            self.give_up_permit(index, now);
        }
    }

    /// Opens a table if nothing is in its way any more, else sees to it that it is asked again.
    pub(super) fn wake(&mut self, index: usize, now: Instant) {
        let table = &self.tables[index];
        if table.open {
            self.check(index, now);
            return;
        }
        if table.flight.is_some() || self.stopping || self.going(table.unit) {
            return;
        }
        if let Some(trouble) = table.trouble.as_ref().filter(|trouble| trouble.until > now) {
            let at = if table.told { trouble.until.min(trouble.remind_at()) } else { trouble.until };
            self.set_timer(index, at);
            return;
        }
        self.follow_target(index);
        let target = self.tables[index].target;
        if self.targets[target].down.as_ref().is_some_and(|down| !down.probed_by(index)) {
            return;
        }
        if self.tables[index].pending.is_some() && !self.get_permit(index) {
            return;
        }
        self.open(index, now);
    }

    /// Takes blocks of a table again.
    pub(super) fn open(&mut self, index: usize, now: Instant) {
        let table = &mut self.tables[index];
        table.open = true;
        if let Some(pending) = &mut table.pending {
            pending.touched = now;
        }
        self.pause(index, now);
        self.check(index, now);
    }

    /// Bringing back batches takes turns, or half-collected batches could fill the hand and none become whole.
    fn get_permit(&mut self, index: usize) -> bool {
        let table = &mut self.tables[index];
        if !table.permit {
            if self.rebuilding >= self.rebuilds_max {
                if !table.asked {
                    table.asked = true;
                    self.rebuilders.push_back(index);
                }
                return false;
            }
            self.force_permit(index);
        }
        true
    }

    /// A table that probes a server does not wait for others.
    pub(super) fn force_permit(&mut self, index: usize) {
        let table = &mut self.tables[index];
        if !table.permit {
            table.permit = true;
            self.rebuilding += 1;
            if let Some(unit) = self.units.get_mut(&table.unit) {
                unit.rebuilding += 1;
            }
        }
    }

    /// A batch was brought back, or is given up for now: others may.
    pub(super) fn give_up_permit(&mut self, index: usize, now: Instant) {
        let table = &mut self.tables[index];
        if !table.permit {
            return;
        }
        table.permit = false;
        self.rebuilding -= 1;
        if let Some(unit) = self.units.get_mut(&table.unit) {
            unit.rebuilding -= 1;
        }
        while self.rebuilding < self.rebuilds_max {
            let Some(next) = self.rebuilders.pop_front() else { return };
            self.tables[next].asked = false;
            self.wake(next, now);
        }
    }

    /// Says again that a table's rows wait.
    pub(super) fn remind_table(&mut self, index: usize, now: Instant) {
        let table = &mut self.tables[index];
        let Some(trouble) = table.trouble.as_mut().filter(|_| table.told) else { return };
        if let Some(lasted) = trouble.remind(now) {
            let seconds = lasted.as_secs();
            tracing::warn!(table = %table.name, seconds, error = %trouble.reason, "rows of table still wait");
        }
    }
}
