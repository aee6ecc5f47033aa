//! A batch on its way: the deliveries that it is made of, and its rows by number.

use std::ops::Range;

use bytes::Bytes;
use wavehouse_broker::{Cut, Delivery};
use wavehouse_core::{Position, Timestamp};

use crate::token;

/// Deliveries of one table, without gaps, that are inserted together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) cut: Cut,
    /// Whether the queue has the cut already.
    pub(crate) recorded: bool,
    pub(crate) rows: u32,
    pub(crate) bytes: u64,
}

/// One row of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) position: Position,
    pub(crate) received_at: Timestamp,
    pub(crate) line: Bytes,
}

impl Batch {
    /// A batch of what is in hand: at least one delivery. With a recorded cut it is that cut's batch again, else a new
    /// one with a cut yet to be recorded.
    pub(crate) fn new(deliveries: Vec<Delivery>, recorded: Option<Cut>) -> Option<Self> {
        let (first, last) = (deliveries.first()?, deliveries.last()?);
        let rows = deliveries.iter().map(|delivery| delivery.stored().block.rows()).sum();
        let bytes = deliveries.iter().map(|delivery| delivery.stored().block.lines.len() as u64).sum();
        let (is_recorded, cut) = match recorded {
            Some(cut) => (true, cut),
            None => (
                false,
                Cut {
                    table: first.table().clone(),
                    first: first.sequence(),
                    last: last.sequence(),
                    splits: Vec::new(),
                    done_rows: 0,
                    token: token::of_batch(deliveries.iter().map(Delivery::stored)),
                },
            ),
        };
        Some(Self { deliveries, cut, recorded: is_recorded, rows, bytes })
    }

    /// The lines of some rows, in pieces; a block that is wholly inside is one piece, not copied.
    pub(crate) fn lines(&self, rows: &Range<u32>) -> Vec<Bytes> {
        let mut pieces = Vec::with_capacity(self.deliveries.len());
        let mut start = 0;
        for delivery in &self.deliveries {
            let block = &delivery.stored().block;
            let count = block.rows();
            let (from, to) = (rows.start.max(start), rows.end.min(start + count));
            if from < to {
                let whole = from == start && to == start + count;
                let bytes = if whole {
                    0..block.lines.len()
                } else {
                    offset_of(&block.lines, from - start)..offset_of(&block.lines, to - start)
                };
                pieces.push(block.lines.slice(bytes));
            }
            start += count;
        }
        pieces
    }

    /// The row of a number, from 0.
    pub(crate) fn row(&self, number: u32) -> Option<Row> {
        let mut start = 0;
        for delivery in &self.deliveries {
            let stored = delivery.stored();
            let count = stored.block.rows();
            if number >= start + count {
                start += count;
                continue;
            }
            let row = number - start;
            let lines = &stored.block.lines;
            let line = lines.slice(offset_of(lines, row)..offset_of(lines, row + 1));
            let line = line.strip_suffix(b"\n").map_or_else(|| line.clone(), |kept| line.slice_ref(kept));
            let mut end = 0;
            let segment = stored.block.segments.iter().find(|segment| {
                end += segment.rows;
                row < end
            })?;
            return Some(Row { position: stored.position(row), received_at: segment.received_at, line });
        }
        None
    }
}

/// Where the row of a number begins in lines; the end for the row after the last.
fn offset_of(lines: &[u8], row: u32) -> usize {
    let mut offset = 0;
    for _ in 0..row {
        let rest = lines.get(offset..).unwrap_or_default();
        match rest.iter().position(|byte| *byte == b'\n') {
            Some(at) => offset += at + 1,
            None => return lines.len(),
        }
    }
    offset
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use wavehouse_broker::{Settle, Settlement, StoredBlock, Ticket};
    use wavehouse_core::{LogId, RowBlock, Scope, Sequence, TableName, TableRef, TenantId};

    use super::*;

    struct Ignore;

    impl Settle for Ignore {
        fn settle(&self, _ticket: Ticket, _how: Settlement) {}
    }

    pub(crate) fn delivery(sequence: u64, lines: &str) -> Delivery {
        let table = TableRef::new(TenantId::default(), TableName::parse("t").unwrap());
        let rows = u32::try_from(lines.lines().count()).unwrap();
        let block =
            RowBlock::new(table, Timestamp(sequence), Scope::default(), rows, lines.to_owned().into());
        let stored = StoredBlock { log: LogId(1), sequence: Sequence(sequence), block };
        Delivery::new(stored, Ticket { table: 0, sequence: Sequence(sequence), attempt: 1 }, Arc::new(Ignore))
    }

    fn batch() -> Batch {
        Batch::new(vec![delivery(5, "a\nb\n"), delivery(6, ""), delivery(7, "c\nd\ne\n")], None).unwrap()
    }

    #[test]
    fn rows_are_found_across_blocks() {
        let batch = batch();
        assert_eq!((batch.rows, batch.cut.first.0, batch.cut.last.0, batch.recorded), (5, 5, 7, false));
        for (rows, wanted) in
            [(0..5, "a\nb\nc\nd\ne\n"), (1..3, "b\nc\n"), (2..5, "c\nd\ne\n"), (4..5, "e\n"), (2..2, "")]
        {
            assert_eq!(batch.lines(&rows).concat(), wanted.as_bytes(), "{rows:?}");
        }
        for (number, sequence, row, line) in [(0, 5, 0, "a"), (1, 5, 1, "b"), (2, 7, 0, "c"), (4, 7, 2, "e")]
        {
            let found = batch.row(number).unwrap();
            assert_eq!((found.position.sequence.0, found.position.row), (sequence, row));
            assert_eq!(found.line, line);
        }
        assert_eq!(batch.row(5), None);
    }
}
