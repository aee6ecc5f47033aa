//! What a request carries: chunks that are sent as they are, the small ones joined so that a batch of single rows does
//! not become a write a row.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

/// Chunks of at least so many bytes are sent without copying them.
const JOIN_BELOW_BYTES: usize = 16 * 1024;
/// What small chunks are joined to, at most.
const JOINED_BYTES_MAX: usize = 64 * 1024;

/// The body of a request, its length known.
#[derive(Debug, Default)]
pub(crate) struct RequestBody {
    chunks: VecDeque<Bytes>,
    left_bytes: u64,
}

impl RequestBody {
    pub(crate) fn new(chunks: impl IntoIterator<Item = Bytes>) -> Self {
        let chunks: VecDeque<Bytes> = chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect();
        let left_bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Self { chunks, left_bytes }
    }

    fn next(&mut self) -> Option<Bytes> {
        let first = self.chunks.pop_front()?;
        let fits = |room: usize, next: Option<&Bytes>| {
            next.is_some_and(|next| next.len() < JOIN_BELOW_BYTES && next.len() <= room)
        };
        if first.len() >= JOIN_BELOW_BYTES || !fits(JOINED_BYTES_MAX - first.len(), self.chunks.front()) {
            return Some(first);
        }
        let mut joined = BytesMut::with_capacity(JOINED_BYTES_MAX);
        joined.extend_from_slice(&first);
        while fits(JOINED_BYTES_MAX - joined.len(), self.chunks.front()) {
            joined.extend_from_slice(&self.chunks.pop_front().unwrap_or_default());
        }
        Some(joined.freeze())
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let chunk = self.next();
        self.left_bytes -= chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_chunks_are_joined_and_large_ones_kept() {
        let small = || Bytes::from_static(&[b'x'; 100]);
        let large = Bytes::from(vec![b'y'; JOIN_BELOW_BYTES]);
        let mut body = RequestBody::new((0..1000).map(|_| small()).chain([large.clone(), small()]));
        assert_eq!(body.size_hint().exact(), Some(100_000 + JOIN_BELOW_BYTES as u64 + 100));
        let sizes: Vec<usize> = std::iter::from_fn(|| body.next()).map(|chunk| chunk.len()).collect();
        assert_eq!(sizes, [65_500, 34_500, JOIN_BELOW_BYTES, 100]);
        let mut body = RequestBody::new([large.clone()]);
        assert_eq!(body.next().unwrap().as_ptr(), large.as_ptr());
    }
}
