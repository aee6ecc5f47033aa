//! Turns a query's pipe into an HTTP answer.
//!
//! The beginning of a result is held back. Most results end within it, so that an error still gets a status of its
//! own and the summary is true. Past it the result streams, and an error can only be written into it and the body
//! broken off.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::cancel::{Canceller, Running};
use crate::encoding::Encoder;
use crate::fault::{self, Fault};
use crate::wire::Flushes;
use crate::work::Tail;

/// Held back of every result (ClickHouse's own buffer has this size).
const HELD_BYTES: usize = 1 << 20;
/// Held back with `wait_end_of_query=1`; a longer result streams after all.
const HELD_WAITING_BYTES: usize = 64 << 20;
/// After an exception in mid-stream the connection stays open this long, or until the client closes it: some
/// clients drop what they have not decoded yet when the connection breaks.
const LINGER_MS: u64 = 500;
/// Read from the pipe at once.
const PIECE_BYTES: usize = 256 << 10;

/// A response's body.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is there as a whole.
pub(crate) fn full(data: impl Into<Bytes>) -> Body {
    Full::new(data.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Cancels the query when the answer is dropped before the query ended: the client has gone.
pub(crate) struct Guard {
    pub(crate) canceller: Arc<Canceller>,
    pub(crate) running: Arc<Running>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.canceller.cancel(&self.running);
    }
}

/// A result on its way.
pub(crate) struct Output {
    pipe: pipe::Receiver,
    tail: oneshot::Receiver<Tail>,
    held: BytesMut,
    guard: Guard,
}

/// The beginning of a result.
pub(crate) enum Begun {
    /// All of it.
    Whole(Bytes, Tail),
    /// It goes on.
    Partly(Output),
}

impl Output {
    /// A result that comes through `pipe` and ends as `tail` says.
    pub(crate) fn new(pipe: pipe::Receiver, tail: oneshot::Receiver<Tail>, guard: Guard) -> Self {
        Self { pipe, tail, held: BytesMut::new(), guard }
    }

    /// Holds the beginning back, as much as fits.
    pub(crate) async fn begin(mut self, waits: bool) -> Begun {
        let limit = if waits { HELD_WAITING_BYTES } else { HELD_BYTES };
        while self.held.len() < limit {
            self.held.reserve(PIECE_BYTES.min(limit));
            match self.pipe.read_buf(&mut self.held).await {
                Ok(0) => {
                    let tail = self.end().await;
                    return Begun::Whole(self.held.freeze(), tail);
                }
                Ok(_) => {}
                Err(error) => return Begun::Whole(Bytes::new(), Err(pipe_fault(&error))),
            }
        }
        Begun::Partly(self)
    }

    async fn end(&mut self) -> Tail {
        match (&mut self.tail).await {
            Ok(tail) => tail,
            Err(_) => Err(Fault::new(1000, "The query's thread ended early. (POCO_EXCEPTION)")),
        }
    }
}

fn pipe_fault(error: &io::Error) -> Fault {
    Fault::new(74, format!("The result cannot be read: {error}. (CANNOT_READ_FROM_FILE_DESCRIPTOR)"))
}

/// What goes into a streamed body besides the result.
pub(crate) struct Framing {
    pub(crate) encoder: Encoder,
    /// The tag announced in the header.
    pub(crate) tag: String,
    pub(crate) version: String,
    pub(crate) flushes: Arc<Flushes>,
}

enum Phase {
    Held,
    Piping,
    Breaking,
    Done,
}

struct Streaming {
    output: Output,
    framing: Framing,
    phase: Phase,
}

/// The body of a result that goes on after what was held back.
pub(crate) fn streaming(output: Output, framing: Framing) -> Body {
    let state = Streaming { output, framing, phase: Phase::Held };
    let frames = stream::unfold(state, |mut state| async move {
        let item = state.next().await?;
        Some((item.map(Frame::data), state))
    });
    StreamBody::new(frames).boxed_unsync()
}

impl Streaming {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            let piece = match self.phase {
                Phase::Held => {
                    self.phase = Phase::Piping;
                    self.framing.encoder.piece(self.output.held.split().freeze())
                }
                Phase::Piping => self.piece().await,
                Phase::Breaking => {
                    // The exception must be on its way before the connection is torn down under it.
                    self.framing.flushes.next().await;
                    sleep(Duration::from_millis(LINGER_MS)).await;
                    self.phase = Phase::Done;
                    return Some(Err(io::Error::other("the query failed after its result had begun")));
                }
                Phase::Done => return None,
            };
            match piece {
                Ok(piece) if piece.is_empty() => {}
                other => return Some(other),
            }
        }
    }

    async fn piece(&mut self) -> io::Result<Bytes> {
        let held = &mut self.output.held;
        held.reserve(PIECE_BYTES);
        let tail = match self.output.pipe.read_buf(held).await {
            Ok(0) => self.output.end().await,
            Ok(_) => return self.framing.encoder.piece(held.split().freeze()),
            Err(error) => Err(pipe_fault(&error)),
        };
        let Err(fault) = tail else {
            self.phase = Phase::Done;
            return self.framing.encoder.finish();
        };
        self.phase = Phase::Breaking;
        let text = fault.full_text(&self.framing.version);
        tracing::info!(query = self.output.guard.running.mark, fault = text, "a result broke off");
        let block = fault::mid_stream_block(&text, &self.framing.tag);
        let mut bytes = BytesMut::from(&*self.framing.encoder.piece(block.into())?);
        bytes.extend_from_slice(&self.framing.encoder.finish()?);
        Ok(bytes.freeze())
    }
}
