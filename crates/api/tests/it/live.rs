//! Live streams over TCP: frames, resuming, joining replay and live, slow clients, stopping.

use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use wavehouse_api::{Access, ApiOptions};
use wavehouse_testkit::Engine;

use crate::harness::{Harness, open_options};

/// An open stream and what has been read of it.
pub(crate) struct Stream {
    reader: BufReader<TcpStream>,
    pub(crate) head: String,
}

impl Stream {
    pub(crate) async fn open(port: u16, query: &str, headers: &str) -> Self {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let head = format!("GET /v1/stream?{query} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut stream = Self { reader: BufReader::new(socket), head: String::new() };
        stream.head = stream.part().await.unwrap_or_default();
        stream
    }

    /// Up to the next empty line; none at the end.
    async fn part(&mut self) -> Option<String> {
        let mut text = String::new();
        loop {
            let reading = tokio::time::timeout(Duration::from_secs(10), self.reader.read_line(&mut text));
            match reading.await.expect("something within 10 s") {
                Ok(0) | Err(_) => return None,
                Ok(_) if text.ends_with("\n\n") || text.ends_with("\r\n\r\n") || text == "\n" => {
                    return Some(text);
                }
                Ok(_) => {}
            }
        }
    }

    /// The next frame that is a row: its id and its data.
    pub(crate) async fn row(&mut self) -> (String, serde_json::Value) {
        loop {
            let part = self.part().await.expect("a row, not the end");
            let Some(rest) = part.strip_prefix("id: ") else { continue };
            let (id, data) = rest.split_once("\ndata: ").unwrap();
            return (id.to_owned(), serde_json::from_str(data).unwrap());
        }
    }

    async fn numbers(&mut self, count: usize) -> Vec<i64> {
        let mut numbers = Vec::with_capacity(count);
        while numbers.len() < count {
            numbers.push(self.row().await.1["data"]["a"].as_i64().unwrap());
        }
        numbers
    }
}

async fn start(columns: &str) -> (Engine, Harness) {
    let engine = Engine::start().await;
    engine.query(&format!("CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY tuple()")).await;
    let harness = Harness::start(&engine, open_options()).await;
    (engine, harness)
}

async fn send(api: &Harness, numbers: std::ops::Range<i64>) {
    let body: String = numbers.map(|n| format!("{{\"a\":{n}}}\n")).collect();
    let answer = api.ingest("t", &[("content-type", "application/x-ndjson")], body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn rows_arrive_as_frames_that_the_published_client_reads() {
    let (_engine, api) = start("a Int64, received_timestamp DateTime64(3, 'UTC')").await;
    let mut stream = Stream::open(api.port, "table=t", "").await;
    let head = stream.head.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
    for line in ["content-type: text/event-stream", "cache-control: no-cache", "x-accel-buffering: no"] {
        assert!(head.contains(line), "{head}");
    }
    assert_eq!(stream.part().await.as_deref(), Some(": connected\n\n"));
    send(&api, 1..2).await;
    let (id, frame) = stream.row().await;
    assert_eq!(frame["table_name"], "t");
    assert_eq!(frame["data"]["a"], 1);
    assert_eq!(frame["received_timestamp"], frame["data"]["received_timestamp"], "the same text in both");
    assert!(id.ends_with("-1-0"), "{id}");
}

#[tokio::test]
async fn a_stream_on_a_used_connection_works_the_same() {
    let (_engine, api) = start("a Int64").await;
    let mut socket = TcpStream::connect(("127.0.0.1", api.port)).await.unwrap();
    let two = b"GET /version HTTP/1.1\r\nhost: x\r\n\r\nGET /v1/stream?table=t HTTP/1.1\r\nhost: x\r\n\r\n";
    socket.write_all(two).await.unwrap();
    let mut text = String::new();
    let mut buffer = [0; 4096];
    let mut sent = false;
    while !text.contains("\"data\":{\"a\":7}") {
        let read = tokio::time::timeout(Duration::from_secs(10), socket.read(&mut buffer))
            .await
            .expect("more")
            .unwrap();
        assert_ne!(read, 0, "{text}");
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        if text.contains(": connected") && !sent {
            sent = true;
            send(&api, 7..8).await;
        }
    }
}

#[tokio::test]
async fn resuming_goes_on_inside_a_block_and_joins_live_without_gap_or_twin() {
    let (_engine, api) = start("a Int64").await;
    send(&api, 0..100).await;
    let mut first = Stream::open(api.port, "table=t&since=2000-01-01T00:00:00Z", "").await;
    assert_eq!(first.numbers(40).await, (0..40).collect::<Vec<_>>());
    let (id, _) = first.row().await;
    drop(first);
    let mut resumed =
        Stream::open(api.port, "table=t&since=2000-01-01T00:00:00Z", &format!("last-event-id: {id}\r\n"))
            .await;
    send(&api, 100..200).await;
    assert_eq!(resumed.numbers(159).await, (41..200).collect::<Vec<_>>());
    send(&api, 200..210).await;
    assert_eq!(resumed.numbers(10).await, (200..210).collect::<Vec<_>>());
}

#[tokio::test]
async fn clients_that_reconnect_at_any_moment_see_each_row_once() {
    let (_engine, api) = start("a Int64").await;
    let api = std::sync::Arc::new(api);
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..20_u64 {
        let port = api.port;
        readers.spawn(async move {
            let (mut seen, mut id) = (Vec::new(), String::new());
            while seen.len() < 2_000 {
                let resume = if id.is_empty() { String::new() } else { format!("last-event-id: {id}\r\n") };
                let mut stream = Stream::open(port, "table=t&since=2000-01-01T00:00:00Z", &resume).await;
                // Each connection is dropped after another number of rows.
                for _ in 0..(seen.len() as u64 * 7 + reader * 13) % 97 + 1 {
                    if seen.len() == 2_000 {
                        break;
                    }
                    let (next, frame) = stream.row().await;
                    id = next;
                    seen.push(frame["data"]["a"].as_i64().unwrap());
                }
            }
            seen
        });
    }
    for part in 0..200 {
        send(&api, part * 10..part * 10 + 10).await;
    }
    while let Some(seen) = readers.join_next().await {
        assert_eq!(seen.unwrap(), (0..2_000).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_client_that_does_not_keep_up_is_told_and_closed_and_others_are_not_held_up() {
    let (_engine, api) = start("a Int64, s String").await;
    let mut slow = Stream::open(api.port, "table=t", "").await;
    let mut quick = Stream::open(api.port, "table=t", "").await;
    let text = "x".repeat(50_000);
    let mut sent = 0;
    // Enough to fill the sockets' buffers and the ring several times over.
    for _ in 0..60 {
        let body: String = (0..10).map(|n| format!("{{\"a\":{},\"s\":\"{text}\"}}\n", sent + n)).collect();
        assert_eq!(api.ingest("t", &[("content-type", "application/x-ndjson")], body).await.status, 200);
        assert_eq!(quick.numbers(10).await, (sent..sent + 10).collect::<Vec<_>>());
        sent += 10;
    }
    let mut last = String::new();
    while let Some(part) = slow.part().await {
        last = part;
    }
    assert!(last.contains("lagged") || last.contains("retry"), "{last}");
    let metrics = api.send("GET", "/metrics", &[], "").await.text;
    assert!(metrics.contains("wavehouse_sse_lagged_total 1"), "{metrics}");
}

#[tokio::test]
async fn a_row_is_seen_within_ten_milliseconds() {
    let (_engine, api) = start("a Int64").await;
    let mut stream = Stream::open(api.port, "table=t", "").await;
    let mut took = Vec::new();
    for n in 0..50 {
        let began = Instant::now();
        send(&api, n..n + 1).await;
        assert_eq!(stream.numbers(1).await, [n]);
        took.push(began.elapsed());
    }
    took.sort();
    assert!(took[25] < Duration::from_millis(10), "median {:?}", took[25]);
}

#[tokio::test]
async fn refusals_keepalives_and_the_end() {
    let engine = Engine::start().await;
    let access = Access::Key(Some("secret".to_owned()));
    let options = ApiOptions { access, keepalive: Duration::from_millis(50), ..open_options() };
    let api = Harness::start(&engine, options).await;
    let denied = Stream::open(api.port, "table=t", "").await;
    assert!(denied.head.starts_with("HTTP/1.1 403"), "{}", denied.head);
    let nameless = Stream::open(api.port, "x=t", "x-operator-key: secret\r\n").await;
    assert!(nameless.head.starts_with("HTTP/1.1 400"), "{}", nameless.head);
    let mut unknown = Stream::open(api.port, "table=later", "x-operator-key: secret\r\n").await;
    assert!(unknown.head.starts_with("HTTP/1.1 200"), "{}", unknown.head);
    assert_eq!(unknown.part().await.as_deref(), Some(": connected\n\n"));
    assert_eq!(unknown.part().await.as_deref(), Some(":\n\n"));
    api.handle.refuse_ingest();
    let mut last = String::new();
    while let Some(part) = unknown.part().await {
        last = part;
    }
    assert_eq!(last, ": stopping\nretry: 1000\n\n");
    let late = Stream::open(api.port, "table=t", "x-operator-key: secret\r\n").await;
    assert!(late.head.starts_with("HTTP/1.1 503"), "{}", late.head);
}
