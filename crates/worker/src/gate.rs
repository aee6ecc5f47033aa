//! Keeps a table's blocks in sequence, whatever comes when.
//!
//! Blocks are taken in ascending order. Blocks that were handed back must come again before any later one is taken, and
//! what is held already or done must not be taken twice.

use std::collections::BTreeSet;

use wavehouse_core::Sequence;

/// What to do with a delivered block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the next one.
    Take,
    /// It is in hand: only its handle is new.
    Replace,
    /// It was stored or buried and acked: ack it again.
    Done,
    /// An earlier one must come first: hand it back.
    Return,
}

/// One table's gate.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// The highest that was ever taken.
    top: Option<Sequence>,
    /// Handed back and not taken again. As many as were in hand, so bounded by the budget.
    returned: BTreeSet<Sequence>,
}

impl Gate {
    /// Decides about a delivered block. `held`: whether it is in hand.
    pub(crate) fn judge(&self, sequence: Sequence, held: bool) -> Verdict {
        match self.returned.first() {
            _ if held => Verdict::Replace,
            Some(first) if sequence == *first => Verdict::Take,
            Some(first) if sequence > *first => Verdict::Return,
            None if self.top.is_none_or(|top| sequence > top) => Verdict::Take,
            _ => Verdict::Done,
        }
    }

    /// The block was taken, or acked without being taken.
    pub(crate) fn took(&mut self, sequence: Sequence) {
        self.returned.remove(&sequence);
        self.top = self.top.max(Some(sequence));
    }

    /// The block was handed back.
    pub(crate) fn gave_back(&mut self, sequence: Sequence) {
        self.returned.insert(sequence);
    }

    /// Whether blocks that were handed back are to come again.
    pub(crate) fn owes(&self) -> bool {
        !self.returned.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_after_a_hand_back() {
        let seq = Sequence;
        let mut gate = Gate::default();
        // The queue may begin anywhere, and blocks that were acked by an earlier run are missing.
        for number in [5, 6, 9] {
            assert_eq!(gate.judge(seq(number), false), Verdict::Take);
            gate.took(seq(number));
        }
        assert_eq!(gate.judge(seq(6), true), Verdict::Replace);
        assert_eq!(gate.judge(seq(5), false), Verdict::Done);
        gate.gave_back(seq(6));
        gate.gave_back(seq(9));
        assert_eq!(gate.judge(seq(10), false), Verdict::Return);
        gate.gave_back(seq(10));
        assert_eq!(gate.judge(seq(9), false), Verdict::Return);
        for number in [6, 9, 10] {
            assert!(gate.owes());
            assert_eq!(gate.judge(seq(number), false), Verdict::Take);
            gate.took(seq(number));
        }
        assert!(!gate.owes());
        assert_eq!(gate.judge(seq(11), false), Verdict::Take);
    }
}
