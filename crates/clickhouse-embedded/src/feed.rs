//! Carries a request's body from the connection's task to the thread that runs its query, a few pieces at a time.

use std::io::{self, Read};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

/// Pieces in flight between the two; hyper makes them of at most some 100 KiB.
const PIECES_MAX: usize = 4;
/// A body that brings nothing for this long is given up (ClickHouse's `http_receive_timeout`).
const IDLE_MS_MAX: u64 = 30_000;
/// How much of an unwanted rest is read so that the client, busy sending, gets to see the answer.
const DRAIN_BYTES_MAX: u64 = 64 << 20;
const DRAIN_MS_MAX: u64 = 5_000;

enum Piece {
    Data(Bytes),
    End,
}

/// The reading end, a plain `Read`. An unfinished body is an error, never an end.
pub(crate) struct Feed {
    receiver: Receiver<Piece>,
    piece: Bytes,
    ended: bool,
}

/// The writing end.
pub(crate) struct Pump {
    sender: Sender<Piece>,
}

/// Both ends of a feed.
pub(crate) fn feed() -> (Pump, Feed) {
    let (sender, receiver) = channel(PIECES_MAX);
    (Pump { sender }, Feed { receiver, piece: Bytes::new(), ended: false })
}

impl Read for Feed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.ended {
            match self.receiver.blocking_recv() {
                Some(Piece::Data(piece)) => self.piece = piece,
                Some(Piece::End) => self.ended = true,
                None => return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the body broke off")),
            }
        }
        let bytes = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..bytes]);
        Ok(bytes)
    }
}

impl Pump {
    /// Moves the body until its end, or until nobody reads any more. Dropped in between, the reader sees a body
    /// that broke off.
    pub(crate) async fn run(self, mut body: Incoming) {
        loop {
            let frame = match timeout(Duration::from_millis(IDLE_MS_MAX), body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => break,
                Ok(Some(Err(_))) | Err(_) => return,
            };
            let Ok(data) = frame.into_data() else { continue };
            if self.sender.send(Piece::Data(data)).await.is_err() {
                return drain(body).await;
            }
        }
        // Nobody waits for the end when the query was refused before it.
        self.sender.send(Piece::End).await.ok();
    }
}

/// Reads away what is left of a body that nobody wants.
pub(crate) async fn drain(mut body: Incoming) {
    let reading = async {
        let mut bytes = 0_u64;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if bytes > DRAIN_BYTES_MAX {
                break;
            }
        }
    };
    // Too slow is as good as done: the answer goes out and the connection closes.
    timeout(Duration::from_millis(DRAIN_MS_MAX), reading).await.ok();
}
