//! The name of a batch, and bringing a batch back that was cut before.
//!
//! The token is made of everything that a batch is: the log's id, the table, which blocks, and what is in them. A batch
//! that comes back whole has the same token; other rows can never have it, since ClickHouse would drop them silently.

use wavehouse_broker::{Cut, InsertToken, StoredBlock};
use wavehouse_core::{Sequence, TableRef};
use xxhash_rust::xxh3::Xxh3;

/// The token of a batch of these blocks.
pub(crate) fn token(table: &TableRef, blocks: &[StoredBlock]) -> InsertToken {
    let mut hash = Xxh3::new();
    for name in [table.tenant.as_str(), table.table.as_str()] {
        hash.update(&(name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
    }
    for stored in blocks {
        for number in [stored.log.0, stored.sequence.0, stored.block.lines.len() as u64] {
            hash.update(&number.to_le_bytes());
        }
        hash.update(&stored.block.lines);
    }
    InsertToken(hash.digest128())
}

/// The token of one part of a batch, as ClickHouse gets it.
pub(crate) fn part_token(token: InsertToken, rows: &std::ops::Range<u32>) -> String {
    format!("{token}-{}-{}", rows.start, rows.end)
}

/// What a delivered block is to a batch that is being brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// Its next block.
    Collect,
    /// Its last block: the batch is whole.
    Complete,
    /// A block of it, or one before it, that needs no insert: another block of the batch is acked, and blocks are acked
    /// only when the whole batch is stored or buried.
    Stored,
    /// The first block after it. If the batch is not whole by now, its missing blocks are acked and so it is stored.
    Past,
}

/// A batch that is being brought back, block by block in sequence. Sequences may have gaps, so only the number of its
/// blocks tells whether it is whole.
#[derive(Debug, Clone)]
pub(crate) struct Rebuild {
    cut: Cut,
    blocks: u32,
    stored: bool,
}

impl Rebuild {
    pub(crate) fn new(cut: Cut) -> Self {
        Self { cut, blocks: 0, stored: false }
    }

    pub(crate) fn cut(&self) -> &Cut {
        &self.cut
    }

    /// Begins again with the first block.
    pub(crate) fn restart(&mut self) {
        self.blocks = 0;
    }

    /// Judges the next block in sequence.
    pub(crate) fn offer(&mut self, sequence: Sequence) -> Offer {
        if sequence > self.cut.last {
            return Offer::Past;
        }
        if sequence < self.cut.first || self.stored {
            return Offer::Stored;
        }
        self.blocks += 1;
        let first_missing = self.blocks == 1 && sequence > self.cut.first;
        let missing = sequence == self.cut.last && self.blocks < self.cut.blocks;
        self.stored = first_missing || missing;
        match () {
            () if self.stored => Offer::Stored,
            () if sequence == self.cut.last => Offer::Complete,
            () => Offer::Collect,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wavehouse_core::{LogId, RowBlock, Scope, TableName, TenantId, Timestamp};

    use super::*;

    fn table(tenant: &str, name: &str) -> TableRef {
        TableRef::new(TenantId::parse(tenant).unwrap(), TableName::parse(name).unwrap())
    }

    fn block(log: u64, sequence: u64, lines: &'static str) -> StoredBlock {
        let lines = Bytes::from_static(lines.as_bytes());
        let block = RowBlock::new(table("0", "t"), Timestamp(0), Scope::default(), 1, lines);
        StoredBlock { log: LogId(log), sequence: Sequence(sequence), stored_ms: 0, block }
    }

    #[test]
    fn the_token_names_everything_that_a_batch_is() {
        let same = || token(&table("0", "t"), &[block(1, 1, "{}\n"), block(1, 2, "{\"a\":1}\n")]);
        assert_eq!(same(), same());
        let others = [
            token(&table("1", "t"), &[block(1, 1, "{}\n"), block(1, 2, "{\"a\":1}\n")]),
            token(&table("0", "u"), &[block(1, 1, "{}\n"), block(1, 2, "{\"a\":1}\n")]),
            token(&table("0", "t"), &[block(2, 1, "{}\n"), block(2, 2, "{\"a\":1}\n")]),
            token(&table("0", "t"), &[block(1, 2, "{}\n"), block(1, 3, "{\"a\":1}\n")]),
            token(&table("0", "t"), &[block(1, 1, "{}\n"), block(1, 2, "{\"a\":2}\n")]),
            token(&table("0", "t"), &[block(1, 1, "{}\n{\"a\":1}\n")]),
        ];
        for (index, other) in others.iter().enumerate() {
            assert_ne!(same(), *other, "{index}");
        }
        assert!(part_token(InsertToken(10), &(3..7)).ends_with("a-3-7"));
    }

    fn rebuild() -> Rebuild {
        let cut = Cut {
            table: table("0", "t"),
            first: Sequence(5),
            last: Sequence(7),
            blocks: 3,
            splits: Vec::new(),
            done_rows: 0,
            token: InsertToken(1),
        };
        Rebuild::new(cut)
    }

    fn offers(sequences: &[u64]) -> Vec<Offer> {
        let mut rebuild = rebuild();
        sequences.iter().map(|sequence| rebuild.offer(Sequence(*sequence))).collect()
    }

    #[test]
    fn a_whole_batch_comes_back() {
        assert_eq!(offers(&[5, 6, 7, 8]), [Offer::Collect, Offer::Collect, Offer::Complete, Offer::Past]);
        assert_eq!(offers(&[4, 5]), [Offer::Stored, Offer::Collect]);
    }

    #[test]
    fn a_missing_block_means_that_the_batch_is_stored() {
        assert_eq!(offers(&[6, 7, 8]), [Offer::Stored, Offer::Stored, Offer::Past]);
        assert_eq!(offers(&[5, 7]), [Offer::Collect, Offer::Stored]);
        assert_eq!(offers(&[5, 6, 8]), [Offer::Collect, Offer::Collect, Offer::Past]);
    }

    #[test]
    fn gaps_between_sequences_are_no_missing_blocks() {
        let cut = Cut { first: Sequence(5), last: Sequence(90), blocks: 3, ..rebuild().cut().clone() };
        let offers = |sequences: &[u64]| -> Vec<Offer> {
            let mut rebuild = Rebuild::new(cut.clone());
            sequences.iter().map(|sequence| rebuild.offer(Sequence(*sequence))).collect()
        };
        assert_eq!(offers(&[5, 17, 90]), [Offer::Collect, Offer::Collect, Offer::Complete]);
        assert_eq!(offers(&[5, 90, 91]), [Offer::Collect, Offer::Stored, Offer::Past]);
        assert_eq!(offers(&[17, 90]), [Offer::Stored, Offer::Stored]);
    }

    #[test]
    fn it_can_begin_again() {
        let mut rebuild = rebuild();
        assert_eq!(rebuild.offer(Sequence(5)), Offer::Collect);
        rebuild.restart();
        assert_eq!(rebuild.offer(Sequence(5)), Offer::Collect);
    }
}
