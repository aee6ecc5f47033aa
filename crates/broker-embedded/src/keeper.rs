//! The keeper: a thread that has log files laid out before the writer needs them, and gives back those whose rows are all
//! settled.
//!
//! A file whose rows are settled is history: it stays until it is older than its tenants' gap windows or until room is
//! needed, the oldest first. A file that a stuck table pins, with half of it settled or more, has its unsettled blocks
//! stored again in the active file and comes free (see `mover`). The keeper never waits for the writer, which may be waiting
//! for it.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use wavehouse_core::Timestamp;

use crate::files::{Layout, LogFile, is_full};
use crate::footer::{Stretch, read_directory, read_trailer};
use crate::intake::lock;
use crate::options::ROOM_RETRY;
use crate::shared::{QUEUE_DIR, Shared};
use crate::spare::{Spare, Task};
use crate::state::FileState;

/// Most free files that are kept to be written again instead of laying out new ones.
const POOL_MAX: usize = 64;
/// Room is made ahead of need when more than this part of what the queue may take is taken: three quarters.
const TIGHT: (u64, u64) = (3, 4);

/// A free file that keeps its old name until it is written again.
struct Pooled {
    number: u32,
    file: Arc<dyn LogFile>,
    bytes: u64,
}

#[derive(Default)]
struct Yard {
    next_number: u32,
    pool: Vec<Pooled>,
    /// Files taken since the last sweep: so many are worth keeping free.
    taken: usize,
}

/// See the module.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    yard: Mutex<Yard>,
}

impl Keeper {
    /// `next_number` is above that of every log file.
    pub(crate) fn new(shared: Arc<Shared>, next_number: u32) -> Self {
        Self { shared, yard: Mutex::new(Yard { next_number, ..Yard::default() }) }
    }

    /// Works until the queue is closed.
    pub(crate) fn run(&self) {
        let mut failed = false;
        loop {
            match self.shared.spare.task(ROOM_RETRY) {
                Task::Stop => return,
                Task::Idle => {
                    failed = false;
                    self.shared.is_good();
                }
                Task::Renumber(spare) => match self.renumber(&spare.file, spare.number, spare.bytes) {
                    Ok(spare) => self.shared.spare.put(spare),
                    Err(error) => tracing::warn!(%error, "cannot rename a spare log file"),
                },
                Task::Make(bytes, layout) => match self.make(bytes, layout) {
                    Ok(spare) => {
                        failed = false;
                        self.shared.spare.put(spare);
                    }
                    Err(why) => {
                        if !std::mem::replace(&mut failed, true) {
                            tracing::warn!(why, bytes, "cannot lay out a log file");
                        }
                        self.shared.spare.fail(bytes, why);
                    }
                },
            }
            self.shared.count_disk();
        }
    }

    fn taken_bytes(&self) -> u64 {
        self.shared.taken_bytes.load(Ordering::Relaxed)
    }

    /// Whether so much is taken that room is made ahead of need.
    pub(crate) fn is_tight(&self) -> bool {
        self.taken_bytes() / TIGHT.0 * TIGHT.1 > self.shared.sizes.disk_bytes_max
    }

    /// A file to be written next: a free one, a new one, or the oldest of history.
    pub(crate) fn make(&self, bytes: u64, layout: Layout) -> Result<Spare, String> {
        loop {
            if let Some(spare) = self.take_pooled(bytes)? {
                return Ok(spare);
            }
            let max = self.shared.sizes.disk_bytes_max;
            let refusal = if self.taken_bytes().saturating_add(bytes) > max {
                format!("its log files take all of the {max} bytes of disk that it may use")
            } else {
                match self.create(bytes, layout) {
                    Ok(spare) => return Ok(spare),
                    Err(error) if is_full(&error) => "no room is left on its disk".to_owned(),
                    Err(error) => return Err(format!("cannot lay out a log file: {error}")),
                }
            };
            if self.reclaim_oldest().is_none() && !self.empty_pool() {
                return Err(refusal);
            }
        }
    }

    fn create(&self, bytes: u64, layout: Layout) -> io::Result<Spare> {
        let number = self.number();
        let file = self.shared.files.create(&Shared::path(number), bytes, layout)?;
        self.shared.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.shared.files.sync_dir(QUEUE_DIR)?;
        Ok(Spare { number, file, bytes })
    }

    fn number(&self) -> u32 {
        let mut yard = lock(&self.yard);
        yard.next_number += 1;
        yard.next_number - 1
    }

    fn take_pooled(&self, bytes: u64) -> Result<Option<Spare>, String> {
        let pooled = {
            let mut yard = lock(&self.yard);
            let fit = yard.pool.iter().position(|pooled| pooled.bytes >= bytes);
            fit.map(|at| yard.pool.swap_remove(at))
        };
        let Some(pooled) = pooled else { return Ok(None) };
        lock(&self.yard).taken += 1;
        let renamed = self.renumber(&pooled.file, pooled.number, pooled.bytes);
        renamed.map(Some).map_err(|error| format!("cannot rename a log file: {error}"))
    }

    fn renumber(&self, file: &Arc<dyn LogFile>, from: u32, bytes: u64) -> io::Result<Spare> {
        let number = self.number();
        self.shared.files.rename(&Shared::path(from), &Shared::path(number))?;
        self.shared.files.sync_dir(QUEUE_DIR)?;
        Ok(Spare { number, file: Arc::clone(file), bytes })
    }

    /// Removes free files of a size that nothing wants. Returns whether there were any.
    fn empty_pool(&self) -> bool {
        let pool = std::mem::take(&mut lock(&self.yard).pool);
        for pooled in &pool {
            self.shared.remove_file(pooled.number, pooled.bytes);
        }
        !pool.is_empty()
    }

    /// Gives the oldest file of history back. Returns its size.
    fn reclaim_oldest(&self) -> Option<u64> {
        let number = {
            let state = self.shared.state();
            let free = |(number, file): (&u32, &FileState)| {
                (*number != state.active && file.is_free()).then_some(*number)
            };
            state.files.iter().find_map(free)?
        };
        self.reclaim(number)
    }

    /// Gives a file back whose blocks are all settled. Returns its size.
    fn reclaim(&self, number: u32) -> Option<u64> {
        let stretches = self.directory(number);
        let state_of_file = {
            let mut state = self.shared.state();
            if number == state.active || !state.files.get(&number)?.is_free() {
                return None;
            }
            state.forget_file(number, stretches.as_deref())?
        };
        self.shared.metrics.reclaimed_files.inc();
        let (file, bytes) = (state_of_file.file, state_of_file.bytes);
        let mut yard = lock(&self.yard);
        // Whoever still reads the file has a handle on it, and would see it change.
        let unread = Arc::strong_count(&file) == 1;
        if unread && bytes == self.shared.sizes.file_bytes && yard.pool.len() < POOL_MAX {
            yard.pool.push(Pooled { number, file, bytes });
        } else {
            drop(yard);
            self.shared.remove_file(number, bytes);
        }
        Some(bytes)
    }

    /// What was sealed in a file; none when that cannot be read.
    pub(crate) fn directory(&self, number: u32) -> Option<Vec<Stretch>> {
        let (file, bytes) = {
            let state = self.shared.state();
            let file = state.files.get(&number)?;
            (Arc::clone(&file.file), file.bytes)
        };
        let trailer = read_trailer(&*file, number, bytes).ok()??;
        read_directory(&*file, &trailer).ok()?
    }

    /// Gives back history that is older than its tenants' gap windows at `now`. Returns how many bytes.
    pub(crate) fn reclaim_old(&self, now: Timestamp) -> u64 {
        let old: Vec<u32> = {
            let state = self.shared.state();
            let sealed = state.files.iter().filter(|(number, _)| **number != state.active);
            let old = sealed.filter(|(_, file)| file.is_free() && file.is_old(now));
            old.map(|(number, _)| *number).collect()
        };
        let freed_bytes = old.into_iter().filter_map(|number| self.reclaim(number)).sum();
        self.trim_pool();
        self.shared.spare.poke();
        self.shared.count_disk();
        freed_bytes
    }

    /// Keeps as many free files as were taken since the last time.
    fn trim_pool(&self) {
        let extra = {
            let mut yard = lock(&self.yard);
            let keep = std::mem::take(&mut yard.taken);
            let at = yard.pool.len().min(keep);
            yard.pool.split_off(at)
        };
        for pooled in extra {
            self.shared.remove_file(pooled.number, pooled.bytes);
        }
    }
}

impl FileState {
    /// Whether nothing in it is needed but for history.
    pub(crate) fn is_free(&self) -> bool {
        self.live_blocks == 0 && self.saved && !self.damaged
    }

    /// Whether half of it or less is unsettled, and not nothing.
    pub(crate) fn is_pinned(&self) -> bool {
        self.live_blocks > 0 && !self.damaged && self.live_bytes <= self.bytes / 2
    }

    /// Whether its youngest row is older than every gap window of its tenants.
    pub(crate) fn is_old(&self, now: Timestamp) -> bool {
        self.last_ns <= now.saturating_sub(self.gap_window()).0
    }
}
