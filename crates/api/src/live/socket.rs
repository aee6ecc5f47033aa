//! A stream on its bare socket.
//!
//! A stream's connection carries one request and then waits, thousands of them for hours. An HTTP server's buffers would
//! be most of what such a connection costs, so a connection whose first bytes ask for a stream never meets one: its
//! head is read here, judged by the same function as every other request, and the socket written to directly. A stream
//! asked for on a connection that served something else before goes through the HTTP server and works the same.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{Request, Response, Version};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

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

/// Serves a connection whose first request asks for a stream; ends with it.
pub(crate) async fn serve(shared: Arc<Shared>, mut stream: TcpStream, head_timeout: Duration) {
    let outcome = tokio::time::timeout(head_timeout, Box::pin(read_head(&mut stream))).await;
    let Ok(Ok(Some(request))) = outcome else {
        let _gone = stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            .await;
        return;
    };
    let opened = Box::pin(dispatch::open_stream(&shared, &request)).await;
    let subscriber = match opened {
        Ok((head, subscriber)) => {
            let mut bytes = head_bytes(&head);
            bytes.extend_from_slice(frame::CONNECTED);
            if write(&mut stream, vec![bytes.into()]).await.is_err() {
                return;
            }
            subscriber
        }
        Err(refusal) => {
            Box::pin(refuse(&mut stream, refusal)).await;
            return;
        }
    };
    let stop = shared.stop_streams.clone();
    drop(request);
    drop(shared);
    if let Err(error) = push(stream, subscriber, stop).await {
        tracing::debug!(%error, "stream ended");
    }
}

async fn push(
    mut stream: TcpStream,
    mut subscriber: Subscriber,
    stop: CancellationToken,
) -> std::io::Result<()> {
    loop {
        let mut ignored = [0; 16];
        let step = tokio::select! {
            biased;
            () = stop.cancelled() => Step::End(frame::STOPPING),
            read = stream.read(&mut ignored) => match read? {
                0 => return Ok(()),
                _ => continue,
            },
            step = subscriber.next() => step,
        };
        match step {
            Step::Send(pieces) => write(&mut stream, pieces).await?,
            Step::End(last) => {
                write(&mut stream, vec![Bytes::from_static(last)]).await?;
                return stream.shutdown().await;
            }
        }
    }
}

/// Writes pieces, several at a time. A client that takes nothing for long is given up.
async fn write(stream: &mut TcpStream, mut pieces: Vec<Bytes>) -> std::io::Result<()> {
    let mut from = 0;
    while let Some(rest) = pieces.get_mut(from..).filter(|rest| !rest.is_empty()) {
        let slices: Vec<IoSlice<'_>> =
            rest.iter().take(SLICES_MAX).map(|piece| IoSlice::new(piece)).collect();
        let writing = tokio::time::timeout(WRITE_TIMEOUT, stream.write_vectored(&slices));
        let mut written = writing.await.map_err(|_| std::io::ErrorKind::TimedOut)??;
        if written == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        for piece in rest {
            let taken = written.min(piece.len());
            piece.advance(taken);
            written -= taken;
            if !piece.is_empty() {
                break;
            }
            from += 1;
        }
    }
    Ok(())
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
    if write(stream, vec![head.into(), body]).await.is_ok() {
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
