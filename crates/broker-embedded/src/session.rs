//! The reading of the unit by its opener: which table has its turn, what is out, when what is not settled comes back.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wavehouse_broker::{RowBudget, Settlement, Ticket};
use wavehouse_core::{Sequence, TableRef};

use crate::cursor::{Cursor, Ended, Size, Turn};
use crate::files::LogFile;
use crate::state::{Spot, State};

/// Most blocks that are read ahead of their handing out, over all tables.
const AHEAD_BLOCKS_MAX: usize = 64;

/// Most tables without rows whose pauses are kept.
const EARLY_PAUSES_MAX: usize = 10_000;

/// Who has the unit open.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) number: u64,
    pub(crate) budget: RowBudget,
    pub(crate) halted: bool,
    /// Pauses of tables that have had no row yet.
    early: HashMap<TableRef, Instant>,
    ack_wait: Duration,
    out_blocks: u64,
    out_rows: u64,
    out_bytes: u64,
    /// Tables that may have something to hand out.
    ready: VecDeque<u32>,
    /// Tables that may have something later.
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
    /// When what is out comes back.
    deadlines: BTreeSet<(Instant, u32, u64)>,
}

/// What the reader of the unit does next.
pub(crate) enum Choice {
    /// Read these.
    Read(Vec<Ahead>),
    /// Wait until this moment, or until woken.
    Wait(Option<Instant>),
    /// Nothing more comes.
    Over,
}

/// Blocks of one table to read.
pub(crate) struct Ahead {
    pub(crate) table: u32,
    pub(crate) name: TableRef,
    pub(crate) blocks: Vec<Wanted>,
}

/// A block to read.
pub(crate) struct Wanted {
    pub(crate) sequence: u64,
    pub(crate) number: u32,
    pub(crate) file: Arc<dyn LogFile>,
    pub(crate) spot: Spot,
}

/// What becomes of a block that has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// It is handed out.
    Hand(Ticket),
    /// It is not its turn any more.
    Stale,
    /// It does not fit the budget now.
    Full(Option<Instant>),
    /// Nothing more is handed out.
    Over,
}

impl Session {
    fn fits(&self, size: Size) -> bool {
        self.out_blocks == 0
            || (self.out_rows + u64::from(size.rows) <= self.budget.rows
                && self.out_bytes + u64::from(size.line_bytes) <= self.budget.bytes)
    }

    fn add_out(&mut self, size: Size) {
        self.out_blocks += 1;
        self.out_rows += u64::from(size.rows);
        self.out_bytes += u64::from(size.line_bytes);
    }

    fn less_out(&mut self, size: Size) {
        self.out_blocks = self.out_blocks.saturating_sub(1);
        self.out_rows = self.out_rows.saturating_sub(u64::from(size.rows));
        self.out_bytes = self.out_bytes.saturating_sub(u64::from(size.line_bytes));
    }

    fn next_moment(&self) -> Option<Instant> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let deadline = self.deadlines.first().map(|(at, _, _)| *at);
        [timer, deadline].into_iter().flatten().min()
    }
}

/// Longest time that anything is put off; what asks for more gets this.
const FAR: Duration = Duration::from_secs(10 * 365 * 86_400);

fn later(now: Instant, by: Duration) -> Instant {
    now + by.min(FAR)
}

impl State {
    /// Begins a session. Every table is read from its first unsettled block.
    pub(crate) fn begin_session(&mut self, budget: RowBudget, ack_wait: Duration) -> u64 {
        self.sessions += 1;
        self.session = Some(Session {
            number: self.sessions,
            budget,
            halted: false,
            early: HashMap::new(),
            ack_wait,
            out_blocks: 0,
            out_rows: 0,
            out_bytes: 0,
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            deadlines: BTreeSet::new(),
        });
        for id in 0..crate::codec::len_u32(self.tables.len()) {
            if let Some(table) = self.table_mut(id) {
                table.cursor = Cursor::default();
                if table.settled.first_open(1) < table.end {
                    self.wake_table(id);
                }
            }
        }
        self.sessions
    }

    /// The session of this number, if it is still the one.
    pub(crate) fn session_of(&mut self, number: u64) -> Option<&mut Session> {
        self.session.as_mut().filter(|session| session.number == number)
    }

    /// A table may have something to hand out.
    pub(crate) fn wake_table(&mut self, id: u32) {
        let Some(session) = &mut self.session else { return };
        let Some(table) = self.tables.get_mut(id as usize) else { return };
        if !table.cursor.queued && table.cursor.read_ahead == 0 {
            table.cursor.queued = true;
            session.ready.push_back(id);
        }
    }

    /// Takes back what has been out too long and wakes tables whose moment has come.
    fn pass_time(&mut self, now: Instant) {
        loop {
            let Some(session) = &mut self.session else { return };
            let Some((at, id, sequence)) = session.deadlines.first().copied().filter(|(at, ..)| *at <= now)
            else {
                break;
            };
            session.deadlines.remove(&(at, id, sequence));
            if let Some(table) = self.tables.get_mut(id as usize)
                && let Some(attempt) = table.cursor.attempt(sequence)
                && let Some(out) = table.cursor.come_back(sequence, attempt, now)
            {
                session.less_out(out.size);
            }
            self.wake_table(id);
        }
        while let Some(session) = &mut self.session
            && let Some(Reverse((at, id))) = session.timers.peek().copied()
            && at <= now
        {
            session.timers.pop();
            if let Some(table) = self.tables.get_mut(id as usize)
                && table.cursor.timer.is_some_and(|timer| timer <= at)
            {
                table.cursor.timer = None;
            }
            self.wake_table(id);
        }
    }

    /// What the reader of session `number` does next.
    pub(crate) fn choose(&mut self, number: u64, now: Instant) -> Choice {
        self.pass_time(now);
        let Some(session) = self.session_of(number).filter(|session| !session.halted) else {
            return Choice::Over;
        };
        let mut ready = std::mem::take(&mut session.ready);
        let share = (AHEAD_BLOCKS_MAX / ready.len().max(1)).max(1);
        let (mut plan, mut total) = (Vec::new(), 0);
        while total < AHEAD_BLOCKS_MAX
            && let Some(id) = ready.pop_front()
        {
            if let Some(ahead) = self.look_at(id, now, share) {
                total += ahead.blocks.len();
                plan.push(ahead);
            }
        }
        let Some(session) = &mut self.session else { return Choice::Over };
        // Tables that were woken in between stand behind those that waited already.
        ready.append(&mut session.ready);
        session.ready = ready;
        if plan.is_empty() { Choice::Wait(session.next_moment()) } else { Choice::Read(plan) }
    }

    /// Looks at one table that has left the queue of ready ones.
    fn look_at(&mut self, id: u32, now: Instant, share: usize) -> Option<Ahead> {
        let table = self.tables.get_mut(id as usize)?;
        table.cursor.queued = false;
        match table.cursor.turn(table.stock(), now) {
            Turn::Nothing => return None,
            Turn::At(moment) => {
                if table.cursor.timer.is_none_or(|timer| timer > moment) {
                    table.cursor.timer = Some(moment);
                    self.session.as_mut()?.timers.push(Reverse((moment, id)));
                }
                return None;
            }
            Turn::Now(_) => {}
        }
        let sequences = table.cursor.ahead(table.stock(), now, share);
        let name = table.name.clone();
        let (mut blocks, mut lost) = (Vec::new(), Vec::new());
        for sequence in sequences {
            match self.wanted(id, sequence) {
                Some(wanted) => blocks.push(wanted),
                None => lost.push(sequence),
            }
        }
        for sequence in lost {
            self.mark_damaged(id, sequence, "no log file holds it");
        }
        let table = self.tables.get_mut(id as usize)?;
        table.cursor.read_ahead = crate::codec::len_u32(blocks.len());
        if blocks.is_empty() {
            self.wake_table(id);
            return None;
        }
        Some(Ahead { table: id, name, blocks })
    }

    /// A block cannot be read: it is kept, passed over and told.
    pub(crate) fn mark_damaged(&mut self, id: u32, sequence: u64, why: &str) {
        let file = self.locate(id, sequence).map(|(file, _)| file);
        let Some(table) = self.tables.get_mut(id as usize) else { return };
        table.cursor.forget(sequence);
        if table.damaged.insert(sequence) {
            self.damage.inc();
            tracing::error!(table = %table.name, sequence, file, why, "a stored block cannot be read; it is kept and passed over");
        }
        if let Some(state) = file.and_then(|number| self.files.get_mut(&number)) {
            state.damaged = true;
        }
    }

    /// So many blocks of a table have really been read ahead.
    pub(crate) fn read_ahead(&mut self, number: u64, id: u32, count: u32) {
        if self.session_of(number).is_none() {
            return;
        }
        if let Some(table) = self.tables.get_mut(id as usize) {
            table.cursor.read_ahead = count;
        }
        if count == 0 {
            self.wake_table(id);
        }
    }

    /// A block that was read ahead leaves the reader's hands.
    pub(crate) fn put_down(&mut self, number: u64, id: u32) {
        if self.session_of(number).is_none() {
            return;
        }
        if let Some(table) = self.tables.get_mut(id as usize) {
            table.cursor.read_ahead = table.cursor.read_ahead.saturating_sub(1);
        }
        self.wake_table(id);
    }

    /// Whether a block that has been read may be handed out now.
    pub(crate) fn offer(
        &mut self,
        number: u64,
        (id, sequence): (u32, u64),
        size: Size,
        now: Instant,
    ) -> Offer {
        self.pass_time(now);
        let Some(session) = self.session.as_mut().filter(|s| s.number == number && !s.halted) else {
            return Offer::Over;
        };
        let Some(table) = self.tables.get_mut(id as usize) else { return Offer::Stale };
        if table.cursor.turn(table.stock(), now) != Turn::Now(sequence) {
            return Offer::Stale;
        }
        if !session.fits(size) {
            return Offer::Full(session.next_moment());
        }
        let deadline = later(now, session.ack_wait);
        let attempt = table.cursor.hand_out(sequence, size, deadline);
        session.add_out(size);
        session.deadlines.insert((deadline, id, sequence));
        Offer::Hand(Ticket { table: id, sequence: Sequence(sequence), attempt })
    }

    /// Ends a delivery of session `number`. Returns whether that left a file with nothing unsettled.
    pub(crate) fn end_delivery(
        &mut self,
        number: u64,
        ticket: Ticket,
        how: Settlement,
        now: Instant,
    ) -> bool {
        let (id, sequence) = (ticket.table, ticket.sequence.0);
        let Some(session) = self.session.as_mut().filter(|session| session.number == number) else {
            return false;
        };
        let Some(table) = self.tables.get_mut(id as usize) else { return false };
        match how {
            Settlement::Retry { after } => {
                let Some(out) = table.cursor.come_back(sequence, ticket.attempt, later(now, after)) else {
                    return false;
                };
                session.less_out(out.size);
                session.deadlines.remove(&(out.deadline, id, sequence));
                self.wake_table(id);
                false
            }
            Settlement::Ack => {
                let size = match table.cursor.end(sequence) {
                    Some(Ended::Out(out)) => {
                        session.less_out(out.size);
                        session.deadlines.remove(&(out.deadline, id, sequence));
                        out.size
                    }
                    Some(Ended::Back(size)) => size,
                    None => return false,
                };
                let emptied = self.settle(id, sequence, size);
                self.wake_table(id);
                emptied
            }
        }
    }

    /// Applies a pause that came before the table.
    pub(crate) fn apply_early_pause(&mut self, id: u32) {
        let (Some(session), Some(table)) = (&mut self.session, self.tables.get_mut(id as usize)) else {
            return;
        };
        if let Some(until) = session.early.remove(&table.name) {
            table.cursor.pause(until);
        }
    }

    /// Pauses a table for session `number`.
    pub(crate) fn pause(&mut self, number: u64, table: &TableRef, until: Instant) {
        let known = self.by_name.get(table).copied();
        let Some(session) = self.session_of(number) else { return };
        let Some(id) = known else {
            if session.early.len() < EARLY_PAUSES_MAX || session.early.contains_key(table) {
                session.early.insert(table.clone(), until);
            }
            return;
        };
        if let Some(table) = self.table_mut(id) {
            table.cursor.pause(until);
        }
        self.wake_table(id);
    }
}
