//! The commit: what one sync makes durable, and the change from a full file to the next.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use wavehouse_broker::{Cut, PublishError, Receipt};
use wavehouse_core::TableRef;

use crate::answers::{Answers, Member};
use crate::checkpoint::{checkpoint_bytes, put_checkpoint};
use crate::codec::len_u32;
use crate::files::{LogFile, is_full};
use crate::footer::{ENTRY_BYTES, TRAILER_BYTES, build, footer_bytes};
use crate::intake::{Done, WriteFault};
use crate::parts::Part;
use crate::record::{Kind, Range, write};
use crate::shared::Shared;
use crate::spare::Spare;
use crate::state::{FileState, Stored, Table};
use crate::tenant::Tenant;
use crate::writer::{Writer, tell};

/// Part of a file that is kept for settles and cuts while no other file is ready, and its bounds.
const RESERVE_PART: u64 = 8;
const RESERVE_BYTES_MIN: u64 = 16 << 10;
const RESERVE_BYTES_MAX: u64 = 4 << 20;
/// A sealed file of which more than this part is empty is cut to size.
const EMPTY_PART: u64 = 4;

/// The file that is being written.
pub(crate) struct ActiveFile {
    pub(crate) number: u32,
    pub(crate) file: Arc<dyn LogFile>,
    /// Its length.
    pub(crate) bytes: u64,
    /// Where the next commit begins.
    pub(crate) at: u32,
    /// Blocks in it, and stretches of blocks with consecutive sequences.
    pub(crate) entries: usize,
    pub(crate) stretches: usize,
    /// The last sequence of each table in it.
    pub(crate) lasts: HashMap<u32, u64>,
}

impl ActiveFile {
    /// A file with nothing in it.
    pub(crate) fn new(spare: Spare) -> Self {
        let Spare { number, file, bytes } = spare;
        Self { number, file, bytes, at: 0, entries: 0, stretches: 0, lasts: HashMap::new() }
    }

    pub(crate) fn reserve(&self) -> u64 {
        (self.bytes / RESERVE_PART).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX)
    }

    /// Counts blocks that stand in it now.
    pub(crate) fn count(&mut self, stored: &[Stored]) {
        for block in stored {
            self.count_one(block.table, block.entry.sequence);
        }
    }

    pub(crate) fn count_one(&mut self, table: u32, sequence: u64) {
        self.entries += 1;
        if self.lasts.insert(table, sequence).is_none_or(|last| last + 1 != sequence) {
            self.stretches += 1;
        }
    }
}

/// What the commit at hand will have done.
#[derive(Default)]
pub(crate) struct Commit {
    pub(crate) stored: Vec<Stored>,
    pub(crate) tables: Vec<(TableRef, Arc<Tenant>)>,
    pub(crate) cuts: Vec<(u32, Cut)>,
    pub(crate) settles: Vec<(u32, Vec<Range>)>,
    /// Files in which the settles left nothing live.
    pub(crate) emptied: Vec<u32>,
    pub(crate) receipts: Vec<(Member, Receipt)>,
    pub(crate) done: Vec<Done>,
}

impl Writer {
    /// Makes the commit at hand durable and tells who waits for it.
    pub(crate) fn commit(&mut self, answers: Option<&mut Answers>) {
        let commit = std::mem::take(&mut self.commit);
        if self.buffer.is_empty() {
            for done in commit.done {
                tell(done, Ok(()));
            }
            return;
        }
        let bytes = self.buffer.len();
        let written = self.active.file.write_at(&self.buffer, u64::from(self.active.at));
        let synced = match written {
            Ok(()) => self.sync(&*self.active.file).map_err(|error| (error, "cannot sync")),
            Err(error) => Err((error, "cannot write")),
        };
        // A huge commit shall not hold its memory for ever.
        self.buffer.clear();
        self.buffer.shrink_to(crate::options::COMMIT_BYTES * 2);
        match synced {
            Ok(()) => self.take_up(commit, bytes, answers),
            Err((error, "cannot write")) if is_full(&error) => self.undo(commit, answers),
            Err((error, what)) => {
                let reason = format!("{what} {}: {error}", Shared::path(self.active.number));
                self.fail(reason, commit, answers);
            }
        }
    }

    fn take_up(&mut self, commit: Commit, bytes: usize, answers: Option<&mut Answers>) {
        self.active.at += len_u32(bytes);
        self.active.count(&commit.stored);
        let shared = &self.shared;
        shared.metrics.commit_blocks.observe(precise(commit.receipts.len()));
        shared.metrics.commit_bytes.observe(precise(bytes));
        for block in commit.stored.iter().filter(|block| !block.moved) {
            shared.metrics.published_rows.inc_by(u64::from(block.entry.rows));
            shared.metrics.published_bytes.inc_by(u64::from(block.entry.bytes));
        }
        let now = {
            let mut state = shared.state();
            for (name, tenant) in &commit.tables {
                state.add_table(name, Arc::clone(tenant));
            }
            for (id, cut) in commit.cuts {
                if let Some(table) = state.table_mut(id) {
                    table.cut = Some(cut);
                    table.check_cut();
                }
            }
            // What the members reserved becomes what they take as stored.
            for block in commit.stored.iter().filter(|block| !block.moved) {
                if let Some(table) = state.table(block.table) {
                    table.tenant.add(u64::from(block.entry.bytes));
                }
            }
            state.take_up(&commit.stored);
            state.files_saved(&commit.emptied);
            state.commit
        };
        if let Some(answers) = answers {
            for (member, receipt) in commit.receipts {
                answers.answer(member, Ok(receipt));
            }
            answers.tell(shared);
        }
        for done in commit.done {
            tell(done, Ok(()));
        }
        if !commit.stored.is_empty() {
            shared.unit_wake.notify_one();
            shared.stored.send_replace(now);
        }
    }

    /// The disk took nothing: as if the commit had not been. What a part of it may have left in the file belongs to a
    /// run that is over.
    fn undo(&mut self, commit: Commit, answers: Option<&mut Answers>) {
        self.run = self.run.wrapping_add(1);
        self.run_is_new = self.active.at > 0;
        let shared = Arc::clone(&self.shared);
        {
            let mut state = shared.state();
            state.emptied.extend(commit.emptied);
            for (id, ranges) in commit.settles {
                state.unsaved.insert(id);
                if let Some(table) = state.table_mut(id) {
                    table.unsaved.extend(ranges);
                }
            }
            self.ends = state.tables.iter().map(|table| table.end).collect();
            self.ids.clone_from(&state.by_name);
            if self.active.at == 0 {
                self.put_head(&state.tables);
            }
        }
        self.shared.intake.settled();
        self.answer_all(commit.receipts, answers, &PublishError::DiskFull);
        for done in commit.done {
            tell(done, Err(WriteFault::Full));
        }
    }

    fn fail(&mut self, reason: String, commit: Commit, answers: Option<&mut Answers>) {
        self.shared.has_failed(&reason);
        self.answer_all(commit.receipts, answers, &PublishError::Unknown { reason: reason.clone() });
        for done in commit.done {
            tell(done, Err(WriteFault::Ended(reason.clone())));
        }
        self.failed = Some(reason);
    }

    fn answer_all(
        &self,
        receipts: Vec<(Member, Receipt)>,
        answers: Option<&mut Answers>,
        error: &PublishError,
    ) {
        let Some(answers) = answers else { return };
        for (member, _) in receipts {
            answers.answer(member, Err(error.clone()));
        }
        answers.tell(&self.shared);
    }

    /// Seals the active file and goes on in the next one, in which a record of so many bytes will fit, leaving `keep`
    /// spare ones. The checkpoint at its head becomes durable with the next commit.
    pub(crate) fn roll(
        &mut self,
        bytes: usize,
        keep: usize,
        answers: &mut Option<&mut Answers>,
    ) -> Result<(), WriteFault> {
        self.commit(answers.as_deref_mut());
        if let Some(reason) = &self.failed {
            return Err(WriteFault::Ended(reason.clone()));
        }
        let head = checkpoint_bytes(&self.shared.state().tables);
        // The reserve is an eighth of the whole, so a seventh of the rest; a fourth leaves air.
        let needed = (head + bytes + footer_bytes(2, 2)) as u64;
        let spare = match self.shared.spare.take(needed + needed / 4 + RESERVE_BYTES_MIN, keep) {
            Ok(spare) => spare,
            Err(why) => {
                self.shared.is_refusing(&why);
                return Err(WriteFault::Full);
            }
        };
        if let Err(error) = self.seal() {
            let reason = format!("cannot seal {}: {error}", Shared::path(self.active.number));
            self.fail(reason.clone(), Commit::default(), None);
            return Err(WriteFault::Ended(reason));
        }
        {
            let shared = Arc::clone(&self.shared);
            let mut state = shared.state();
            state.active = spare.number;
            state.files.insert(spare.number, FileState::new(Arc::clone(&spare.file), spare.bytes));
            self.active = ActiveFile::new(spare);
            self.run_is_new = false;
            self.put_head(&state.tables);
        }
        self.shared.count_disk();
        self.shared.spare.poke();
        Ok(())
    }

    /// Begins the active file.
    pub(crate) fn put_head(&mut self, tables: &[Table]) {
        let (place, log) = (self.place(), self.shared.log);
        write(&mut self.buffer, Kind::Checkpoint, place, (0, 0), |out| put_checkpoint(out, log, tables));
    }

    /// Writes the index at the end of the active file and lets its blocks be found through it.
    fn seal(&mut self) -> io::Result<()> {
        let (number, at) = (self.active.number, self.active.at);
        let footer = {
            let state = self.shared.state();
            build(number, at, state.entries.iter().map(|((table, _), entry)| (*table, entry)))
        };
        let used = u64::from(at) + (footer.index.len() + TRAILER_BYTES) as u64;
        if self.active.bytes - used.min(self.active.bytes) > self.active.bytes / EMPTY_PART {
            self.active.file.set_len(used)?;
            self.shared.taken_bytes.fetch_sub(self.active.bytes - used, Ordering::Relaxed);
            self.active.bytes = used;
        }
        self.active.file.write_at(&footer.index, u64::from(at))?;
        self.active.file.write_at(&footer.trailer, self.active.bytes - TRAILER_BYTES as u64)?;
        self.sync(&*self.active.file)?;
        let mut state = self.shared.state();
        for stretch in &footer.stretches {
            let part = Part {
                first: stretch.first,
                count: stretch.count,
                file: number,
                entries_at: stretch.entries_at,
            };
            if let Some(table) = state.table_mut(stretch.table) {
                table.parts.insert(part, ENTRY_BYTES as u32);
            }
        }
        if let Some(file) = state.files.get_mut(&number) {
            file.bytes = self.active.bytes;
        }
        let entries = std::mem::take(&mut state.entries);
        drop(state);
        // There may be very many; readers need not wait until they are freed.
        drop(entries);
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a histogram needs no more digits")]
fn precise(count: usize) -> f64 {
    count as f64
}
