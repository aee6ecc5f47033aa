//! What a unit holds: blocks that came from the server and are not settled, table by table in sequence. Pure.
//!
//! A block stays here until its ack is confirmed, so a block that is handed back is handed out again from here, in order,
//! and a block that the server delivers again is known.

mod damaged;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use wavehouse_broker::{RowBudget, Settlement, StoredBlock, Ticket};
use wavehouse_core::TableRef;

/// Sequences that were acked last, so that a delivery which crossed its ack is not taken for a new one.
const RECENT_MAX: usize = 20_000;

/// What comes next.
pub(super) enum Picked {
    /// This block.
    Hand(StoredBlock, Ticket),
    /// Nothing before this moment, or before something changes.
    Wait(Option<Instant>),
}

/// What a message is that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Not seen yet.
    New,
    /// It is here; its address was renewed.
    Held,
    /// It is here and acked, or was a moment ago: it wants another ack, at its new address.
    Acked,
}

struct Table {
    /// To be handed out.
    ready: BTreeSet<u64>,
    /// Everything of it that is not acked.
    open: BTreeSet<u64>,
    /// Blocks that cannot be read.
    damaged: BTreeSet<u64>,
    paused_until: Option<Instant>,
    /// The turn in which it was served last.
    served: u64,
    /// The highest that was ever handed out.
    top: u64,
}

enum State {
    Ready { not_before: Option<Instant> },
    Out { until: Instant },
    Damaged,
    Acked,
}

struct Held {
    table: u32,
    /// None for what cannot be read.
    stored: Option<StoredBlock>,
    reply: String,
    rows: u64,
    bytes: u64,
    attempt: u32,
    state: State,
}

/// The shelf of a unit.
pub(super) struct Shelf {
    budget: RowBudget,
    ack_wait: Duration,
    numbers: HashMap<TableRef, u32>,
    tables: Vec<Table>,
    held: HashMap<u64, Held>,
    /// Tables that have something ready, least recently served first.
    waiting: BTreeSet<(u64, u32)>,
    /// When what is out is handed out again.
    overdue: BTreeSet<(Instant, u64)>,
    /// When what is held was last told to the server to be in hand, oldest first.
    told: VecDeque<(Instant, u64)>,
    recent: VecDeque<u64>,
    recent_set: BTreeSet<u64>,
    turn: u64,
    out: (usize, RowBudget),
    kept: (usize, RowBudget),
}

const NOTHING: (usize, RowBudget) = (0, RowBudget { rows: 0, bytes: 0 });

fn add(load: &mut (usize, RowBudget), rows: u64, bytes: u64) {
    load.0 += 1;
    load.1.rows += rows;
    load.1.bytes += bytes;
}

fn take(load: &mut (usize, RowBudget), rows: u64, bytes: u64) {
    load.0 -= 1;
    load.1.rows -= rows;
    load.1.bytes -= bytes;
}

impl Shelf {
    pub(super) fn new(budget: RowBudget, ack_wait: Duration) -> Self {
        Self {
            budget,
            ack_wait,
            numbers: HashMap::new(),
            tables: Vec::new(),
            held: HashMap::new(),
            waiting: BTreeSet::new(),
            overdue: BTreeSet::new(),
            told: VecDeque::new(),
            recent: VecDeque::new(),
            recent_set: BTreeSet::new(),
            turn: 0,
            out: NOTHING,
            kept: NOTHING,
        }
    }

    pub(super) fn set_budget(&mut self, budget: RowBudget) {
        self.budget = budget;
    }

    pub(super) fn budget(&self) -> RowBudget {
        self.budget
    }

    /// Blocks, rows and bytes that are held and not acked.
    pub(super) fn kept(&self) -> (usize, RowBudget) {
        self.kept
    }

    pub(super) fn pause(&mut self, table: &TableRef, until: Instant) {
        let number = self.number(table);
        if let Some(table) = self.tables.get_mut(number as usize) {
            table.paused_until = Some(until);
        }
    }

    /// What a message that came is, by its sequence; where it is held, its address is renewed.
    pub(super) fn meet(&mut self, sequence: u64, reply: &str) -> Known {
        match self.held.get_mut(&sequence) {
            Some(held) => {
                reply.clone_into(&mut held.reply);
                if matches!(held.state, State::Acked) { Known::Acked } else { Known::Held }
            }
            None if self.recent_set.contains(&sequence) => {
                self.put_acked(sequence, reply.to_owned());
                Known::Acked
            }
            None => Known::New,
        }
    }

    /// Whether a later block of the table than this has been handed out.
    pub(super) fn is_behind(&self, table: &TableRef, sequence: u64) -> bool {
        let number = self.numbers.get(table).and_then(|number| self.tables.get(*number as usize));
        number.is_some_and(|table| table.top > sequence)
    }

    /// Puts a block on the shelf.
    pub(super) fn put(&mut self, stored: StoredBlock, reply: String, now: Instant) {
        let (sequence, rows) = (stored.sequence.0, u64::from(stored.block.rows()));
        let bytes = stored.block.lines.len() as u64;
        let number = self.number(&stored.block.table);
        let state = State::Ready { not_before: None };
        let held = Held { table: number, stored: Some(stored), reply, rows, bytes, attempt: 0, state };
        self.held.insert(sequence, held);
        add(&mut self.kept, rows, bytes);
        self.told.push_back((now, sequence));
        if let Some(table) = self.tables.get_mut(number as usize) {
            table.open.insert(sequence);
        }
        self.make_ready(number, sequence);
    }

    /// A block without rows, which nobody is handed: it only wants its ack.
    pub(super) fn put_acked(&mut self, sequence: u64, reply: String) {
        // Nobody asks for the table of what is acked.
        let (table, state) = (0, State::Acked);
        self.held.insert(sequence, Held { table, stored: None, reply, rows: 0, bytes: 0, attempt: 0, state });
    }

    /// Hands out the next block, if one may go out now.
    pub(super) fn pick(&mut self, now: Instant) -> Picked {
        self.take_overdue(now);
        let mut wake = self.overdue.first().map(|(until, _)| *until);
        let mut found = None;
        for (_, number) in &self.waiting {
            let Some(table) = self.tables.get(*number as usize) else { continue };
            let Some(sequence) = table.ready.first().copied() else { continue };
            let due = match self.held.get(&sequence).map(|held| &held.state) {
                Some(State::Ready { not_before }) => not_before.filter(|at| *at > now),
                _ => None,
            };
            let paused = table.paused_until.filter(|until| *until > now);
            match due.max(paused) {
                None => {
                    found = Some((*number, sequence));
                    break;
                }
                at => wake = wake.into_iter().chain(at).min(),
            }
        }
        let Some((number, sequence)) = found else { return Picked::Wait(wake) };
        match self.hand(number, sequence, now) {
            Some((stored, ticket)) => Picked::Hand(stored, ticket),
            None => Picked::Wait(wake),
        }
    }

    fn hand(&mut self, number: u32, sequence: u64, now: Instant) -> Option<(StoredBlock, Ticket)> {
        let held = self.held.get_mut(&sequence)?;
        let (rows, bytes) = (held.rows, held.bytes);
        let (blocks, out) = self.out;
        let fits = out.rows + rows <= self.budget.rows && out.bytes + bytes <= self.budget.bytes;
        if blocks > 0 && !fits {
            return None;
        }
        let stored = held.stored.clone()?;
        held.attempt += 1;
        let until = now + self.ack_wait;
        held.state = State::Out { until };
        let ticket = Ticket { table: number, sequence: stored.sequence, attempt: held.attempt };
        add(&mut self.out, rows, bytes);
        self.overdue.insert((until, sequence));
        let table = self.tables.get_mut(number as usize)?;
        self.waiting.remove(&(table.served, number));
        table.ready.remove(&sequence);
        table.top = table.top.max(sequence);
        self.turn += 1;
        table.served = self.turn;
        if !table.ready.is_empty() {
            self.waiting.insert((table.served, number));
        }
        Some((stored, ticket))
    }

    /// Ends a delivery; true when the block is acked by it.
    pub(super) fn settle(&mut self, ticket: Ticket, how: Settlement, now: Instant) -> bool {
        let sequence = ticket.sequence.0;
        let Some(held) = self.held.get_mut(&sequence) else { return false };
        let (rows, bytes, number) = (held.rows, held.bytes, held.table);
        let out = match held.state {
            State::Out { until } => Some(until),
            State::Ready { .. } => None,
            State::Acked | State::Damaged => return false,
        };
        match how {
            Settlement::Retry { .. } if out.is_none() || held.attempt != ticket.attempt => return false,
            Settlement::Retry { after } => {
                held.state = State::Ready { not_before: (!after.is_zero()).then(|| now + after) };
            }
            Settlement::Ack => {
                held.state = State::Acked;
                held.stored = None;
            }
        }
        if let Some(until) = out {
            take(&mut self.out, rows, bytes);
            self.overdue.remove(&(until, sequence));
        }
        match how {
            Settlement::Retry { .. } => self.make_ready(number, sequence),
            Settlement::Ack => self.close(number, sequence, rows, bytes),
        }
        matches!(how, Settlement::Ack)
    }

    /// The server knows of an ack.
    pub(super) fn confirmed(&mut self, sequence: u64) {
        if self.held.get(&sequence).is_some_and(|held| matches!(held.state, State::Acked)) {
            self.held.remove(&sequence);
            if self.recent_set.insert(sequence) {
                self.recent.push_back(sequence);
            }
            if self.recent.len() > RECENT_MAX
                && let Some(oldest) = self.recent.pop_front()
            {
                self.recent_set.remove(&oldest);
            }
        }
    }

    /// Where a block is settled.
    pub(super) fn reply(&self, sequence: u64) -> Option<&str> {
        self.held.get(&sequence).map(|held| held.reply.as_str())
    }

    /// Addresses of what has been in hand for so long without the server being told.
    pub(super) fn untold(&mut self, now: Instant, every: Duration) -> Vec<String> {
        let mut replies = Vec::new();
        while let Some((at, sequence)) = self.told.front().copied() {
            let Some(held) = self.held.get(&sequence).filter(|held| !matches!(held.state, State::Acked))
            else {
                self.told.pop_front();
                continue;
            };
            if at + every > now {
                break;
            }
            replies.push(held.reply.clone());
            self.told.pop_front();
            self.told.push_back((now, sequence));
        }
        replies
    }

    /// Whether every block of the table up to a sequence that is here has been handed out at least once.
    pub(super) fn handed_up_to(&self, table: &TableRef, last: u64) -> bool {
        let Some(table) = self.table(table) else { return true };
        let mut open = table.open.range(..=last);
        open.all(|sequence| self.held.get(sequence).is_none_or(|held| held.attempt > 0))
    }

    /// Whether no block of the table between these is here unacked.
    pub(super) fn is_acked(&self, table: &TableRef, first: u64, last: u64) -> bool {
        let Some(table) = self.table(table) else { return true };
        first > last
            || (table.open.range(first..=last).next().is_none() && !Self::has(&table.damaged, first, last))
    }

    fn has(set: &BTreeSet<u64>, first: u64, last: u64) -> bool {
        set.range(first..=last).next().is_some()
    }

    fn table(&self, table: &TableRef) -> Option<&Table> {
        self.numbers.get(table).and_then(|number| self.tables.get(*number as usize))
    }

    fn take_overdue(&mut self, now: Instant) {
        while let Some((until, sequence)) = self.overdue.first().copied().filter(|(until, _)| *until <= now) {
            self.overdue.remove(&(until, sequence));
            let Some(held) = self.held.get_mut(&sequence) else { continue };
            held.state = State::Ready { not_before: None };
            let (number, rows, bytes) = (held.table, held.rows, held.bytes);
            take(&mut self.out, rows, bytes);
            self.make_ready(number, sequence);
        }
    }

    fn make_ready(&mut self, number: u32, sequence: u64) {
        if let Some(table) = self.tables.get_mut(number as usize) {
            table.ready.insert(sequence);
            self.waiting.insert((table.served, number));
        }
    }

    fn close(&mut self, number: u32, sequence: u64, rows: u64, bytes: u64) {
        take(&mut self.kept, rows, bytes);
        if let Some(table) = self.tables.get_mut(number as usize) {
            table.open.remove(&sequence);
            if table.ready.remove(&sequence) && table.ready.is_empty() {
                self.waiting.remove(&(table.served, number));
            }
        }
    }

    fn number(&mut self, table: &TableRef) -> u32 {
        if let Some(number) = self.numbers.get(table) {
            return *number;
        }
        let number = u32::try_from(self.tables.len()).unwrap_or(u32::MAX);
        self.numbers.insert(table.clone(), number);
        self.tables.push(Table {
            ready: BTreeSet::new(),
            open: BTreeSet::new(),
            damaged: BTreeSet::new(),
            paused_until: None,
            served: 0,
            top: 0,
        });
        number
    }
}

#[cfg(test)]
mod tests;
