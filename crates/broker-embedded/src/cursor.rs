//! Which block of a table comes next for whoever reads the unit: a pure state of one table.
//!
//! Blocks go out in the order of their sequences. One that comes back goes before all that have not gone out yet, and
//! holds them up until it is due.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use crate::settled::Settled;

/// A block that is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Out {
    pub(crate) attempt: u32,
    pub(crate) deadline: Instant,
    pub(crate) size: Size,
}

/// A block that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Back {
    due: Instant,
    attempts: u32,
    size: Size,
}

/// How large a block is, as rows, as lines and as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Size {
    pub(crate) rows: u32,
    pub(crate) line_bytes: u32,
    pub(crate) stored_bytes: u32,
}

/// What a table has to hand out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// This block.
    Now(u64),
    /// Nothing before this moment.
    At(Instant),
    /// Nothing until something happens.
    Nothing,
}

/// What ended with a settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The block was out under this deadline.
    Out(Out),
    /// It had come back already.
    Back(Size),
}

/// A table's place in the reading of a unit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cursor {
    next: u64,
    out: BTreeMap<u64, Out>,
    back: BTreeMap<u64, Back>,
    paused: Option<Instant>,
    /// Whether the table stands in the queue of those that may have something.
    pub(crate) queued: bool,
    /// How many of its blocks are read but not handed out.
    pub(crate) read_ahead: u32,
    /// The moment for which it will be looked at again.
    pub(crate) timer: Option<Instant>,
}

/// What of a table is there to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stock<'a> {
    pub(crate) settled: &'a Settled,
    pub(crate) damaged: &'a BTreeSet<u64>,
    /// The first sequence that is not stored yet.
    pub(crate) end: u64,
}

impl Stock<'_> {
    fn first(&self, from: u64) -> Option<u64> {
        let mut at = self.settled.first_open(from);
        while self.damaged.contains(&at) {
            at = self.settled.first_open(at + 1);
        }
        (at < self.end).then_some(at)
    }
}

impl Cursor {
    /// What comes next at `now`.
    pub(crate) fn turn(&self, stock: Stock<'_>, now: Instant) -> Turn {
        if let Some(until) = self.paused.filter(|until| *until > now) {
            return Turn::At(until);
        }
        if let Some((sequence, back)) = self.back.first_key_value() {
            return if back.due <= now { Turn::Now(*sequence) } else { Turn::At(back.due) };
        }
        stock.first(self.next).map_or(Turn::Nothing, Turn::Now)
    }

    /// The next blocks at `now`, at most `count`.
    pub(crate) fn ahead(&self, stock: Stock<'_>, now: Instant, count: usize) -> Vec<u64> {
        let mut sequences = Vec::new();
        for (sequence, back) in &self.back {
            if sequences.len() >= count || back.due > now {
                return sequences;
            }
            sequences.push(*sequence);
        }
        let mut from = self.next;
        while let (true, Some(sequence)) = (sequences.len() < count, stock.first(from)) {
            sequences.push(sequence);
            from = sequence + 1;
        }
        sequences
    }

    /// Hands out the block that [`turn`](Self::turn) named. Returns the number of the attempt.
    pub(crate) fn hand_out(&mut self, sequence: u64, size: Size, deadline: Instant) -> u32 {
        let attempt = match self.back.remove(&sequence) {
            Some(back) => back.attempts + 1,
            None => {
                self.next = sequence + 1;
                1
            }
        };
        self.out.insert(sequence, Out { attempt, deadline, size });
        attempt
    }

    /// The attempt under which a block is out.
    pub(crate) fn attempt(&self, sequence: u64) -> Option<u32> {
        self.out.get(&sequence).map(|out| out.attempt)
    }

    /// Takes back a block that is out under `attempt`; it is due at `due`.
    pub(crate) fn come_back(&mut self, sequence: u64, attempt: u32, due: Instant) -> Option<Out> {
        if self.attempt(sequence) != Some(attempt) {
            return None;
        }
        let out = self.out.remove(&sequence)?;
        self.back.insert(sequence, Back { due, attempts: out.attempt, size: out.size });
        Some(out)
    }

    /// Ends a block for good, whichever attempt says so: an ack is true however late it comes.
    pub(crate) fn end(&mut self, sequence: u64) -> Option<Ended> {
        if let Some(out) = self.out.remove(&sequence) {
            return Some(Ended::Out(out));
        }
        self.back.remove(&sequence).map(|back| Ended::Back(back.size))
    }

    /// Forgets a block that came back and cannot be read any more.
    pub(crate) fn forget(&mut self, sequence: u64) {
        self.back.remove(&sequence);
    }

    pub(crate) fn pause(&mut self, until: Instant) {
        self.paused = Some(until);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SIZE: Size = Size { rows: 1, line_bytes: 2, stored_bytes: 3 };

    struct Table {
        settled: Settled,
        damaged: BTreeSet<u64>,
        cursor: Cursor,
        now: Instant,
    }

    impl Table {
        fn new(floor: u64) -> Self {
            let (settled, damaged) = (Settled::new(floor), BTreeSet::new());
            Self { settled, damaged, cursor: Cursor::default(), now: Instant::now() }
        }

        fn turn(&self, after_s: u64) -> Turn {
            let stock = Stock { settled: &self.settled, damaged: &self.damaged, end: 10 };
            self.cursor.turn(stock, self.at(after_s))
        }

        fn ahead(&self, count: usize) -> Vec<u64> {
            let stock = Stock { settled: &self.settled, damaged: &self.damaged, end: 10 };
            self.cursor.ahead(stock, self.now, count)
        }

        fn at(&self, after_s: u64) -> Instant {
            self.now + Duration::from_secs(after_s)
        }

        fn hand(&mut self, sequence: u64) -> u32 {
            assert_eq!(self.turn(0), Turn::Now(sequence));
            let deadline = self.at(60);
            self.cursor.hand_out(sequence, SIZE, deadline)
        }
    }

    #[test]
    fn settled_and_damaged_blocks_are_passed_over() {
        let mut table = Table::new(2);
        table.settled.insert(4, 5);
        table.damaged.extend([6, 8]);
        assert_eq!(table.ahead(9), [3, 7, 9]);
        assert_eq!(table.ahead(2), [3, 7]);
        table.hand(3);
        table.hand(7);
        table.hand(9);
        assert_eq!(table.turn(0), Turn::Nothing);
    }

    #[test]
    fn what_comes_back_goes_first_and_holds_up_the_rest() {
        let mut table = Table::new(0);
        assert_eq!((table.hand(1), table.hand(2), table.hand(3)), (1, 1, 1));
        let later = table.at(5);
        assert!(table.cursor.come_back(3, 1, table.now).is_some());
        assert!(table.cursor.come_back(2, 1, later).is_some());
        assert!(table.cursor.come_back(2, 1, later).is_none(), "only once");
        assert_eq!(table.turn(0), Turn::At(later));
        assert_eq!(table.turn(5), Turn::Now(2));
        assert_eq!(table.ahead(9), [] as [u64; 0]);
        assert!(matches!(table.cursor.end(2), Some(Ended::Back(SIZE))));
        assert_eq!(table.ahead(3), [3, 4, 5]);
        assert_eq!(table.hand(3), 2);
        assert!(table.cursor.come_back(3, 1, table.now).is_none(), "an overtaken attempt ends nothing");
        assert!(matches!(table.cursor.end(3), Some(Ended::Out(Out { attempt: 2, .. }))));
        assert_eq!(table.cursor.end(3), None);
        table.hand(4);
    }

    #[test]
    fn a_pause_holds_until_its_moment_or_an_earlier_one() {
        let mut table = Table::new(0);
        table.cursor.pause(table.at(9));
        assert_eq!(table.turn(0), Turn::At(table.at(9)));
        assert_eq!(table.turn(9), Turn::Now(1));
        table.cursor.pause(table.now);
        assert_eq!(table.turn(0), Turn::Now(1));
    }
}
