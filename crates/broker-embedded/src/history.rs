//! History: streams over the same index as delivery. A stream keeps a place in each table that it reads and no buffer
//! that grows; what is new it learns from the order in which tables were last added to.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use wavehouse_broker::{HistoryError, HistoryEvent, HistoryFilter, HistoryStart, HistoryStream};
use wavehouse_core::{Position, TableRef};

use crate::place::Place;
use crate::read::{Fetched, Got, may_wait, read_table};
use crate::session::{Ahead, Wanted};
use crate::shared::Shared;
use crate::state::{End, State};

/// Most blocks, and most bytes but for one larger block, that a stream reads ahead.
const AHEAD_BLOCKS_MAX: u64 = 32;
const AHEAD_BYTES_MAX: u64 = 256 << 10;

/// Opens a stream.
pub(crate) fn open_history(
    shared: &Arc<Shared>,
    start: HistoryStart,
    filter: HistoryFilter,
) -> Result<Box<dyn HistoryStream>, HistoryError> {
    if matches!((start, &filter), (HistoryStart::After(_), HistoryFilter::All)) {
        let reason = "a stream that begins after a row reads one table".to_owned();
        return Err(HistoryError::Unreadable { reason });
    }
    let stored = shared.stored.subscribe();
    let state = shared.state();
    ended(&state)?;
    let mut reader = Reader {
        shared: Arc::clone(shared),
        filter,
        stored,
        commit: state.commit,
        places: HashMap::new(),
        todo: VecDeque::new(),
        behind: 0,
        caught_up: false,
        events: VecDeque::new(),
        reading: None,
    };
    reader.begin(&state, start);
    drop(state);
    Ok(Box::new(reader))
}

fn ended(state: &State) -> Result<(), HistoryError> {
    match &state.end {
        None => Ok(()),
        Some(End::Closed) => Err(HistoryError::Closed),
        Some(End::Failed(reason)) => Err(HistoryError::Unreadable { reason: reason.clone() }),
    }
}

struct Reader {
    shared: Arc<Shared>,
    filter: HistoryFilter,
    stored: watch::Receiver<u64>,
    /// The commit up to which it is known which tables have something new.
    commit: u64,
    places: HashMap<u32, Place>,
    /// Tables that may have something to read. A table stands here once.
    todo: VecDeque<u32>,
    /// How many tables have not been read up to where they ended when the stream was opened.
    behind: usize,
    caught_up: bool,
    events: VecDeque<HistoryEvent>,
    /// Kept across calls, so that a call that is cancelled loses nothing.
    reading: Option<JoinHandle<Vec<Got>>>,
}

enum Step {
    /// There are events now, or there is more to do.
    Again,
    /// Nothing until something is stored.
    Wait,
}

impl Reader {
    /// Takes a place in every table.
    fn begin(&mut self, state: &State, start: HistoryStart) {
        match self.filter.clone() {
            HistoryFilter::All => {
                for id in 0..crate::codec::len_u32(state.tables.len()) {
                    self.enter(state, id, start);
                }
            }
            HistoryFilter::Table(table) => match state.by_name.get(&table).copied() {
                Some(id) => self.enter(state, id, start),
                None if matches!(start, HistoryStart::After(_)) => self.hole(table, None, None),
                None => {}
            },
        }
        self.check_caught_up();
    }

    fn enter(&mut self, state: &State, id: u32, start: HistoryStart) {
        let Some(table) = state.table(id) else { return };
        let first = state.next_kept(id, 1).unwrap_or(table.end);
        let place = match start {
            HistoryStart::Live => Place::at(table.end, table.end),
            HistoryStart::After(position) if self.is_known(position, table.end) => {
                Place::after(position, table.end)
            }
            HistoryStart::After(_) => Place::at(first, table.end).with_hole(true),
            HistoryStart::Since(moment) => {
                let hole = table.gone_ns > 0 && moment.0 <= table.gone_ns;
                let next = state.first_since(id, moment.0).unwrap_or(table.end);
                Place::since(next, table.end, moment).with_hole(hole)
            }
        };
        if place.is_behind() {
            self.behind += 1;
        }
        self.places.insert(id, place);
        if place.next < table.end {
            self.queue(id);
        } else if place.hole {
            // Nothing follows that could be told with it.
            self.hole(table.name.clone(), place.known_from(), None);
            self.change(id, |place| place.hole = false);
        }
    }

    fn is_known(&self, position: Position, end: u64) -> bool {
        position.log == self.shared.log && (1..end).contains(&position.sequence.0)
    }

    fn hole(
        &mut self,
        table: TableRef,
        from: Option<wavehouse_core::Timestamp>,
        to: Option<wavehouse_core::Timestamp>,
    ) {
        self.shared.metrics.history_holes.inc();
        self.events.push_back(HistoryEvent::Hole { table, from, to });
    }

    fn check_caught_up(&mut self) {
        if self.behind == 0 && !std::mem::replace(&mut self.caught_up, true) {
            self.events.push_back(HistoryEvent::CaughtUp);
        }
    }

    /// Changes the place of a table, and notes when it has been read up to where it ended at first.
    fn change(&mut self, id: u32, change: impl FnOnce(&mut Place)) {
        let Some(place) = self.places.get_mut(&id) else { return };
        let before = place.is_behind();
        change(place);
        if before && !place.is_behind() {
            self.behind -= 1;
        }
    }

    /// Queues tables that have been added to.
    fn look_for_news(&mut self, state: &State) {
        let only = match &self.filter {
            HistoryFilter::All => None,
            HistoryFilter::Table(table) => match state.by_name.get(table) {
                Some(id) => Some(*id),
                None => return,
            },
        };
        for (_, id) in state.changes.range((self.commit + 1, 0)..) {
            if only.is_none_or(|only| only == *id) {
                self.places.entry(*id).or_insert_with(|| Place::at(1, 1));
                self.queue(*id);
            }
        }
        self.commit = state.commit;
    }

    fn queue(&mut self, id: u32) {
        if let Some(place) = self.places.get_mut(&id)
            && !std::mem::replace(&mut place.queued, true)
        {
            self.todo.push_back(id);
        }
    }

    /// Does what can be done without waiting.
    fn step(&mut self) -> Result<Step, HistoryError> {
        self.stored.borrow_and_update();
        let shared = Arc::clone(&self.shared);
        let state = shared.state();
        ended(&state)?;
        self.look_for_news(&state);
        let Some(id) = self.todo.pop_front() else { return Ok(Step::Wait) };
        self.change(id, |place| place.queued = false);
        let (Some(table), Some(place)) = (state.table(id), self.places.get(&id).copied()) else {
            return Ok(Step::Again);
        };
        let Some(kept) = state.next_kept(id, place.next) else {
            // What is left has been given back.
            let end = table.end;
            if place.hole || (place.next < end && !place.gap_is_before_start(table.gone_ns)) {
                self.hole(table.name.clone(), place.known_from(), None);
            }
            self.change(id, |place| {
                place.pass_to(end);
                place.hole = false;
            });
            self.check_caught_up();
            return Ok(Step::Again);
        };
        if kept > place.next {
            let told = !place.gap_is_before_start(table.gone_ns);
            self.change(id, |place| {
                place.pass_to(kept);
                place.hole |= told;
            });
        }
        let blocks: Vec<Wanted> =
            (kept..kept + AHEAD_BLOCKS_MAX).map_while(|at| state.wanted(id, at)).collect();
        if blocks.is_empty() {
            // Given back between two looks.
            self.change(id, |place| {
                place.pass_to(kept + 1);
                place.hole = true;
            });
            self.check_caught_up();
            self.queue(id);
            return Ok(Step::Again);
        }
        let ahead = Ahead { table: id, name: table.name.clone(), blocks };
        drop(state);
        let log = self.shared.log;
        if may_wait(std::slice::from_ref(&ahead)) {
            let read = move || read_table(log, &ahead, AHEAD_BYTES_MAX);
            self.reading = Some(tokio::task::spawn_blocking(read));
        } else {
            let got = read_table(log, &ahead, AHEAD_BYTES_MAX);
            self.take(got);
        }
        Ok(Step::Again)
    }

    /// Makes events of what was read of one table.
    fn take(&mut self, got: Vec<Got>) {
        let Some(id) = got.first().map(Got::table) else { return };
        for got in got {
            match got {
                Got::Block(fetched) => self.take_block(id, *fetched),
                Got::Damaged { sequence, why, .. } => {
                    self.shared.state().mark_damaged(id, sequence, &why);
                    self.change(id, |place| {
                        place.pass_to(sequence + 1);
                        place.hole = true;
                    });
                }
            }
        }
        self.check_caught_up();
        let end = self.shared.state().table(id).map_or(0, |table| table.end);
        if self.places.get(&id).is_some_and(|place| place.next < end) {
            self.queue(id);
        }
    }

    fn take_block(&mut self, id: u32, fetched: Fetched) {
        let stored = fetched.stored;
        let Some(place) = self.places.get(&id).copied() else { return };
        let from_row = place.first_row(&stored.block);
        if let (Some(from_row), true) = (from_row, stored.block.rows() > 0) {
            if place.hole {
                let to = stored.block.segments.first().map(|segment| segment.received_at);
                self.hole(stored.block.table.clone(), place.known_from(), to);
            }
            self.change(id, |place| place.pass_block(&stored));
            self.events.push_back(HistoryEvent::Block { stored, from_row });
        } else {
            self.change(id, |place| place.pass_to(stored.sequence.0 + 1));
        }
    }
}

#[async_trait]
impl HistoryStream for Reader {
    async fn next(&mut self) -> Result<HistoryEvent, HistoryError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            if let Some(reading) = &mut self.reading {
                let got = reading.await;
                self.reading = None;
                let got = got.map_err(|error| HistoryError::Unreadable { reason: error.to_string() })?;
                self.take(got);
                continue;
            }
            match self.step()? {
                Step::Again => {}
                Step::Wait => {
                    // The sender lives as long as this stream holds the queue's shared part.
                    let _alive = self.stored.changed().await;
                }
            }
        }
    }
}
