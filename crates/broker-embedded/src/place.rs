//! A history stream's place in one table: pure.

use wavehouse_broker::StoredBlock;
use wavehouse_core::{Position, RowBlock, Timestamp};

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The next block to read.
    pub(crate) next: u64,
    /// Rows of that block that lie before the start.
    skip: u32,
    /// Until the first block that is new enough: how new.
    since: Option<Timestamp>,
    /// Whether rows before the next block are no longer kept, which is told with it.
    pub(crate) hole: bool,
    /// Receipt time of the last row read.
    last: Option<Timestamp>,
    /// Whether the table stands among those that may have something to read.
    pub(crate) queued: bool,
    /// Where the table ended when the stream was opened.
    target: u64,
}

impl Place {
    /// Before a block.
    pub(crate) fn at(next: u64, target: u64) -> Self {
        Self { next, skip: 0, since: None, hole: false, last: None, queued: false, target }
    }

    /// After a row.
    pub(crate) fn after(position: Position, target: u64) -> Self {
        Self { skip: position.row.saturating_add(1), ..Self::at(position.sequence.0, target) }
    }

    /// Before a block, of which only rows received at `moment` or later are asked for.
    pub(crate) fn since(next: u64, target: u64, moment: Timestamp) -> Self {
        Self { since: (next < target).then_some(moment), ..Self::at(next, target) }
    }

    /// As this, after rows that are no longer kept.
    pub(crate) fn with_hole(self, hole: bool) -> Self {
        Self { hole, ..self }
    }

    /// Whether there is more to read that was stored when the stream was opened.
    pub(crate) fn is_behind(&self) -> bool {
        self.next < self.target
    }

    /// Goes on before a later block.
    pub(crate) fn pass_to(&mut self, next: u64) {
        self.next = next;
        self.skip = 0;
        if !self.is_behind() {
            // What is new is asked for, whatever its receipt time.
            self.since = None;
        }
    }

    /// Goes on after a block that has been read.
    pub(crate) fn pass_block(&mut self, stored: &StoredBlock) {
        self.pass_to(stored.sequence.0 + 1);
        self.since = None;
        self.hole = false;
        self.last = Some(stored.block.received_at());
    }

    /// From when rows are missing, as far as is known.
    pub(crate) fn known_from(&self) -> Option<Timestamp> {
        self.last.or(self.since)
    }

    /// Whether all that is no longer kept is older than what was asked for.
    pub(crate) fn gap_is_before_start(&self, gone_ns: u64) -> bool {
        self.since.is_some_and(|since| since.0 > gone_ns)
    }

    /// The first row of the block that was asked for; none when no row was.
    pub(crate) fn first_row(&self, block: &RowBlock) -> Option<u32> {
        if let Some(since) = self.since {
            let mut before = 0;
            for segment in &block.segments {
                if segment.received_at >= since && segment.rows > 0 {
                    return Some(before);
                }
                before += segment.rows;
            }
            return None;
        }
        (self.skip == 0 || self.skip < block.rows()).then_some(self.skip)
    }
}

#[cfg(test)]
mod tests {
    use wavehouse_core::{LogId, Scope, Segment, Sequence, TableName, TableRef, TenantId};

    use super::*;

    fn block(segments: &[(u64, u32)]) -> RowBlock {
        let segment = |(at, rows): &(u64, u32)| Segment {
            received_at: Timestamp(*at),
            scope: Scope::default(),
            rows: *rows,
            bytes: *rows,
        };
        let rows: u32 = segments.iter().map(|(_, rows)| rows).sum();
        RowBlock {
            table: TableRef::new(TenantId::default(), TableName::parse("t").unwrap()),
            segments: segments.iter().map(segment).collect(),
            lines: vec![b'\n'; rows as usize].into(),
        }
    }

    #[test]
    fn the_first_row_asked_for() {
        let merged = block(&[(10, 2), (20, 3), (30, 1)]);
        let since = |at| Place::since(1, 9, Timestamp(at));
        for (place, expected) in [
            (Place::at(1, 9), Some(0)),
            (since(5), Some(0)),
            (since(10), Some(0)),
            (since(11), Some(2)),
            (since(30), Some(5)),
            (since(31), None),
            (Place::after(position(0), 9), Some(1)),
            (Place::after(position(4), 9), Some(5)),
            (Place::after(position(5), 9), None),
            (Place::after(position(u32::MAX), 9), None),
        ] {
            assert_eq!(place.first_row(&merged), expected, "{place:?}");
        }
    }

    fn position(row: u32) -> Position {
        Position::new(LogId(1), Sequence(1), row)
    }

    #[test]
    fn what_was_read_is_behind() {
        let mut place = Place { hole: true, ..Place::after(position(3), 3) };
        assert!(place.is_behind());
        let stored =
            StoredBlock { log: LogId(1), sequence: Sequence(2), stored_ms: 0, block: block(&[(10, 1)]) };
        place.pass_block(&stored);
        let after = Place { last: Some(Timestamp(10)), ..Place::at(3, 3) };
        assert_eq!(place, after);
        assert!(!place.is_behind());
        assert_eq!(place.first_row(&stored.block), Some(0), "rows are skipped in one block only");
    }
}
