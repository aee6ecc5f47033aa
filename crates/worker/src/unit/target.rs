//! One ClickHouse: which tables have a batch for it and since when, how many inserts it has in flight, and whether it
//! is away.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::TableIndex;
use crate::backoff::Backoff;

/// The state of one ClickHouse.
#[derive(Debug, Default)]
pub(super) struct Target {
    schedule: BTreeSet<(Instant, TableIndex)>,
    scheduled: HashMap<TableIndex, Instant>,
    in_flight: usize,
    backoff: Backoff,
    away_until: Option<Instant>,
    told_at: Option<Instant>,
}

impl Target {
    /// Puts a table on the schedule at `ready`, or takes it off.
    pub(super) fn schedule(&mut self, index: TableIndex, ready: Option<Instant>) {
        if self.scheduled.get(&index).copied() == ready {
            return;
        }
        if let Some(before) = self.scheduled.remove(&index) {
            self.schedule.remove(&(before, index));
        }
        if let Some(ready) = ready {
            self.scheduled.insert(index, ready);
            self.schedule.insert((ready, index));
        }
    }

    /// How many inserts may be in flight: one, the probe, until a failing ClickHouse has taken something.
    fn places(&self, inserts_max: usize) -> usize {
        if self.backoff.is_failing() { 1 } else { inserts_max }
    }

    /// Takes the table off the schedule that has been ready longest, if it may start now.
    pub(super) fn take_ready(&mut self, now: Instant, inserts_max: usize) -> Option<(Instant, TableIndex)> {
        if self.in_flight >= self.places(inserts_max) || self.away_until(now).is_some() {
            return None;
        }
        let (ready, index) = self.schedule.first().copied().filter(|(ready, _)| *ready <= now)?;
        self.schedule(index, None);
        Some((ready, index))
    }

    /// When something on the schedule can start next; none while all places are taken.
    pub(super) fn next_wake(&self, inserts_max: usize) -> Option<Instant> {
        if self.in_flight >= self.places(inserts_max) {
            return None;
        }
        let (ready, _) = self.schedule.first()?;
        Some(self.away_until.map_or(*ready, |until| until.max(*ready)))
    }

    /// An insert began.
    pub(super) fn begin(&mut self) {
        self.in_flight += 1;
    }

    /// An insert ended, well or not.
    pub(super) fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// It answered. True if it had been away.
    pub(super) fn succeeded(&mut self) -> bool {
        let was_away = self.backoff.is_failing();
        self.backoff.succeed();
        self.away_until = None;
        self.told_at = None;
        was_away
    }

    /// It did not take something. Failures within one absence count once. Returns when to try again.
    pub(super) fn failed(&mut self, now: Instant, random: u64) -> Instant {
        if let Some(until) = self.away_until(now) {
            return until;
        }
        let until = now + self.backoff.fail(random);
        self.away_until = Some(until);
        until
    }

    /// Until when nothing is sent, if that lies ahead.
    pub(super) fn away_until(&self, now: Instant) -> Option<Instant> {
        self.away_until.filter(|until| *until > now)
    }

    /// Whether its absence should be told in the log now; asking counts as telling.
    pub(super) fn is_due_to_tell(&mut self, now: Instant, every: Duration) -> bool {
        let due = self.told_at.is_none_or(|told| now - told >= every);
        if due {
            self.told_at = Some(now);
        }
        due
    }

    /// Takes every table off the schedule.
    pub(super) fn take_all(&mut self) -> Vec<TableIndex> {
        self.schedule.clear();
        self.scheduled.drain().map(|(index, _)| index).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_ready_goes_first_and_places_are_few() {
        let now = Instant::now();
        let ms = Duration::from_millis;
        let mut target = Target::default();
        for (index, ago) in [(0, 10), (1, 30), (2, 20)] {
            target.schedule(index, Some(now - ms(ago)));
        }
        target.schedule(3, Some(now + ms(50)));
        let mut order = Vec::new();
        while let Some((_, index)) = target.take_ready(now, 2) {
            target.begin();
            order.push(index);
        }
        assert_eq!(order, [1, 2]);
        assert_eq!(target.next_wake(2), None);
        target.end();
        assert_eq!(target.next_wake(2), Some(now - ms(10)));
        assert_eq!(target.take_ready(now, 2), Some((now - ms(10), 0)));
        assert_eq!(target.take_ready(now, 2), None);
        assert_eq!(target.next_wake(2), Some(now + ms(50)));
    }

    #[test]
    fn one_probe_after_an_absence_then_all() {
        let now = Instant::now();
        let mut target = Target::default();
        let until = target.failed(now, 0);
        assert_eq!(target.failed(now, 0), until, "one absence counts once");
        target.schedule(0, Some(now));
        target.schedule(1, Some(now));
        assert_eq!(target.take_ready(now, 4), None);
        assert_eq!(target.next_wake(4), Some(until));
        assert!(target.take_ready(until, 4).is_some());
        target.begin();
        assert_eq!(target.take_ready(until, 4), None, "the probe is alone");
        target.end();
        assert!(target.succeeded());
        assert!(target.take_ready(until, 4).is_some());
        assert!(!target.succeeded());
    }
}
