//! History from the memory store: a cursor for each table, read in the order of arrival.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use wavehouse_core::{Position, Sequence, TableRef};

use super::Shared;
use super::kept::{Kept, KeptTable};
use crate::errors::HistoryError;
use crate::history::{HistoryEvent, HistoryFilter, HistoryStart, HistoryStream};

/// The next row that a reader wants of a table.
#[derive(Clone, Copy)]
struct Cursor {
    sequence: Sequence,
    row: u32,
}

impl Cursor {
    const START: Self = Self { sequence: Sequence::FIRST, row: 0 };
}

pub(super) fn open(
    shared: &Arc<Shared>,
    broker: u64,
    kept: &Kept,
    start: HistoryStart,
    filter: HistoryFilter,
) -> Result<Box<dyn HistoryStream>, HistoryError> {
    let mut history = MemoryHistory {
        shared: Arc::clone(shared),
        broker,
        changed: shared.changed.subscribe(),
        filter,
        cursors: BTreeMap::new(),
        ends: kept.tables.iter().map(|(name, table)| (name.clone(), table.next)).collect(),
        caught_up: false,
        told: VecDeque::new(),
    };
    match (start, history.filter.clone()) {
        (HistoryStart::Live, _) => {
            history.cursors = history.ends.iter().map(|(n, end)| (n.clone(), at(*end))).collect();
        }
        (HistoryStart::Since(since), _) => {
            for (name, table) in kept.tables.iter().filter(|(name, _)| wanted(&history.filter, name)) {
                if table.swept_to.is_some_and(|swept| swept >= since) {
                    history.told.push_back(hole(name, table, Sequence::FIRST));
                }
                let mut blocks = table.blocks.iter();
                let first = blocks.find(|(_, kept)| kept.block.received_at() >= since);
                history.cursors.insert(name.clone(), at(first.map_or(table.next, |(sequence, _)| *sequence)));
            }
        }
        (HistoryStart::After(position), HistoryFilter::Table(name)) => {
            history.start_after(kept, &name, position)
        }
        (HistoryStart::After(_), HistoryFilter::All) => {
            let reason = "a position needs a filter on its table".to_owned();
            return Err(HistoryError::Unreadable { reason });
        }
    }
    Ok(Box::new(history))
}

fn at(sequence: Sequence) -> Cursor {
    Cursor { sequence, row: 0 }
}

fn wanted(filter: &HistoryFilter, name: &TableRef) -> bool {
    match filter {
        HistoryFilter::All => true,
        HistoryFilter::Table(table) => table == name,
    }
}

fn hole(name: &TableRef, table: &KeptTable, from: Sequence) -> HistoryEvent {
    let next = table.blocks.range(from..).next();
    HistoryEvent::Hole { table: name.clone(), from: None, to: next.map(|(_, kept)| kept.block.received_at()) }
}

struct MemoryHistory {
    shared: Arc<Shared>,
    broker: u64,
    changed: watch::Receiver<()>,
    filter: HistoryFilter,
    cursors: BTreeMap<TableRef, Cursor>,
    /// Where each table ended when the stream was opened.
    ends: BTreeMap<TableRef, Sequence>,
    caught_up: bool,
    /// Events that were known at the opening.
    told: VecDeque<HistoryEvent>,
}

impl MemoryHistory {
    fn start_after(&mut self, kept: &Kept, name: &TableRef, position: Position) {
        let table = kept.tables.get(name);
        if let Some(table) = table.filter(|table| position.log == kept.log && position.sequence < table.next)
        {
            let rows = table.blocks.get(&position.sequence).map_or(u32::MAX, |kept| kept.block.rows());
            let cursor = if position.row >= rows.saturating_sub(1) {
                at(position.sequence.next())
            } else {
                Cursor { sequence: position.sequence, row: position.row + 1 }
            };
            self.cursors.insert(name.clone(), cursor);
            if rows == u32::MAX && cursor.sequence == table.next {
                self.told.push_back(hole(name, table, cursor.sequence));
            }
            return;
        }
        let first = table.map(|table| table.blocks.keys().next().copied().unwrap_or(table.next));
        self.cursors.insert(name.clone(), first.map_or(Cursor::START, at));
        self.told.push_back(table.map_or_else(
            || HistoryEvent::Hole { table: name.clone(), from: None, to: None },
            |table| hole(name, table, Sequence::FIRST),
        ));
    }

    fn step(&mut self) -> Result<Option<HistoryEvent>, HistoryError> {
        let shared = Arc::clone(&self.shared);
        let state = shared.lock_for(self.broker).ok_or(HistoryError::Closed)?;
        if let Some(event) = self.told.pop_front() {
            return Ok(Some(event));
        }
        let mut next: Option<(u64, &TableRef, Sequence)> = None;
        for (name, table) in state.kept.tables.iter().filter(|(name, _)| wanted(&self.filter, name)) {
            let cursor = self.cursors.entry(name.clone()).or_insert(Cursor::START);
            let end = if self.caught_up {
                table.next
            } else {
                self.ends.get(name).copied().unwrap_or(Sequence::FIRST)
            };
            if cursor.sequence >= end {
                continue;
            }
            let found = table.blocks.range(cursor.sequence..).next();
            let found = found.map_or(table.next, |(sequence, _)| *sequence);
            if found > cursor.sequence {
                *cursor = at(found);
                return Ok(Some(hole(name, table, found)));
            }
            let serial = table.blocks.get(&found).map_or(0, |kept| kept.serial);
            if next.is_none_or(|(earliest, ..)| serial < earliest) {
                next = Some((serial, name, found));
            }
        }
        let Some((_, name, sequence)) = next else {
            let told = std::mem::replace(&mut self.caught_up, true);
            return Ok((!told).then_some(HistoryEvent::CaughtUp));
        };
        let cursor = self.cursors.insert(name.clone(), at(sequence.next()));
        let stored = state.kept.stored(name, sequence);
        let from_row = cursor.map_or(0, |cursor| cursor.row);
        Ok(stored.map(|stored| HistoryEvent::Block { stored, from_row }))
    }
}

#[async_trait]
impl HistoryStream for MemoryHistory {
    async fn next(&mut self) -> Result<HistoryEvent, HistoryError> {
        loop {
            // Seen before looking, so that what changes after the look wakes the wait.
            self.changed.borrow_and_update();
            if let Some(event) = self.step()? {
                return Ok(event);
            }
            // The sender lives in the store that this holds, so it cannot be gone.
            let _changed = self.changed.changed().await;
        }
    }
}
