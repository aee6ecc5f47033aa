//! What to do about a recorded cut as its blocks come back. Pure.
//!
//! A batch whose cut is recorded may or may not be in ClickHouse. Acks begin only once every row of it is stored or
//! buried; so if any of its blocks does not come back, all of it is dealt with and the rest is acked too. If all come
//! back, exactly they are inserted again, under the recorded token, before anything newer of their table.

use wavehouse_broker::Cut;

/// What is known so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rebuild {
    /// Not all of the cut's blocks have come back yet, and none is known to be missing.
    Wait,
    /// Insert the cut's blocks again.
    Again,
    /// The cut is dealt with: ack the blocks of it that came back.
    Done,
}

/// Judges a cut by the sequences of its table that are in hand, ascending. Blocks come in order, so a sequence that is
/// passed over is missing.
pub(crate) fn judge(cut: &Cut, in_hand: impl Iterator<Item = u64>) -> Rebuild {
    let mut wanted = cut.first.0;
    for sequence in in_hand {
        if sequence < wanted {
            continue;
        }
        if sequence > wanted {
            return Rebuild::Done;
        }
        if sequence == cut.last.0 {
            return Rebuild::Again;
        }
        wanted += 1;
    }
    Rebuild::Wait
}

#[cfg(test)]
mod tests {
    use wavehouse_broker::InsertToken;
    use wavehouse_core::{Sequence, TableName, TableRef, TenantId};

    use super::*;

    #[test]
    fn cases() {
        let cut = Cut {
            table: TableRef::new(TenantId::default(), TableName::parse("t").unwrap()),
            first: Sequence(5),
            last: Sequence(7),
            splits: Vec::new(),
            done_rows: 0,
            token: InsertToken(1),
        };
        for (in_hand, wanted) in [
            (vec![], Rebuild::Wait),
            (vec![5], Rebuild::Wait),
            (vec![5, 6], Rebuild::Wait),
            (vec![5, 6, 7], Rebuild::Again),
            (vec![5, 6, 7, 8], Rebuild::Again),
            (vec![6], Rebuild::Done),
            (vec![5, 7], Rebuild::Done),
            (vec![5, 6, 8], Rebuild::Done),
            (vec![8], Rebuild::Done),
        ] {
            assert_eq!(judge(&cut, in_hand.iter().copied()), wanted, "{in_hand:?}");
        }
    }
}
