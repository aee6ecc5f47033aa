//! What the queue is opened with, its limits by name, and why it does not open.

use std::path::PathBuf;
use std::time::Duration;

use wavehouse_broker::TenantLimits;
use wavehouse_core::FaultKind;

/// Largest encoded block that can be published.
pub const BLOCK_BYTES_MAX: usize = 32 << 20;
/// Blocks of one table that wait together are stored as one up to this size. 128 KiB was measured to carry rows at full
/// speed while a delivery stays small.
pub(crate) const MERGE_BYTES: usize = 128 << 10;
/// Most bytes that wait for the writer; beyond, publishing answers `Overrun`.
pub(crate) const PENDING_BYTES_MAX: u64 = 64 << 20;
/// A commit is closed at this size, so that those in it do not wait for those behind it.
pub(crate) const COMMIT_BYTES: usize = 8 << 20;
/// Most tables of all tenants together. A table's sequence is kept for ever, so that it is never handed out twice.
pub(crate) const TABLES_MAX: usize = 100_000;
/// Most tenants.
pub(crate) const TENANTS_MAX: usize = 100_000;
/// Smallest and largest log file, but for one that must hold an outsized block.
pub(crate) const FILE_BYTES_MIN: u64 = 1 << 20;
/// See [`FILE_BYTES_MIN`].
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 20;
/// The budget is divided into this many log files, within their smallest and largest size.
pub(crate) const FILES_PER_BUDGET: u64 = 16;
/// Most that the queue takes of the disk by default.
pub(crate) const DISK_BYTES_DEFAULT: u64 = 50 << 30;
/// And at most this part of the free space.
pub(crate) const DISK_FREE_PART: u64 = 4;
/// Settles that nothing carries are made durable after this long.
pub(crate) const SETTLE_IDLE: Duration = Duration::from_secs(1);
/// A file that could not be laid out is tried again after this long.
pub(crate) const ROOM_RETRY: Duration = Duration::from_secs(1);
/// Time within which a delivery must be settled, by default.
pub const ACK_WAIT_DEFAULT: Duration = Duration::from_secs(60);

/// What [`EmbeddedBroker::open`](crate::EmbeddedBroker::open) needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data directory; the queue lives in `queue/` and `letters/` below it.
    pub dir: PathBuf,
    /// Most bytes of disk for unwritten rows and history together. By default the smaller of 50 GiB and a quarter of the
    /// free space.
    pub disk_bytes_max: Option<u64>,
    /// What a tenant may use whose limits have not been set.
    pub default_limits: TenantLimits,
    /// A delivery that is not settled within this time is handed out again.
    pub ack_wait: Duration,
    /// Size of a log file; by default a sixteenth of `disk_bytes_max`, from 1 to 64 MiB.
    pub file_bytes: Option<u64>,
    /// For measurements: how much longer each sync takes.
    pub fsync_delay: Duration,
}

impl Options {
    /// Everything by default: no budget per tenant below the disk's, an hour of history.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            disk_bytes_max: None,
            default_limits: TenantLimits {
                unwritten_bytes_max: DISK_BYTES_DEFAULT,
                gap_window: Duration::from_secs(3600),
            },
            ack_wait: ACK_WAIT_DEFAULT,
            file_bytes: None,
            fsync_delay: Duration::ZERO,
        }
    }
}

/// The sizes that follow from the options and the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) disk_bytes_max: u64,
    pub(crate) file_bytes: u64,
}

impl Sizes {
    /// `free_bytes` is what the disk has left, `used_bytes` what the queue has already taken of it.
    pub(crate) fn decide(options: &Options, free_bytes: u64, used_bytes: u64) -> Self {
        let part = free_bytes.saturating_add(used_bytes) / DISK_FREE_PART;
        let disk_bytes_max = options.disk_bytes_max.unwrap_or_else(|| part.min(DISK_BYTES_DEFAULT));
        let by_budget = (disk_bytes_max / FILES_PER_BUDGET).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
        let file_bytes = options.file_bytes.unwrap_or(by_budget).clamp(FILE_BYTES_FLOOR, FILE_BYTES_CEILING);
        Self { disk_bytes_max: disk_bytes_max.max(FILES_MIN * file_bytes), file_bytes }
    }
}

/// A log file below this size could not hold its own head and foot.
const FILE_BYTES_FLOOR: u64 = 64 << 10;
/// Places in a file are told in 32 bits, and a file that holds an outsized block is larger than the rest.
const FILE_BYTES_CEILING: u64 = 1 << 30;
/// The log needs room for the file that is written, two spare ones, and one that is being freed.
const FILES_MIN: u64 = 4;

/// Why the queue does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "queue directory {dir} is in use by {holder}; stop that process or give this one another data directory",
        dir = dir.display()
    )]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// Who has it, for people.
        holder: String,
    },
    /// A newer program made it.
    #[error(
        "queue directory {dir} has format {found}, this program reads format {known}; run the program that wrote it, \
         or drain the queue with it first",
        dir = dir.display()
    )]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// The format found.
        found: u64,
        /// The format that this program reads.
        known: u64,
    },
    /// The file that names the format is not what the queue writes.
    #[error(
        "{path} does not name a queue format; restore it, or move the directory away to begin an empty queue",
        path = path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// The newest log file cannot be read, so that what has been acked is not known.
    #[error("log file {path} is damaged at its head; restore it, or move the queue directory away", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The disk has no room to begin.
    #[error(
        "queue directory {dir} has no room for a log file of {bytes} bytes; free some space or set a smaller queue",
        dir = dir.display()
    )]
    NoRoom {
        /// The directory.
        dir: PathBuf,
        /// How much is needed.
        bytes: u64,
    },
    /// The operating system refuses.
    #[error("queue directory {dir} cannot be used: {what}", dir = dir.display())]
    Disk {
        /// The directory.
        dir: PathBuf,
        /// What was being done.
        what: &'static str,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
}

impl OpenError {
    /// What the caller should do.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        FaultKind::Stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_disk() {
        let mut options = Options::new(PathBuf::new());
        let gib = 1 << 30;
        for (free, used, disk, file) in [
            (1000 * gib, 0, 50 * gib, 64 << 20),
            (40 * gib, 0, 10 * gib, 64 << 20),
            (30 * gib, 10 * gib, 10 * gib, 64 << 20),
            (64 << 20, 0, 16 << 20, 1 << 20),
            (512 << 20, 0, 128 << 20, 8 << 20),
        ] {
            let sizes = Sizes::decide(&options, free, used);
            assert_eq!((sizes.disk_bytes_max, sizes.file_bytes), (disk, file), "{free} free, {used} used");
        }
        options.disk_bytes_max = Some(2 << 20);
        options.file_bytes = Some(1);
        let sizes = Sizes::decide(&options, gib, 0);
        assert_eq!((sizes.disk_bytes_max, sizes.file_bytes), (2 << 20, FILE_BYTES_FLOOR));
        options.file_bytes = Some(1 << 40);
        let sizes = Sizes::decide(&options, gib, 0);
        assert_eq!((sizes.disk_bytes_max, sizes.file_bytes), (4 << 30, 1 << 30));
    }
}
