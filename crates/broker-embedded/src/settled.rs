//! Which blocks of a table are settled: all up to a floor, and ranges above it.

use std::collections::BTreeMap;

use crate::record::Range;

/// Settled sequences of one table. Sequences begin at 1, so a floor of 0 means none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Settled {
    floor: u64,
    above: BTreeMap<u64, u64>,
}

impl Settled {
    pub(crate) fn new(floor: u64) -> Self {
        Self { floor, above: BTreeMap::new() }
    }

    /// Everything up to here is settled.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// The settled ranges above the floor.
    pub(crate) fn above(&self) -> impl ExactSizeIterator<Item = Range> + '_ {
        self.above.iter().map(|(first, last)| (*first, *last))
    }

    /// Whether a block is settled.
    pub(crate) fn contains(&self, sequence: u64) -> bool {
        sequence <= self.floor
            || self.above.range(..=sequence).next_back().is_some_and(|(_, last)| sequence <= *last)
    }

    /// The first block at or after `from` that is not settled.
    pub(crate) fn first_open(&self, from: u64) -> u64 {
        let from = from.max(self.floor + 1);
        match self.above.range(..=from).next_back() {
            Some((_, last)) if from <= *last => last + 1,
            _ => from,
        }
    }

    /// The parts of a range that are not settled.
    pub(crate) fn open_ranges(&self, first: u64, last: u64) -> Vec<Range> {
        let (mut ranges, mut at) = (Vec::new(), self.first_open(first));
        while at <= last {
            let end = self.above.range(at..).next().map_or(last, |(next, _)| last.min(next - 1));
            ranges.push((at, end));
            at = self.first_open(end + 1);
        }
        ranges
    }

    /// How many of a range are not settled.
    pub(crate) fn open_between(&self, first: u64, last: u64) -> u64 {
        self.open_ranges(first, last).iter().map(|(first, last)| last + 1 - first).sum()
    }

    /// Settles a range.
    pub(crate) fn insert(&mut self, first: u64, last: u64) {
        if last <= self.floor {
            return;
        }
        let (mut first, mut last) = (first.max(self.floor + 1), last);
        if let Some((before, end)) = self.above.range(..first).next_back().map(|(a, b)| (*a, *b))
            && end + 1 >= first
        {
            first = before;
            last = last.max(end);
        }
        while let Some((next, end)) = self.above.range(first..=last + 1).next().map(|(a, b)| (*a, *b)) {
            self.above.remove(&next);
            last = last.max(end);
        }
        if first <= self.floor + 1 {
            self.floor = last;
        } else {
            self.above.insert(first, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(ranges in prop::collection::vec((1..40_u64, 0..6_u64), 0..20), probe in 1..50_u64) {
            let (mut settled, mut model) = (Settled::default(), BTreeSet::new());
            for (first, more) in ranges {
                settled.insert(first, first + more);
                model.extend(first..=first + more);
            }
            for sequence in 1..60 {
                prop_assert_eq!(settled.contains(sequence), model.contains(&sequence), "{}", sequence);
            }
            let open = (probe..).find(|s| !model.contains(s)).unwrap();
            prop_assert_eq!(settled.first_open(probe), open);
            let count = (probe..=55).filter(|s| !model.contains(s)).count() as u64;
            prop_assert_eq!(settled.open_between(probe, 55), count);
            prop_assert_eq!(settled.first_open(probe) > probe + 3, (probe..=probe + 3).all(|s| model.contains(&s)));
            // As few ranges as can be.
            let runs = model.iter().filter(|s| !model.contains(&(**s - 1))).count();
            let floor = usize::from(settled.floor() > 0);
            prop_assert_eq!(settled.above().len() + floor, runs);
        }
    }
}
