//! Just enough HTTP/1.1 to load a server without loading the machine: requests are ready-made bytes, answers are
//! looked at, not built.

use std::io;
use std::time::Duration;

use memchr::memmem;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How much is read at once, in bytes.
const READ_BYTES: usize = 32 * 1024;
/// How long a connection may take to open.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// What an answer says, as far as a load generator cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// HTTP status.
    pub(super) status: u16,
    /// Bytes of the buffer that belong to this answer.
    pub(super) used: usize,
    /// Where its body lies in the buffer, chunk frames included.
    pub(super) body: std::ops::Range<usize>,
    /// Whether the server closes the connection after it.
    pub(super) closes: bool,
    /// Whether the body comes in chunks.
    pub(super) chunked: bool,
}

/// Why an exchange failed.
#[derive(Debug, Error)]
pub(super) enum WireError {
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[source] io::Error),
    /// The server closed it in the middle of an answer or before one.
    #[error("the server closed the connection without an answer")]
    Closed,
    /// What came is not HTTP/1.1.
    #[error("the answer is not HTTP/1.1")]
    NotHttp,
    /// The answer is too long.
    #[error("the answer is longer than 64 MiB")]
    TooLong,
}

/// Looks for one whole answer at the start of `buffer`; `None` when more bytes are needed.
pub(super) fn look(buffer: &[u8]) -> Result<Option<Seen>, WireError> {
    let Some(head_bytes) = memmem::find(buffer, b"\r\n\r\n").map(|at| at + 4) else {
        return Ok(None);
    };
    let head = &buffer[..head_bytes];
    let status = head
        .strip_prefix(b"HTTP/1.")
        .and_then(|rest| rest.get(2..5))
        .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
        .ok_or(WireError::NotHttp)?;
    let (mut length, mut chunked, mut closes) = (0, false, head.starts_with(b"HTTP/1.0"));
    for line in head.split(|&byte| byte == b'\n').skip(1) {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            length = number(value).ok_or(WireError::NotHttp)?;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            chunked = value.eq_ignore_ascii_case(b"chunked");
        } else if name.eq_ignore_ascii_case(b"connection") {
            closes |= value.eq_ignore_ascii_case(b"close");
        }
    }
    let end = if chunked { chunks_end(buffer, head_bytes)? } else { Some(head_bytes + length) };
    Ok(end.filter(|end| *end <= buffer.len()).map(|end| Seen {
        status,
        used: end,
        body: head_bytes..end,
        closes,
        chunked,
    }))
}

fn chunks_end(buffer: &[u8], from: usize) -> Result<Option<usize>, WireError> {
    let mut at = from;
    loop {
        let Some(line) = buffer.get(at..).and_then(|rest| memmem::find(rest, b"\r\n")) else {
            return Ok(None);
        };
        let digits = buffer[at..at + line].split(|&byte| byte == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(digits.trim_ascii())
            .ok()
            .and_then(|digits| usize::from_str_radix(digits, 16).ok())
            .filter(|size| *size <= ANSWER_BYTES_MAX)
            .ok_or(WireError::NotHttp)?;
        at += line + 2 + size + 2;
        if size == 0 {
            return Ok(Some(at));
        }
    }
}

/// The body without its chunk frames.
pub(super) fn body_of(buffer: &[u8], seen: &Seen) -> Vec<u8> {
    let raw = &buffer[seen.body.clone()];
    if !seen.chunked {
        return raw.to_vec();
    }
    let (mut body, mut at) = (Vec::with_capacity(raw.len()), 0);
    while let Some(line) = memmem::find(&raw[at..], b"\r\n") {
        let digits = raw[at..at + line].split(|&byte| byte == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(digits.trim_ascii())
            .ok()
            .and_then(|digits| usize::from_str_radix(digits, 16).ok())
            .unwrap_or(0);
        if size == 0 {
            break;
        }
        at += line + 2;
        body.extend_from_slice(&raw[at..at + size]);
        at += size + 2;
    }
    body
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The number behind `"key":` in a JSON text, found without parsing it.
pub(super) fn count_in(body: &[u8], key: &str) -> Option<u64> {
    let at = memmem::find(body, key.as_bytes())? + key.len();
    let digits: Vec<u8> = body[at..]
        .iter()
        .copied()
        .skip_while(|byte| matches!(byte, b':' | b' '))
        .take_while(u8::is_ascii_digit)
        .collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

/// One keep-alive connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    used: usize,
}

impl Wire {
    /// Connects to `host:port`.
    pub(super) async fn open(authority: &str) -> Result<Self, WireError> {
        let connecting = tokio::time::timeout(CONNECT_WAIT, TcpStream::connect(authority));
        let stream = connecting
            .await
            .map_err(|_elapsed| WireError::Io(io::ErrorKind::TimedOut.into()))?
            .map_err(WireError::Io)?;
        stream.set_nodelay(true).map_err(WireError::Io)?;
        Ok(Self { stream, buffer: Vec::with_capacity(READ_BYTES), used: 0 })
    }

    /// Sends a whole request.
    pub(super) async fn send(&mut self, request: &[u8]) -> Result<(), WireError> {
        self.stream.write_all(request).await.map_err(WireError::Io)
    }

    /// Waits for the next answer; [`Wire::buffer`] holds it until the next call.
    pub(super) async fn answer(&mut self) -> Result<Seen, WireError> {
        self.buffer.drain(..self.used);
        self.used = 0;
        loop {
            if let Some(seen) = look(&self.buffer)? {
                self.used = seen.used;
                return Ok(seen);
            }
            if self.buffer.len() > ANSWER_BYTES_MAX {
                return Err(WireError::TooLong);
            }
            self.buffer.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.buffer).await.map_err(WireError::Io)? == 0 {
                return Err(WireError::Closed);
            }
        }
    }

    /// The bytes that [`Wire::answer`] looked at.
    pub(super) fn buffer(&self) -> &[u8] {
        &self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_cut_whole_and_the_next_one_is_left() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"ok\":true}HTTP/1.1 5".as_slice();
        let seen = look(plain).unwrap().unwrap();
        assert_eq!((seen.status, seen.used, seen.closes), (200, 50, false));
        assert_eq!(body_of(plain, &seen), b"{\"ok\":true}");

        let chunked = b"HTTP/1.1 503 x\r\nconnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
            3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n";
        let seen = look(chunked).unwrap().unwrap();
        assert_eq!((seen.status, seen.used, seen.closes), (503, chunked.len(), true));
        assert_eq!(body_of(chunked, &seen), b"abc0123456789");

        let none = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(look(none).unwrap().unwrap().used, none.len());

        for whole in [plain[..50].to_vec(), chunked.to_vec()] {
            for end in 0..whole.len() {
                assert_eq!(look(&whole[..end]).unwrap(), None, "{end} bytes are not enough");
            }
        }
        assert!(matches!(look(b"SSH-2.0\r\n\r\n"), Err(WireError::NotHttp)));
    }

    #[test]
    fn counts_are_read_without_parsing() {
        let body = br#"{"total":3,"succeeded":1,"failed": 12,"duplicates":0}"#;
        assert_eq!(count_in(body, "\"succeeded\""), Some(1));
        assert_eq!(count_in(body, "\"failed\""), Some(12));
        assert_eq!(count_in(body, "\"results\""), None);
    }
}
