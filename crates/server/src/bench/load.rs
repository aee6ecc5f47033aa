//! Drives a server over many connections and measures each request.
//!
//! Closed loop: a connection sends its next request when the last one is answered; the figure is throughput, and
//! latencies are those of a client that waits. Open loop (`rate`): requests are due at fixed instants whatever the
//! server does, and latency counts from the instant at which a request was due, so that a stall is paid by every
//! request that it held up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::event::{Shape, Template};
use super::pacer;
use super::wire::{Wire, WireError, count_in};

/// Requests of one connection that may be overdue at once in open loop; further ones count as not offered.
const OVERDUE_MAX: usize = 4_096;
/// How long answers are awaited after the end of a run.
const LAST_ANSWERS_WAIT: Duration = Duration::from_secs(30);
/// Pause after a connection could not be made or broke.
const RECONNECT_WAIT: Duration = Duration::from_millis(50);
/// Ready-made requests of one connection together stay under this, in bytes.
const TEMPLATE_BYTES: usize = 512 * 1024;
/// Most ready-made requests of one connection.
const TEMPLATES_MAX: usize = 32;
/// Connections that are counted together: a book of its own for each would cost memory that a load of thousands of
/// connections spends its time on.
const CONNECTIONS_A_BOOK: usize = 64;

/// What to do.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The request.
    pub(super) shape: Shape,
    /// Connections.
    pub(super) connections: usize,
    /// Requests in flight on one connection (closed loop).
    pub(super) pipeline: usize,
    /// Requests a second over all connections; none is closed loop.
    pub(super) rate: Option<f64>,
    /// Time before measuring begins.
    pub(super) warmup: Duration,
    /// Time that is measured.
    pub(super) measure: Duration,
    /// How long a connection waits after an answer that is no 2xx.
    pub(super) refused_wait: Duration,
    /// Ids tell when a row's request was due, counted from here, instead of counting on.
    pub(super) stamp_from: Option<Instant>,
}

/// Bits of an id below its time: 8 that differ from request to request, 16 from row to row.
const STAMP_BITS: u32 = 24;

/// The id that tells when a request was due, to the microsecond.
fn stamped(since: Duration, turn: usize) -> u64 {
    (u64::try_from(since.as_micros()).unwrap_or(u64::MAX) << STAMP_BITS) | ((turn as u64 & 0xff) << 16)
}

/// The time that a stamped id tells.
pub(super) fn stamp_of(id: u64) -> Duration {
    Duration::from_micros(id >> STAMP_BITS)
}

/// What was measured.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// Latencies of 2xx answers, in nanoseconds.
    pub(super) taken: Histogram<u64>,
    /// Latencies of other answers, in nanoseconds.
    pub(super) refused: Histogram<u64>,
    /// Answers by status.
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Rows taken.
    pub(super) rows: u64,
    /// Rows in 2xx answers that were refused one by one.
    pub(super) rows_refused: u64,
    /// Rows known already.
    pub(super) rows_duplicate: u64,
    /// Connections that could not be made, or broke.
    pub(super) broken: u64,
    /// Requests that were due while too many others were overdue.
    pub(super) not_offered: u64,
}

impl Tally {
    fn new() -> Self {
        Self {
            taken: empty_histogram(),
            refused: empty_histogram(),
            statuses: BTreeMap::new(),
            rows: 0,
            rows_refused: 0,
            rows_duplicate: 0,
            broken: 0,
            not_offered: 0,
        }
    }

    fn add(&mut self, other: &Self) {
        // Both histograms grow as needed, so adding cannot fail.
        let _grown = (self.taken.add(&other.taken), self.refused.add(&other.refused));
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.rows += other.rows;
        self.rows_refused += other.rows_refused;
        self.rows_duplicate += other.rows_duplicate;
        self.broken += other.broken;
    }

    fn record(&mut self, answer: &RowCounts, status: u16, took: Duration) {
        *self.statuses.entry(status).or_default() += 1;
        let histogram = if is_taken(status) { &mut self.taken } else { &mut self.refused };
        record(histogram, took);
        self.rows += answer.kept;
        self.rows_refused += answer.refused;
        self.rows_duplicate += answer.known;
    }
}

fn is_taken(status: u16) -> bool {
    (200..300).contains(&status)
}

/// What an answer says about its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RowCounts {
    kept: u64,
    refused: u64,
    known: u64,
}

impl RowCounts {
    /// A server that says nothing of rows took them all, if it says 2xx.
    fn read(status: u16, body: &[u8], rows: u64) -> Self {
        if !is_taken(status) {
            return Self::default();
        }
        let refused = count_in(body, "\"failed\"").unwrap_or(0);
        let known = count_in(body, "\"duplicates\"")
            .unwrap_or_else(|| u64::from(memchr::memmem::find(body, b"\"duplicate\":true").is_some()));
        Self { kept: rows.saturating_sub(refused + known), refused, known }
    }
}

/// A histogram of nanoseconds with three digits, which grows as needed.
#[expect(clippy::expect_used, reason = "three digits are within what the histogram takes")]
pub(super) fn empty_histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits")
}

/// Records a time; the histogram grows as needed.
pub(super) fn record(histogram: &mut Histogram<u64>, took: Duration) {
    let _grown = histogram.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}

/// Counts that others may read while a run is on.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Rows taken so far, warm-up included.
    pub(super) rows: AtomicU64,
}

/// Runs the plan to its end.
pub(super) async fn run(plan: &Plan, live: &Arc<Live>) -> anyhow::Result<Tally> {
    let wires = open_all(plan).await;
    let begin = Instant::now();
    let window = Window { from: begin + plan.warmup, until: begin + plan.warmup + plan.measure };
    let mut connections = JoinSet::new();
    let mut due = Vec::new();
    let books: Vec<_> = (0..plan.connections.div_ceil(CONNECTIONS_A_BOOK))
        .map(|_| Arc::new(Mutex::new(Tally::new())))
        .collect();
    for (index, wire) in wires.into_iter().enumerate() {
        let receiver = plan.rate.map(|_rate| {
            let (sender, receiver) = mpsc::channel(OVERDUE_MAX);
            due.push(sender);
            receiver
        });
        let one = Connection {
            plan: plan.clone(),
            window,
            templates: templates(plan, index),
            next_id: ((index as u64) << 40) | ((std::process::id() as u64 & 0xffff) << 24),
            turn: 0,
            book: Arc::clone(&books[index / CONNECTIONS_A_BOOK]),
            live: Arc::clone(live),
        };
        connections.spawn(one.run(wire, receiver));
    }
    let pacer = plan.rate.map(|rate| pacer::start(rate, begin, window.until, due)).transpose()?;
    let limit = tokio::time::Instant::from_std(window.until + LAST_ANSWERS_WAIT);
    while let Ok(Some(ended)) = tokio::time::timeout_at(limit, connections.join_next()).await {
        ended?;
    }
    let mut total = Tally::new();
    for book in books {
        total.add(&book.lock().unwrap_or_else(PoisonError::into_inner));
    }
    total.broken += connections.len() as u64; // those that never got their last answer
    if let Some(pacer) = pacer {
        total.not_offered = pacer.join().map_err(|_panic| anyhow::anyhow!("the pacer died"))?;
    }
    Ok(total)
}

/// Connects as often as planned, before anything is measured. What cannot be connected now is tried again later.
async fn open_all(plan: &Plan) -> Vec<Option<Wire>> {
    let mut opening = JoinSet::new();
    for _ in 0..plan.connections {
        let host = plan.shape.host.clone();
        opening.spawn(async move { Wire::open(&host).await.ok() });
    }
    let mut wires = Vec::with_capacity(plan.connections);
    while let Some(opened) = opening.join_next().await {
        wires.push(opened.ok().flatten());
    }
    wires
}

/// The ready-made requests of one connection. All connections together go over every path.
fn templates(plan: &Plan, index: usize) -> Vec<Template> {
    let shape = &plan.shape;
    let request_bytes = (shape.rows * shape.row_bytes).max(1);
    let each_path = shape.paths.len().div_ceil(plan.connections.max(1));
    let count = (TEMPLATE_BYTES / request_bytes).clamp(1, TEMPLATES_MAX).max(each_path);
    (0..count)
        .map(|at| {
            let path = &shape.paths[(index + at * plan.connections) % shape.paths.len()];
            Template::new(shape, path, (index * 1_000 + at + 1) as u64)
        })
        .collect()
}

#[derive(Clone, Copy, Debug)]
struct Window {
    from: Instant,
    until: Instant,
}

struct Connection {
    plan: Plan,
    window: Window,
    templates: Vec<Template>,
    next_id: u64,
    turn: usize,
    book: Arc<Mutex<Tally>>,
    live: Arc<Live>,
}

impl Connection {
    fn note(&self, entry: impl FnOnce(&mut Tally)) {
        entry(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner));
    }

    async fn run(mut self, mut wire: Option<Wire>, mut due: Option<mpsc::Receiver<Instant>>) {
        while Instant::now() < self.window.until {
            let opened = match wire.take() {
                Some(wire) => Ok(wire),
                None => Wire::open(&self.plan.shape.host).await,
            };
            let ended = match opened {
                Ok(mut wire) => match &mut due {
                    Some(due) => self.open_loop(&mut wire, due).await,
                    None => self.closed_loop(&mut wire).await,
                },
                Err(error) => Err(error),
            };
            match ended {
                Ok(Ended::Time) => break,
                Ok(Ended::ServerCloses) => {}
                Err(_broken) => {
                    self.note(|tally| tally.broken += 1);
                    tokio::time::sleep(RECONNECT_WAIT).await;
                }
            }
        }
    }

    async fn closed_loop(&mut self, wire: &mut Wire) -> Result<Ended, WireError> {
        let mut sent_at = VecDeque::with_capacity(self.plan.pipeline);
        loop {
            while sent_at.len() < self.plan.pipeline && Instant::now() < self.window.until {
                let begun = Instant::now();
                sent_at.push_back(begun);
                self.send(wire, begun).await?;
            }
            let Some(begun) = sent_at.pop_front() else { return Ok(Ended::Time) };
            if self.take_answer(wire, begun).await? {
                return Ok(Ended::ServerCloses);
            }
        }
    }

    async fn open_loop(
        &mut self,
        wire: &mut Wire,
        due: &mut mpsc::Receiver<Instant>,
    ) -> Result<Ended, WireError> {
        while let Some(begun) = due.recv().await {
            self.send(wire, begun).await?;
            if self.take_answer(wire, begun).await? {
                return Ok(Ended::ServerCloses);
            }
        }
        Ok(Ended::Time)
    }

    async fn send(&mut self, wire: &mut Wire, begun: Instant) -> Result<(), WireError> {
        let turn = self.turn % self.templates.len();
        self.turn += 1;
        if let Some(from) = self.plan.stamp_from {
            self.next_id = stamped(begun.saturating_duration_since(from), self.turn);
        }
        wire.send(self.templates[turn].fresh(&mut self.next_id)).await
    }

    /// Takes one answer into the books; true when the server closes the connection after it.
    async fn take_answer(&mut self, wire: &mut Wire, begun: Instant) -> Result<bool, WireError> {
        let seen = wire.answer().await?;
        let now = Instant::now();
        let body = &wire.buffer()[seen.body.clone()];
        let rows = RowCounts::read(seen.status, body, self.plan.shape.rows as u64);
        self.live.rows.fetch_add(rows.kept, Ordering::Relaxed);
        if now >= self.window.from && now <= self.window.until {
            let took = now.saturating_duration_since(begun);
            self.note(|tally| tally.record(&rows, seen.status, took));
        }
        if !is_taken(seen.status) && !self.plan.refused_wait.is_zero() {
            tokio::time::sleep(self.plan.refused_wait).await;
        }
        Ok(seen.closes)
    }
}

enum Ended {
    Time,
    ServerCloses,
}

#[cfg(test)]
mod tests {
    use super::super::event::{Body, Format};
    use super::*;

    #[test]
    fn an_id_tells_its_time() {
        let due = Duration::from_micros(123_456_789);
        assert_eq!(stamp_of(stamped(due, 300) + 49_999), due);
        assert_ne!(stamped(due, 1), stamped(due, 2));
    }

    #[test]
    fn all_paths_are_gone_over() {
        let paths: Vec<String> = (0..100).map(|n| format!("/t{n}")).collect();
        let shape = Shape {
            paths: paths.clone(),
            host: "h".into(),
            headers: Vec::new(),
            rows: 1,
            row_bytes: 256,
            body: Body::Rows(Format::Auto),
        };
        let plan = Plan {
            shape,
            connections: 3,
            pipeline: 1,
            rate: None,
            warmup: Duration::ZERO,
            measure: Duration::ZERO,
            refused_wait: Duration::ZERO,
            stamp_from: None,
        };
        let mut next_id = 0;
        let all: Vec<String> = (0..3)
            .flat_map(|index| templates(&plan, index))
            .map(|mut one| String::from_utf8_lossy(one.fresh(&mut next_id)).into_owned())
            .collect();
        assert!(paths.iter().all(|path| all.iter().any(|one| one.starts_with(&format!("POST {path} ")))));
    }

    #[test]
    fn times_of_any_length_are_kept() {
        let mut histogram = empty_histogram();
        for took in [Duration::from_nanos(900), Duration::from_millis(3), Duration::from_secs(100)] {
            record(&mut histogram, took);
        }
        assert_eq!((histogram.len(), histogram.max() / 100_000_000), (3, 1_000));
    }

    #[test]
    fn rows_are_counted_by_what_the_answer_says() {
        let cases: &[(u16, &str, (u64, u64, u64))] = &[
            (200, r#"{"ok":true}"#, (10, 0, 0)),
            (204, "", (10, 0, 0)),
            (200, r#"{"duplicate":true}"#, (9, 0, 1)),
            (200, r#"{"total":10,"succeeded":7,"failed":2,"duplicates":1}"#, (7, 2, 1)),
            (503, r#"{"error":"service unavailable"}"#, (0, 0, 0)),
        ];
        for (status, body, (kept, refused, known)) in cases {
            let read = RowCounts::read(*status, body.as_bytes(), 10);
            assert_eq!(read, RowCounts { kept: *kept, refused: *refused, known: *known }, "{body}");
        }
    }
}
