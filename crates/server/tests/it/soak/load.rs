//! Writers that send rows as fast as they are taken, and remember what they were told.
//!
//! A row holds who wrote it, its number `n`, and `sent`, which counts every sending of a row by this writer: a row
//! that is sent again after a lost answer keeps `n` and gets a new `sent`. So a second row with the same `sent` is the
//! server's doing, and one with the same `n` alone is the writer's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::gateway::{Gateway, HttpClient, post};

/// Longest answer time before a writer counts its request as lost.
const ANSWER: Duration = Duration::from_secs(60);
/// Pause after a refused connection.
const AWAY: Duration = Duration::from_millis(10);
/// Longest obedience to `Retry-After`, so that a full queue is pressed on.
const RETRY_AFTER_MAX: Duration = Duration::from_millis(250);

/// What one writer was told.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// Its number.
    pub(super) writer: u32,
    /// Its table.
    pub(super) table: String,
    /// Rows that got a 200.
    pub(super) acknowledged: u64,
    /// Rows sent, those sent again included: `sent` of its rows runs from 1 to this.
    pub(super) sent: u64,
    /// Ranges of `sent` without a 200, both ends included, in order, none touching the next.
    pub(super) unacknowledged: Vec<(u64, u64)>,
    /// Rows sent again since nobody knows what became of them.
    pub(super) resent: u64,
    /// Answers by status; 0 stands for none.
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Answers of 503 or 429 without `Retry-After`.
    pub(super) bare_refusals: u64,
    /// Longest time from one 200 to the next.
    pub(super) longest_gap: Duration,
}

impl Ledger {
    /// Rows of `sent` that got no 200.
    pub(super) fn unacknowledged_rows(&self) -> u64 {
        self.unacknowledged.iter().map(|(from, to)| to - from + 1).sum()
    }

    fn forget(&mut self, from: u64, to: u64) {
        match self.unacknowledged.last_mut() {
            Some(last) if last.1 + 1 == from => last.1 = to,
            _ => self.unacknowledged.push((from, to)),
        }
    }
}

/// Writers at work.
pub(super) struct Load {
    writers: JoinSet<Ledger>,
    stop: CancellationToken,
}

/// The statement that makes a table for these rows: merges keep the order of insertion, and inserts that come twice
/// are seen.
pub(super) fn create_table(table: &str) -> String {
    format!(
        "CREATE TABLE {table} (writer UInt32, n UInt64, sent UInt64, try UInt32, mark UInt64) ENGINE = MergeTree \
         ORDER BY tuple() SETTINGS enable_block_number_column = 1, enable_block_offset_column = 1, \
         non_replicated_deduplication_window = 100000"
    )
}

impl Load {
    /// Starts one writer for each `(table, rows in a request)`.
    pub(super) fn start(gateway: &Gateway, plan: &[(String, u64)]) -> Self {
        let stop = CancellationToken::new();
        let mut writers = JoinSet::new();
        let client: Arc<HttpClient> = Arc::new(Client::builder(TokioExecutor::new()).build_http());
        for (writer, (table, rows)) in (1..).zip(plan) {
            let ledger = Ledger { writer, table: table.clone(), ..Ledger::default() };
            writers.spawn(write(Arc::clone(&client), gateway.url(), *rows, ledger, stop.clone()));
        }
        Self { writers, stop }
    }

    /// Lets each writer finish the rows in its hands, and gives what they know.
    pub(super) async fn finish(self) -> Vec<Ledger> {
        self.stop.cancel();
        let mut ledgers = self.writers.join_all().await;
        ledgers.sort_by_key(|ledger| ledger.writer);
        ledgers
    }
}

async fn write(
    client: Arc<HttpClient>,
    url: String,
    rows: u64,
    mut ledger: Ledger,
    stop: CancellationToken,
) -> Ledger {
    let mut attempt = 0_u32;
    let mut acknowledged_at = Instant::now();
    while attempt > 0 || !stop.is_cancelled() {
        let from = ledger.sent + 1;
        let body = body(ledger.writer, (ledger.acknowledged, from, attempt), rows);
        let answer = tokio::time::timeout(ANSWER, post(&client, &url, &ledger.table, body)).await;
        if let Ok(Err(error)) = &answer
            && !error.may_be_stored
        {
            tokio::time::sleep(AWAY).await; // certainly not sent, so the numbers are used again
            continue;
        }
        ledger.sent += rows;
        let (status, retry_after_s) = match answer {
            Ok(Ok((200, _, text))) => {
                assert!(text.contains(&format!("\"succeeded\":{rows},")), "writer {}: {text}", ledger.writer);
                ledger.acknowledged += rows;
                ledger.longest_gap = ledger.longest_gap.max(acknowledged_at.elapsed());
                (acknowledged_at, attempt) = (Instant::now(), 0);
                *ledger.statuses.entry(200).or_default() += 1;
                continue;
            }
            Ok(Ok((status, retry_after_s, text))) => {
                assert!(!(400..429).contains(&status), "writer {}: {status} {text}", ledger.writer);
                (status, retry_after_s)
            }
            Ok(Err(_)) | Err(_) => (0, None),
        };
        *ledger.statuses.entry(status).or_default() += 1;
        ledger.forget(from, ledger.sent);
        attempt += 1;
        if matches!(status, 503 | 429) {
            ledger.bare_refusals += u64::from(retry_after_s.is_none());
            let asked = Duration::from_secs(retry_after_s.unwrap_or(0));
            tokio::time::sleep(asked.min(RETRY_AFTER_MAX)).await;
        } else {
            ledger.resent += rows;
        }
    }
    ledger
}

fn body(writer: u32, (n, sent, attempt): (u64, u64, u32), rows: u64) -> String {
    let mut body = String::with_capacity(96 * usize::try_from(rows).expect("a few rows"));
    for row in 0..rows {
        let sent = sent + row;
        let (n, mark) = (n + row + 1, mark(writer, sent));
        writeln!(body, r#"{{"writer":{writer},"n":{n},"sent":{sent},"try":{attempt},"mark":{mark}}}"#)
            .expect("a string takes it");
    }
    body
}

/// What shows that a row's fields belong together.
fn mark(writer: u32, sent: u64) -> u64 {
    sent * 7_919 + u64::from(writer)
}
