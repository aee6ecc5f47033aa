//! Live streams: rows pushed over SSE as they become durable, before ClickHouse has them.
//!
//! ```text
//! broker history ─► feed (one task a table that is watched) ─► frames, written once ─► ring, shared ─► subscribers
//! ```
//!
//! A subscriber holds a place in its table's ring and nothing else; it is woken, takes what lies between its place and
//! the end in one write, and waits again. One that the ring has overtaken is told so and closed: its reconnect resumes
//! after the last row it saw, from history. Replay and live are joined by sequence, so there is no gap and no twin.

mod feed;
mod frame;
mod ring;
mod socket;
mod subscriber;

pub(crate) use feed::Hub;
pub(crate) use socket::{begin, is_stream_request, push};
pub(crate) use subscriber::{Step, Subscriber, open};

use bytes::Bytes;
use futures_util::StreamExt;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Either, StreamBody};

use crate::body::Body;
use crate::respond::empty;

/// A stream through the HTTP server.
pub(crate) fn response(subscriber: Subscriber) -> Response<Body> {
    let first = futures_util::stream::once(async { Ok(Frame::data(Bytes::from_static(frame::CONNECTED))) });
    let rest = futures_util::stream::unfold(Some(subscriber), |open| async {
        let mut subscriber = open?;
        let (bytes, open) = match subscriber.next().await {
            Step::Send(pieces) => (pieces.concat().into(), Some(subscriber)),
            Step::End(last) => (Bytes::from_static(last), None),
        };
        Some((Ok(Frame::data(bytes)), open))
    });
    let body = UnsyncBoxBody::new(StreamBody::new(first.chain(rest)));
    head().map(|_empty| Either::Right(body))
}

/// The head of an open stream.
pub(crate) fn head() -> Response<Body> {
    let mut response = empty(StatusCode::OK);
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache"),
        (CONNECTION, "keep-alive"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
