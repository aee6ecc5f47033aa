//! An answer as it streams in. An answer that breaks off after its first byte, or ends in an exception, is a failure.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use crate::error::{Cause, ClickHouseError, exception_in_tail};

/// How much of an answer's end is kept to find an exception in: the longest that servers put there is 16 KiB.
const TAIL_BYTES: usize = 20 * 1024;

/// The head of a good answer, and its body.
#[derive(Debug)]
pub struct Response {
    /// The status, 2xx.
    pub status: StatusCode,
    /// The headers as they came.
    pub headers: HeaderMap,
    /// The body, still coming.
    pub body: ResponseBody,
}

impl Response {
    /// The whole body, at most `bytes_max`.
    ///
    /// # Errors
    /// [`ClickHouseError`]: the answer broke off, is an exception, came too late, or is larger.
    pub async fn bytes(self, bytes_max: usize) -> Result<Bytes, ClickHouseError> {
        let mut body = self.body;
        body.left_bytes = Some(bytes_max);
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                whole.extend_from_slice(&data);
            }
        }
        Ok(whole.freeze())
    }
}

/// The body of an answer. After an error it yields nothing more. Dropping it gives the request up; ClickHouse stops a
/// query that only reads.
#[derive(Debug)]
pub struct ResponseBody {
    inner: Incoming,
    deadline: Pin<Box<Sleep>>,
    tail: VecDeque<Bytes>,
    tail_bytes: usize,
    tag: Option<String>,
    status: u16,
    left_bytes: Option<usize>,
    ended: bool,
    // The place among the target's requests, given back when the answer is read or dropped.
    _slot: OwnedSemaphorePermit,
}

impl ResponseBody {
    pub(crate) fn new(
        inner: Incoming,
        head: &http::response::Parts,
        end: Instant,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        let tag = head.headers.get("x-clickhouse-exception-tag").and_then(|tag| tag.to_str().ok());
        Self {
            inner,
            deadline: Box::pin(tokio::time::sleep_until(end)),
            tail: VecDeque::new(),
            tail_bytes: 0,
            tag: tag.map(str::to_owned),
            status: head.status.as_u16(),
            left_bytes: None,
            ended: false,
            _slot: slot,
        }
    }

    /// The same body that fails once it has more than `bytes_max` bytes.
    #[must_use]
    pub fn limited(mut self, bytes_max: usize) -> Self {
        self.left_bytes = Some(bytes_max);
        self
    }

    fn keep(&mut self, data: &Bytes) {
        self.tail_bytes += data.len();
        self.tail.push_back(data.clone());
        while let Some(first) = self.tail.front().map(Bytes::len) {
            if self.tail_bytes - first < TAIL_BYTES {
                break;
            }
            self.tail_bytes -= first;
            self.tail.pop_front();
        }
    }

    fn exception(&self) -> Option<ClickHouseError> {
        let whole: Vec<u8> = self.tail.iter().flat_map(|chunk| chunk.iter().copied()).collect();
        let text =
            String::from_utf8_lossy(whole.get(whole.len().saturating_sub(TAIL_BYTES)..).unwrap_or(&whole));
        let message = exception_in_tail(&text, self.tag.as_deref())?;
        Some(ClickHouseError::answered(self.status, None, &message))
    }

    /// The end of the answer: good, unless the server marked an exception there.
    fn ending(&self) -> Option<ClickHouseError> {
        // Looking costs a copy of the tail, so only where the server can have marked one.
        self.tag.as_ref().and_then(|_| self.exception())
    }

    fn broken(&self, error: &hyper::Error) -> ClickHouseError {
        let broken = || ClickHouseError::transport(Cause::Broken, &crate::client::sources(error));
        self.exception().unwrap_or_else(broken)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ClickHouseError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClickHouseError>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        if polled.is_pending() {
            ready!(this.deadline.as_mut().poll(cx));
            this.ended = true;
            let late =
                ClickHouseError::transport(Cause::Timeout, "the answer did not end before its deadline");
            return Poll::Ready(Some(Err(late)));
        }
        let outcome = match ready!(polled) {
            None => this.ending().map(Err),
            Some(Err(error)) => Some(Err(this.broken(&error))),
            Some(Ok(frame)) => Some(this.counted(frame)),
        };
        this.ended = !matches!(outcome, Some(Ok(_)));
        Poll::Ready(outcome)
    }
}

impl ResponseBody {
    fn counted(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, ClickHouseError> {
        let Some(data) = frame.data_ref() else { return Ok(frame) };
        if let Some(left) = &mut self.left_bytes {
            let Some(rest) = left.checked_sub(data.len()) else {
                return Err(ClickHouseError::transport(
                    Cause::TooLarge,
                    "the answer is larger than what is taken",
                ));
            };
            *left = rest;
        }
        let data = data.clone();
        self.keep(&data);
        Ok(frame)
    }
}
