//! The seam to the disk: all that the queue asks of a file system, so that tests can put one underneath that fills up,
//! tears writes, forgets what was not synced, or fails.
//!
//! Paths are relative to the data directory and use `/`. A file that [`Files::create`] made is laid out and filled with
//! zeros, so that later writes inside it need no room and no change of metadata.

use std::io;
use std::sync::Arc;

mod real;

pub use real::RealFiles;

/// Who holds a directory that could not be locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process id, as far as it wrote it down.
    pub pid: Option<u32>,
}

/// Held as long as the directory is ours.
pub type LockGuard = Box<dyn Send + Sync>;

/// A file found in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its name without the directory.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// How the room of a new file is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// By writing zeros, so that later writes change nothing but content.
    Zeroed,
    /// By reserving it, where the file system can: quicker, and later writes cost more.
    Reserved,
}

/// A file system.
pub trait Files: Send + Sync + 'static {
    /// Makes a directory and those above it, durably.
    ///
    /// # Errors
    /// As the operating system says.
    fn create_dir(&self, dir: &str) -> io::Result<()>;

    /// Takes the exclusive lock of a directory for this process.
    ///
    /// # Errors
    /// As the operating system says. Being locked by another is the inner error.
    fn lock(&self, path: &str) -> io::Result<Result<LockGuard, Holder>>;

    /// The files of a directory, in no order.
    ///
    /// # Errors
    /// As the operating system says.
    fn list(&self, dir: &str) -> io::Result<Vec<Found>>;

    /// A new file of `bytes` zeros, durable but for its name; nothing is left behind when it fails.
    ///
    /// # Errors
    /// As the operating system says; a full disk is [`io::ErrorKind::StorageFull`].
    fn create(&self, path: &str, bytes: u64, layout: Layout) -> io::Result<Arc<dyn LogFile>>;

    /// A file that exists.
    ///
    /// # Errors
    /// As the operating system says.
    fn open(&self, path: &str) -> io::Result<Arc<dyn LogFile>>;

    /// Gives a file another name in its directory, replacing what had it.
    ///
    /// # Errors
    /// As the operating system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Who has it open goes on reading it.
    ///
    /// # Errors
    /// As the operating system says.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// As the operating system says.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;

    /// Bytes that could still be written.
    ///
    /// # Errors
    /// As the operating system says.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// An open file. Reads and writes name their place; several threads may use it at once.
pub trait LogFile: Send + Sync + 'static {
    /// Fills `into` from `at`.
    ///
    /// # Errors
    /// As the operating system says; [`io::ErrorKind::UnexpectedEof`] past the end.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `at`, growing the file if need be.
    ///
    /// # Errors
    /// As the operating system says; then any part may be written.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Makes the content durable.
    ///
    /// # Errors
    /// As the operating system says; then what was written since the last sync may be lost, whatever a later call says.
    fn sync(&self) -> io::Result<()>;

    /// Cuts or grows the file.
    ///
    /// # Errors
    /// As the operating system says.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
}

/// Whether an error says that no room is left.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Reads `count` bytes at `at`.
pub(crate) fn read_vec(file: &dyn LogFile, at: u64, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    file.read_at(&mut bytes, at)?;
    Ok(bytes)
}

/// Writes a whole small file so that after a crash it is there entirely or not at all.
pub(crate) fn write_whole(files: &dyn Files, dir: &str, name: &str, content: &[u8]) -> io::Result<()> {
    let (path, draft) = (format!("{dir}/{name}"), format!("{dir}/{name}.new"));
    let file = files.create(&draft, content.len() as u64, Layout::Zeroed)?;
    file.write_at(content, 0)?;
    file.sync()?;
    files.rename(&draft, &path)?;
    files.sync_dir(dir)
}
