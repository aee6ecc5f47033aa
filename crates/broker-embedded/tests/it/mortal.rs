//! A disk that a process stops writing to when it is killed: the real one, behind a switch.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wavehouse_broker_embedded::files::{Files, Found, Holder, Layout, LockGuard, LogFile, RealFiles};

/// One life of a process: after [`kill`](Self::kill) nothing that it does has any effect.
#[derive(Clone)]
pub(crate) struct Mortal {
    files: RealFiles,
    dead: Arc<AtomicBool>,
}

impl Mortal {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { files: RealFiles::new(dir), dead: Arc::default() }
    }

    pub(crate) fn kill(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    fn alive(&self) -> io::Result<()> {
        if self.dead.load(Ordering::SeqCst) { Err(io::Error::other("killed")) } else { Ok(()) }
    }

    fn file(&self, file: Arc<dyn LogFile>) -> Arc<dyn LogFile> {
        Arc::new(MortalFile { file, life: self.clone() })
    }
}

struct MortalFile {
    file: Arc<dyn LogFile>,
    life: Mortal,
}

impl LogFile for MortalFile {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_at(into, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.life.alive()?;
        self.file.write_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.life.alive()?;
        self.file.sync()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.life.alive()?;
        self.file.set_len(bytes)
    }
}

impl Files for Mortal {
    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.files.create_dir(dir)
    }

    fn lock(&self, _path: &str) -> io::Result<Result<LockGuard, Holder>> {
        // The dead hold no locks, and here both lives are in one process.
        Ok(Ok(Box::new(())))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Found>> {
        self.files.list(dir)
    }

    fn create(&self, path: &str, bytes: u64, layout: Layout) -> io::Result<Arc<dyn LogFile>> {
        self.alive()?;
        Ok(self.file(self.files.create(path, bytes, layout)?))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn LogFile>> {
        Ok(self.file(self.files.open(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.alive()?;
        self.files.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.alive()?;
        self.files.remove(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.alive()?;
        self.files.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.files.free_bytes()
    }
}
