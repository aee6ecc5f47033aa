//! A TCP stream that tells when everything written has left, and that gives up on a client that stops reading.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep};

/// A client that takes no byte for this long is dropped, so that its query does not hold its place for ever.
const STALLED_MS_MAX: u64 = 120_000;

/// Counts flushes. The HTTP layer flushes the stream only once its own buffer is empty, so a flush after a body's
/// bytes were handed over means that they are on their way.
#[derive(Default)]
pub(crate) struct Flushes {
    count: AtomicU64,
    flushed: Notify,
}

impl Flushes {
    /// Waits for the next flush.
    pub(crate) async fn next(&self) {
        let before = self.count.load(Ordering::Acquire);
        loop {
            let flushed = self.flushed.notified();
            if self.count.load(Ordering::Acquire) != before {
                return;
            }
            flushed.await;
        }
    }
}

/// The stream.
pub(crate) struct Wire {
    stream: TcpStream,
    flushes: Arc<Flushes>,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Wire {
    /// Wraps `stream`.
    pub(crate) fn new(stream: TcpStream, flushes: Arc<Flushes>) -> Self {
        Self { stream, flushes, stalled: None }
    }

    fn watch(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = Duration::from_millis(STALLED_MS_MAX);
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => {
                timer.as_mut().reset(Instant::now() + limit);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, data);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, data);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            self.flushes.count.fetch_add(1, Ordering::AcqRel);
            self.flushes.flushed.notify_waiters();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
