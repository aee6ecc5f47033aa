//! From blocks in hand to jobs: who gets in line, and what the one whose turn it is inserts.

use tokio::time::Instant;
use wavehouse_broker::InsertToken;

use super::Core;
use crate::batcher::{Due, Waiting, count, due};
use crate::flush::Job;
use crate::rows::BatchRows;
use crate::splits::Parts;
use crate::table::Held;

/// A server that is being probed gets one insert at a time.
const PROBES_MAX: usize = 1;

impl Core {
    /// Puts a table in line if it has a batch to insert, or sets a timer for when it will have.
    pub(super) fn check(&mut self, index: usize, now: Instant) {
        let table = &self.tables[index];
        if !table.open || table.in_line || table.flight.is_some() {
            return;
        }
        match self.table_due(index, now) {
            Due::Never => {}
            Due::At(at) => self.set_timer(index, at),
            Due::Now => self.join(index, now),
        }
    }

    fn table_due(&self, index: usize, now: Instant) -> Due {
        let table = &self.tables[index];
        if let Some(pending) = &table.pending {
            return if pending.whole { Due::Now } else { Due::Never };
        }
        let hurry = self.stopping || self.going(table.unit) || self.targets[table.target].down.is_some();
        let waiting = Waiting {
            load: table.waiting,
            blocks: table.queue.len(),
            since: table.queue.front().map_or(now, |held| held.since),
            last_began: table.last_began,
            hurry,
        };
        due(&waiting, &self.limits, self.share(index), now)
    }

    fn join(&mut self, index: usize, now: Instant) {
        self.follow_target(index);
        let target = self.tables[index].target;
        if self.targets[target].down.as_ref().is_some_and(|down| !down.probed_by(index)) {
            self.shut(index, now);
            self.check_target(target, now);
            return;
        }
        self.tables[index].in_line = true;
        self.targets[target].turns.join(index, now);
        self.serve(target, now);
    }

    /// Lets those in line insert, as many as may.
    pub(super) fn serve(&mut self, target: usize, now: Instant) {
        let most = if self.targets[target].down.is_some() { PROBES_MAX } else { self.inserts_max };
        while let Some((index, waited)) = self.targets[target].turns.next(most, now) {
            self.metrics.stretch(&self.targets[target].name, waited);
            self.tables[index].in_line = false;
            match self.form(index, now) {
                Some(job) => self.jobs.push(job),
                None => self.targets[target].turns.finish(),
            }
        }
        self.metrics.in_flight(&self.targets[target].name, self.targets[target].turns.in_flight());
    }

    /// Makes the batch of a table whose turn it is; none if there is nothing to insert.
    fn form(&mut self, index: usize, now: Instant) -> Option<Job> {
        let (held, parts, token) = self.pick(index, now)?;
        let blocks: Vec<_> = held.iter().map(|held| held.delivery.stored().clone()).collect();
        let rows = BatchRows::new(blocks);
        if rows.total() == 0 {
            // Blocks without rows are as good as stored.
            self.lets_go(index, &held);
            held.into_iter().for_each(|held| held.delivery.ack());
            self.check(index, now);
            return None;
        }
        self.metrics.batch_rows.observe(f64::from(rows.total()));
        self.metrics.batch_bytes.observe(held.iter().map(|held| held.load.bytes).sum::<u64>() as f64);
        let table = &mut self.tables[index];
        let parts = match parts {
            Resume::Fresh => Parts::new(rows.total()),
            Resume::Parts(parts) => parts,
            Resume::Cut { splits, done } => Parts::resume(rows.total(), &splits, done),
        };
        table.flight = Some(held);
        table.last_began = Some(now);
        table.last_tried = Some(now);
        let (streak, unit, table) = (table.streak, table.unit, table.name.clone());
        let fenced = self.units.get(&unit).map(|unit| unit.fenced.clone()).unwrap_or_default();
        Some(Job { index, unit, table, rows, parts, token, streak, fenced })
    }

    /// Takes the blocks of the next batch out of hand.
    fn pick(&mut self, index: usize, now: Instant) -> Option<(Vec<Held>, Resume, Option<InsertToken>)> {
        let most = self.limits.most;
        let table = &mut self.tables[index];
        if let Some(pending) = table.pending.take_if(|pending| pending.whole) {
            let cut = pending.rebuild.cut();
            let resume = pending.parts.map_or_else(
                || Resume::Cut { splits: cut.splits.clone(), done: cut.done_rows },
                Resume::Parts,
            );
            return Some((pending.collected, resume, Some(cut.token)));
        }
        if table.queue.is_empty() || table.pending.is_some() {
            return None;
        }
        let count = count(table.queue.iter().map(|held| held.load), most);
        let held: Vec<Held> = table.queue.drain(..count).collect();
        for block in &held {
            table.waiting.take(block.load);
        }
        if let Some(unit) = self.units.get_mut(&table.unit) {
            unit.busy -= usize::from(table.queue.is_empty());
        }
        self.unthrottle(index, now);
        Some((held, Resume::Fresh, None))
    }

    /// Lets delivery go on when less than half of the table's share is in hand.
    fn unthrottle(&mut self, index: usize, now: Instant) {
        let share = self.share(index);
        let table = &mut self.tables[index];
        let low = table.waiting.rows <= share.rows / 2 && table.waiting.bytes <= share.bytes / 2;
        if table.throttled && low {
            table.throttled = false;
            self.pause(index, now);
        }
    }
}

/// Where a batch begins.
enum Resume {
    Fresh,
    /// Where this process left it.
    Parts(Parts),
    /// Where another process left it.
    Cut {
        splits: Vec<u32>,
        done: u32,
    },
}
