//! Log files that are ready to be written next. The keeper lays them out in the background; the writer takes one when the
//! active file is full, and waits only when it fills files faster than the disk lays them out.
//!
//! Two are kept. Rows never take the last one: it is there for settles, cuts, and rows that move so that a file comes
//! free, which must go on when the disk is full.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::files::{Layout, LogFile};
use crate::intake::lock;

/// How many are kept ready.
pub(crate) const SPARES: usize = 2;

/// A log file that has been laid out, under its name, with nothing of its own in it.
#[derive(Clone)]
pub(crate) struct Spare {
    pub(crate) number: u32,
    pub(crate) file: Arc<dyn LogFile>,
    pub(crate) bytes: u64,
}

#[derive(Default)]
struct Inner {
    /// By number.
    ready: Vec<Spare>,
    /// Files whose number is below that of a file that has been taken; they need a new one.
    passed: Vec<Spare>,
    /// Size that the writer waits for, 0 when it does not wait.
    wanted_bytes: u64,
    /// Size that could not be had, and why.
    failed: Option<(u64, String)>,
    /// Something has changed since the keeper last looked.
    poked: bool,
    stopped: bool,
}

/// Where keeper and writer meet.
pub(crate) struct SpareDesk {
    /// Size of a file, but for one that must hold an outsized block.
    usual: u64,
    inner: Mutex<Inner>,
    count: AtomicUsize,
    to_writer: Condvar,
    to_keeper: Condvar,
    to_mover: Condvar,
}

/// What the keeper has to do.
pub(crate) enum Task {
    /// Lay out a file of at least so many bytes.
    Make(u64, Layout),
    /// Give this file a new number.
    Renumber(Spare),
    /// Nothing is missing.
    Idle,
    /// End.
    Stop,
}

impl SpareDesk {
    pub(crate) fn new(usual: u64) -> Self {
        Self {
            usual,
            inner: Mutex::default(),
            count: AtomicUsize::new(0),
            to_writer: Condvar::new(),
            to_keeper: Condvar::new(),
            to_mover: Condvar::new(),
        }
    }

    /// Whether any file is ready.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    fn counted(&self, inner: &MutexGuard<'_, Inner>) {
        self.count.store(inner.ready.len(), Ordering::Release);
    }

    /// For the writer: a file of at least `bytes`, leaving `keep` others. Waits while one is being made.
    pub(crate) fn take(&self, bytes: u64, keep: usize) -> Result<Spare, String> {
        let mut inner = lock(&self.inner);
        loop {
            let found = inner.ready.iter().position(|spare| spare.bytes >= bytes);
            if let Some(at) = found.filter(|_| inner.ready.len() > keep) {
                let spare = inner.ready.remove(at);
                let passed: Vec<_> = inner.ready.drain(..at).collect();
                inner.passed.extend(passed);
                inner.wanted_bytes = 0;
                self.counted(&inner);
                self.wake_keeper(&mut inner);
                return Ok(spare);
            }
            let failed = inner.failed.as_ref().filter(|(failed, _)| *failed <= bytes.max(self.usual));
            if let Some((_, why)) = failed {
                let why = why.clone();
                inner.wanted_bytes = 0;
                return Err(why);
            }
            if inner.stopped {
                return Err("the queue is closing".to_owned());
            }
            inner.wanted_bytes = bytes;
            self.wake_keeper(&mut inner);
            inner = self.to_writer.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake_keeper(&self, inner: &mut Inner) {
        inner.poked = true;
        self.to_keeper.notify_one();
    }

    /// Room may have been made.
    pub(crate) fn poke(&self) {
        self.wake_keeper(&mut lock(&self.inner));
    }

    /// For the keeper: what is missing, waiting for news at most `patience`.
    pub(crate) fn task(&self, patience: Duration) -> Task {
        let mut inner = lock(&self.inner);
        if !inner.poked && !inner.stopped {
            inner = self.to_keeper.wait_timeout(inner, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        inner.poked = false;
        if inner.stopped {
            return Task::Stop;
        }
        if let Some(spare) = inner.passed.pop() {
            inner.poked = true;
            return Task::Renumber(spare);
        }
        let fits = inner.ready.iter().any(|spare| spare.bytes >= inner.wanted_bytes);
        if fits && inner.ready.len() >= SPARES {
            return Task::Idle;
        }
        // The writer waits only when it writes whole files faster than the disk takes zeros.
        let layout = if inner.wanted_bytes > 0 { Layout::Reserved } else { Layout::Zeroed };
        Task::Make(inner.wanted_bytes.max(self.usual), layout)
    }

    /// For the keeper: here it is.
    pub(crate) fn put(&self, spare: Spare) {
        let mut inner = lock(&self.inner);
        inner.failed = None;
        inner.poked = true;
        inner.ready.push(spare);
        inner.ready.sort_by_key(|spare| spare.number);
        self.counted(&inner);
        self.to_writer.notify_all();
    }

    /// For the keeper: it cannot be had.
    pub(crate) fn fail(&self, bytes: u64, why: String) {
        let mut inner = lock(&self.inner);
        inner.failed = Some((bytes, why));
        inner.wanted_bytes = 0;
        self.to_writer.notify_all();
        self.to_mover.notify_all();
    }

    /// For the mover: waits until something could not be had, at most `patience`. False when the queue is closing.
    pub(crate) fn wait_as_mover(&self, patience: Duration) -> bool {
        let inner = lock(&self.inner);
        if inner.stopped {
            return false;
        }
        let waited = self.to_mover.wait_timeout(inner, patience).unwrap_or_else(PoisonError::into_inner).0;
        !waited.stopped
    }

    /// Whether one could not be had.
    pub(crate) fn has_failed(&self) -> bool {
        lock(&self.inner).failed.is_some()
    }

    /// How many files are ready.
    pub(crate) fn held(&self) -> usize {
        lock(&self.inner).ready.len()
    }

    /// Ends the keeper and whoever waits for it.
    pub(crate) fn stop(&self) {
        lock(&self.inner).stopped = true;
        self.to_keeper.notify_all();
        self.to_writer.notify_all();
        self.to_mover.notify_all();
    }
}
