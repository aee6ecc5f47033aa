//! Connections that watch a stream: thousands at once, each with next to no memory, and as little work a row as counting
//! it takes. Rows are found by their ids, not by parsing what is around them, so any server's frames will do.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use memchr::memmem;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::task::JoinSet;

use super::event::{ID_BEFORE, ID_DIGITS};
use super::load::{empty_histogram, record, stamp_of};

/// How much is read at once, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// Bytes of an id with what stands before it.
const MARK_BYTES: usize = ID_BEFORE.len() + ID_DIGITS;
/// Connections that are being opened at once.
const OPENING_MAX: usize = 256;
/// How long all connections together may take to open.
const OPEN_WAIT: Duration = Duration::from_secs(60);
/// Pause before a connection that ended is opened again.
const REOPEN_WAIT: Duration = Duration::from_millis(100);
/// What a reader that stops reading lets its system take in for it, in bytes.
const STALLED_BUFFER_BYTES: u32 = 4096;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Where to connect and what to ask.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// `host:port`.
    pub(super) host: String,
    /// Path and query.
    pub(super) path: String,
    /// Further header lines, without line ends.
    pub(super) headers: Vec<String>,
}

/// What all watchers saw together, while it counts.
#[derive(Debug)]
pub(super) struct Books {
    /// Ids count their time from here.
    epoch: Instant,
    /// Whether rows count now.
    counting: AtomicUsize,
    rows: AtomicU64,
    broken: AtomicU64,
    open: AtomicUsize,
    taken: Mutex<Histogram<u64>>,
}

/// What was counted.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Rows, each as often as it was delivered.
    pub(super) rows: u64,
    /// From when a row's request was due to when it was read, in nanoseconds.
    pub(super) taken: Histogram<u64>,
    /// Connections that ended and were opened again.
    pub(super) broken: u64,
}

impl Books {
    fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            counting: AtomicUsize::new(0),
            rows: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            taken: Mutex::new(empty_histogram()),
        }
    }

    /// Begins to count.
    pub(super) fn begin(&self) {
        self.counting.store(1, Ordering::Relaxed);
    }

    /// Ends the count and starts a new one, which does not count yet.
    pub(super) fn close(&self) -> Seen {
        self.counting.store(0, Ordering::Relaxed);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        Seen {
            rows: self.rows.swap(0, Ordering::Relaxed),
            taken: std::mem::replace(&mut taken, empty_histogram()),
            broken: self.broken.swap(0, Ordering::Relaxed),
        }
    }

    fn add(&self, ids: impl Iterator<Item = u64>) {
        if self.counting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let now = self.epoch.elapsed();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows = 0;
        for id in ids {
            rows += 1;
            record(&mut taken, now.saturating_sub(stamp_of(id)));
        }
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }
}

/// Connections that are open; dropping them closes them.
#[derive(Debug)]
pub(super) struct Watchers {
    /// What they see.
    pub(super) books: Arc<Books>,
    connections: JoinSet<()>,
    stalled: Vec<TcpStream>,
}

impl Watchers {
    /// Opens `count` connections and waits until each has its first answer.
    pub(super) async fn open(target: &Target, count: usize, epoch: Instant) -> anyhow::Result<Self> {
        let books = Arc::new(Books::new(epoch));
        let gate = Arc::new(tokio::sync::Semaphore::new(OPENING_MAX));
        let mut connections = JoinSet::new();
        for _ in 0..count {
            connections.spawn(watch(target.clone(), Arc::clone(&gate), Arc::clone(&books)));
        }
        let begun = Instant::now();
        while books.open.load(Ordering::Relaxed) < count {
            if begun.elapsed() > OPEN_WAIT {
                let open = books.open.load(Ordering::Relaxed);
                bail!("{open} of {count} streams are open after {} s", OPEN_WAIT.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(Self { books, connections, stalled: Vec::new() })
    }

    /// Adds readers that ask and never read.
    pub(super) async fn stall(&mut self, target: &Target, count: usize) -> anyhow::Result<()> {
        let address = lookup_host(&target.host).await?.next().context("the host has no address")?;
        for _ in 0..count {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_recv_buffer_size(STALLED_BUFFER_BYTES)?;
            let mut stream = socket.connect(address).await?;
            stream.write_all(&question(target)).await?;
            self.stalled.push(stream);
        }
        Ok(())
    }

    /// Closes all connections.
    pub(super) async fn close(mut self) {
        self.connections.shutdown().await;
    }
}

fn question(target: &Target) -> Vec<u8> {
    let mut text =
        format!("GET {} HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n", target.path, target.host);
    for header in &target.headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// One connection after the other, for as long as the task lives.
async fn watch(target: Target, gate: Arc<tokio::sync::Semaphore>, books: Arc<Books>) {
    loop {
        let opened = {
            let Ok(_turn) = gate.acquire().await else { return };
            Box::pin(ask(&target)).await
        };
        if let Ok(stream) = opened {
            books.open.fetch_add(1, Ordering::Relaxed);
            let _ended = follow(&stream, &books).await;
            books.open.fetch_sub(1, Ordering::Relaxed);
        }
        books.broken.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(REOPEN_WAIT).await;
    }
}

/// Connects and reads up to the end of the head.
async fn ask(target: &Target) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(&target.host).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&question(target)).await?;
    let mut head = Vec::with_capacity(512);
    loop {
        stream.readable().await?;
        // Byte by byte at the end would be exact; rows do not flow yet, so what follows the head is not missed.
        match stream.try_read_buf(&mut head) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if memmem::find(&head, b"\r\n\r\n").is_some() => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    if head.starts_with(b"HTTP/1.1 200") { Ok(stream) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Counts rows until the connection ends.
async fn follow(stream: &TcpStream, books: &Books) -> io::Result<()> {
    let mut marks = Marks::default();
    loop {
        stream.readable().await?;
        match read_some(stream, &mut marks, books) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads what is there; false at the end. The buffer is the thread's, so a connection that waits has none.
fn read_some(stream: &TcpStream, marks: &mut Marks, books: &Books) -> io::Result<bool> {
    SCRATCH.with_borrow_mut(|buffer| {
        let from = marks.put_rest(buffer);
        let read = stream.try_read(&mut buffer[from..])?;
        let bytes = &buffer[..from + read];
        books.add(ids_in(bytes));
        marks.keep(bytes);
        Ok(read > 0)
    })
}

/// The end of what was read: an id may be cut there.
#[derive(Debug)]
struct Marks {
    rest: [u8; MARK_BYTES - 1],
    used: u8,
}

impl Default for Marks {
    fn default() -> Self {
        Self { rest: [0; MARK_BYTES - 1], used: 0 }
    }
}

impl Marks {
    fn put_rest(&self, buffer: &mut [u8]) -> usize {
        let used = usize::from(self.used);
        buffer[..used].copy_from_slice(&self.rest[..used]);
        used
    }

    /// Keeps less than a whole mark, so that none is counted twice.
    fn keep(&mut self, bytes: &[u8]) {
        let rest = &bytes[bytes.len() - bytes.len().min(MARK_BYTES - 1)..];
        self.rest[..rest.len()].copy_from_slice(rest);
        self.used = rest.len() as u8;
    }
}

/// The ids in `bytes`.
fn ids_in(bytes: &[u8]) -> impl Iterator<Item = u64> {
    memmem::find_iter(bytes, ID_BEFORE).filter_map(|at| {
        let digits = bytes.get(at + ID_BEFORE.len()..at + MARK_BYTES)?;
        u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_once_however_the_bytes_are_cut() {
        let text: String = (0..50_u64)
            .map(|n| format!("id: {n}\ndata: {{\"data\":{{\"event_id\":\"{n:016x}\",\"a\":1}}}}\n\n"))
            .collect();
        for cut in [1, 7, 27, 28, 29, 100, text.len()] {
            let (mut marks, mut seen) = (Marks::default(), Vec::new());
            for piece in text.as_bytes().chunks(cut) {
                let mut buffer = vec![0; READ_BYTES];
                let from = marks.put_rest(&mut buffer);
                buffer[from..from + piece.len()].copy_from_slice(piece);
                let bytes = &buffer[..from + piece.len()];
                seen.extend(ids_in(bytes));
                marks.keep(bytes);
            }
            assert_eq!(seen, (0..50).collect::<Vec<u64>>(), "pieces of {cut} bytes");
        }
    }

    #[test]
    fn only_what_comes_while_counting_counts() {
        let books = Books::new(Instant::now());
        books.add([1, 2].into_iter());
        books.begin();
        books.add([3].into_iter());
        let seen = books.close();
        assert_eq!((seen.rows, seen.taken.len()), (1, 1));
        books.add([4].into_iter());
        assert_eq!(books.close().rows, 0);
    }
}
