//! A batch and the parts that it is inserted in, one after the other.
//!
//! A batch begins as one part. A refusal splits the part that was refused, around the row that was named or in the
//! middle. What lies before `done` is stored or buried and never sent again, so only the splits behind it count: as few
//! as a search needs, however many rows a batch loses.

use std::ops::Range;

use wavehouse_clickhouse::{BATCH_ROWS_LIMIT, Class, Scope, WriteError, refusal};

/// Where a batch stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    total: u32,
    done: u32,
    /// Ascending, between `done` and `total`, both excluded.
    splits: Vec<u32>,
    /// Whether the cut as it stands is on record.
    recorded: bool,
    /// Rows whose parts may be stored already, under their tokens as they are.
    doubtful: Range<u32>,
    /// How often that part was too large for the server since.
    too_large: u32,
}

/// A part that may be stored is not split only because it is too large for the server now: its halves would have other
/// tokens, and what is stored would be stored again. After so many tries being stuck is worse than that.
const TOO_LARGE_MAX: u32 = 5;

impl Parts {
    /// A batch of so many rows in one part, or as many as the sink's limit makes of it.
    pub(crate) fn new(total: u32) -> Self {
        let step = BATCH_ROWS_LIMIT as usize;
        let splits = (BATCH_ROWS_LIMIT..total).step_by(step).collect();
        Self { total, done: 0, splits, recorded: false, doubtful: 0..0, too_large: 0 }
    }

    /// A batch that was cut before; every part that is on record may have been sent.
    pub(crate) fn resume(total: u32, splits: &[u32], done: u32) -> Self {
        let done = done.min(total);
        let mut splits: Vec<u32> = splits.iter().copied().filter(|at| *at > done && *at < total).collect();
        splits.sort_unstable();
        splits.dedup();
        Self { total, done, splits, recorded: true, doubtful: 0..total, too_large: 0 }
    }

    /// The rows of the part that comes next; none when all is done.
    pub(crate) fn next(&self) -> Option<Range<u32>> {
        let end = self.splits.first().copied().unwrap_or(self.total);
        (self.done < self.total).then_some(self.done..end)
    }

    /// The part that came next is stored or buried.
    pub(crate) fn finish_part(&mut self) {
        self.too_large = 0;
        self.done = if self.splits.is_empty() { self.total } else { self.splits.remove(0) };
    }

    /// Cuts a row out of the part that comes next; `row` counts from the part's first. A row outside of the part, or the
    /// only one of it, changes nothing.
    pub(crate) fn split_around(&mut self, row: u32) {
        let Some(part) = self.next() else { return };
        let row = part.start.saturating_add(row);
        if part.contains(&row) {
            self.insert([row, row + 1].into_iter().filter(|at| *at > part.start && *at < part.end).collect());
        }
    }

    /// Cuts the part that comes next in the middle; a single row stays.
    pub(crate) fn halve(&mut self) {
        let Some(part) = self.next() else { return };
        if part.len() > 1 {
            self.insert(vec![part.start + (part.end - part.start) / 2]);
        }
    }

    /// Cuts the part that comes next in the middle because it is too large for the server; `false` if it must wait.
    pub(crate) fn halve_for_size(&mut self) -> bool {
        self.too_large += 1;
        let may = !self.doubtful.contains(&self.done) || self.too_large > TOO_LARGE_MAX;
        if may {
            self.halve();
        }
        may
    }

    /// The part that comes next was sent and may be stored.
    pub(crate) fn doubt(&mut self) {
        if let Some(part) = self.next() {
            self.doubtful = part.start..self.doubtful.end.max(part.end);
        }
    }

    fn insert(&mut self, at: Vec<u32>) {
        self.recorded &= at.is_empty();
        self.too_large = 0;
        // The new parts were never sent; those behind them are as they were.
        self.doubtful.start = self.doubtful.start.max(self.next().map_or(self.total, |part| part.end));
        self.splits.splice(0..0, at);
    }

    pub(crate) fn recorded(&self) -> bool {
        self.recorded
    }

    pub(crate) fn set_recorded(&mut self) {
        self.recorded = true;
    }

    pub(crate) fn splits(&self) -> &[u32] {
        &self.splits
    }

    pub(crate) fn done_rows(&self) -> u32 {
        self.done
    }
}

/// What a failed part asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Try again later; nothing is the rows' fault.
    Wait,
    /// Cut out this row of the part, from 0.
    SplitAround(u32),
    /// Cut the part in the middle.
    Halve,
    /// Cut it in the middle, unless it may be stored.
    HalveForSize,
    /// The part is one row, and it is refused for good.
    Bury,
}

/// Decides what to do about a part of `rows` rows that failed.
pub(crate) fn remedy(error: &WriteError, rows: u32) -> Remedy {
    let WriteError::ClickHouse { remembers, source: clickhouse, .. } = error else { return Remedy::Wait };
    if clickhouse.in_view() && clickhouse.class == Class::Rejected {
        // The table has the rows already. Where it knows the token, trying again until the view is repaired stores no
        // twins and loses nothing of the view. Elsewhere every try stores the part again, so that the search must end.
        return match (remembers, rows) {
            (true, _) => Remedy::Wait,
            (false, 0..=1) => Remedy::Bury,
            (false, _) => Remedy::Halve,
        };
    }
    if clickhouse.size_related() {
        return if rows > 1 { Remedy::HalveForSize } else { Remedy::Wait };
    }
    let named = clickhouse.bad_row();
    if clickhouse.class != Class::Rejected || refusal(clickhouse.code, named) == Scope::Table {
        return Remedy::Wait;
    }
    let named = named.and_then(|row| u32::try_from(row.checked_sub(1)?).ok()).filter(|row| *row < rows);
    match named {
        _ if rows <= 1 => Remedy::Bury,
        Some(row) => Remedy::SplitAround(row),
        None => Remedy::Halve,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wavehouse_clickhouse::{Cause, ClickHouseError};
    use wavehouse_core::{TableName, TableRef, TenantId};

    use super::*;

    #[test]
    fn a_row_is_cut_out() {
        let mut parts = Parts::new(10);
        parts.set_recorded();
        parts.split_around(4);
        assert_eq!((parts.splits(), parts.recorded()), (&[4, 5][..], false));
        let mut seen = Vec::new();
        while let Some(part) = parts.next() {
            seen.push(part);
            parts.finish_part();
        }
        assert_eq!(seen, [0..4, 4..5, 5..10]);
    }

    #[test]
    fn the_first_and_the_last_row_need_one_split() {
        let mut parts = Parts::new(10);
        parts.split_around(0);
        assert_eq!(parts.splits(), [1]);
        let mut parts = Parts::new(10);
        parts.split_around(9);
        assert_eq!(parts.splits(), [9]);
        let mut parts = Parts::new(1);
        parts.set_recorded();
        parts.split_around(0);
        parts.split_around(7);
        parts.halve();
        assert_eq!((parts.splits(), parts.recorded()), (&[][..], true));
    }

    #[test]
    fn a_cut_is_taken_up_where_it_was_left() {
        let parts = Parts::resume(10, &[5, 6, 8], 5);
        assert_eq!((parts.next(), parts.splits()), (Some(5..6), &[6, 8][..]));
        assert_eq!(Parts::resume(10, &[12], 99).next(), None);
        assert_eq!(Parts::new(BATCH_ROWS_LIMIT + 1).next(), Some(0..BATCH_ROWS_LIMIT));
    }

    fn failed(class: Class, code: Option<u32>, message: &str) -> WriteError {
        let table = TableRef::new(TenantId::default(), TableName::parse("t").unwrap());
        let status = Some(500);
        let source =
            ClickHouseError { class, cause: Cause::Answered, code, status, message: message.to_owned() };
        WriteError::ClickHouse { table, remembers: true, source }
    }

    fn forgetful(mut error: WriteError) -> WriteError {
        if let WriteError::ClickHouse { remembers, .. } = &mut error {
            *remembers = false;
        }
        error
    }

    #[test]
    fn remedies() {
        use Class::{Denied, Rejected, Unavailable, Unknown};
        let cases = [
            (failed(Rejected, Some(117), "(at row 3)"), 10, Remedy::SplitAround(2)),
            (failed(Rejected, Some(469), "is violated at row 10"), 10, Remedy::SplitAround(9)),
            (failed(Rejected, Some(117), "(at row 11)"), 10, Remedy::Halve),
            (failed(Rejected, Some(117), ""), 2, Remedy::Halve),
            (failed(Rejected, Some(117), "(at row 1)"), 1, Remedy::Bury),
            (failed(Rejected, Some(60), ""), 10, Remedy::Wait),
            (failed(Rejected, Some(49), ""), 1, Remedy::Wait),
            (failed(Unavailable, Some(252), "too many parts"), 10, Remedy::Wait),
            (failed(Unavailable, Some(241), "memory"), 10, Remedy::HalveForSize),
            (failed(Unavailable, Some(241), "memory"), 1, Remedy::Wait),
            (failed(Rejected, Some(413), ""), 1, Remedy::Wait),
            (failed(Denied, Some(497), ""), 1, Remedy::Wait),
            (failed(Unknown, None, ""), 1, Remedy::Wait),
            (failed(Rejected, Some(469), "at row 2: while pushing to view d.v."), 10, Remedy::Wait),
            (
                forgetful(failed(Rejected, Some(469), "at row 2: while pushing to view d.v.")),
                10,
                Remedy::Halve,
            ),
            (forgetful(failed(Rejected, Some(395), ": while pushing to view d.v.")), 1, Remedy::Bury),
            (WriteError::NoTarget(TenantId::default()), 1, Remedy::Wait),
        ];
        for (error, rows, expected) in cases {
            assert_eq!(remedy(&error, rows), expected, "{error:?} {rows}");
        }
    }

    #[test]
    fn a_part_that_may_be_stored_is_not_split_for_its_size_at_once() {
        let mut parts = Parts::new(10);
        assert!(parts.halve_for_size());
        parts.doubt();
        let tries = (1..).find(|_| parts.halve_for_size());
        assert_eq!((tries, parts.splits()), (Some(TOO_LARGE_MAX + 1), &[2, 5][..]));
        // The halves were never sent.
        assert!(parts.halve_for_size());
        // Parts on record may have been sent, all of them.
        let mut resumed = Parts::resume(10, &[5], 0);
        assert!(!resumed.halve_for_size());
        resumed.split_around(2);
        for _ in 0..3 {
            resumed.finish_part();
        }
        assert_eq!(resumed.next(), Some(5..10));
        assert!(!resumed.halve_for_size());
    }

    proptest! {
        /// However a batch is split, its rows come once each and in order.
        #[test]
        fn rows_come_once_and_in_order(total in 0..200_u32, steps in prop::collection::vec((0..3_u8, 0..220_u32), 0..400)) {
            let mut parts = Parts::new(total);
            let mut rows = Vec::new();
            for (step, row) in steps {
                match step {
                    0 => parts.halve(),
                    1 => parts.split_around(row),
                    _ => {
                        rows.extend(parts.next().into_iter().flatten());
                        parts.finish_part();
                        parts = Parts::resume(total, parts.splits(), parts.done_rows());
                    }
                }
                prop_assert!(parts.splits().windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert!(parts.splits().iter().all(|at| *at > parts.done_rows() && *at < total));
            }
            while let Some(part) = parts.next() {
                prop_assert!(!part.is_empty());
                rows.extend(part);
                parts.finish_part();
            }
            prop_assert_eq!(rows, (0..total).collect::<Vec<_>>());
        }
    }
}
