//! The mover: a thread, and the sweep, that free files which only a few unsettled blocks pin.
//!
//! The blocks are stored again in the active file, under their sequences; then the old file is history. This costs
//! writing, so it is done where it is needed: in a sweep for files older than the gap window, and ahead of need when the
//! queue has taken most of its disk, for files in which nothing has been settled for a while.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::oneshot;
use wavehouse_broker::SweepReport;
use wavehouse_core::Timestamp;

use crate::footer::read_entries;
use crate::intake::{Done, Item, MovedBlock, WriteFault};
use crate::keeper::Keeper;
use crate::options::ROOM_RETRY;
use crate::read::read_raw;
use crate::shared::Shared;
use crate::state::FileState;

/// Most bytes of blocks that are moved at a time.
const MOVE_BYTES: u64 = 4 << 20;

/// See the module.
pub(crate) struct Mover {
    shared: Arc<Shared>,
    keeper: Arc<Keeper>,
}

impl Mover {
    pub(crate) fn new(shared: Arc<Shared>, keeper: Arc<Keeper>) -> Self {
        Self { shared, keeper }
    }

    /// Works until the queue is closed.
    pub(crate) fn run(&self) {
        // Live blocks of each pinned file when it was last looked at.
        let mut seen = HashMap::new();
        while self.shared.spare.wait_as_mover(ROOM_RETRY) {
            let failed = self.shared.spare.has_failed();
            if !failed && !self.keeper.is_tight() {
                seen.clear();
                continue;
            }
            let pinned = self.pinned(|_| true);
            let still = pinned.iter().find(|(number, live)| seen.get(number) == Some(live)).map(|(n, _)| *n);
            seen = pinned.into_iter().collect();
            if let Some(number) = still {
                report("move unwritten rows", self.move_out(number).map(|_| ()));
            }
            // Settles that are not in the log yet may be all that keeps a file.
            report("save settles", self.ask(Item::Flush));
            if failed {
                self.shared.spare.poke();
            }
        }
    }

    /// Sealed files that few unsettled blocks pin, and their number of live blocks; those that cost least first.
    fn pinned(&self, which: impl Fn(&FileState) -> bool) -> Vec<(u32, u64)> {
        let state = self.shared.state();
        let sealed = state.files.iter().filter(|(number, _)| **number != state.active);
        let pinned = sealed.filter(|(_, file)| file.is_pinned() && which(file));
        let mut found: Vec<_> =
            pinned.map(|(number, file)| (file.live_bytes, *number, file.live_blocks)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, number, live)| (number, live)).collect()
    }

    fn ask(&self, item: impl FnOnce(Done) -> Item) -> Result<(), WriteFault> {
        let (done, answer) = oneshot::channel();
        let ended = || WriteFault::Ended("the queue is closed".to_owned());
        self.shared.intake.push(item(done)).map_err(|_| ended())?;
        answer.blocking_recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Stores the unsettled blocks of a sealed file again in the active one. Returns their bytes.
    fn move_out(&self, number: u32) -> Result<u64, WriteFault> {
        let unreadable = || WriteFault::Ended("its index cannot be read".to_owned());
        let stretches = self.keeper.directory(number).ok_or_else(unreadable)?;
        let file = self.shared.state().files.get(&number).map(|file| Arc::clone(&file.file));
        let Some(file) = file else { return Ok(0) };
        let (mut blocks, mut bytes, mut total) = (Vec::new(), 0, 0);
        for stretch in &stretches {
            let count = stretch.count as usize;
            let entries = read_entries(&*file, u64::from(stretch.entries_at), count);
            for entry in entries.map_err(|error| WriteFault::Ended(error.to_string()))? {
                if !self.shared.state().is_live_in(stretch.table, entry.sequence, number) {
                    continue;
                }
                let block = read_raw(&*file, (number, stretch.table), &entry).map_err(|why| {
                    self.shared.state().mark_damaged(stretch.table, entry.sequence, &why);
                    WriteFault::Ended(why)
                })?;
                bytes += u64::from(entry.bytes);
                blocks.push(MovedBlock { table: stretch.table, entry, block });
                if bytes >= MOVE_BYTES {
                    total += std::mem::take(&mut bytes);
                    let part = std::mem::take(&mut blocks);
                    self.ask(|done| Item::Move(part, done))?;
                }
            }
        }
        if !blocks.is_empty() {
            self.ask(|done| Item::Move(blocks, done))?;
        }
        Ok(total + bytes)
    }

    /// Gives back what is older than its tenants' gap windows at `now`.
    pub(crate) fn sweep(&self, now: Timestamp) -> SweepReport {
        report("save settles", self.ask(Item::Flush));
        let old_active = {
            let state = self.shared.state();
            let active = state.files.get(&state.active);
            active.is_some_and(|file| file.stored_bytes > 0 && file.live_blocks == 0 && file.is_old(now))
        };
        if old_active {
            report("seal the active file", self.ask(Item::Roll));
        }
        let mut moved_bytes = 0;
        for (number, _) in self.pinned(|file| file.is_old(now)) {
            match self.move_out(number) {
                Ok(bytes) => moved_bytes += bytes,
                Err(fault) => report("move unwritten rows", Err(fault)),
            }
        }
        report("save settles", self.ask(Item::Flush));
        SweepReport { freed_bytes: self.keeper.reclaim_old(now), moved_bytes }
    }
}

fn report(what: &str, result: Result<(), WriteFault>) {
    if let Err(fault) = result {
        tracing::debug!(?fault, what, "left for later");
    }
}
