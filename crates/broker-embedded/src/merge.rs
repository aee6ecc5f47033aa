//! Which waiting blocks are stored together: pure.

use std::collections::HashMap;

use wavehouse_core::{RowBlock, TableRef};

use crate::answers::{Answers, Member};
use crate::options::MERGE_BYTES;

/// What an encoded block has before its segments.
const BLOCK_HEAD_BYTES: usize = 16;

/// Waiting blocks of one table that become one stored block, in their order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Merged {
    pub(crate) table: TableRef,
    pub(crate) members: Vec<Member>,
    /// Of the stored block.
    pub(crate) bytes: usize,
}

/// Puts blocks of one table together up to the target size. Blocks of a table keep their order; a block larger than the
/// target stays alone.
pub(crate) fn merge(answers: &Answers) -> Vec<Merged> {
    let mut merged: Vec<Merged> = Vec::new();
    let mut growing: HashMap<&TableRef, usize> = HashMap::new();
    for (member, waiting) in answers.blocks() {
        let bytes = waiting.block.encoded_len();
        let last = growing.get(&waiting.block.table).and_then(|at| merged.get_mut(*at));
        match last.filter(|last| last.bytes + bytes - BLOCK_HEAD_BYTES <= MERGE_BYTES) {
            Some(last) => {
                last.members.push(member);
                last.bytes += bytes - BLOCK_HEAD_BYTES;
            }
            None => {
                growing.insert(&waiting.block.table, merged.len());
                merged.push(Merged { table: waiting.block.table.clone(), members: vec![member], bytes });
            }
        }
    }
    merged
}

/// The blocks of a merged one.
pub(crate) fn blocks_of<'a>(answers: &'a Answers, merged: &Merged) -> Vec<&'a RowBlock> {
    merged.members.iter().filter_map(|member| Some(&answers.block(*member)?.block)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use proptest::prelude::*;
    use wavehouse_broker::TenantLimits;
    use wavehouse_core::{Scope, TableName, TenantId, Timestamp, encode_merged};

    use super::*;
    use crate::intake::{Submission, Waiting};
    use crate::tenant::Tenants;

    fn answers(sizes: &[Vec<(u8, usize)>]) -> Answers {
        let limits = TenantLimits { unwritten_bytes_max: u64::MAX, gap_window: Duration::ZERO };
        let tenant = Tenants::new(limits).enter(&TenantId::default()).unwrap();
        let waiting = |(index, (table, length)): (usize, &(u8, usize))| {
            let name = TableName::parse(&format!("t{table}")).unwrap();
            let lines = vec![b'\n'; *length].into();
            let table = TableRef::new(TenantId::default(), name);
            let block = RowBlock::new(table, Timestamp(1), Scope::default(), 1, lines);
            Waiting { index, bytes: block.encoded_len() as u64, block, tenant: tenant.clone() }
        };
        let one = |blocks: &Vec<(u8, usize)>| Submission {
            blocks: blocks.iter().enumerate().map(waiting).collect(),
            outcomes: vec![None; blocks.len()],
            done: tokio::sync::oneshot::channel().0,
        };
        Answers::new(sizes.iter().map(one).collect())
    }

    proptest! {
        #[test]
        fn each_block_once_in_order_and_not_too_large(
            sizes in prop::collection::vec(prop::collection::vec((0..3_u8, 1..90_000_usize), 0..4), 0..9)
        ) {
            let answers = answers(&sizes);
            let mut last: HashMap<TableRef, (usize, usize)> = HashMap::new();
            let mut seen = 0;
            for merged in merge(&answers) {
                for member in &merged.members {
                    prop_assert_eq!(&answers.block(*member).unwrap().block.table, &merged.table);
                    let before = last.insert(merged.table.clone(), *member);
                    prop_assert!(before.is_none_or(|before| before < *member));
                    seen += 1;
                }
                prop_assert!(merged.bytes <= MERGE_BYTES || merged.members.len() == 1);
                let mut bytes = Vec::new();
                encode_merged(&blocks_of(&answers, &merged), &mut bytes);
                prop_assert_eq!(bytes.len(), merged.bytes);
            }
            prop_assert_eq!(seen, sizes.iter().map(Vec::len).sum::<usize>());
        }
    }
}
