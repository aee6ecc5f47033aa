//! The disk itself.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation};

use super::{Files, Found, Holder, Layout, LockGuard, LogFile};

/// Zeros are written in pieces of this size.
const ZERO_BYTES: usize = 1 << 20;
/// So much is written between syncs while a file is laid out, so that commits beside it do not wait for all of it.
const ZERO_SYNC_BYTES: u64 = 8 << 20;

/// A data directory on a real disk.
#[derive(Debug, Clone)]
pub struct RealFiles {
    root: PathBuf,
}

impl RealFiles {
    /// The directory that all paths are relative to. It need not exist.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

struct RealFile(File);

impl LogFile for RealFile {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_exact_at(into, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
}

impl Files for RealFiles {
    fn create_dir(&self, dir: &str) -> io::Result<()> {
        let path = self.at(dir);
        fs::create_dir_all(&path)?;
        // Only the names that can be new are worth a sync: the directory's own and its parent's.
        for up in path.ancestors().skip(1).take(2).filter(|up| !up.as_os_str().is_empty()) {
            File::open(up)?.sync_all()?;
        }
        Ok(())
    }

    fn lock(&self, path: &str) -> io::Result<Result<LockGuard, Holder>> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(self.at(path))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                file.set_len(0)?;
                // The pid only helps the reader of an error message; on a full disk the lock is worth more.
                if let Err(error) = write!(file, "{}", std::process::id()) {
                    tracing::warn!(%error, "cannot write the pid into the lock file");
                }
                Ok(Ok(Box::new(file)))
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                file.rewind()?;
                file.read_to_string(&mut text)?;
                Ok(Err(Holder { pid: text.trim().parse().ok() }))
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.at(dir))? {
            let entry = entry?;
            let meta = entry.metadata()?;
            if let (true, Ok(name)) = (meta.is_file(), entry.file_name().into_string()) {
                found.push(Found { name, bytes: meta.len() });
            }
        }
        Ok(found)
    }

    fn create(&self, path: &str, bytes: u64, layout: Layout) -> io::Result<Arc<dyn LogFile>> {
        let full = self.at(path);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&full)?;
        if let Err(error) = lay_out(&file, bytes, layout) {
            drop(file);
            fs::remove_file(&full)?;
            return Err(error);
        }
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn LogFile>> {
        Ok(Arc::new(RealFile(OpenOptions::new().read(true).write(true).open(self.at(path))?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        File::open(self.at(dir))?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

fn lay_out(file: &File, bytes: u64, layout: Layout) -> io::Result<()> {
    if bytes == 0 {
        return file.sync_all();
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) if layout == Layout::Reserved => return file.sync_all(),
        // Not every file system can reserve; the zeros below take the room then.
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
        Err(errno) => return Err(errno.into()),
    }
    let zeros = vec![0; ZERO_BYTES.min(usize::try_from(bytes).unwrap_or(ZERO_BYTES))];
    let (mut at, mut synced) = (0, 0);
    while at < bytes {
        let count = usize::try_from(bytes - at).unwrap_or(ZERO_BYTES).min(zeros.len());
        file.write_all_at(zeros.get(..count).unwrap_or(&zeros), at)?;
        at += count as u64;
        if at - synced >= ZERO_SYNC_BYTES {
            file.sync_data()?;
            synced = at;
        }
    }
    file.sync_all()
}
