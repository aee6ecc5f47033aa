//! When the rows in hand of a table become a batch, and how many of them.
//!
//! A batch is *ready* by age, rows or bytes. It is *due* when no insert of its table is in flight and the last one began
//! long enough ago, or when it has grown as far as it may. Between the two it grows, which is how a busy table comes to
//! few large inserts without being told.

use std::time::Duration;

use tokio::time::Instant;

use crate::options::Options;

/// Inserts of one table begin no closer than this, unless a batch is as large as it may be.
pub(crate) const INSERT_SPACING: Duration = Duration::from_millis(500);

/// Rows and bytes of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Load {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl Load {
    pub(crate) fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
    }

    pub(crate) fn take(&mut self, other: Self) {
        self.rows = self.rows.saturating_sub(other.rows);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }

    fn reaches(self, other: Self) -> bool {
        self.rows >= other.rows || self.bytes >= other.bytes
    }
}

/// The sizes and times that decide.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Ready at this age.
    pub(crate) linger: Duration,
    /// Ready at this size.
    pub(crate) ready: Load,
    /// Grows no further than this.
    pub(crate) most: Load,
    /// What all units may hold together.
    pub(crate) hand: Load,
}

impl Limits {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            linger: options.linger,
            ready: Load { rows: u64::from(options.batch_rows), bytes: options.batch_bytes },
            most: Load { rows: u64::from(options.batch_rows_max()), bytes: options.batch_bytes_max },
            hand: Load { rows: options.held_rows, bytes: options.held_bytes },
        }
    }

    /// How far one table's rows may grow beside `busy` tables that hold rows, of a unit that may hold `hand`: half of it
    /// is shared out, so that one table cannot keep the others from being delivered.
    pub(crate) fn share(&self, hand: Load, busy: usize) -> Load {
        let busy = busy.max(1) as u64;
        let rows = (hand.rows / 2 / busy).clamp(1, self.most.rows);
        Load { rows, bytes: (hand.bytes / 2 / busy).clamp(1, self.most.bytes) }
    }
}

/// The rows in hand of a table that are in no batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    /// How much; a block without rows still waits.
    pub(crate) load: Load,
    /// How many blocks.
    pub(crate) blocks: usize,
    /// When the first of them was delivered.
    pub(crate) since: Instant,
    /// When the table's last insert began.
    pub(crate) last_began: Option<Instant>,
    /// Insert now, whatever the size: the process stops, or the server is being probed.
    pub(crate) hurry: bool,
}

/// What to do with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// There is nothing.
    Never,
    /// Look again then.
    At(Instant),
    /// Make a batch.
    Now,
}

/// Decides when the table's next batch is made, while no insert of the table is in flight.
pub(crate) fn due(waiting: &Waiting, limits: &Limits, share: Load, now: Instant) -> Due {
    if waiting.blocks == 0 {
        return Due::Never;
    }
    if waiting.hurry || waiting.load.reaches(share) {
        return Due::Now;
    }
    let spaced = waiting.last_began.map_or(now, |began| began + INSERT_SPACING);
    let aged = if waiting.load.reaches(limits.ready) { now } else { waiting.since + limits.linger };
    let at = spaced.max(aged);
    if at <= now { Due::Now } else { Due::At(at) }
}

/// How many of the blocks, the oldest first, make the batch: as many as stay within `most`, and at least one.
pub(crate) fn count(blocks: impl Iterator<Item = Load>, most: Load) -> usize {
    let mut sum = Load::default();
    let fits = |load: &Load| {
        sum.add(*load);
        sum.rows <= most.rows && sum.bytes <= most.bytes
    };
    blocks.take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn limits() -> Limits {
        Limits::new(&Options::default().sane())
    }

    #[test]
    fn cases() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let one = Load { rows: 1, bytes: 100 };
        let (rows, bytes) = (Load { rows: 10_000, bytes: 1 }, Load { rows: 1, bytes: 8 * MIB });
        let most = Load { rows: 1, bytes: 64 * MIB };
        let cases = [
            // Age, rows, bytes.
            (one, 0, None, 0, Due::At(at(1000))),
            (one, 0, None, 1000, Due::Now),
            (rows, 0, None, 0, Due::Now),
            (bytes, 0, None, 0, Due::Now),
            // The last insert began 100 ms ago: grow, by size or by age.
            (rows, 0, Some(0), 100, Due::At(at(500))),
            (rows, 0, Some(0), 500, Due::Now),
            (one, 200, Some(0), 300, Due::At(at(1200))),
            (one, 0, Some(900), 1000, Due::At(at(1400))),
            // As large as it may be.
            (most, 0, Some(0), 100, Due::Now),
        ];
        for (load, since, began, now, expected) in cases {
            let last_began = began.map(at);
            let waiting = Waiting { load, blocks: 1, since: at(since), last_began, hurry: false };
            let decided = due(&waiting, &limits(), limits().share(limits().hand, 1), at(now));
            assert_eq!(decided, expected, "{load:?} since {since} began {began:?} now {now}");
        }
    }

    #[test]
    fn nothing_waits_and_hurry() {
        let now = Instant::now();
        let mut waiting =
            Waiting { load: Load::default(), blocks: 0, since: now, last_began: Some(now), hurry: true };
        assert_eq!(due(&waiting, &limits(), limits().share(limits().hand, 1), now), Due::Never);
        waiting.blocks = 1;
        assert_eq!(due(&waiting, &limits(), limits().share(limits().hand, 1), now), Due::Now);
    }

    #[test]
    fn busy_tables_share_half_of_the_hand() {
        assert_eq!(limits().share(limits().hand, 0).bytes, 64 * MIB);
        assert_eq!(limits().share(limits().hand, 2).bytes, 64 * MIB);
        assert_eq!(limits().share(limits().hand, 8), Load { rows: 125_000, bytes: 16 * MIB });
    }

    #[test]
    fn a_batch_stays_within_bounds_but_takes_one_block() {
        let most = Load { rows: 10, bytes: 100 };
        let blocks = |sizes: &[(u64, u64)]| {
            count(
                sizes.iter().map(|&(rows, bytes)| Load { rows, bytes }).collect::<Vec<_>>().into_iter(),
                most,
            )
        };
        assert_eq!(blocks(&[(5, 1), (5, 1), (1, 1)]), 2);
        assert_eq!(blocks(&[(1, 60), (1, 41)]), 1);
        assert_eq!(blocks(&[(50, 1), (1, 1)]), 1);
        assert_eq!(blocks(&[(0, 0), (10, 100), (0, 0)]), 3);
    }
}
