//! How much disk the queue and its tenant may take, from what was configured and what the disk has.

use std::fs;
use std::io;
use std::path::Path;

/// Most that a tenant's unwritten rows take when nobody says how much.
const TENANT_BYTES_MAX: u64 = 50 << 30;
/// And at most this part of what the disk could give.
const FREE_PART: u64 = 4;
/// Of the tenant's budget, what is added for rows that are kept for live streams when only that budget is configured.
const HISTORY_PART: u64 = 4;

/// What the queue may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// All of it on disk.
    pub(crate) disk_bytes_max: u64,
    /// The tenant's rows that wait for ClickHouse.
    pub(crate) unwritten_bytes_max: u64,
    /// Whether the disk cannot give that much as it stands.
    pub(crate) overdrawn: bool,
}

/// Decides the budgets. `free` is what the disk has left, `used` what the queue takes of it already.
pub(crate) fn decide(disk: Option<u64>, tenant: Option<u64>, free: u64, used: u64) -> Budget {
    let could_give = free.saturating_add(used);
    let share = (could_give / FREE_PART).min(TENANT_BYTES_MAX);
    let disk_bytes_max = match (disk, tenant) {
        (Some(disk), _) => disk,
        (None, Some(tenant)) => tenant.saturating_add(tenant / HISTORY_PART),
        (None, None) => share,
    };
    let unwritten_bytes_max =
        tenant.unwrap_or(if disk.is_some() { disk_bytes_max } else { share }).min(disk_bytes_max);
    Budget { disk_bytes_max, unwritten_bytes_max, overdrawn: disk_bytes_max > could_give }
}

/// Bytes that the disk of a directory has left for us.
pub(crate) fn free_bytes(dir: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Bytes of disk below a directory; what cannot be read counts nothing.
pub(crate) fn used_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    /// Bytes of a block as `stat` counts them.
    const BLOCK_BYTES: u64 = 512;
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => used_bytes(&entry.path()),
            Ok(meta) => meta.blocks() * BLOCK_BYTES,
            Err(_) => 0,
        })
        .sum()
}

/// A number of bytes for people.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (unit, factor) in UNITS {
        if bytes >= factor {
            let tenths = bytes / (factor / 10).max(1);
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets() {
        let gib = 1 << 30;
        for (disk, tenant, free, used, wanted) in [
            (None, None, 1000 * gib, 0, (50 * gib, 50 * gib, false)),
            (None, None, 30 * gib, 10 * gib, (10 * gib, 10 * gib, false)),
            (None, None, 64 << 20, 0, (16 << 20, 16 << 20, false)),
            (None, Some(4 * gib), 100 * gib, 0, (5 * gib, 4 * gib, false)),
            (None, Some(4 * gib), gib, 0, (5 * gib, 4 * gib, true)),
            (Some(2 * gib), None, 100 * gib, 0, (2 * gib, 2 * gib, false)),
            (Some(2 * gib), Some(4 * gib), 100 * gib, 0, (2 * gib, 2 * gib, false)),
            (Some(2 * gib), Some(gib), 100 * gib, 0, (2 * gib, gib, false)),
        ] {
            let budget = decide(disk, tenant, free, used);
            let got = (budget.disk_bytes_max, budget.unwritten_bytes_max, budget.overdrawn);
            assert_eq!(got, wanted, "{disk:?} {tenant:?} {free} {used}");
        }
    }

    #[test]
    fn for_people() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (16 << 20, "16.0 MiB"), (3 << 29, "1.5 GiB"), (1 << 40, "1.0 TiB")]
        {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn what_a_directory_takes() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        fs::create_dir(dir.path().join("a"))?;
        fs::write(dir.path().join("a/b"), vec![1; 100_000])?;
        assert!(used_bytes(dir.path()) >= 100_000);
        assert_eq!(used_bytes(&dir.path().join("none")), 0);
        assert!(free_bytes(dir.path())? > 0);
        Ok(())
    }
}
