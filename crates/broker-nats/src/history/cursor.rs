//! Decides, copy by copy, what a reader of the history is given: pure, so that every start and every loss has its case.
//!
//! Copies come in the order of the history. Of one log and table each comes once: what comes again, because a reader went
//! back, is passed over. The server notes on each copy which original stood before it under the same subject, as long as
//! that was still in its stream; where that one was never seen here, it never reached the history, which is a hole.

use std::collections::{HashMap, HashSet};

use wavehouse_broker::{HistoryEvent, StoredBlock};
use wavehouse_core::{LogId, Position, Sequence, TableRef, Timestamp};

use super::copy::Copy;

/// Most subjects whose last sequence is remembered; past that all are forgotten, and with them only the power to tell
/// that something is missing.
const SUBJECTS_MAX: usize = 100_000;

/// Where reading begins.
#[derive(Debug, Clone)]
pub(super) enum Begin {
    /// With originals past these sequences of their logs.
    Past(HashMap<LogId, Sequence>),
    /// With the first block of each table that has a row of this moment or later; all past `end` of the history.
    Since { since: Timestamp, end: u64 },
    /// With the row after this one, which is looked for.
    After(Position),
    /// With everything except what is not past this row of its log.
    Beyond(Position),
    /// With everything.
    Everything,
}

/// What becomes of a copy.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It is passed over.
    Pass,
    /// These are told.
    Tell(Vec<HistoryEvent>),
}

/// A hole that is told once it is known what comes after it.
#[derive(Debug, Clone)]
struct OpenHole {
    table: TableRef,
    from: Option<Timestamp>,
}

/// A reader's place.
#[derive(Debug)]
pub(super) struct Cursor {
    begin: Begin,
    /// Whether the row that reading begins after was found, or need not be.
    found: bool,
    /// Tables that have come to the moment that reading begins at.
    begun: HashSet<TableRef>,
    /// The newest original of each log and table.
    seen: HashMap<(LogId, TableRef), Sequence>,
    /// When the newest rows of each table were received.
    received: HashMap<TableRef, Timestamp>,
    /// The newest original of each log and subject.
    chain: HashMap<(LogId, String), Sequence>,
    holes: Vec<OpenHole>,
}

impl Cursor {
    pub(super) fn new(begin: Begin) -> Self {
        let found = !matches!(begin, Begin::After(_));
        Self {
            begin,
            found,
            begun: HashSet::new(),
            seen: HashMap::new(),
            received: HashMap::new(),
            chain: HashMap::new(),
            holes: Vec::new(),
        }
    }

    /// Whether the row that reading begins after is still looked for.
    pub(super) fn is_searching(&self) -> bool {
        !self.found
    }

    /// The row is not there: what is kept past it is read from the start, after a hole.
    pub(super) fn give_up_search(&mut self, table: &TableRef) {
        if let Begin::After(position) = self.begin {
            let from = (position.stored_ms > 0).then(|| Timestamp::from_millis(position.stored_ms));
            *self = Self::new(Begin::Beyond(position));
            self.open_hole(table, from);
        }
    }

    /// Something of a table is missing, as far as is known from this moment on. It is told before what comes next.
    pub(super) fn open_hole(&mut self, table: &TableRef, from: Option<Timestamp>) {
        if !self.holes.iter().any(|hole| hole.table == *table) {
            self.holes.push(OpenHole { table: table.clone(), from });
        }
    }

    /// Something of every table that was seen may be missing.
    pub(super) fn open_hole_everywhere(&mut self) {
        let received: Vec<_> = self.received.iter().map(|(table, at)| (table.clone(), *at)).collect();
        for (table, at) in received {
            self.open_hole(&table, Some(at));
        }
    }

    /// Holes after which nothing has come.
    pub(super) fn take_holes(&mut self) -> Vec<HistoryEvent> {
        let holes = std::mem::take(&mut self.holes).into_iter();
        holes.map(|hole| HistoryEvent::Hole { table: hole.table, from: hole.from, to: None }).collect()
    }

    /// Whether a copy has been seen here.
    pub(super) fn has_seen(&self, copy: &Copy) -> bool {
        let seen = self.seen.get(&(copy.log, copy.head.table.clone()));
        seen.is_some_and(|seen| copy.head.sequence <= *seen)
    }

    /// Takes the next copy in.
    pub(super) fn take(&mut self, copy: Copy) -> Verdict {
        if self.has_seen(&copy) {
            return Verdict::Pass;
        }
        let missing = self.link(&copy);
        let Some(from_row) = self.wanted(&copy) else { return Verdict::Pass };
        let (sequence, table) = (copy.head.sequence, copy.head.table.clone());
        self.seen.insert((copy.log, table.clone()), sequence);
        let before = match copy.block.as_ref().filter(|block| block.rows() > 0) {
            Some(block) => self.received.insert(table.clone(), block.received_at()),
            None => self.received.get(&table).copied(),
        };
        if missing {
            self.open_hole(&table, before);
        }
        let Some(block) = copy.block.filter(|block| block.rows() > from_row) else { return Verdict::Pass };
        let to = block.segments.first().map(|segment| segment.received_at);
        let mut told = Vec::new();
        if let Some(at) = self.holes.iter().position(|hole| hole.table == table) {
            let hole = self.holes.remove(at);
            told.push(HistoryEvent::Hole { table: hole.table, from: hole.from, to });
        }
        let stored_ms = copy.head.stored.as_millis();
        let stored = StoredBlock { log: copy.log, sequence, stored_ms, block };
        told.push(HistoryEvent::Block { stored, from_row });
        Verdict::Tell(told)
    }

    /// Notes a copy as the last of its subject; whether the one before it never came.
    fn link(&mut self, copy: &Copy) -> bool {
        let head = &copy.head;
        if self.chain.len() >= SUBJECTS_MAX {
            self.chain.clear();
        }
        let last =
            self.chain.insert((copy.log, head.subject.clone()), head.sequence).or_else(|| self.floor(copy));
        last.is_some_and(|last| head.before > last && head.before < head.sequence)
    }

    /// Originals past this one were all asked for.
    fn floor(&self, copy: &Copy) -> Option<Sequence> {
        match &self.begin {
            Begin::Past(floors) => floors.get(&copy.log).copied(),
            Begin::After(position) if self.found && position.log == copy.log => Some(position.sequence),
            _ => None,
        }
    }

    /// The first row of a copy that was asked for; none when none was.
    fn wanted(&mut self, copy: &Copy) -> Option<u32> {
        let head = &copy.head;
        match &self.begin {
            Begin::Everything => Some(0),
            Begin::Past(floors) => {
                let before = floors.get(&copy.log).is_some_and(|floor| head.sequence <= *floor);
                (!before).then_some(0)
            }
            Begin::Since { since, end } => {
                let (since, past) = (*since, head.history > *end);
                let late = copy.block.as_ref().is_some_and(|block| block.received_at() >= since);
                if !(past || late || self.begun.contains(&head.table)) {
                    return None;
                }
                self.begun.insert(head.table.clone());
                Some(0)
            }
            Begin::After(position) | Begin::Beyond(position) => {
                let position = *position;
                if position.log != copy.log {
                    return self.found.then_some(0);
                }
                if head.sequence == position.sequence {
                    self.found = true;
                    return Some(position.row.saturating_add(1));
                }
                (self.found && head.sequence > position.sequence).then_some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests;
