//! Holds what the writers were told against what ClickHouse has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;
use wavehouse_testkit::wait_for;

use super::gateway::Gateway;
use super::load::Ledger;

/// How long the queue may take to empty after the last row.
const DRAIN: Duration = Duration::from_secs(300);

/// What was found, over all tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// Rows that got a 200.
    pub(super) acknowledged: u64,
    /// Rows in ClickHouse.
    pub(super) stored: u64,
    /// Rows that got a 200 and are not there.
    pub(super) missing: u64,
    /// Rows that are there twice though they were sent once.
    pub(super) duplicated: u64,
    /// Rows that a writer sent again since it had no answer.
    pub(super) resent: u64,
    /// Rows stored more than once because a writer sent them again.
    pub(super) stored_twice_by_resending: u64,
    /// Rows that stand behind a later row of their writer.
    pub(super) reordered: u64,
    /// Rows whose fields do not belong together, or that nobody sent.
    pub(super) torn: u64,
    /// Answers by status; 0 stands for none.
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Longest time that a writer waited from one 200 to the next.
    pub(super) longest_gap: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "acknowledged  {:>10}", self.acknowledged)?;
        writeln!(f, "stored        {:>10}", self.stored)?;
        writeln!(f, "missing       {:>10}", self.missing)?;
        writeln!(f, "duplicated    {:>10}", self.duplicated)?;
        writeln!(
            f,
            "re-sent       {:>10}  ({} stored twice by it)",
            self.resent, self.stored_twice_by_resending
        )?;
        writeln!(f, "reordered     {:>10}", self.reordered)?;
        writeln!(f, "torn          {:>10}", self.torn)?;
        writeln!(f, "answers        {:?}", self.statuses)?;
        write!(f, "longest gap    {:.1} s", self.longest_gap.as_secs_f64())
    }
}

impl Report {
    /// Fails unless every promise was kept.
    pub(super) fn assert_kept(&self) {
        let broken = (self.missing, self.duplicated, self.reordered, self.torn);
        assert_eq!(broken, (0, 0, 0, 0), "missing, duplicated, reordered, torn:\n{self}");
        assert!(self.acknowledged > 0 && self.stored >= self.acknowledged, "something was written:\n{self}");
    }

    /// Answers with a status that `which` picks.
    pub(super) fn answers(&self, which: impl Fn(u16) -> bool) -> u64 {
        self.statuses.iter().filter(|(status, _)| which(**status)).map(|(_, count)| count).sum()
    }
}

/// Waits until ClickHouse has what it will have, and accounts for every row.
pub(super) async fn audit(gateway: &Gateway, ledgers: &[Ledger]) -> Report {
    let tables: BTreeSet<&str> = ledgers.iter().map(|ledger| ledger.table.as_str()).collect();
    let acknowledged: u64 = ledgers.iter().map(|ledger| ledger.acknowledged).sum();
    let mut last = 0;
    wait_for("the queue to be written to ClickHouse", DRAIN, async || {
        tokio::time::sleep(Duration::from_millis(1_500)).await; // longer than a batch lingers
        let mut stored = 0;
        for table in &tables {
            stored += count(gateway, table).await;
        }
        let settled = stored == std::mem::replace(&mut last, stored);
        settled && stored >= acknowledged && gateway.metric("wavehouse_ingest_held_rows").await == 0.0
    })
    .await;

    let mut report = Report { acknowledged, ..Report::default() };
    for ledger in ledgers {
        report.resent += ledger.resent;
        report.longest_gap = report.longest_gap.max(ledger.longest_gap);
        for (status, count) in &ledger.statuses {
            *report.statuses.entry(*status).or_default() += count;
        }
    }
    for ledger in ledgers {
        audit_writer(gateway, ledger, &mut report).await;
    }
    for table in tables {
        report.stored += count(gateway, table).await;
    }
    report.torn += report.stored - known_rows(gateway, ledgers).await;
    report
}

/// Rows of the writers that are known.
async fn known_rows(gateway: &Gateway, ledgers: &[Ledger]) -> u64 {
    let mut rows = 0;
    for ledger in ledgers {
        let of_writer = format!("{} WHERE writer = {}", ledger.table, ledger.writer);
        rows += count(gateway, &of_writer).await;
    }
    rows
}

async fn count(gateway: &Gateway, of: &str) -> u64 {
    number(&gateway.sql(&format!("SELECT count() AS c FROM {of}")).await[0], "c")
}

/// One writer at a time, so that the engine's memory holds what is counted.
async fn audit_writer(gateway: &Gateway, ledger: &Ledger, report: &mut Report) {
    let rows = format!("FROM {} WHERE writer = {}", ledger.table, ledger.writer);
    let unacknowledged = unacknowledged(ledger);
    let counts = format!(
        "SELECT count() AS stored, uniqExact(sent) AS sendings, uniqExact(n) AS numbers, max(sent) AS last, \
         uniqExactIf(sent, NOT ({unacknowledged})) AS acknowledged, countIf(mark != sent * 7919 + writer) AS torn \
         {rows}"
    );
    let row = &gateway.sql(&counts).await[0];
    let sendings = number(row, "sendings");
    report.torn += number(row, "torn") + number(row, "last").saturating_sub(ledger.sent);
    report.duplicated += number(row, "stored") - sendings;
    report.stored_twice_by_resending += sendings - number(row, "numbers");
    report.missing += (ledger.sent - ledger.unacknowledged_rows()) - number(row, "acknowledged");

    let order = format!(
        "SELECT countIf(sent < before) AS reordered FROM (SELECT sent, lagInFrame(sent, 1, 0) OVER (\
         ORDER BY _block_number, _block_offset ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before {rows})"
    );
    report.reordered += number(&gateway.sql(&order).await[0], "reordered");
}

/// A condition that holds for rows which got no 200.
fn unacknowledged(ledger: &Ledger) -> String {
    let mut condition = "false".to_owned();
    for (from, to) in &ledger.unacknowledged {
        write!(condition, " OR sent BETWEEN {from} AND {to}").expect("a string takes it");
    }
    condition
}

/// A whole number of a row, quoted or not.
pub(super) fn number(row: &Value, name: &str) -> u64 {
    let value = &row[name];
    value
        .as_u64()
        .or_else(|| value.as_str()?.parse().ok())
        .unwrap_or_else(|| panic!("{name} is not a number in {row}"))
}
