//! What an operator can turn, and what nobody should have to.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, SystemTime};

use wavehouse_broker::RowBudget;
use wavehouse_clickhouse::BATCH_ROWS_LIMIT;
use wavehouse_core::Timestamp;

use crate::batcher::Load;
use crate::budget::GUARANTEED;

/// A batch is ready so long after its first block was delivered.
const LINGER: Duration = Duration::from_secs(1);
/// A batch is ready at so many rows.
const BATCH_ROWS: u32 = 10_000;
/// A batch is ready at so many bytes of lines.
const BATCH_BYTES: u64 = 8 << 20;
/// A batch that must wait grows up to so many bytes.
const BATCH_BYTES_MAX: u64 = 64 << 20;
/// A batch that must wait grows up to so many rows; fewer than what the sink takes as one block.
const BATCH_ROWS_MAX: u32 = 500_000;
/// Inserts at a time into one ClickHouse.
const INSERTS_MAX: usize = 4;
/// Rows in hand.
const HELD_ROWS: u64 = 2_000_000;
/// Bytes of lines in hand.
const HELD_BYTES: u64 = 256 << 20;
/// A process that shares units has room for so many of them at least.
const SHARED_UNITS_MIN: u64 = 8;
/// How long stopping may go on inserting what is in hand.
const STOP_BUDGET: Duration = Duration::from_secs(20);

/// How the worker works.
#[derive(Debug, Clone)]
pub struct Options {
    /// A batch is ready so long after its first block was delivered (`worker.linger_ms`, 1,000).
    pub linger: Duration,
    /// A batch is ready at so many rows (`worker.batch_rows`, 10,000).
    pub batch_rows: u32,
    /// A batch is ready at so many bytes (`worker.batch_bytes`, 8 MiB).
    pub batch_bytes: u64,
    /// A batch that waits for its turn grows up to so many bytes (`worker.batch_bytes_max`, 64 MiB).
    pub batch_bytes_max: u64,
    /// Inserts at a time into one ClickHouse (`worker.inserts_max`, 4).
    pub inserts_max: usize,
    /// Most rows in hand (`worker.held_rows`, 2,000,000).
    pub held_rows: u64,
    /// Most bytes in hand (`worker.held_bytes`, 256 MiB).
    pub held_bytes: u64,
    /// How long stopping may go on inserting what is in hand; the rest stays in the queue.
    pub stop_budget: Duration,
    /// The wall clock, for dead letters.
    pub now: fn() -> Timestamp,
    /// Seed of the jitter in back-offs.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            linger: LINGER,
            batch_rows: BATCH_ROWS,
            batch_bytes: BATCH_BYTES,
            batch_bytes_max: BATCH_BYTES_MAX,
            inserts_max: INSERTS_MAX,
            held_rows: HELD_ROWS,
            held_bytes: HELD_BYTES,
            stop_budget: STOP_BUDGET,
            now: wall_clock,
            seed: RandomState::new().build_hasher().finish(),
        }
    }
}

impl Options {
    /// The same, with every value inside what the others allow: a batch fits into the hand twice, and nothing is zero.
    #[must_use]
    pub(crate) fn sane(mut self) -> Self {
        self.batch_bytes_max = self.batch_bytes_max.clamp(1, BATCH_BYTES_MAX);
        self.batch_bytes = self.batch_bytes.clamp(1, self.batch_bytes_max);
        self.batch_rows = self.batch_rows.clamp(1, BATCH_ROWS_MAX);
        self.inserts_max = self.inserts_max.max(1);
        self.held_rows = self.held_rows.max(2 * u64::from(BATCH_ROWS_MAX));
        self.held_bytes = self.held_bytes.max(2 * self.batch_bytes_max);
        self
    }

    /// The same for units that come and go and share what may be held; there a batch is never larger than half of what
    /// its unit may hold, so less is enough.
    #[must_use]
    pub(crate) fn sane_shared(self) -> Self {
        let (rows, bytes) = (self.held_rows, self.held_bytes);
        let mut sane = self.sane();
        sane.held_rows = rows.max(SHARED_UNITS_MIN * GUARANTEED.rows);
        sane.held_bytes = bytes.max(SHARED_UNITS_MIN * GUARANTEED.bytes);
        sane
    }

    /// What a unit among several may hand out until its share is known.
    pub(crate) fn first_budget() -> RowBudget {
        RowBudget { rows: GUARANTEED.rows, bytes: GUARANTEED.bytes }
    }

    /// Room for one batch that an earlier run with larger settings has cut.
    pub(crate) fn rebuild_room() -> Load {
        Load { rows: u64::from(BATCH_ROWS_MAX), bytes: BATCH_BYTES_MAX }
    }

    /// Most rows of one batch.
    pub(crate) fn batch_rows_max(&self) -> u32 {
        BATCH_ROWS_MAX.min(BATCH_ROWS_LIMIT)
    }

    /// What a unit hands out at most: what is to be held, and room for one batch that an earlier run with larger
    /// settings has cut.
    pub(crate) fn budget(&self) -> RowBudget {
        RowBudget {
            rows: self.held_rows + u64::from(BATCH_ROWS_MAX),
            bytes: self.held_bytes + BATCH_BYTES_MAX,
        }
    }

    /// How many batches may be rebuilt at a time: together they leave half of the hand to the tables that have none.
    pub(crate) fn rebuilds_max(&self) -> usize {
        let by_bytes = self.held_bytes / 2 / BATCH_BYTES_MAX;
        let by_rows = self.held_rows / 2 / u64::from(BATCH_ROWS_MAX);
        usize::try_from(by_bytes.min(by_rows)).unwrap_or(1).max(1)
    }
}

fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_always_fits_into_the_hand() {
        let options = Options {
            held_bytes: 1,
            held_rows: 1,
            batch_bytes: 1 << 40,
            batch_bytes_max: 1 << 41,
            ..Options::default()
        };
        let sane = options.sane();
        assert!(sane.batch_bytes <= sane.batch_bytes_max && sane.held_bytes >= 2 * sane.batch_bytes_max);
        assert_eq!(sane.rebuilds_max(), 1);
        assert_eq!(Options::default().sane().rebuilds_max(), 2);
    }
}
