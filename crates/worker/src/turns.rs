//! Whose turn it is to insert into one ClickHouse: first come, first served, one place in the line a table, so that a
//! busy table comes after all others that wait.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The line in front of one ClickHouse.
#[derive(Debug, Default)]
pub(crate) struct Turns<T> {
    in_flight: usize,
    line: VecDeque<(T, Instant)>,
}

impl<T: Copy + PartialEq> Turns<T> {
    pub(crate) fn new() -> Self {
        Self { in_flight: 0, line: VecDeque::new() }
    }

    /// A table gets in line. It must not be in line or in flight.
    pub(crate) fn join(&mut self, table: T, now: Instant) {
        self.line.push_back((table, now));
    }

    /// A table leaves the line without a turn.
    pub(crate) fn leave(&mut self, table: T) {
        self.line.retain(|(waiting, _)| *waiting != table);
    }

    /// The next table, if fewer than `most` are in flight, and how long it stood in line.
    pub(crate) fn next(&mut self, most: usize, now: Instant) -> Option<(T, Duration)> {
        if self.in_flight >= most {
            return None;
        }
        let (table, since) = self.line.pop_front()?;
        self.in_flight += 1;
        Some((table, now.saturating_duration_since(since)))
    }

    /// An insert has ended.
    pub(crate) fn finish(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_gets_its_turn() {
        let start = Instant::now();
        let mut turns = Turns::new();
        for table in 0..5 {
            turns.join(table, start);
        }
        let mut order = Vec::new();
        for round in 0..10 {
            let now = start + Duration::from_secs(round);
            while let Some((table, _)) = turns.next(2, now) {
                order.push(table);
            }
            assert_eq!(turns.in_flight(), 2);
            for table in order.iter().rev().take(2).rev() {
                turns.finish();
                turns.join(*table, now);
            }
        }
        for table in 0..5 {
            assert_eq!(order.iter().filter(|served| **served == table).count(), 4, "{order:?}");
        }
    }

    #[test]
    fn the_wait_is_told_and_a_place_can_be_left() {
        let start = Instant::now();
        let mut turns = Turns::new();
        turns.join('a', start);
        turns.join('b', start);
        turns.leave('a');
        assert_eq!(turns.next(1, start + Duration::from_secs(2)), Some(('b', Duration::from_secs(2))));
        assert_eq!(turns.next(1, start), None);
    }
}
