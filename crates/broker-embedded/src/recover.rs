//! Opens a queue directory: what was durable when it was last used becomes the state in memory.
//!
//! The state of the tables comes from the checkpoint at the head of the newest file and from the records after it; where
//! blocks stand in older files, from their indexes. Only the newest file is read whole.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use wavehouse_core::LogId;

use crate::checkpoint::{SavedTable, take_checkpoint};
use crate::codec::len_u32;
use crate::commit::ActiveFile;
use crate::files::{Files, LogFile, read_vec};
use crate::footer::{
    ENTRY_BYTES, Entry, Stretch, TRAILER_BYTES, build, read_directory, read_entries, read_trailer,
};
use crate::options::OpenError;
use crate::parts::Part;
use crate::record::{HEAD_BYTES, Head, Kind, Record};
use crate::replay::Replay;
use crate::scan::scan;
use crate::shared::{QUEUE_DIR, Shared, file_number};
use crate::spare::Spare;
use crate::state::{FileState, State};
use crate::tenant::Tenants;

/// A log file on disk.
struct OnDisk {
    number: u32,
    file: Arc<dyn LogFile>,
    bytes: u64,
}

/// What opening found.
pub(crate) struct Recovered {
    pub(crate) state: State,
    /// The file to go on in; none when it is sealed or there is none.
    pub(crate) active: Option<ActiveFile>,
    /// Files with nothing in them, by number.
    pub(crate) spares: Vec<Spare>,
    /// Above every number in use.
    pub(crate) next_number: u32,
}

/// Reads the directory. `log` is the id that its files must bear.
pub(crate) struct Recovery<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) dir: &'a Path,
    pub(crate) tenants: &'a Tenants,
    pub(crate) log: LogId,
    pub(crate) damage: Counter,
}

impl Recovery<'_> {
    fn disk(&self, what: &'static str) -> impl Fn(std::io::Error) -> OpenError {
        let dir = self.dir.join(QUEUE_DIR);
        move |source| OpenError::Disk { dir: dir.clone(), what, source }
    }

    fn path(&self, number: u32) -> PathBuf {
        self.dir.join(Shared::path(number))
    }

    /// Reads everything. None when no file has anything in it.
    pub(crate) fn run(&self) -> Result<Option<Recovered>, OpenError> {
        // A process that was killed may have left names and records that are only in memory. What is found counts from
        // here on, so it must outlive the machine too.
        self.files.sync_dir(QUEUE_DIR).map_err(self.disk("cannot make its names durable"))?;
        let mut on_disk = self.list()?;
        let next_number = on_disk.last().map_or(1, |last| last.number + 1);
        let mut newest = None;
        for (at, file) in on_disk.iter().enumerate().rev() {
            if let Some(tables) = self.head(file)? {
                newest = Some((at, tables));
                break;
            }
        }
        let Some((at, tables)) = newest else { return Ok(None) };
        let unused = on_disk.split_off(at + 1);
        let Some(newest) = on_disk.pop() else { return Ok(None) };

        let mut state = self.restore(tables);
        let mut sums = Sums::default();
        for file in &on_disk {
            self.take_sealed(&mut state, file, &mut sums)?;
        }
        let active = self.take_newest(&mut state, &newest, &mut sums)?;
        self.count_up(&mut state, &sums)?;
        let spares = unused
            .into_iter()
            .map(|unused| Spare { number: unused.number, file: unused.file, bytes: unused.bytes })
            .collect();
        Ok(Some(Recovered { state, active, spares, next_number }))
    }

    fn list(&self) -> Result<Vec<OnDisk>, OpenError> {
        let found = self.files.list(QUEUE_DIR).map_err(self.disk("cannot list it"))?;
        let mut on_disk = Vec::new();
        for found in found {
            let Some(number) = file_number(&found.name) else { continue };
            let file = self.files.open(&Shared::path(number)).map_err(self.disk("cannot open a log file"))?;
            on_disk.push(OnDisk { number, file, bytes: found.bytes });
        }
        on_disk.sort_by_key(|file| file.number);
        Ok(on_disk)
    }

    /// The tables by the checkpoint at the head of a file; none when nothing durable is in the file.
    fn head(&self, on_disk: &OnDisk) -> Result<Option<Vec<SavedTable>>, OpenError> {
        let read = |count: usize| {
            let count = count.min(usize::try_from(on_disk.bytes).unwrap_or(usize::MAX));
            read_vec(&*on_disk.file, 0, count).map_err(self.disk("cannot read a log file"))
        };
        let head = Head::read(&read(HEAD_BYTES)?)
            .filter(|head| head.kind == Kind::Checkpoint && head.place.file == on_disk.number);
        let Some(head) = head else { return Ok(None) };
        let bytes = read(head.record_bytes())?;
        let damaged = || OpenError::Damaged { path: self.path(on_disk.number) };
        match Record::read(&bytes).map(|record| take_checkpoint(record.content)) {
            Some(Some((log, tables))) if log == self.log => Ok(Some(tables)),
            Some(_) => Err(damaged()),
            // The first commit of a file may be torn. Anything later shows that it was durable.
            None => {
                let bytes = read(usize::MAX)?;
                let durable = scan(&bytes, on_disk.number).damage.is_empty();
                if durable { Ok(None) } else { Err(damaged()) }
            }
        }
    }

    fn restore(&self, tables: Vec<SavedTable>) -> State {
        let mut state = State { damage: self.damage.clone(), ..State::default() };
        for saved in tables {
            let Some(tenant) = self.tenants.enter(&saved.name.tenant) else { continue };
            state.add_table(&saved.name, tenant);
            if let Some(table) = state.tables.last_mut() {
                table.end = saved.end;
                table.settled = saved.settled;
                table.gone_ns = saved.gone_ns;
                table.cut = saved.cut;
            }
        }
        state
    }

    /// Takes up a file that is not the newest.
    fn take_sealed(&self, state: &mut State, on_disk: &OnDisk, sums: &mut Sums) -> Result<(), OpenError> {
        let file = &*on_disk.file;
        let trailer = read_trailer(file, on_disk.number, on_disk.bytes);
        let directory = trailer.and_then(|trailer| match trailer {
            Some(trailer) => read_directory(file, &trailer),
            None => Ok(None),
        });
        let mut file_state = FileState::new(Arc::clone(&on_disk.file), on_disk.bytes);
        let stretches = match directory.map_err(self.disk("cannot read the index of a log file"))? {
            Some(stretches) => stretches,
            None => match self.reindex(state, on_disk, &mut file_state)? {
                Some(stretches) => stretches,
                None => return Ok(()),
            },
        };
        add_parts(state, on_disk.number, &stretches, sums, &mut file_state);
        state.files.insert(on_disk.number, file_state);
        Ok(())
    }

    /// Makes the index of a file that was full when the process ended, before its index was durable. None when nothing
    /// is in the file.
    fn reindex(
        &self,
        state: &mut State,
        on_disk: &OnDisk,
        file_state: &mut FileState,
    ) -> Result<Option<Vec<Stretch>>, OpenError> {
        let disk = self.disk("cannot index a log file");
        let length = usize::try_from(on_disk.bytes).unwrap_or(usize::MAX);
        let bytes = read_vec(&*on_disk.file, 0, length).map_err(&disk)?;
        let found = scan(&bytes, on_disk.number);
        if found.records.is_empty() {
            return Ok(None);
        }
        let mut replay = Replay::new(state, self.tenants, on_disk.number);
        replay.index_only(&found);
        file_state.damaged = replay.damaged;
        let entries = std::mem::take(&mut replay.entries);
        let at = len_u32(found.end);
        let footer = build(on_disk.number, at, entries.iter().map(|((table, _), entry)| (*table, entry)));
        let needed = u64::from(at) + (footer.index.len() + TRAILER_BYTES) as u64;
        let end = on_disk.bytes.max(needed);
        file_state.bytes = end;
        on_disk.file.write_at(&footer.index, u64::from(at)).map_err(&disk)?;
        on_disk.file.write_at(&footer.trailer, end - TRAILER_BYTES as u64).map_err(&disk)?;
        on_disk.file.sync().map_err(&disk)?;
        Ok(Some(footer.stretches))
    }

    /// Takes up the newest file: all that its records say.
    fn take_newest(
        &self,
        state: &mut State,
        on_disk: &OnDisk,
        sums: &mut Sums,
    ) -> Result<Option<ActiveFile>, OpenError> {
        let disk = self.disk("cannot read the newest log file");
        on_disk.file.sync().map_err(&disk)?;
        let trailer = read_trailer(&*on_disk.file, on_disk.number, on_disk.bytes).map_err(&disk)?;
        let length = trailer.map_or(on_disk.bytes, |trailer| u64::from(trailer.entries_at));
        let count = usize::try_from(length).unwrap_or(usize::MAX);
        let bytes = read_vec(&*on_disk.file, 0, count).map_err(&disk)?;
        let found = scan(&bytes, on_disk.number);
        let mut file_state = FileState::new(Arc::clone(&on_disk.file), on_disk.bytes);
        let mut replay = Replay::new(state, self.tenants, on_disk.number);
        replay.all(&found);
        file_state.damaged = replay.damaged;
        let entries = std::mem::take(&mut replay.entries);
        let (number, file, bytes) = (on_disk.number, Arc::clone(&on_disk.file), on_disk.bytes);
        let mut active = ActiveFile::new(Spare { number, file, bytes });
        active.at = len_u32(found.end);
        for ((table, sequence), entry) in &entries {
            active.count_one(*table, *sequence);
            file_state.note(entry);
            if let Some(table) = state.table(*table) {
                file_state.add_tenant(&table.tenant);
            }
        }
        state.active = on_disk.number;
        let directory = match trailer {
            Some(trailer) => read_directory(&*on_disk.file, &trailer).map_err(&disk)?,
            None => None,
        };
        if let Some(stretches) = directory {
            let mut sealed = FileState::new(Arc::clone(&on_disk.file), on_disk.bytes);
            sealed.damaged = file_state.damaged;
            add_parts(state, on_disk.number, &stretches, sums, &mut sealed);
            state.files.insert(on_disk.number, sealed);
            return Ok(None);
        }
        state.entries = entries;
        state.files.insert(on_disk.number, file_state);
        Ok(Some(active))
    }

    /// Counts what is not settled, by table, tenant and file, and tells of blocks that no file holds.
    fn count_up(&self, state: &mut State, sums: &Sums) -> Result<(), OpenError> {
        for id in 0..len_u32(state.tables.len()) {
            let Some(table) = state.table(id) else { continue };
            let mut live = Vec::new();
            for part in table.parts.iter() {
                let last = part.first + u64::from(part.count) - 1;
                let open = table.settled.open_between(part.first, last);
                if open == 0 {
                    continue;
                }
                // A block that was moved just before the end may stand in its old file too. The newer one counts.
                let moved = |sequence| state.entries.contains_key(&(id, sequence));
                let any_moved = state.entries.range((id, part.first)..=(id, last)).next().is_some();
                let all = open == u64::from(part.count) && !any_moved;
                let whole =
                    sums.get(&(part.file, id, part.first)).filter(|sum| all && sum.count == part.count);
                if let Some(sum) = whole {
                    live.push((part.file, open, sum.rows, sum.bytes));
                } else if let Some(file) = state.files.get(&part.file) {
                    let at = u64::from(part.entries_at);
                    let entries = read_entries(&*file.file, at, part.count as usize)
                        .map_err(self.disk("cannot read the index of a log file"))?;
                    let open = entries
                        .iter()
                        .filter(|entry| !table.settled.contains(entry.sequence) && !moved(entry.sequence));
                    live.extend(open.map(|e| (part.file, 1, u64::from(e.rows), u64::from(e.bytes))));
                }
            }
            let active = state.entries.range((id, 0)..=(id, u64::MAX)).map(|(_, entry)| entry);
            let open = active.filter(|entry| !table.settled.contains(entry.sequence));
            live.extend(open.map(|e| (state.active, 1, u64::from(e.rows), u64::from(e.bytes))));
            state.count_live(id, &live);
            state.note_gaps(id);
        }
        for file in state.files.values_mut() {
            file.saved = true;
        }
        Ok(())
    }
}

/// What the directories say of whole stretches, by file, table and first sequence.
type Sums = HashMap<(u32, u32, u64), Stretch>;

fn add_parts(
    state: &mut State,
    number: u32,
    stretches: &[Stretch],
    sums: &mut Sums,
    file_state: &mut FileState,
) {
    for stretch in stretches {
        let Some(table) = state.tables.get_mut(stretch.table as usize) else {
            tracing::error!(
                file = number,
                table = stretch.table,
                "a log file names a table that is not known"
            );
            file_state.damaged = true;
            continue;
        };
        let part =
            Part { first: stretch.first, count: stretch.count, file: number, entries_at: stretch.entries_at };
        table.parts.insert(part, ENTRY_BYTES as u32);
        file_state.stored_bytes += stretch.bytes;
        file_state.last_ns = file_state.last_ns.max(stretch.last_ns);
        file_state.add_tenant(&table.tenant);
        sums.insert((number, stretch.table, stretch.first), *stretch);
    }
}

impl FileState {
    fn note(&mut self, entry: &Entry) {
        self.stored_bytes += u64::from(entry.bytes);
        self.last_ns = self.last_ns.max(entry.last_ns);
    }
}

impl State {
    fn count_live(&mut self, id: u32, live: &[(u32, u64, u64, u64)]) {
        let Some(table) = self.tables.get_mut(id as usize) else { return };
        for (number, blocks, rows, bytes) in live {
            table.unwritten_rows += rows;
            table.unwritten_bytes += bytes;
            table.tenant.add(*bytes);
            if let Some(file) = self.files.get_mut(number) {
                file.live_blocks += blocks;
                file.live_bytes += bytes;
            }
        }
        table.check_cut();
    }
}
