//! Live streams of the whole program: many clients that come and go see every row once and in order, and a row is soon
//! seen, by them and by a query. The short form runs with the other tests; WAVEHOUSE_STREAM_CLIENTS=1000
//! WAVEHOUSE_STREAM_S=60 is the long one.
#![expect(clippy::expect_used, reason = "a harness has nothing to do about a machine that fails it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::dev::wait_page;
use crate::http::Client;
use crate::program::{Program, SOON};

/// Clients in the short form.
const CLIENTS_SHORT: u64 = 60;
/// Seconds of rows in the short form.
const SECONDS_SHORT: u64 = 4;
/// Longest that a client stays connected, in milliseconds.
const STAY_MS_MAX: u64 = 2_000;
/// Most rows in one request.
const ROWS_MAX: u64 = 20;
/// Rows whose way is timed.
const TIMED: u64 = 60;

#[expect(clippy::disallowed_methods, reason = "the length of a test run is no configuration of the program")]
fn asked(name: &str, short: u64) -> u64 {
    std::env::var(name).ok().map_or(short, |text| text.parse().expect("a number"))
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A gateway with a table of one number.
async fn gateway(env: &[(&str, &str)]) -> Program {
    let mut gateway = Program::dev(env);
    gateway.up().await;
    wait_page(&gateway).await;
    let client = gateway.plain_client();
    let create = serde_json::json!({ "sql": "CREATE TABLE s (n UInt64) ORDER BY n" }).to_string();
    assert_eq!(client.post("/v1/ops/query", create).await.status, 200);
    assert_eq!(client.post("/v1/ops/schema/refresh", "").await.status, 200);
    gateway
}

/// A connection to the stream: after `last` if there is one, else from the beginning.
async fn watch_from(port: u16, last: Option<&str>) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let resume = last.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
    let request = format!(
        "GET /v1/stream?table=s&since=2000-01-01T00:00:00Z HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{resume}\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// The id and the number of a frame that holds a row.
fn row_of(frame: &str) -> Option<(&str, u64)> {
    let id = frame.lines().find_map(|line| line.strip_prefix("id: "))?;
    let number = &frame[frame.rfind("\"n\":").expect("a row has its number") + 4..];
    let digits = number.split(|c: char| !c.is_ascii_digit()).next().expect("a number");
    Some((id, digits.parse().expect("a number")))
}

/// One client: reads, breaks off at random, and goes on after the last row that it saw. Ends when it has seen as many
/// rows as there turn out to be.
struct Comer {
    port: u16,
    random: Random,
    seen: u64,
    last_id: Option<String>,
    connections: u64,
}

impl Comer {
    async fn run(mut self, mut total: watch::Receiver<Option<u64>>) -> u64 {
        loop {
            let stay = Duration::from_millis(self.random.below(STAY_MS_MAX));
            let done = total.clone();
            tokio::select! {
                () = self.read_on(&done) => {}
                () = tokio::time::sleep(stay) => {}
            }
            if *total.borrow_and_update() == Some(self.seen) {
                return self.connections;
            }
        }
    }

    /// Reads until the end of the connection, or until everything has been seen.
    async fn read_on(&mut self, total: &watch::Receiver<Option<u64>>) {
        let Ok(mut stream) = watch_from(self.port, self.last_id.as_deref()).await else { return };
        self.connections += 1;
        let mut text = Vec::new();
        loop {
            match stream.read_buf(&mut text).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
                let frame: Vec<u8> = text.drain(..end + 2).collect();
                self.take(&String::from_utf8(frame).expect("frames are text"));
            }
            if *total.borrow() == Some(self.seen) {
                return;
            }
        }
    }

    fn take(&mut self, frame: &str) {
        assert!(!frame.contains(": hole"), "rows are missing after {}", self.seen);
        let Some((id, number)) = row_of(frame) else { return };
        assert_eq!(number, self.seen, "each row once and in order; connection {}", self.connections);
        self.seen += 1;
        self.last_id = Some(id.to_owned());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_come_and_go_see_every_row_once() {
    let clients = asked("WAVEHOUSE_STREAM_CLIENTS", CLIENTS_SHORT);
    let length = Duration::from_secs(asked("WAVEHOUSE_STREAM_S", SECONDS_SHORT));
    let gateway = gateway(&[]).await;
    let (tell, total) = watch::channel(None);
    let mut comers = JoinSet::new();
    for index in 0..clients {
        let random = Random((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let comer = Comer { port: gateway.port, random, seen: 0, last_id: None, connections: 0 };
        comers.spawn(comer.run(total.clone()));
    }

    let client = gateway.plain_client();
    let (mut rows, mut random, begun) = (0, Random(7), Instant::now());
    while begun.elapsed() < length {
        let next = rows + 1 + random.below(ROWS_MAX);
        let body: String = (rows..next).map(|n| format!("{{\"n\":{n}}}\n")).collect();
        assert_eq!(client.post("/v1/ingest?table=s", body).await.status, 200);
        rows = next;
        tokio::time::sleep(Duration::from_millis(random.below(20))).await;
    }
    tell.send_replace(Some(rows));

    let mut connections = 0;
    let last = tokio::time::Instant::now() + SOON + length;
    while let Some(comer) =
        tokio::time::timeout_at(last, comers.join_next()).await.expect("all see the last row")
    {
        connections += comer.expect("a client saw each row once and in order");
    }
    println!("{clients} clients saw {rows} rows each over {connections} connections");
    assert!(connections >= clients * 2, "clients came and went");
}

/// When each row was first seen, by its number; rows are seen in order.
#[derive(Debug)]
struct Seen {
    begun: Instant,
    at_us: Vec<AtomicU64>,
}

impl Seen {
    fn new(begun: Instant) -> Arc<Self> {
        Arc::new(Self { begun, at_us: (0..TIMED).map(|_| AtomicU64::new(0)).collect() })
    }

    /// All rows below `count` are seen now, if they were not before.
    fn below(&self, count: u64) {
        let now = u64::try_from(self.begun.elapsed().as_micros()).expect("a short run");
        for at in self.at_us.iter().take(usize::try_from(count).expect("few rows")) {
            // A row that was seen before keeps its time.
            let _before = at.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn all(&self) -> bool {
        self.at_us.iter().all(|at| at.load(Ordering::Relaxed) > 0)
    }

    /// The median and the longest of the ways from `posted` to here.
    fn ways(&self, posted: &[Duration]) -> (Duration, Duration) {
        let seen = self.at_us.iter().map(|at| Duration::from_micros(at.load(Ordering::Relaxed)));
        let mut ways: Vec<Duration> =
            seen.zip(posted).map(|(seen, posted)| seen.saturating_sub(*posted)).collect();
        ways.sort_unstable();
        (ways[ways.len() / 2], ways[ways.len() - 1])
    }
}

async fn look_at_table(client: Client, seen: Arc<Seen>) {
    let count = serde_json::json!({ "sql": "SELECT count() AS n FROM s" }).to_string();
    while !seen.all() {
        let text = client.post("/v1/ops/query", count.clone()).await.text;
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        seen.below(digits.parse().expect("a count"));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn look_at_stream(mut stream: TcpStream, seen: Arc<Seen>) {
    let mut text = Vec::new();
    while !seen.all() {
        let read = stream.read_buf(&mut text).await.expect("the stream goes on");
        assert!(read > 0, "the stream ended");
        let text = String::from_utf8_lossy(&text);
        let whole = text.rsplit_once("\n\n").map_or("", |(whole, _rest)| whole);
        seen.below(whole.split("\n\n").filter_map(row_of).count() as u64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_soon_seen_on_the_stream_and_by_a_query() {
    let gateway = gateway(&[("WH_WORKER_LINGER_MS", "1000")]).await;
    let begun = Instant::now();
    let (streamed, stored) = (Seen::new(begun), Seen::new(begun));
    let stream = watch_from(gateway.port, None).await.expect("a stream");
    let mut looks = JoinSet::new();
    looks.spawn(look_at_stream(stream, Arc::clone(&streamed)));
    looks.spawn(look_at_table(gateway.plain_client(), Arc::clone(&stored)));

    let client = gateway.plain_client();
    let mut posted = Vec::new();
    for n in 0..TIMED {
        posted.push(begun.elapsed());
        assert_eq!(client.post("/v1/ingest?table=s", format!("{{\"n\":{n}}}")).await.status, 200);
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    while let Some(look) = tokio::time::timeout(SOON, looks.join_next()).await.expect("all rows are seen") {
        look.expect("a look at the rows");
    }
    let (streamed, stored) = (streamed.ways(&posted), stored.ways(&posted));
    println!("from before the request, median and longest: stream {streamed:?}, query {stored:?}");
    // The figures of a quiet machine are under 10 ms and under 1.2 s; tests run beside others.
    assert!(streamed.0 < Duration::from_millis(100), "{streamed:?}");
    assert!(stored.0 < Duration::from_secs(3), "{stored:?}");
}
