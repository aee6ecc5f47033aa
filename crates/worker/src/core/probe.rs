//! A ClickHouse that is down: all its tables are shut but one at a time, which probes it.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use wavehouse_broker::TableDepth;

use super::{Core, Down};
use crate::outage::Outage;

/// A table that was chosen to probe and has begun no insert for so long leaves it to another.
const PROBE_WAIT: Duration = Duration::from_secs(10);

/// While nobody can probe, somebody who can is looked for so often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Down {
    pub(super) fn probed_by(&self, index: usize) -> bool {
        self.probe.is_some_and(|(table, _)| table == index)
    }
}

impl Core {
    /// An insert failed in a way that speaks of the server: nobody but a probe asks it again.
    pub(super) fn goes_down(&mut self, index: usize, reason: String, now: Instant) {
        let target = self.tables[index].target;
        let random = self.jitter.next();
        let entry = &mut self.targets[target];
        match &mut entry.down {
            // An insert that began before the outage tells nothing new.
            Some(down) if !down.probed_by(index) => return,
            Some(down) => {
                down.probe = None;
                down.outage = Outage::failed(Some(down.outage.clone()), now, random, reason);
            }
            None => {
                tracing::warn!(clickhouse = %entry.name, error = %reason, "clickhouse takes no rows, they wait in the queue");
                self.metrics.outage(&entry.name, 1);
                entry.down = Some(Down { outage: Outage::failed(None, now, random, reason), probe: None });
                for other in entry.tables.clone() {
                    if self.tables[other].open {
                        self.shut(other, now);
                    }
                }
            }
        }
        self.check_target(target, now);
    }

    /// The probe came to nothing; another one may try.
    pub(super) fn end_probe(&mut self, target: usize, now: Instant) {
        if let Some(down) = &mut self.targets[target].down {
            down.probe = None;
        }
        self.check_target(target, now);
    }

    /// The server answered.
    pub(super) fn comes_up(&mut self, target: usize, now: Instant) {
        let entry = &mut self.targets[target];
        let Some(down) = entry.down.take() else { return };
        self.metrics.outage(&entry.name, 0);
        let tables = entry.tables.clone();
        let rows: u64 = self.unwritten(target).values().sum();
        let seconds = now.saturating_duration_since(down.outage.since).as_secs();
        tracing::info!(clickhouse = %self.targets[target].name, seconds, rows, "clickhouse takes rows again");
        for index in tables {
            self.wake(index, now);
        }
    }

    /// Sees to a server that is down: says so now and then, and sends the next probe when it is time.
    pub(super) fn check_target(&mut self, target: usize, now: Instant) {
        let entry = &mut self.targets[target];
        let Some(down) = &mut entry.down else { return };
        if let Some(lasted) = down.outage.remind(now) {
            let seconds = lasted.as_secs();
            tracing::warn!(clickhouse = %entry.name, seconds, error = %down.outage.reason, "clickhouse still takes no rows");
        }
        let (until, remind_at) = (down.outage.until, down.outage.remind_at());
        if let Some((index, deadline)) = down.probe {
            if self.tables[index].flight.is_some() {
                return;
            }
            if deadline > now {
                self.set_target_timer(target, deadline.min(remind_at));
                return;
            }
            down.probe = None;
            self.shut(index, now);
        }
        if self.stopping {
            return;
        }
        if until > now {
            self.set_target_timer(target, until.min(remind_at));
            return;
        }
        match self.choose_probe(target, now) {
            Ok(index) => self.send_probe(target, index, now),
            // Nobody has rows, or those who have must rest.
            Err(at) => self.set_target_timer(
                target,
                at.unwrap_or(now + LOOK_AGAIN).min(now + LOOK_AGAIN).min(remind_at),
            ),
        }
    }

    /// The table that tried longest ago among those that have rows and may try; else when one may.
    fn choose_probe(&self, target: usize, now: Instant) -> Result<usize, Option<Instant>> {
        // A table that was idle when it was shut is not told of new rows.
        let unwritten = self.unwritten(target);
        let free = |index: &&usize| {
            let table = &self.tables[**index];
            table.flight.is_none()
                && !self.going(table.unit)
                && (table.has_work() || unwritten.contains_key(*index))
        };
        let able = self.targets[target].tables.iter().filter(free);
        let rested = able.clone().filter(|index| self.tables[**index].rested(now));
        if let Some(index) = rested.min_by_key(|index| self.tables[**index].last_tried) {
            return Ok(*index);
        }
        Err(able.filter_map(|index| self.tables[*index].trouble.as_ref()).map(|trouble| trouble.until).min())
    }

    /// Rows that wait in the queue, of each table of a server that has any.
    fn unwritten(&self, target: usize) -> HashMap<usize, u64> {
        let of_target = |depth: TableDepth| {
            let index = *self.units.values().find_map(|unit| unit.tables.get(&depth.table))?;
            (self.tables[index].target == target).then_some((index, depth.unwritten_rows))
        };
        self.broker.depths().into_iter().filter_map(of_target).collect()
    }

    fn send_probe(&mut self, target: usize, index: usize, now: Instant) {
        self.tables[index].last_tried = Some(now);
        let deadline = now + PROBE_WAIT;
        if let Some(down) = &mut self.targets[target].down {
            down.probe = Some((index, deadline));
        }
        if self.tables[index].pending.is_some() {
            self.force_permit(index);
        }
        self.set_target_timer(target, deadline);
        self.open(index, now);
    }
}
