//! One table: what is in hand of it, and in what state it is.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;
use wavehouse_broker::{Cut, Delivery, InsertToken};
use wavehouse_core::{Sequence, TableRef};

use crate::batcher::Load;
use crate::cut::Rebuild;
use crate::gate::Gate;
use crate::outage::Outage;
use crate::splits::Parts;

/// A block in hand.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) delivery: Delivery,
    pub(crate) load: Load,
    pub(crate) since: Instant,
}

impl Held {
    pub(crate) fn new(delivery: Delivery, since: Instant) -> Self {
        let block = &delivery.stored().block;
        let load = Load { rows: u64::from(block.rows()), bytes: block.lines.len() as u64 };
        Self { delivery, load, since }
    }
}

/// A batch that was cut before and is being brought back.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) rebuild: Rebuild,
    /// Its blocks so far.
    pub(crate) collected: Vec<Held>,
    /// Whether that is all of them.
    pub(crate) whole: bool,
    /// How far it came in this process; what the cut says, if another process cut it.
    pub(crate) parts: Option<Parts>,
    /// When the last block came.
    pub(crate) touched: Instant,
}

impl Pending {
    pub(crate) fn new(cut: Cut, parts: Option<Parts>, now: Instant) -> Self {
        Self { rebuild: Rebuild::new(cut), collected: Vec::new(), whole: false, parts, touched: now }
    }
}

/// The unit of a table that is forgotten.
const NO_UNIT: usize = usize::MAX;

/// One table of the worker.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: TableRef,
    /// The worker's number of the unit that delivers it.
    pub(crate) unit: usize,
    /// The worker's number of the ClickHouse that it goes to.
    pub(crate) target: usize,
    pub(crate) gate: Gate,
    /// Blocks that are in no batch.
    pub(crate) queue: VecDeque<Held>,
    /// Their sum.
    pub(crate) waiting: Load,
    /// The batch that is being inserted.
    pub(crate) flight: Option<Vec<Held>>,
    pub(crate) pending: Option<Pending>,
    /// Whether blocks are taken. While shut the table is paused and nothing of it but a batch in flight is in hand.
    pub(crate) open: bool,
    /// Whether delivery is paused because enough is in hand.
    pub(crate) throttled: bool,
    /// Whether it stands in line for its turn.
    pub(crate) in_line: bool,
    /// Whether it may bring a batch back, and whether it has asked for that.
    pub(crate) permit: bool,
    pub(crate) asked: bool,
    pub(crate) last_began: Option<Instant>,
    pub(crate) last_tried: Option<Instant>,
    /// Its own trouble; no insert before it is over.
    pub(crate) trouble: Option<Outage>,
    /// Whether the log has told of the trouble.
    pub(crate) told: bool,
    /// Rows refused in a row.
    pub(crate) streak: u32,
    /// The earliest timer that is set.
    pub(crate) timer: Option<Instant>,
}

impl Table {
    pub(crate) fn new(name: TableRef, unit: usize, target: usize) -> Self {
        Self {
            name,
            unit,
            target,
            gate: Gate::default(),
            queue: VecDeque::new(),
            waiting: Load::default(),
            flight: None,
            pending: None,
            open: true,
            throttled: false,
            in_line: false,
            permit: false,
            asked: false,
            last_began: None,
            last_tried: None,
            trouble: None,
            told: false,
            streak: 0,
            timer: None,
        }
    }

    /// A place that no table has.
    pub(crate) fn vacant(name: TableRef, target: usize) -> Self {
        Self { open: false, ..Self::new(name, NO_UNIT, target) }
    }

    /// The block of that sequence, if it is in hand.
    pub(crate) fn held_mut(&mut self, sequence: Sequence) -> Option<&mut Held> {
        let by = |held: &Held| held.delivery.sequence();
        if let Ok(at) = self.queue.binary_search_by_key(&sequence, by) {
            return self.queue.get_mut(at);
        }
        let collected = self.pending.as_mut().map(|pending| &mut pending.collected);
        for held in [collected, self.flight.as_mut()].into_iter().flatten() {
            if let Ok(at) = held.binary_search_by_key(&sequence, by) {
                return held.get_mut(at);
            }
        }
        None
    }

    /// Whether its own trouble lets it try.
    pub(crate) fn rested(&self, now: Instant) -> bool {
        self.trouble.as_ref().is_none_or(|trouble| trouble.until <= now)
    }

    /// Whether there is anything to write, in hand or handed back.
    pub(crate) fn has_work(&self) -> bool {
        self.gate.owes() || self.pending.is_some() || !self.queue.is_empty()
    }

    /// Whether nothing of it is in hand or on its way.
    pub(crate) fn quiet(&self) -> bool {
        self.flight.is_none() && !self.in_line && self.queue.is_empty()
    }

    /// Takes everything out of hand but the batch in flight; a batch that was being brought back begins again.
    pub(crate) fn empty_hand(&mut self) -> Vec<Held> {
        self.waiting = Load::default();
        let mut all: Vec<Held> = Vec::new();
        if let Some(pending) = &mut self.pending {
            all.append(&mut pending.collected);
            pending.whole = false;
            pending.rebuild.restart();
        }
        all.extend(self.queue.drain(..));
        all
    }

    /// The cut of a batch whose insert did not end, so that the same batch comes back.
    pub(crate) fn set_pending(&mut self, held: &[Held], parts: Parts, token: InsertToken, now: Instant) {
        let (Some(first), Some(last)) = (held.first(), held.last()) else { return };
        let cut = Cut {
            table: self.name.clone(),
            first: first.delivery.sequence(),
            last: last.delivery.sequence(),
            blocks: u32::try_from(held.len()).unwrap_or(u32::MAX),
            splits: parts.splits().to_vec(),
            done_rows: parts.done_rows(),
            token,
        };
        self.pending = Some(Pending::new(cut, Some(parts), now));
    }
}

/// A paused table is paused for so long at most; what comes after is handed back and paused anew.
pub(crate) const PAUSE: Duration = Duration::from_secs(600);
