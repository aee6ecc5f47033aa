//! Delivery from the memory store: what is handed out next is decided by looking, under the lock, at every table.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use wavehouse_core::{Sequence, TableRef, UnitId};

use super::kept::{Kept, KeptTable};
use super::{Shared, State};
use crate::cut::{Cut, CutError};
use crate::errors::UnitLost;
use crate::unit::{
    Deliveries, Delivery, OpenUnit, RowBudget, Settle, Settlement, StoredBlock, Ticket, UnitControl,
};

type BlockKey = (u32, Sequence);

struct Out {
    attempt: u32,
    until: Instant,
    rows: u64,
    bytes: u64,
}

/// The unit in the hands of an opener.
pub(super) struct Opened {
    pub(super) opener: u64,
    budget: RowBudget,
    ack_wait: Duration,
    halted: bool,
    out: HashMap<BlockKey, Out>,
    attempts: HashMap<BlockKey, u32>,
    not_before: HashMap<BlockKey, Instant>,
    paused: HashMap<TableRef, Instant>,
    /// When each table was last served, for fair turns.
    served: HashMap<u32, u64>,
    turn: u64,
}

impl Opened {
    pub(super) fn new(opener: u64, budget: RowBudget, ack_wait: Duration) -> Self {
        Self {
            opener,
            budget,
            ack_wait,
            halted: false,
            out: HashMap::new(),
            attempts: HashMap::new(),
            not_before: HashMap::new(),
            paused: HashMap::new(),
            served: HashMap::new(),
            turn: 0,
        }
    }

    pub(super) fn halted(&self) -> bool {
        self.halted
    }

    /// The table's next block, if it may go out now: the first that is neither acked nor out.
    fn candidate(&self, name: &TableRef, table: &KeptTable, now: Instant) -> Option<Sequence> {
        if self.paused.get(name).is_some_and(|until| *until > now) {
            return None;
        }
        let held = |sequence| self.out.get(&(table.number, sequence)).is_some_and(|out| out.until > now);
        let mut open = table.blocks.range(table.floor..).filter(|(_, kept)| !kept.acked && !kept.damaged);
        let (sequence, _) = open.find(|(sequence, _)| !held(**sequence))?;
        let due = self.not_before.get(&(table.number, *sequence)).is_none_or(|at| *at <= now);
        due.then_some(*sequence)
    }

    fn pick(&mut self, kept: &Kept, now: Instant) -> Option<(StoredBlock, Ticket)> {
        let candidates = kept.tables.iter().filter_map(|(name, table)| {
            let sequence = self.candidate(name, table, now)?;
            Some((self.served.get(&table.number).copied().unwrap_or(0), table.number, name, sequence))
        });
        let (_, number, name, sequence) = candidates.min_by_key(|(served, number, ..)| (*served, *number))?;
        let stored = kept.stored(name, sequence)?;
        let (rows, bytes) = (u64::from(stored.block.rows()), stored.block.lines.len() as u64);
        let held = || self.out.values().filter(|out| out.until > now);
        let fits = held().map(|out| out.rows).sum::<u64>() + rows <= self.budget.rows
            && held().map(|out| out.bytes).sum::<u64>() + bytes <= self.budget.bytes;
        if held().next().is_some() && !fits {
            return None;
        }
        let key = (number, sequence);
        let attempt = self.attempts.entry(key).and_modify(|attempt| *attempt += 1).or_insert(1);
        let ticket = Ticket { table: number, sequence, attempt: *attempt };
        self.out.insert(key, Out { attempt: *attempt, until: now + self.ack_wait, rows, bytes });
        self.not_before.remove(&key);
        self.turn += 1;
        self.served.insert(number, self.turn);
        Some((stored, ticket))
    }

    /// When time alone may let something go out.
    fn wake(&self, now: Instant) -> Option<Instant> {
        let ends = self.out.values().map(|out| out.until);
        ends.chain(self.not_before.values().copied())
            .chain(self.paused.values().copied())
            .filter(|at| *at > now)
            .min()
    }
}

pub(super) fn open(shared: &Arc<Shared>, opener: u64, cuts: Vec<Cut>) -> OpenUnit {
    let handle = MemoryUnit { shared: Arc::clone(shared), opener };
    let changed = shared.changed.subscribe();
    let settle = Arc::new(handle.clone());
    OpenUnit { deliveries: Box::new(MemoryDeliveries { changed, settle }), control: Arc::new(handle), cuts }
}

/// One opener's hand on the unit; without effect once it is no longer the opener.
#[derive(Clone)]
struct MemoryUnit {
    shared: Arc<Shared>,
    opener: u64,
}

impl MemoryUnit {
    fn with<T>(&self, act: impl FnOnce(&mut Opened, &mut Kept) -> T) -> Option<T> {
        let mut state = self.shared.lock();
        let State { open, kept, .. } = &mut *state;
        let done = open.as_mut().filter(|open| open.opener == self.opener).map(|open| act(open, kept));
        drop(state);
        self.shared.notify();
        done
    }
}

impl Settle for MemoryUnit {
    fn settle(&self, ticket: Ticket, how: Settlement) {
        let key = (ticket.table, ticket.sequence);
        self.with(|open, kept| match how {
            Settlement::Ack => {
                open.out.remove(&key);
                kept.ack(ticket.table, ticket.sequence);
            }
            Settlement::Retry { after } => {
                if open.out.get(&key).is_some_and(|out| out.attempt == ticket.attempt) {
                    open.out.remove(&key);
                    open.not_before.insert(key, Instant::now() + after);
                }
            }
        });
    }
}

#[async_trait]
impl UnitControl for MemoryUnit {
    fn set_budget(&self, budget: RowBudget) {
        self.with(|open, _| open.budget = budget);
    }

    fn pause(&self, table: &TableRef, until: Instant) {
        self.with(|open, _| open.paused.insert(table.clone(), until));
    }

    async fn record_cut(&self, cut: Cut) -> Result<(), CutError> {
        let table = cut.table.clone();
        let lost = CutError::Lost { table: table.clone() };
        let recorded = self.with(|_, kept| {
            kept.keep_acks();
            let reason = || "the table has no blocks".to_owned();
            let kept_table = kept.tables.get_mut(&table);
            kept_table.ok_or_else(|| CutError::Unavailable { table: table.clone(), reason: reason() })?.cut =
                Some(cut);
            Ok(())
        });
        recorded.unwrap_or(Err(lost))
    }

    fn damaged(&self, table: &TableRef, first: Sequence, last: Sequence) -> bool {
        let found = self.with(|_, kept| {
            let table = kept.tables.get(table);
            table.is_some_and(|table| table.blocks.range(first..=last).any(|(_, kept)| kept.damaged))
        });
        found.unwrap_or(false)
    }

    fn halt(&self) {
        self.with(|open, _| open.halted = true);
    }

    async fn release(&self) {
        let mut state = self.shared.lock();
        if state.open.as_ref().is_some_and(|open| open.opener == self.opener) {
            state.kept.keep_acks();
            state.open = None;
        }
        drop(state);
        self.shared.notify();
    }
}

struct MemoryDeliveries {
    changed: watch::Receiver<()>,
    settle: Arc<MemoryUnit>,
}

enum Step {
    Out(StoredBlock, Ticket),
    Wait(Option<Instant>),
}

impl MemoryDeliveries {
    fn step(&self) -> Result<Option<Step>, UnitLost> {
        let mut state = self.settle.shared.lock();
        let State { open, kept, lost, .. } = &mut *state;
        let Some(open) = open.as_mut().filter(|open| open.opener == self.settle.opener) else {
            let lost = lost.remove(&self.settle.opener);
            return lost.map_or(Ok(None), |reason| Err(UnitLost { unit: UnitId::WHOLE, reason }));
        };
        if open.halted {
            return Ok(None);
        }
        let now = Instant::now();
        let picked = open.pick(kept, now);
        Ok(Some(
            picked.map_or_else(|| Step::Wait(open.wake(now)), |(stored, ticket)| Step::Out(stored, ticket)),
        ))
    }
}

#[async_trait]
impl Deliveries for MemoryDeliveries {
    async fn next(&mut self) -> Result<Option<Delivery>, UnitLost> {
        loop {
            // Seen before looking, so that what changes after the look wakes the wait.
            self.changed.borrow_and_update();
            let wake = match self.step()? {
                None => return Ok(None),
                Some(Step::Out(stored, ticket)) => {
                    let settle: Arc<dyn Settle> = Arc::<MemoryUnit>::clone(&self.settle);
                    return Ok(Some(Delivery::new(stored, ticket, settle)));
                }
                Some(Step::Wait(wake)) => wake,
            };
            let timer = async {
                match wake {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The sender lives in the store that this holds, so it cannot be gone.
                _changed = self.changed.changed() => {}
                () = timer => {}
            }
        }
    }
}
