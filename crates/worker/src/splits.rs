//! A batch in parts. Parts are inserted one after the other, each under its own token; a refused part is split further
//! until the row that ClickHouse refuses is alone. Pure, and recorded with the cut, so that a batch that comes back
//! comes back in the same parts.

use std::ops::Range;

/// The parts of a batch of `rows` rows, of which the first `done` need no more work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    rows: u32,
    done: u32,
    /// Rows that begin a part, ascending, all above `done` and below `rows`.
    splits: Vec<u32>,
}

impl Parts {
    /// Parts as they were recorded; points that lie outside what is left are passed over.
    pub(crate) fn new(rows: u32, done: u32, splits: &[u32]) -> Self {
        let done = done.min(rows);
        let mut splits: Vec<u32> = splits.iter().copied().filter(|row| *row > done && *row < rows).collect();
        splits.sort_unstable();
        splits.dedup();
        Self { rows, done, splits }
    }

    /// The part to insert next; none when all is done.
    pub(crate) fn next(&self) -> Option<Range<u32>> {
        let end = self.splits.first().copied().unwrap_or(self.rows);
        (self.done < end).then_some(self.done..end)
    }

    /// The next part is stored or buried.
    pub(crate) fn finish_next(&mut self) {
        match self.splits.first().copied() {
            Some(row) => {
                self.done = row;
                self.splits.remove(0);
            }
            None => self.done = self.rows,
        }
    }

    /// Splits the next part: at the row named as bad (from 0 within the part) into what is before it, itself, and the
    /// rest; by halves when none is named or the name cannot be right. A part of one row stays as it is; then this
    /// returns false.
    pub(crate) fn split_next(&mut self, bad: Option<u64>) -> bool {
        let Some(part) = self.next() else { return false };
        let length = part.end - part.start;
        if length < 2 {
            return false;
        }
        let named = bad.and_then(|row| u32::try_from(row).ok()).filter(|row| *row < length);
        let points = match named {
            Some(row) => [part.start + row, part.start + row + 1],
            None => [part.start + length / 2; 2],
        };
        let mut fresh: Vec<u32> =
            points.into_iter().filter(|row| *row > part.start && *row < part.end).collect();
        fresh.dedup();
        self.splits.splice(0..0, fresh);
        true
    }

    /// Rows from the front that need no more work.
    pub(crate) fn done(&self) -> u32 {
        self.done
    }

    /// Where the rest is split.
    pub(crate) fn splits(&self) -> &[u32] {
        &self.splits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_named_row_is_cut_out() {
        for (bad, wanted) in [
            (Some(3), vec![0..3, 3..4, 4..10]),
            (Some(0), vec![0..1, 1..10]),
            (Some(9), vec![0..9, 9..10]),
            (Some(10), vec![0..5, 5..10]),
            (None, vec![0..5, 5..10]),
        ] {
            let mut parts = Parts::new(10, 0, &[]);
            assert!(parts.split_next(bad));
            let mut seen = Vec::new();
            while let Some(part) = parts.next() {
                seen.push(part);
                parts.finish_next();
            }
            assert_eq!(seen, wanted, "{bad:?}");
        }
    }

    #[test]
    fn one_row_cannot_be_split() {
        assert!(!Parts::new(1, 0, &[]).split_next(None));
        assert!(!Parts::new(10, 10, &[]).split_next(None));
        assert_eq!(Parts::new(0, 0, &[]).next(), None);
    }

    proptest! {
        /// Whatever rows are bad and whatever the server says of them: each row ends up stored or buried, once, in
        /// order, and only bad rows are buried.
        #[test]
        fn each_row_is_dealt_with_once(
            bad in prop::collection::vec(any::<bool>(), 0..200),
            names in prop::collection::vec(prop::option::of(0_u64..220), 1..50),
            reload_every in 1_usize..10,
        ) {
            let rows = u32::try_from(bad.len()).unwrap();
            let mut parts = Parts::new(rows, 0, &[]);
            let (mut buried, mut next_row, mut steps) = (Vec::new(), 0, 0);
            while let Some(part) = parts.next() {
                steps += 1;
                prop_assert!(steps < 2000);
                prop_assert_eq!(part.start, next_row);
                let range = part.start as usize..part.end as usize;
                if bad[range.clone()].iter().any(|bad| *bad) {
                    if range.len() == 1 {
                        buried.push(range.start);
                        next_row = part.end;
                        parts.finish_next();
                    } else {
                        prop_assert!(parts.split_next(names[steps % names.len()]));
                    }
                } else {
                    next_row = part.end;
                    parts.finish_next();
                }
                if steps % reload_every == 0 {
                    // As after a crash: only what is recorded is left.
                    parts = Parts::new(rows, parts.done(), parts.splits());
                }
            }
            let wanted: Vec<usize> = (0..bad.len()).filter(|row| bad[*row]).collect();
            prop_assert_eq!(next_row, rows);
            prop_assert_eq!(buried, wanted);
        }
    }
}
