//! The names of batches towards ClickHouse.
//!
//! ClickHouse drops an insert silently when its token was seen before, whatever the rows; so a token must never name
//! two different contents. It is made of the queue's own random id (a queue directory that is deleted and made anew
//! starts its sequences again), the table, the sequences, and a hash of the rows.

use wavehouse_broker::{InsertToken, StoredBlock};
use xxhash_rust::xxh3::Xxh3;

/// The token of a batch of blocks of one table.
pub(crate) fn of_batch<'a>(blocks: impl Iterator<Item = &'a StoredBlock>) -> InsertToken {
    let mut hash = Xxh3::new();
    for (nth, stored) in blocks.enumerate() {
        if nth == 0 {
            let table = &stored.block.table;
            hash.update(&stored.log.0.to_le_bytes());
            for name in [table.tenant.as_str(), table.table.as_str()] {
                hash.update(&(name.len() as u64).to_le_bytes());
                hash.update(name.as_bytes());
            }
        }
        hash.update(&stored.sequence.0.to_le_bytes());
        hash.update(&(stored.block.lines.len() as u64).to_le_bytes());
        hash.update(&stored.block.lines);
    }
    InsertToken(hash.digest128())
}

/// The token of the rows from `from` to before `to` of a batch.
pub(crate) fn of_part(batch: InsertToken, from: u32, to: u32) -> String {
    format!("wh-{batch}-{from}-{to}")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wavehouse_core::{LogId, RowBlock, Scope, Sequence, TableName, TableRef, TenantId, Timestamp};

    use super::*;

    fn stored(log: u64, table: &str, sequence: u64, lines: &'static str) -> StoredBlock {
        let table = TableRef::new(TenantId::default(), TableName::parse(table).unwrap());
        let rows = u32::try_from(lines.lines().count()).unwrap();
        let block =
            RowBlock::new(table, Timestamp(1), Scope::default(), rows, Bytes::from_static(lines.as_bytes()));
        StoredBlock { log: LogId(log), sequence: Sequence(sequence), block }
    }

    #[test]
    fn everything_that_differs_makes_another_token() {
        let base = || vec![stored(1, "t", 1, "{}\n"), stored(1, "t", 2, "{}\n")];
        let token = |blocks: &[StoredBlock]| of_batch(blocks.iter());
        assert_eq!(token(&base()), token(&base()));
        let others = [
            vec![stored(2, "t", 1, "{}\n"), stored(2, "t", 2, "{}\n")],
            vec![stored(1, "u", 1, "{}\n"), stored(1, "u", 2, "{}\n")],
            vec![stored(1, "t", 2, "{}\n"), stored(1, "t", 3, "{}\n")],
            vec![stored(1, "t", 1, "{}\n")],
            vec![stored(1, "t", 1, "{}\n{}\n"), stored(1, "t", 2, "")],
            vec![stored(1, "t", 1, "{}\n"), stored(1, "t", 2, "{ }\n")],
        ];
        for other in &others {
            assert_ne!(token(other), token(&base()), "{other:?}");
        }
        assert_ne!(of_part(token(&base()), 0, 1), of_part(token(&base()), 0, 2));
    }
}
