//! Every number of the worker, with its default and its reason.

use std::time::Duration;

use wavehouse_broker::RowBudget;

/// How long the first row of a batch waits for company.
pub const LINGER: Duration = Duration::from_secs(1);
/// Rows at which a batch is ready before its linger is over.
pub const BATCH_ROWS: u64 = 10_000;
/// Bytes of lines at which a batch is ready before its linger is over.
pub const BATCH_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes up to which a batch grows while it cannot go yet.
pub const BATCH_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Rows up to which a batch grows while it cannot go yet; below the rows that ClickHouse takes as one block, so that a
/// batch is stored whole or not at all.
pub const BATCH_ROWS_MAX: u64 = 500_000;
/// Least time between the beginnings of two inserts of one table; MergeTree likes few parts.
pub const INSERT_SPACING: Duration = Duration::from_millis(500);
/// Inserts in flight at once, over all tables of a ClickHouse.
pub const INSERTS_MAX: usize = 4;
/// Rows handed out by the queue and not settled.
pub const HELD_ROWS: u64 = 200_000;
/// Bytes handed out by the queue and not settled.
pub const HELD_BYTES: u64 = 256 * 1024 * 1024;
/// Refusals in a row after which a table is probed one insert at a time.
pub const REFUSALS_IN_A_ROW_MAX: u32 = 1_000;

/// What the worker goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// See [`LINGER`].
    pub linger: Duration,
    /// See [`BATCH_ROWS`].
    pub batch_rows: u64,
    /// See [`BATCH_BYTES`].
    pub batch_bytes: u64,
    /// See [`BATCH_BYTES_MAX`].
    pub batch_bytes_max: u64,
    /// See [`BATCH_ROWS_MAX`].
    pub batch_rows_max: u64,
    /// See [`INSERT_SPACING`].
    pub insert_spacing: Duration,
    /// See [`INSERTS_MAX`].
    pub inserts_max: usize,
    /// See [`HELD_ROWS`] and [`HELD_BYTES`].
    pub held: RowBudget,
    /// See [`REFUSALS_IN_A_ROW_MAX`].
    pub refusals_in_a_row_max: u32,
    /// How long a stop waits for what is in hand to be written; the rest goes back to the queue.
    pub stop_flush: Duration,
    /// Seed of the jitter of waits; any number, different in each process.
    pub jitter_seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            linger: LINGER,
            batch_rows: BATCH_ROWS,
            batch_bytes: BATCH_BYTES,
            batch_bytes_max: BATCH_BYTES_MAX,
            batch_rows_max: BATCH_ROWS_MAX,
            insert_spacing: INSERT_SPACING,
            inserts_max: INSERTS_MAX,
            held: RowBudget { rows: HELD_ROWS, bytes: HELD_BYTES },
            refusals_in_a_row_max: REFUSALS_IN_A_ROW_MAX,
            stop_flush: Duration::from_secs(8),
            jitter_seed: 0,
        }
    }
}
