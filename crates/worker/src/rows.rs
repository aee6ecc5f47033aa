//! The rows of a batch: many blocks seen as one run of lines, cut by row numbers, nothing copied.

use std::ops::Range;

use bytes::Bytes;
use wavehouse_broker::StoredBlock;
use wavehouse_core::{Position, Timestamp};

/// The blocks of a batch, in sequence.
#[derive(Debug, Clone)]
pub(crate) struct BatchRows {
    blocks: Vec<StoredBlock>,
    /// Number of each block's first row in the batch, ascending.
    starts: Vec<u32>,
    total: u32,
}

impl BatchRows {
    pub(crate) fn new(blocks: Vec<StoredBlock>) -> Self {
        let mut total = 0_u32;
        let mut starts = Vec::with_capacity(blocks.len());
        for stored in &blocks {
            starts.push(total);
            total = total.saturating_add(stored.block.rows());
        }
        Self { blocks, starts, total }
    }

    pub(crate) fn blocks(&self) -> &[StoredBlock] {
        &self.blocks
    }

    /// How many rows.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// The lines of some rows, in pieces of their blocks.
    pub(crate) fn lines(&self, rows: &Range<u32>) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        for (stored, &start) in self.blocks.iter().zip(&self.starts).skip(self.block_of(rows.start)) {
            if start >= rows.end {
                break;
            }
            let count = stored.block.rows();
            let from = rows.start.saturating_sub(start).min(count);
            let until = (rows.end - start).min(count);
            if from < until {
                pieces.push(slice(&stored.block.lines, from, until, count));
            }
        }
        pieces
    }

    /// One row: its line without the `\n`, where it stands, and when it was received.
    pub(crate) fn row(&self, row: u32) -> Option<(Bytes, Position, Timestamp)> {
        let index = self.block_of(row);
        let (stored, in_block) = (self.blocks.get(index)?, row - self.starts.get(index)?);
        let count = stored.block.rows();
        if in_block >= count {
            return None;
        }
        let line = slice(&stored.block.lines, in_block, in_block + 1, count);
        let line = if line.last() == Some(&b'\n') { line.slice(..line.len() - 1) } else { line };
        let mut before = 0;
        let received = stored.block.segments.iter().find(|segment| {
            before += segment.rows;
            in_block < before
        });
        Some((
            line,
            stored.position(in_block),
            received.map_or_else(Timestamp::default, |found| found.received_at),
        ))
    }

    /// The block that holds a row; blocks without rows hold none.
    fn block_of(&self, row: u32) -> usize {
        self.starts.partition_point(|start| *start <= row).saturating_sub(1)
    }
}

/// Lines `from..until` of `count`.
fn slice(lines: &Bytes, from: u32, until: u32, count: u32) -> Bytes {
    let mut ends = memchr::memchr_iter(b'\n', lines).map(|at| at + 1);
    let start = if from == 0 { 0 } else { ends.nth(from as usize - 1).unwrap_or(lines.len()) };
    let end = if until == count {
        lines.len()
    } else {
        ends.nth((until - from) as usize - 1).unwrap_or(lines.len())
    };
    lines.slice(start..end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wavehouse_core::{LogId, RowBlock, Scope, Segment, Sequence, TableName, TableRef, TenantId};

    use super::*;

    fn stored(sequence: u64, lines: &[String]) -> StoredBlock {
        let table = TableRef::new(TenantId::default(), TableName::parse("t").unwrap());
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let rows = u32::try_from(lines.len()).unwrap();
        let block = RowBlock::new(table, Timestamp(sequence), Scope::default(), rows, text.into());
        StoredBlock { log: LogId(1), sequence: Sequence(sequence), stored_ms: 0, block }
    }

    proptest! {
        #[test]
        fn any_cut_is_the_lines_in_between(
            blocks in prop::collection::vec(prop::collection::vec("[a-z]{0,3}", 0..5), 0..6),
            cut in any::<(prop::sample::Index, prop::sample::Index)>(),
        ) {
            let all: Vec<String> = blocks.concat();
            let stored: Vec<StoredBlock> = (1..).zip(&blocks).map(|(sequence, lines)| stored(sequence, lines)).collect();
            let rows = BatchRows::new(stored);
            prop_assert_eq!(rows.total() as usize, all.len());
            let (a, b) = (cut.0.index(all.len() + 1), cut.1.index(all.len() + 1));
            let (from, until) = (a.min(b), a.max(b));
            let range = u32::try_from(from).unwrap()..u32::try_from(until).unwrap();
            let expected: String = all[from..until].iter().map(|line| format!("{line}\n")).collect();
            prop_assert_eq!(rows.lines(&range).concat(), expected.as_bytes());
            for (number, line) in (0..).zip(&all) {
                let (found, position, received) = rows.row(number).unwrap();
                prop_assert_eq!(&found[..], line.as_bytes());
                prop_assert_eq!(received, Timestamp(position.sequence.0));
            }
            prop_assert!(rows.row(rows.total()).is_none());
        }
    }

    #[test]
    fn a_row_has_the_receipt_time_of_its_segment() {
        let mut two = stored(1, &["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        let segment =
            |at, rows, bytes| Segment { received_at: Timestamp(at), scope: Scope::default(), rows, bytes };
        two.block.segments = vec![segment(7, 1, 2), segment(8, 2, 4)];
        let rows = BatchRows::new(vec![two]);
        let received: Vec<u64> = (0..3).map(|row| rows.row(row).unwrap().2.0).collect();
        assert_eq!(received, [7, 8, 8]);
    }
}
