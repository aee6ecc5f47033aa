//! The latest frames of one table, shared by all who watch it.

use std::collections::VecDeque;

use bytes::Bytes;

/// Most bytes of frames that a ring keeps; the newest chunk stays whatever its size.
pub(crate) const RING_BYTES_MAX: usize = 1024 * 1024;
/// Most chunks that a ring keeps.
pub(crate) const RING_CHUNKS_MAX: usize = 1024;
/// Most chunks that one subscriber takes at a time.
const TAKE_MAX: usize = 64;

/// The frames of one block.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    /// The block's sequence; 0 for what is not of a block, such as a hole.
    pub(crate) sequence: u64,
    /// Its frames.
    pub(crate) bytes: Bytes,
    /// How many rows.
    pub(crate) rows: u32,
}

/// What a subscriber finds at its place.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Chunks, and the place after them. Empty when there is nothing new.
    Chunks(Vec<Chunk>, u64),
    /// The place is gone: the ring went on without the subscriber.
    Overtaken,
}

/// Chunks by place, the newest last; old ones go as new ones come.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    /// The place of the first chunk that is kept.
    first: u64,
    last_sequence: u64,
}

impl Ring {
    /// The place after the newest chunk: where a new subscriber begins.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.chunks.len() as u64
    }

    /// The sequence of the newest block that came by; 0 before the first.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Lets go of everything, so that whoever watches has been overtaken.
    pub(crate) fn clear(&mut self) {
        self.first = self.end() + 1;
        self.chunks.clear();
        self.bytes = 0;
    }

    /// Adds the newest chunk and lets go of the oldest, as far as the limits ask.
    pub(crate) fn push(&mut self, chunk: Chunk) {
        self.bytes += chunk.bytes.len();
        self.last_sequence = self.last_sequence.max(chunk.sequence);
        self.chunks.push_back(chunk);
        while self.chunks.len() > 1 && (self.bytes > RING_BYTES_MAX || self.chunks.len() > RING_CHUNKS_MAX) {
            if let Some(gone) = self.chunks.pop_front() {
                self.bytes -= gone.bytes.len();
                self.first += 1;
            }
        }
    }

    /// What lies at `place` and after.
    pub(crate) fn take(&self, place: u64) -> Taken {
        let Some(offset) = place.checked_sub(self.first) else { return Taken::Overtaken };
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let chunks: Vec<Chunk> = self.chunks.iter().skip(offset).take(TAKE_MAX).cloned().collect();
        let next = place + chunks.len() as u64;
        Taken::Chunks(chunks, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(sequence: u64, bytes: usize) -> Chunk {
        Chunk { sequence, bytes: vec![b'x'; bytes].into(), rows: 1 }
    }

    fn sequences(taken: &Taken) -> Vec<u64> {
        match taken {
            Taken::Chunks(chunks, _) => chunks.iter().map(|chunk| chunk.sequence).collect(),
            Taken::Overtaken => vec![u64::MAX],
        }
    }

    #[test]
    fn a_subscriber_sees_what_comes_after_it() {
        let mut ring = Ring::default();
        ring.push(chunk(1, 10));
        let place = ring.end();
        assert_eq!(sequences(&ring.take(place)), [0_u64; 0]);
        ring.push(chunk(2, 10));
        ring.push(chunk(3, 10));
        let taken = ring.take(place);
        assert_eq!(sequences(&taken), [2, 3]);
        assert!(matches!(taken, Taken::Chunks(_, next) if next == ring.end()));
    }

    #[test]
    fn who_is_overtaken_is_told() {
        let mut ring = Ring::default();
        let place = ring.end();
        for sequence in 1..=9 {
            ring.push(chunk(sequence, RING_BYTES_MAX / 4));
        }
        assert_eq!(sequences(&ring.take(place)), [u64::MAX]);
        assert_eq!(sequences(&ring.take(ring.end() - 4)), [6, 7, 8, 9]);
        ring.push(chunk(10, RING_BYTES_MAX * 2));
        assert_eq!(sequences(&ring.take(ring.end() - 1)), [10], "the newest stays, however large");
        assert_eq!(ring.last_sequence(), 10);
        let place = ring.end();
        ring.clear();
        assert_eq!(sequences(&ring.take(place)), [u64::MAX], "a break in the feed overtakes everyone");
    }
}
