//! What servers say of themselves to whoever dials them, before anything is asked: all servers, not the connected one
//! alone.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::ServerAddr;
use futures_util::future::join_all;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;

use super::Connection;

/// Longest wait for one banner.
const WAIT: Duration = Duration::from_secs(1);
/// Servers that are dialled at most.
const SERVERS_MAX: usize = 32;
/// Longest banner; one of a server that tells of a hundred others has about 4 KiB.
const BANNER_BYTES_MAX: u64 = 64 << 10;

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Banner {
    /// Its name.
    #[serde(rename = "server_name", default)]
    pub name: String,
    /// Its version, such as `2.14.6`.
    #[serde(default)]
    pub version: String,
}

impl Connection {
    /// Dials the servers that were named and those that the connected one told of, 32 at most and a second each, and
    /// gives back each one's address with its banner, or none where it did not come. Nothing is sent to them. Servers that
    /// encrypt from the first byte say nothing to whoever just dials; for them the list is empty.
    pub async fn banners(&self) -> Vec<(String, Option<Banner>)> {
        if self.encrypts_first {
            return Vec::new();
        }
        let told_of = self.server().map(|server| server.known_servers).unwrap_or_default();
        let named = self.named.iter().map(address);
        let told_of =
            told_of.iter().filter_map(|url| url.parse::<ServerAddr>().ok()).map(|url| address(&url));
        let addresses: BTreeSet<(String, u16)> = named.chain(told_of).take(SERVERS_MAX).collect();
        let dialled = addresses.into_iter().map(|(host, port)| async move {
            let banner = tokio::time::timeout(WAIT, banner(&host, port)).await;
            (format!("{host}:{port}"), banner.ok().flatten())
        });
        join_all(dialled).await
    }
}

fn address(url: &ServerAddr) -> (String, u16) {
    (url.host().to_owned(), url.port())
}

/// One line, `INFO {…}`.
async fn banner(host: &str, port: u16) -> Option<Banner> {
    let stream = TcpStream::connect((host, port)).await.ok()?;
    let mut reader = BufReader::new(stream.take(BANNER_BYTES_MAX));
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).await.ok()?;
    parse(&line)
}

fn parse(line: &[u8]) -> Option<Banner> {
    let body = line.strip_prefix(b"INFO ")?;
    serde_json::from_slice(body.trim_ascii()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banners_are_read() {
        let read = |text: &str| parse(text.as_bytes()).map(|banner| (banner.name, banner.version));
        let said = |name: &str, version: &str| Some((name.to_owned(), version.to_owned()));
        for (text, found) in [
            (
                "INFO {\"server_id\":\"N\",\"server_name\":\"n0\",\"version\":\"2.14.6\"}\r\n",
                said("n0", "2.14.6"),
            ),
            ("INFO {\"version\":\"2.14.6\"} \r\n", said("", "2.14.6")),
            ("INFO {\"version\":\"2.1", None),
            ("SSH-2.0-x\r\n", None),
            ("", None),
        ] {
            assert_eq!(read(text), found, "{text}");
        }
    }
}
