//! Which sealed files hold a table's blocks: the small summary that stays in memory, one [`Part`] a file and stretch.

/// Consecutive blocks of a table in one sealed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) first: u64,
    pub(crate) count: u32,
    /// The file's number.
    pub(crate) file: u32,
    /// Where in the file the entry of `first` stands.
    pub(crate) entries_at: u32,
}

impl Part {
    fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// The part from `first` on, which lies inside it.
    fn from(&self, first: u64, end: u64, entry_bytes: u32) -> Option<Self> {
        let count = u32::try_from(end.checked_sub(first)?).ok()?;
        let skipped = u32::try_from(first - self.first).ok()?;
        (count > 0).then_some(Self {
            first,
            count,
            file: self.file,
            entries_at: self.entries_at + skipped * entry_bytes,
        })
    }
}

/// The parts of one table, ordered by sequence, none overlapping another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Parts(Vec<Part>);

impl Parts {
    /// The part that holds a block.
    pub(crate) fn find(&self, sequence: u64) -> Option<Part> {
        let at = self.0.partition_point(|part| part.end() <= sequence);
        self.0.get(at).filter(|part| part.first <= sequence).copied()
    }

    /// The first block that any part holds at or after `sequence`.
    pub(crate) fn next(&self, sequence: u64) -> Option<u64> {
        let at = self.0.partition_point(|part| part.end() <= sequence);
        self.0.get(at).map(|part| part.first.max(sequence))
    }

    /// The parts, in order of sequence.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Part> {
        self.0.iter()
    }

    /// Adds a part. Where it overlaps others it takes their place: it is newer.
    pub(crate) fn insert(&mut self, part: Part, entry_bytes: u32) {
        if self.0.last().is_none_or(|last| last.end() <= part.first) {
            self.0.push(part);
            return;
        }
        let mut parts = Vec::with_capacity(self.0.len() + 2);
        for old in self.0.drain(..) {
            parts.extend(old.from(old.first, old.end().min(part.first), entry_bytes));
            parts.extend(old.from(old.first.max(part.end()), old.end(), entry_bytes));
        }
        let at = parts.partition_point(|old| old.first < part.first);
        parts.insert(at, part);
        self.0 = parts;
    }

    /// Forgets a file. Returns whether it held anything.
    pub(crate) fn remove_file(&mut self, file: u32) -> bool {
        let before = self.0.len();
        self.0.retain(|part| part.file != file);
        self.0.len() < before
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_newest_part_wins(parts in prop::collection::vec((1..60_u64, 1..20_u32), 1..12), gone in 0..12_u32) {
            let (mut all, mut model) = (Parts::default(), BTreeMap::new());
            for (file, (first, count)) in (0_u32..).zip(parts) {
                all.insert(Part { first, count, file, entries_at: 1000 }, 36);
                for k in 0..u64::from(count) {
                    model.insert(first + k, (file, 1000 + 36 * k));
                }
            }
            all.remove_file(gone);
            model.retain(|_, (file, _)| *file != gone);
            for sequence in 0..90 {
                let found = all.find(sequence).map(|part| {
                    (part.file, u64::from(part.entries_at) + 36 * (sequence - part.first))
                });
                prop_assert_eq!(found, model.get(&sequence).copied());
                prop_assert_eq!(all.next(sequence), model.range(sequence..).next().map(|(s, _)| *s));
            }
        }
    }
}
