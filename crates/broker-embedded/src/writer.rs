//! The writer: one thread that makes everything durable.
//!
//! It takes whatever waits, writes it in one piece at the end of the active file, syncs once, takes it up in memory, and
//! tells those who wait. Whoever comes meanwhile shares the next sync; nobody waits for a timer. A write or sync that
//! fails is never tried again on the same data: what the disk then holds is unknown.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use wavehouse_broker::{Cut, PublishError, Receipt};
use wavehouse_core::{Position, Sequence, TableRef, encode_merged};

use crate::answers::Answers;
use crate::commit::{ActiveFile, Commit};
use crate::footer::{Entry, footer_bytes};
use crate::intake::{Done, Item, MovedBlock, Submission, WriteFault};
use crate::merge::{Merged, blocks_of, merge};
use crate::options::{COMMIT_BYTES, SETTLE_IDLE, TABLES_MAX};
use crate::record::{
    HEAD_BYTES, Kind, Place, cut_bytes, put_cut, put_ranges, put_table, settle_bytes, write,
};
use crate::shared::Shared;
use crate::state::{End, Stored};

/// The thread's own things.
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) active: ActiveFile,
    /// Marks the records of this opening of the queue.
    pub(crate) run: u32,
    /// Whether the active file must first be told of the run.
    pub(crate) run_is_new: bool,
    /// Ids of tables, and their next sequences, those in the commit at hand included.
    pub(crate) ids: HashMap<TableRef, u32>,
    pub(crate) ends: Vec<u64>,
    /// The commit at hand.
    pub(crate) buffer: Vec<u8>,
    pub(crate) commit: Commit,
    /// Why nothing is written any more.
    pub(crate) failed: Option<String>,
}

/// What was taken from the intake, sorted.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) submissions: Vec<Submission>,
    cuts: Vec<(Cut, Done)>,
    moves: Vec<(Vec<MovedBlock>, Done)>,
    rolls: Vec<Done>,
    flushes: Vec<Done>,
    closes: Vec<Done>,
}

impl Work {
    fn sort(items: VecDeque<Item>) -> Self {
        let mut work = Self::default();
        for item in items {
            match item {
                Item::Blocks(submission) => work.submissions.push(submission),
                Item::Cut(cut, done) => work.cuts.push((cut, done)),
                Item::Move(blocks, done) => work.moves.push((blocks, done)),
                Item::Roll(done) => work.rolls.push(done),
                Item::Flush(done) => work.flushes.push(done),
                Item::Close(done) => work.closes.push(done),
            }
        }
        work
    }
}

/// Tells who waits. Who has gone needs no answer.
pub(crate) fn tell(done: Done, result: Result<(), WriteFault>) {
    let _gone = done.send(result);
}

impl Writer {
    /// Works until the queue is closed.
    pub(crate) fn run(mut self) {
        loop {
            let (items, _idle) = self.shared.intake.take(SETTLE_IDLE);
            let mut work = Work::sort(items);
            let closes = std::mem::take(&mut work.closes);
            self.process(work);
            if !closes.is_empty() {
                self.shared.end(End::Closed);
                for done in closes {
                    tell(done, self.ended());
                }
                return;
            }
        }
    }

    fn ended(&self) -> Result<(), WriteFault> {
        self.failed.as_ref().map_or(Ok(()), |why| Err(WriteFault::Ended(why.clone())))
    }

    fn process(&mut self, mut work: Work) {
        let saved = self.save_settles();
        for (cut, done) in std::mem::take(&mut work.cuts) {
            match saved.clone().and_then(|()| self.add_cut(cut)) {
                Ok(()) => self.commit.done.push(done),
                Err(fault) => tell(done, Err(fault)),
            }
        }
        for done in std::mem::take(&mut work.flushes) {
            match saved.clone() {
                Ok(()) => self.commit.done.push(done),
                Err(fault) => tell(done, Err(fault)),
            }
        }
        for (blocks, done) in std::mem::take(&mut work.moves) {
            match self.add_moved(&blocks) {
                Ok(()) => self.commit.done.push(done),
                Err(fault) => tell(done, Err(fault)),
            }
        }
        let mut submissions = Answers::new(std::mem::take(&mut work.submissions));
        for merged in merge(&submissions) {
            if let Err(error) = self.add_merged(&mut submissions, &merged) {
                submissions.refuse(&merged.members, &error);
            }
            if self.buffer.len() >= COMMIT_BYTES {
                self.commit(Some(&mut submissions));
            }
        }
        self.commit(Some(&mut submissions));
        submissions.tell(&self.shared);
        for done in std::mem::take(&mut work.rolls) {
            let rolled = self.roll(0, 1, &mut None);
            self.commit(None);
            tell(done, rolled.and_then(|()| self.ended()));
        }
    }

    pub(crate) fn place(&self) -> Place {
        Place { file: self.active.number, run: self.run, commit: self.active.at }
    }

    /// Makes sure that a record of so many bytes fits, rolling to the next file if need be. Blocks leave the reserve
    /// alone unless another file is ready.
    fn make_room(
        &mut self,
        bytes: usize,
        who: For,
        answers: &mut Option<&mut Answers>,
    ) -> Result<(), WriteFault> {
        self.ended()?;
        if self.fits(bytes, who) {
            return Ok(());
        }
        self.commit(answers.as_deref_mut());
        self.ended()?;
        if self.fits(bytes, who) {
            return Ok(());
        }
        // Rows leave the last spare file to settles, cuts, and rows that move.
        let keep = usize::from(who == For::Blocks);
        self.roll(bytes, keep, answers)
    }

    fn fits(&self, bytes: usize, who: For) -> bool {
        let entries = self.active.entries + self.commit.stored.len() + 1;
        let stretches = self.active.stretches + self.commit.stored.len() + 1;
        let run = if self.run_is_new { HEAD_BYTES } else { 0 };
        let needed = self.buffer.len() + run + bytes + footer_bytes(entries, stretches);
        let kept = match who {
            For::Blocks if !self.shared.spare.any() => self.active.reserve(),
            For::Moves if !self.shared.spare.any() => self.active.reserve() / 2,
            _ => 0,
        };
        u64::from(self.active.at) + needed as u64 + kept <= self.active.bytes
    }

    /// Begins the commit at hand with what must come first.
    fn begin(&mut self) {
        if self.run_is_new {
            self.run_is_new = false;
            let place = self.place();
            write(&mut self.buffer, Kind::Open, place, (0, 0), |_| {});
        }
    }

    /// Writes down what has been settled since the last time.
    fn save_settles(&mut self) -> Result<(), WriteFault> {
        let shared = Arc::clone(&self.shared);
        shared.intake.settles_saved();
        loop {
            let bytes = {
                let mut state = shared.state();
                let unsaved = state.unsaved.iter().filter_map(|id| state.table(*id));
                let bytes: usize = unsaved.map(|table| settle_bytes(table.unsaved.len())).sum();
                if bytes == 0 {
                    // Nothing is in flight either: this thread has synced what it wrote.
                    let emptied = std::mem::take(&mut state.emptied);
                    state.files_saved(&emptied);
                    return self.ended();
                }
                if self.failed.is_none() && self.fits(bytes, For::Control) {
                    self.begin();
                    let place = self.place();
                    self.commit.emptied.append(&mut state.emptied);
                    for id in std::mem::take(&mut state.unsaved) {
                        let Some(table) = state.table_mut(id) else { continue };
                        let ranges = std::mem::take(&mut table.unsaved);
                        let content = |out: &mut Vec<u8>| put_ranges(out, ranges.iter().copied());
                        write(&mut self.buffer, Kind::Settle, place, (id, 0), content);
                        self.commit.settles.push((id, ranges));
                    }
                    return Ok(());
                }
                bytes
            };
            self.make_room(bytes, For::Control, &mut None)?;
        }
    }

    fn add_cut(&mut self, cut: Cut) -> Result<(), WriteFault> {
        let Some(id) = self.ids.get(&cut.table).copied() else {
            return Err(WriteFault::Ended("the queue does not know the table".to_owned()));
        };
        self.make_room(cut_bytes(&cut), For::Control, &mut None)?;
        self.begin();
        let place = self.place();
        write(&mut self.buffer, Kind::Cut, place, (id, 0), |out| put_cut(out, &cut));
        self.commit.cuts.push((id, cut));
        Ok(())
    }

    fn add_moved(&mut self, blocks: &[MovedBlock]) -> Result<(), WriteFault> {
        for moved in blocks {
            self.make_room(HEAD_BYTES + moved.block.len(), For::Moves, &mut None)?;
            self.begin();
            let (place, offset) = (self.place(), self.active.at + crate::codec::len_u32(self.buffer.len()));
            let key = (moved.table, moved.entry.sequence);
            write(&mut self.buffer, Kind::Moved, place, key, |out| out.extend_from_slice(&moved.block));
            let entry = Entry { offset, ..moved.entry };
            self.commit.stored.push(Stored { table: moved.table, entry, moved: true });
            self.shared.metrics.moved_bytes.inc_by(u64::from(entry.bytes));
        }
        Ok(())
    }

    fn add_merged(&mut self, answers: &mut Answers, merged: &Merged) -> Result<(), PublishError> {
        let bytes = 2 * HEAD_BYTES + merged.bytes + TABLE_RECORD_BYTES;
        self.make_room(bytes, For::Blocks, &mut Some(answers)).map_err(|fault| match fault {
            WriteFault::Full => PublishError::DiskFull,
            WriteFault::Ended(reason) => PublishError::Unavailable { reason },
        })?;
        self.begin();
        let id = self.table_id(&merged.table)?;
        let Some(sequence) = self.ends.get_mut(id as usize) else {
            return Err(PublishError::Unavailable {
                reason: "the queue lost count of its tables".to_owned(),
            });
        };
        let number = *sequence;
        *sequence += 1;
        let blocks = blocks_of(answers, merged);
        let (place, start) = (self.place(), self.buffer.len());
        write(&mut self.buffer, Kind::Block, place, (id, number), |out| encode_merged(&blocks, out));
        let segments = || blocks.iter().flat_map(|block| &block.segments);
        let entry = Entry {
            sequence: number,
            offset: self.active.at + crate::codec::len_u32(start),
            bytes: crate::codec::len_u32(self.buffer.len() - start - HEAD_BYTES),
            rows: segments().map(|segment| segment.rows).sum(),
            first_ns: segments().next().map_or(0, |segment| segment.received_at.0),
            last_ns: segments().map(|segment| segment.received_at.0).max().unwrap_or(0),
        };
        self.commit.stored.push(Stored { table: id, entry, moved: false });
        let mut row = 0;
        for (member, block) in merged.members.iter().zip(&blocks) {
            let first = Position::new(self.shared.log, Sequence(number), row);
            self.commit.receipts.push((*member, Receipt { first }));
            row += block.rows();
        }
        Ok(())
    }

    /// The id of a table, given on the spot if it is new.
    fn table_id(&mut self, table: &TableRef) -> Result<u32, PublishError> {
        if let Some(id) = self.ids.get(table) {
            return Ok(*id);
        }
        let too_many = |what| PublishError::Unavailable { reason: format!("there are too many {what}") };
        if self.ends.len() >= TABLES_MAX {
            return Err(too_many("tables"));
        }
        let tenant = self.shared.tenants.enter(&table.tenant).ok_or_else(|| too_many("tenants"))?;
        let id = crate::codec::len_u32(self.ends.len());
        self.ends.push(1);
        self.ids.insert(table.clone(), id);
        self.commit.tables.push((table.clone(), tenant));
        let place = self.place();
        write(&mut self.buffer, Kind::Table, place, (id, 0), |out| put_table(out, table));
        Ok(id)
    }

    /// One sync, timed and counted.
    pub(crate) fn sync(&self, file: &dyn crate::files::LogFile) -> std::io::Result<()> {
        let start = Instant::now();
        let result = file.sync();
        if !self.shared.fsync_delay.is_zero() {
            std::thread::sleep(self.shared.fsync_delay);
        }
        self.shared.metrics.fsyncs.inc();
        self.shared.metrics.fsync_seconds.observe(start.elapsed().as_secs_f64());
        result
    }
}

/// Most bytes of the content of a table record: two texts with their lengths.
const TABLE_RECORD_BYTES: usize = 4 + wavehouse_core::TENANT_BYTES_MAX + wavehouse_core::TABLE_BYTES_MAX;

/// For what room is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    /// Rows.
    Blocks,
    /// Unwritten rows that move so that a file comes free.
    Moves,
    /// Settles and cuts, for which the reserve is there.
    Control,
}
