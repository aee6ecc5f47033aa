//! What the queue knows of itself in memory: tables, files, and where every block stands.
//!
//! One mutex guards it. The writer changes it when a commit is durable, readers and settles in between; nothing waits for
//! the disk while holding it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use wavehouse_broker::Cut;
use wavehouse_core::TableRef;

use crate::cursor::{Cursor, Size, Stock};
use crate::files::LogFile;
use crate::footer::{ENTRY_BYTES, Entry, Stretch};
use crate::parts::Parts;
use crate::record::Range;
use crate::session::{Session, Wanted};
use crate::settled::Settled;
use crate::tenant::Tenant;

/// One table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: TableRef,
    pub(crate) tenant: Arc<Tenant>,
    /// The sequence of the next block to be stored; all before it are durable.
    pub(crate) end: u64,
    pub(crate) settled: Settled,
    /// What has been settled since it was last written to the log.
    pub(crate) unsaved: Vec<Range>,
    /// Where its blocks stand in sealed files.
    pub(crate) parts: Parts,
    /// Blocks that cannot be read. They are kept and passed over.
    pub(crate) damaged: BTreeSet<u64>,
    pub(crate) unwritten_rows: u64,
    pub(crate) unwritten_bytes: u64,
    pub(crate) cut: Option<Cut>,
    /// Latest receipt time among blocks that are no longer kept; 0 when none is gone.
    pub(crate) gone_ns: u64,
    /// The commit that last added a block.
    pub(crate) changed: u64,
    pub(crate) cursor: Cursor,
}

impl Table {
    pub(crate) fn new(name: TableRef, tenant: Arc<Tenant>) -> Self {
        Self {
            name,
            tenant,
            end: 1,
            settled: Settled::default(),
            unsaved: Vec::new(),
            parts: Parts::default(),
            damaged: BTreeSet::new(),
            unwritten_rows: 0,
            unwritten_bytes: 0,
            cut: None,
            gone_ns: 0,
            changed: 0,
            cursor: Cursor::default(),
        }
    }

    pub(crate) fn stock(&self) -> Stock<'_> {
        Stock { settled: &self.settled, damaged: &self.damaged, end: self.end }
    }

    /// Drops the recorded cut once all of its blocks are settled, but for those that cannot be read.
    pub(crate) fn check_cut(&mut self) {
        let Some(cut) = &self.cut else { return };
        let mut at = self.settled.first_open(cut.first.0);
        while at <= cut.last.0 && self.damaged.contains(&at) {
            at = self.settled.first_open(at + 1);
        }
        if at > cut.last.0 {
            self.cut = None;
        }
    }
}

/// One log file with blocks in it.
pub(crate) struct FileState {
    pub(crate) file: Arc<dyn LogFile>,
    /// Its length on disk.
    pub(crate) bytes: u64,
    /// Blocks in it that are not settled, and their bytes.
    pub(crate) live_blocks: u64,
    pub(crate) live_bytes: u64,
    /// Bytes of all blocks in it.
    pub(crate) stored_bytes: u64,
    /// Latest receipt time in it.
    pub(crate) last_ns: u64,
    /// Whose rows are in it, by address.
    tenants: HashMap<usize, Arc<Tenant>>,
    /// Whether something in it could not be read, so that it is kept.
    pub(crate) damaged: bool,
    /// Whether the log itself says that everything in it is settled.
    pub(crate) saved: bool,
}

impl FileState {
    pub(crate) fn new(file: Arc<dyn LogFile>, bytes: u64) -> Self {
        Self {
            file,
            bytes,
            live_blocks: 0,
            live_bytes: 0,
            stored_bytes: 0,
            last_ns: 0,
            tenants: HashMap::new(),
            damaged: false,
            saved: false,
        }
    }

    pub(crate) fn add_tenant(&mut self, tenant: &Arc<Tenant>) {
        self.tenants.entry(Arc::as_ptr(tenant).addr()).or_insert_with(|| Arc::clone(tenant));
    }

    /// The longest gap window of its tenants.
    pub(crate) fn gap_window(&self) -> Duration {
        self.tenants.values().map(|tenant| tenant.gap_window()).max().unwrap_or(Duration::ZERO)
    }
}

/// Where a block's entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Here: the block is in the file that is being written.
    Known(Entry),
    /// At this place in its sealed file.
    InFile(u64),
}

/// Why the queue takes and gives nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// It was closed.
    Closed,
    /// The disk failed.
    Failed(String),
}

/// A block that a commit made durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) table: u32,
    pub(crate) entry: Entry,
    /// Whether it stood in an older file before.
    pub(crate) moved: bool,
}

/// Everything.
#[derive(Default)]
pub(crate) struct State {
    /// By table id.
    pub(crate) tables: Vec<Table>,
    pub(crate) by_name: HashMap<TableRef, u32>,
    /// Sealed files and the one that is being written, by number.
    pub(crate) files: BTreeMap<u32, FileState>,
    /// The number of the file that is being written, and the blocks in it by table and sequence.
    pub(crate) active: u32,
    pub(crate) entries: BTreeMap<(u32, u64), Entry>,
    /// Tables with settles that are not in the log yet.
    pub(crate) unsaved: BTreeSet<u32>,
    /// Files in which nothing is live any more, by settles that may not be in the log yet.
    pub(crate) emptied: Vec<u32>,
    pub(crate) session: Option<Session>,
    pub(crate) sessions: u64,
    /// Commits that added blocks, and for each table the last that did.
    pub(crate) commit: u64,
    pub(crate) changes: BTreeSet<(u64, u32)>,
    pub(crate) end: Option<End>,
    /// Counts blocks and records that cannot be read.
    pub(crate) damage: Counter,
}

impl State {
    pub(crate) fn table(&self, id: u32) -> Option<&Table> {
        self.tables.get(id as usize)
    }

    pub(crate) fn table_mut(&mut self, id: u32) -> Option<&mut Table> {
        self.tables.get_mut(id as usize)
    }

    /// Adds a table under the next id.
    pub(crate) fn add_table(&mut self, name: &TableRef, tenant: Arc<Tenant>) {
        let id = crate::codec::len_u32(self.tables.len());
        self.tables.push(Table::new(name.clone(), tenant));
        self.by_name.insert(name.clone(), id);
        self.apply_early_pause(id);
    }

    /// Where a block stands.
    pub(crate) fn locate(&self, table: u32, sequence: u64) -> Option<(u32, Spot)> {
        if let Some(entry) = self.entries.get(&(table, sequence)) {
            return Some((self.active, Spot::Known(*entry)));
        }
        let part = self.table(table)?.parts.find(sequence)?;
        let at = u64::from(part.entries_at) + (sequence - part.first) * ENTRY_BYTES as u64;
        Some((part.file, Spot::InFile(at)))
    }

    /// The first block at or after `sequence` that is still kept.
    pub(crate) fn next_kept(&self, table: u32, sequence: u64) -> Option<u64> {
        let sealed = self.table(table)?.parts.next(sequence);
        let active = self.entries.range((table, sequence)..=(table, u64::MAX)).next().map(|((_, s), _)| *s);
        [sealed, active].into_iter().flatten().min()
    }

    /// A block, ready to be read.
    pub(crate) fn wanted(&self, table: u32, sequence: u64) -> Option<Wanted> {
        let (number, spot) = self.locate(table, sequence)?;
        let file = Arc::clone(&self.files.get(&number)?.file);
        Some(Wanted { sequence, number, file, spot })
    }

    /// The first block kept in a file that has a row received at `moment` or later.
    pub(crate) fn first_since(&self, table: u32, moment_ns: u64) -> Option<u64> {
        let young = |number: &u32| self.files.get(number).is_some_and(|file| file.last_ns >= moment_ns);
        let parts = self.table(table)?.parts.iter();
        let sealed = parts.filter(|part| young(&part.file)).map(|part| part.first).min();
        let of_table = (table, 0)..=(table, u64::MAX);
        let active = self.entries.range(of_table).next().map(|((_, sequence), _)| *sequence);
        [sealed, active].into_iter().flatten().min()
    }

    /// Settles a block. Returns whether its file has nothing unsettled left.
    pub(crate) fn settle(&mut self, id: u32, sequence: u64, size: Size) -> bool {
        let file = self.locate(id, sequence).map(|(file, _)| file);
        let Some(table) = self.tables.get_mut(id as usize) else { return false };
        if table.settled.contains(sequence) {
            return false;
        }
        let bytes = u64::from(size.stored_bytes);
        table.settled.insert(sequence, sequence);
        match table.unsaved.last_mut() {
            Some((_, last)) if *last + 1 == sequence => *last = sequence,
            _ => table.unsaved.push((sequence, sequence)),
        }
        table.unwritten_rows = table.unwritten_rows.saturating_sub(u64::from(size.rows));
        table.unwritten_bytes = table.unwritten_bytes.saturating_sub(bytes);
        table.tenant.give_back(bytes);
        table.check_cut();
        self.unsaved.insert(id);
        file.is_some_and(|number| self.lose(number, bytes))
    }

    /// A block of a file is not live any more. Returns whether none is.
    fn lose(&mut self, number: u32, bytes: u64) -> bool {
        let Some(file) = self.files.get_mut(&number) else { return false };
        file.live_blocks = file.live_blocks.saturating_sub(1);
        file.live_bytes = file.live_bytes.saturating_sub(bytes);
        if file.live_blocks > 0 {
            return false;
        }
        file.saved = false;
        self.emptied.push(number);
        true
    }

    /// The log says that everything in these files was settled when they were noted. What they got since is live.
    pub(crate) fn files_saved(&mut self, numbers: &[u32]) {
        for number in numbers {
            if let Some(file) = self.files.get_mut(number) {
                file.saved = true;
            }
        }
    }

    /// Whether a block is unsettled and stands in this sealed file.
    pub(crate) fn is_live_in(&self, table: u32, sequence: u64, number: u32) -> bool {
        self.table(table).is_some_and(|table| !table.settled.contains(sequence))
            && self.locate(table, sequence).is_some_and(|(file, _)| file == number)
    }

    /// Forgets a file. `stretches` are the blocks that were sealed in it, as far as that is known.
    pub(crate) fn forget_file(&mut self, number: u32, stretches: Option<&[Stretch]>) -> Option<FileState> {
        let last_ns = self.files.get(&number)?.last_ns;
        if stretches.is_none() {
            for table in &mut self.tables {
                if table.parts.remove_file(number) {
                    table.gone_ns = table.gone_ns.max(last_ns);
                }
            }
        }
        for stretch in stretches.unwrap_or_default() {
            if let Some(table) = self.tables.get_mut(stretch.table as usize) {
                table.parts.remove_file(number);
                table.gone_ns = table.gone_ns.max(stretch.last_ns);
            }
        }
        self.files.remove(&number)
    }

    /// Takes up the blocks of a durable commit, all in the active file.
    pub(crate) fn take_up(&mut self, stored: &[Stored]) {
        self.commit += 1;
        for block in stored {
            let (id, entry) = (block.table, block.entry);
            let from = if block.moved { self.locate(id, entry.sequence).map(|(file, _)| file) } else { None };
            self.entries.insert((id, entry.sequence), entry);
            let Some(table) = self.tables.get_mut(id as usize) else { continue };
            let live = !table.settled.contains(entry.sequence);
            let bytes = u64::from(entry.bytes);
            if !block.moved {
                table.end = table.end.max(entry.sequence + 1);
                self.changes.remove(&(table.changed, id));
                table.changed = self.commit;
                self.changes.insert((self.commit, id));
            }
            if live && !block.moved {
                table.unwritten_rows += u64::from(entry.rows);
                table.unwritten_bytes += bytes;
            }
            if let Some(file) = self.files.get_mut(&self.active) {
                file.add_tenant(&table.tenant);
                file.stored_bytes += bytes;
                file.last_ns = file.last_ns.max(entry.last_ns);
                file.live_blocks += u64::from(live);
                file.live_bytes += if live { bytes } else { 0 };
            }
            match from {
                Some(number) if live => {
                    self.lose(number, bytes);
                }
                Some(_) => {}
                None => self.wake_table(id),
            }
        }
    }

    /// Bytes of disk in files where everything is settled.
    pub(crate) fn history_bytes(&self) -> u64 {
        let sealed = self.files.iter().filter(|(number, _)| **number != self.active);
        sealed.filter(|(_, file)| file.live_blocks == 0).map(|(_, file)| file.bytes).sum()
    }
}
