//! A stream on its bare socket.
//!
//! A stream's connection carries one request and then waits, thousands of them for hours. An HTTP server's buffers would
//! be most of what such a connection costs, so a connection whose first bytes ask for a stream never meets one: its
//! head is read here, judged by the same function as every other request, and the socket written to directly. A stream
//! asked for on a connection that served something else before goes through the HTTP server and works the same.

use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{Request, Response, Version};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::frame;
use super::subscriber::{Step, Subscriber};
use crate::body::Body;
use crate::dispatch;
use crate::shared::Shared;

/// How a stream request begins.
const BEGINNING: &[u8] = b"GET /v1/stream?";
/// Largest head, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most header lines.
const HEADERS_MAX: usize = 64;
/// How long a client may take to take anything at all.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Most pieces in one write.
const SLICES_MAX: usize = 64;

/// Whether the first bytes of a connection ask for a stream. False if fewer have come: then the HTTP server decides.
pub(crate) async fn is_stream_request(stream: &TcpStream) -> bool {
    let mut first = [0; BEGINNING.len()];
    matches!(stream.peek(&mut first).await, Ok(read) if read == first.len() && first == BEGINNING)
}

/// Reads the head of a connection's stream request and answers it. None when it ends with that.
pub(crate) async fn begin(
    shared: &Arc<Shared>,
    stream: &mut TcpStream,
    head_timeout: Duration,
) -> Option<Box<Subscriber>> {
    let Ok(Ok(Some(request))) = tokio::time::timeout(head_timeout, read_head(stream)).await else {
        let _gone = stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            .await;
        return None;
    };
    match Box::pin(dispatch::open_stream(shared, &request)).await {
        Ok((head, subscriber)) => {
            let mut bytes = head_bytes(&head);
            bytes.extend_from_slice(frame::CONNECTED);
            write(stream, &mut [bytes.into()]).await.ok()?;
            Some(Box::new(subscriber))
        }
        Err(refusal) => {
            Box::pin(refuse(stream, refusal)).await;
            None
        }
    }
}

/// Pushes a stream to its end. This is what each open stream costs, so it holds no more than it needs to wait.
pub(crate) async fn push(mut stream: TcpStream, mut subscriber: Box<Subscriber>) {
    loop {
        // What is to be sent comes first: whether the client has gone, a write tells as well.
        let step = tokio::select! {
            biased;
            step = subscriber.next() => step,
            () = gone(&mut stream) => return,
        };
        let written = match step {
            Step::Send(mut pieces) => write(&mut stream, &mut pieces).await,
            Step::End(last) => {
                let _gone = Box::pin(say_last(&mut stream, last)).await;
                return;
            }
        };
        if let Err(error) = written {
            tracing::debug!(%error, "stream ended");
            return;
        }
    }
}

/// Waits until the client has gone. Whatever it says is passed over.
async fn gone(stream: &mut TcpStream) {
    std::future::poll_fn(|context| {
        let mut ignored = [0; 16];
        loop {
            let mut buffer = ReadBuf::new(&mut ignored);
            match ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
        }
    })
    .await;
}

async fn say_last(stream: &mut TcpStream, last: &'static [u8]) -> std::io::Result<()> {
    write(stream, &mut [Bytes::from_static(last)]).await?;
    stream.shutdown().await
}

/// Writes pieces, several at a time. A client that takes nothing for long is given up.
async fn write(stream: &mut TcpStream, mut pieces: &mut [Bytes]) -> std::io::Result<()> {
    while !pieces.is_empty() {
        let written = match try_write(stream, pieces) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // Boxed, as next to none ever waits here.
                let ready = Box::pin(tokio::time::timeout(WRITE_TIMEOUT, stream.writable()));
                ready.await.map_err(|_elapsed| ErrorKind::TimedOut)??;
                continue;
            }
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            written => written?,
        };
        pieces = advance(pieces, written);
    }
    Ok(())
}

fn try_write(stream: &TcpStream, pieces: &[Bytes]) -> std::io::Result<usize> {
    if let [only] = pieces {
        return stream.try_write(only);
    }
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let count = pieces.len().min(SLICES_MAX);
    for (slice, piece) in slices.iter_mut().zip(pieces) {
        *slice = IoSlice::new(piece);
    }
    stream.try_write_vectored(&slices[..count])
}

/// What is left of pieces once `written` bytes of them have gone.
fn advance(pieces: &mut [Bytes], mut written: usize) -> &mut [Bytes] {
    let mut whole = 0;
    for piece in pieces.iter_mut() {
        let taken = written.min(piece.len());
        piece.advance(taken);
        written -= taken;
        if !piece.is_empty() {
            break;
        }
        whole += 1;
    }
    &mut pieces[whole..]
}

async fn read_head(stream: &mut TcpStream) -> std::io::Result<Option<Request<()>>> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if stream.read_buf(&mut bytes).await? == 0 || bytes.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
        match parse_head(&bytes) {
            Parsed::More => {}
            Parsed::Head(request) => return Ok(Some(*request)),
            Parsed::Wrong => return Ok(None),
        }
    }
}

enum Parsed {
    More,
    Head(Box<Request<()>>),
    Wrong,
}

fn parse_head(bytes: &[u8]) -> Parsed {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut lines);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Partial) => return Parsed::More,
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Parsed::Wrong,
    }
    let mut request = Request::builder()
        .method(parsed.method.unwrap_or_default())
        .uri(parsed.path.unwrap_or_default())
        .version(Version::HTTP_11);
    for line in parsed.headers.iter() {
        request = request.header(line.name, line.value);
    }
    request.body(()).map_or(Parsed::Wrong, |request| Parsed::Head(Box::new(request)))
}

async fn refuse(stream: &mut TcpStream, refusal: Response<Body>) {
    let (mut head, body) = refusal.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    head.headers.insert(http::header::CONTENT_LENGTH, body.len().into());
    head.headers.insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
    let head = head_bytes(&Response::from_parts(head, ()));
    if write(stream, &mut [head.into(), body]).await.is_ok() {
        let _gone = stream.shutdown().await;
    }
}

fn head_bytes<T>(response: &Response<T>) -> Vec<u8> {
    let status = response.status();
    let mut out =
        format!("HTTP/1.1 {} {}\r\n", status.as_u16(), status.canonical_reason().unwrap_or("")).into_bytes();
    for (name, value) in response.headers() {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The task of an open stream, without the runtime's part.
    fn bytes_of<F>(_: impl Fn(TcpStream, Box<Subscriber>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_open_stream_is_small() {
        let bytes = bytes_of(push) + size_of::<Subscriber>();
        assert!(bytes <= 800, "{bytes} bytes");
    }

    #[test]
    fn what_is_written_is_taken_off_the_front() {
        let pieces = || ["ab", "", "cde", "f"].map(|text| Bytes::from_static(text.as_bytes()));
        for (written, left) in [(0, "abcdef"), (1, "bcdef"), (2, "cdef"), (4, "ef"), (5, "f"), (6, "")] {
            assert_eq!(advance(&mut pieces(), written).concat(), left.as_bytes(), "{written}");
        }
    }

    #[test]
    fn heads_are_read_whole_or_not_at_all() {
        let whole = b"GET /v1/stream?table=t HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 7\r\n\r\n";
        for cut in 0..whole.len() {
            assert!(matches!(parse_head(&whole[..cut]), Parsed::More), "{cut}");
        }
        let Parsed::Head(request) = parse_head(whole) else { panic!("no head") };
        assert_eq!(request.uri().query(), Some("table=t"));
        assert_eq!(request.headers()["last-event-id"], "7");
        assert!(matches!(parse_head(b"GET /v1/stream?table=t\r\n\r\n"), Parsed::Wrong));
    }
}
