//! What all units of a process hold together.

use std::sync::atomic::{AtomicU64, Ordering};

use wavehouse_broker::RowBudget;

/// Every unit may hold so much, whatever the others hold.
const GUARANTEED: RowBudget = RowBudget { rows: 1_000, bytes: 1 << 20 };
/// Of what the others leave, a unit takes one part in so many at most.
const BORROWED: u64 = 4;

/// What is held, and what may be.
pub(crate) struct Pool {
    max: RowBudget,
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl Pool {
    pub(crate) fn new(max: RowBudget) -> Self {
        Self { max, rows: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    pub(crate) fn hold(&self, rows: u64, bytes: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn let_go(&self, rows: u64, bytes: u64) {
        self.rows.fetch_sub(rows, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What a unit that holds so much may hold.
    pub(crate) fn share(&self, rows: u64, bytes: u64) -> RowBudget {
        let others = |all: &AtomicU64, own: u64| all.load(Ordering::Relaxed).saturating_sub(own);
        let share = |max: u64, others: u64, least: u64| (max.saturating_sub(others) / BORROWED).max(least);
        RowBudget {
            rows: share(self.max.rows, others(&self.rows, rows), GUARANTEED.rows),
            bytes: share(self.max.bytes, others(&self.bytes, bytes), GUARANTEED.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_borrows_a_quarter_of_what_is_free() {
        let pool = Pool::new(RowBudget { rows: 100_000, bytes: 1 << 30 });
        assert_eq!(pool.share(0, 0), RowBudget { rows: 25_000, bytes: 1 << 28 });
        pool.hold(20_000, 0);
        assert_eq!(pool.share(20_000, 0).rows, 25_000, "what it holds itself does not count");
        assert_eq!(pool.share(0, 0).rows, 20_000);
        pool.hold(100_000, 2 << 30);
        assert_eq!(pool.share(0, 0), GUARANTEED);
        pool.let_go(120_000, 2 << 30);
        assert_eq!(pool.share(0, 0), RowBudget { rows: 25_000, bytes: 1 << 28 });
    }
}
