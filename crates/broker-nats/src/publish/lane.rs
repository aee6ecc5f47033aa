//! What of a lane travels in one message.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use wavehouse_broker::{PublishError, Receipt};
use wavehouse_core::{RowBlock, Scope};

/// A block that waits for its turn.
pub(super) struct Waiting {
    pub(super) block: RowBlock,
    /// As encoded.
    pub(super) bytes: usize,
    pub(super) since: Instant,
    pub(super) done: oneshot::Sender<Result<Receipt, PublishError>>,
}

impl Waiting {
    pub(super) fn answer(self, result: Result<Receipt, PublishError>) {
        // Nobody waits any more where the result was dropped; the rows are where they are.
        let _unheard = self.done.send(result);
    }
}

/// The scope that a block's subject names: that of all of its rows, or none.
pub(super) fn scope_of(block: &RowBlock) -> Scope {
    let mut segments = block.segments.iter();
    let first = segments.next().map(|segment| segment.scope.clone()).unwrap_or_default();
    if segments.all(|segment| segment.scope == first) { first } else { Scope::default() }
}

/// Takes the next message's blocks off a lane: neighbours of one scope, up to the target size, at least one. Blocks that
/// have waited as long as they may are taken off too and given back apart.
pub(super) fn seal(
    lane: &mut VecDeque<Waiting>,
    now: Instant,
    patience: Duration,
    bytes_target: usize,
) -> (Vec<Waiting>, Vec<Waiting>) {
    let (mut parts, mut late) = (Vec::new(), Vec::new());
    let (mut bytes, mut scope) = (0, Scope::default());
    while let Some(next) = lane.front() {
        let is_late = now.duration_since(next.since) >= patience;
        let of = scope_of(&next.block);
        if !is_late && !parts.is_empty() && (bytes + next.bytes > bytes_target || of != scope) {
            break;
        }
        let Some(next) = lane.pop_front() else { break };
        if is_late {
            late.push(next);
            continue;
        }
        (bytes, scope) = (bytes + next.bytes, of);
        parts.push(next);
    }
    (parts, late)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wavehouse_core::{TableName, TableRef, TenantId, Timestamp};

    use super::*;

    const TARGET: usize = 128 << 10;

    fn waiting(scope: &str, bytes: usize, since: Instant) -> Waiting {
        let table = TableRef::new(TenantId::default(), TableName::parse("t").unwrap());
        let scope = Scope::parse(scope).unwrap();
        let block = RowBlock::new(table, Timestamp(1), scope, 1, Bytes::from(vec![b'\n'; bytes]));
        Waiting { bytes: block.encoded_len(), block, since, done: oneshot::channel().0 }
    }

    #[test]
    fn neighbours_travel_together_up_to_the_target() {
        let now = Instant::now();
        type Case = (&'static [(&'static str, usize)], &'static [usize]);
        const K: usize = 1 << 10;
        let cases: [Case; 5] = [
            (&[("", 1), ("", 1), ("", 1)], &[3]),
            (&[("", 60 * K), ("", 60 * K), ("", 60 * K)], &[2, 1]),
            (&[("", 500 * K), ("", 1), ("", 500 * K)], &[1, 1, 1]),
            (&[("a", 1), ("a", 1), ("b", 1), ("a", 1)], &[2, 1, 1]),
            (&[], &[]),
        ];
        for (blocks, expected) in cases {
            let mut lane: VecDeque<_> =
                blocks.iter().map(|(scope, bytes)| waiting(scope, *bytes, now)).collect();
            let mut sizes = Vec::new();
            while !lane.is_empty() {
                let (parts, late) = seal(&mut lane, now, Duration::from_secs(1), TARGET);
                assert!(late.is_empty());
                sizes.push(parts.len());
            }
            assert_eq!(sizes, expected, "{blocks:?}");
        }
    }

    #[test]
    fn who_waited_too_long_is_not_sent() {
        let now = Instant::now();
        let patience = Duration::from_secs(5);
        let mut lane =
            VecDeque::from([waiting("", 1, now), waiting("b", 1, now), waiting("", 1, now + patience)]);
        let (parts, late) = seal(&mut lane, now + patience, patience, TARGET);
        assert_eq!((parts.len(), late.len(), lane.len()), (1, 2, 0));
        let mut lane = VecDeque::from([waiting("", 1, now)]);
        let (parts, late) = seal(&mut lane, now + patience, patience, TARGET);
        assert_eq!((parts.len(), late.len()), (0, 1));
    }
}
