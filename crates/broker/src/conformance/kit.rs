//! What the cases share: tables and rows to publish, a reader over all units, waiting with a limit.

#![expect(clippy::expect_used, reason = "a case fails by panicking, and says what it expected")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::yield_now;
use tokio::time::timeout;
use wavehouse_core::{Position, RowBlock, Scope, TableName, TableRef, TenantId, Timestamp};

use crate::contract::{Broker, Receipt};
use crate::cut::{Cut, InsertToken};
use crate::errors::{PublishError, UnitLost};
use crate::unit::{Delivery, OpenUnit, RowBudget, StoredBlock, UnitControl};

/// How long a fact is waited for.
const WAIT: Duration = Duration::from_secs(20);
/// How long a case watches for what must not happen.
pub(super) const QUIET: Duration = Duration::from_millis(200);
/// A budget that no case comes near.
pub(super) const AMPLE: RowBudget = RowBudget { rows: 1 << 40, bytes: 1 << 40 };
/// A budget for one block at a time.
pub(super) const ONE_BLOCK: RowBudget = RowBudget { rows: 1, bytes: 1 };
/// Rows that [`publish_settled`] publishes.
const SETTLED_ROWS: u64 = 160;
/// Size of each; all together they are the 8 MiB that a fixture is set up for, and some.
const SETTLED_ROW_BYTES: usize = 64 << 10;
/// Names that ClickHouse takes and that a careless file name, subject or key would not.
pub(super) const ODD_TABLES: [&str; 7] =
    ["events", "page views", "a*b>c", "na\u{ef}ve.\u{1f600}", "../../x", "..", "%2e'\"`\\"];

/// Waits for a fact.
///
/// # Panics
/// When it has not come after 20 s; `what` says what was awaited.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    // A case that goes round on answers that are ready at once must still be seen to take too long.
    yield_now().await;
    match timeout(WAIT, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {WAIT:?} for {what}"),
    }
}

/// A moment near now, so that a broker with a clock of its own finds nothing old: `ms` after this process's first.
pub(super) fn at(ms: u64) -> Timestamp {
    static BASE: OnceLock<u64> = OnceLock::new();
    let base = BASE.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or_default()
    });
    Timestamp::from_millis(base + ms)
}

/// A moment that is later than any gap window after [`at`].
pub(super) fn much_later() -> Timestamp {
    at(10 * 365 * 24 * 3_600_000)
}

pub(super) fn tenant(id: &str) -> TenantId {
    TenantId::parse(id).expect("tenant ids of the suite are legal")
}

pub(super) fn table(tenant_id: &str, name: &str) -> TableRef {
    TableRef::new(tenant(tenant_id), TableName::parse(name).expect("table names of the suite are legal"))
}

/// The table of cases that need just one.
pub(super) fn events() -> TableRef {
    table("0", "events")
}

pub(super) fn scope(text: &str) -> Scope {
    Scope::parse(text).expect("scopes of the suite are legal")
}

/// A block of one segment.
pub(super) fn lines(table: &TableRef, scope_text: &str, received_at: Timestamp, lines: &[&str]) -> RowBlock {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let rows = u32::try_from(lines.len()).expect("cases have few rows");
    RowBlock::new(table.clone(), received_at, scope(scope_text), rows, text.into())
}

/// A block of rows that tell their number.
pub(super) fn numbered(table: &TableRef, numbers: Range<u64>) -> RowBlock {
    let rows: Vec<String> = numbers.clone().map(|number| format!("{{\"n\":{number}}}")).collect();
    lines(table, "", at(numbers.start), &rows.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A block of one row that tells its number and is `bytes` long, `\n` included.
pub(super) fn padded(table: &TableRef, number: u64, bytes: usize) -> RowBlock {
    let bare = format!("{{\"n\":{number},\"pad\":\"\"}}\n").len();
    let line = format!("{{\"n\":{number},\"pad\":\"{}\"}}", "x".repeat(bytes.saturating_sub(bare)));
    lines(table, "", at(number), &[&line])
}

/// One row as it came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) table: TableRef,
    pub(super) scope: Scope,
    pub(super) received_at: Timestamp,
    pub(super) line: String,
}

/// The rows of a block in order, each with what its segment says.
pub(super) fn rows_of(block: &RowBlock) -> Vec<Row> {
    let told: usize = block.segments.iter().map(|segment| segment.bytes as usize).sum();
    assert_eq!(told, block.lines.len(), "the segments' bytes add up to the lines");
    let mut rows = Vec::new();
    let mut lines = block.lines();
    for segment in &block.segments {
        for line in lines.by_ref().take(segment.rows as usize) {
            rows.push(Row {
                table: block.table.clone(),
                scope: segment.scope.clone(),
                received_at: segment.received_at,
                line: String::from_utf8_lossy(line).into_owned(),
            });
        }
    }
    assert_eq!(rows.len(), block.rows() as usize, "the segments' rows add up to the lines");
    rows
}

/// The numbers of the rows of a block made by [`numbered`] or [`padded`].
pub(super) fn numbers(block: &RowBlock) -> Vec<u64> {
    block
        .lines()
        .map(|line| {
            let digits =
                line.iter().skip_while(|byte| !byte.is_ascii_digit()).take_while(|b| b.is_ascii_digit());
            digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
        })
        .collect()
}

pub(super) fn delivered_numbers(delivery: &Delivery) -> Vec<u64> {
    numbers(&delivery.stored().block)
}

/// Publishes a block and waits until it is durable.
pub(super) async fn publish(broker: &Arc<dyn Broker>, block: RowBlock) -> Receipt {
    try_publish(broker, block).await.expect("the block is accepted")
}

/// Publishes a block and waits for what becomes of it.
pub(super) async fn try_publish(broker: &Arc<dyn Broker>, block: RowBlock) -> Result<Receipt, PublishError> {
    let mut results = within("the result of a publish", broker.submit(vec![block])).await;
    assert_eq!(results.len(), 1, "one block, one result");
    results.remove(0)
}

/// Publishes one block a number, each durable before the next, so that none are merged.
pub(super) async fn publish_each(
    broker: &Arc<dyn Broker>,
    table: &TableRef,
    range: Range<u64>,
) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for number in range {
        receipts.push(publish(broker, numbered(table, number..number + 1)).await);
    }
    receipts
}

/// Everything that a broker delivers: all of its units, opened together.
pub(super) struct Reader {
    units: Vec<OpenUnit>,
    unit_of: HashMap<TableRef, usize>,
    /// Units that have said that they end.
    ended: HashSet<usize>,
}

impl Reader {
    pub(super) async fn open(broker: &Arc<dyn Broker>, budget: RowBudget) -> Self {
        let mut units = Vec::new();
        for unit in broker.units() {
            let opening = within("a unit to open", broker.open_unit(unit, budget)).await;
            units.push(opening.expect("the unit opens"));
        }
        assert!(!units.is_empty(), "a broker has a unit");
        Self { units, unit_of: HashMap::new(), ended: HashSet::new() }
    }

    /// The cuts that came with the units.
    pub(super) fn cuts(&self) -> BTreeMap<TableRef, Cut> {
        let mut cuts = BTreeMap::new();
        for cut in self.units.iter().flat_map(|unit| &unit.cuts) {
            let earlier = cuts.insert(cut.table.clone(), cut.clone());
            assert!(earlier.is_none(), "at most one cut a table");
        }
        cuts
    }

    pub(super) fn controls(&self) -> impl Iterator<Item = &Arc<dyn UnitControl>> {
        self.units.iter().map(|unit| &unit.control)
    }

    /// The control of the unit that has delivered rows of this table.
    pub(super) fn control_of(&self, table: &TableRef) -> Arc<dyn UnitControl> {
        let unit = self.unit_of.get(table).expect("the table has had a delivery");
        Arc::clone(&self.units[*unit].control)
    }

    /// What the first unit that has anything to say says; the end when every unit has ended.
    pub(super) async fn poll(&mut self) -> Result<Option<Delivery>, UnitLost> {
        if self.ended.len() == self.units.len() {
            // Asked again after the end, every unit must say so again.
            self.ended.clear();
        }
        loop {
            let (index, outcome) = self.poll_running().await;
            match &outcome {
                Ok(Some(delivery)) => {
                    self.unit_of.insert(delivery.table().clone(), index);
                }
                Ok(None) => {
                    self.ended.insert(index);
                    if self.ended.len() < self.units.len() {
                        continue;
                    }
                }
                Err(_) => {}
            }
            return outcome;
        }
    }

    async fn poll_running(&mut self) -> (usize, Result<Option<Delivery>, UnitLost>) {
        let ended = &self.ended;
        let running = self.units.iter_mut().enumerate().filter(|(index, _)| !ended.contains(index));
        let mut waits: Vec<_> = running.map(|(index, unit)| (index, unit.deliveries.next())).collect();
        poll_fn(|context| {
            for (index, wait) in &mut waits {
                if let Poll::Ready(outcome) = wait.as_mut().poll(context) {
                    return Poll::Ready((*index, outcome));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next delivery.
    pub(super) async fn next(&mut self, what: &str) -> Delivery {
        let outcome = within(what, self.poll()).await;
        outcome.expect("delivery goes on").expect("delivery goes on")
    }

    /// The next delivery, which must hold just this row of this table.
    pub(super) async fn expect(&mut self, table: &TableRef, number: u64) -> Delivery {
        let delivery = self.next(&format!("row {number} of {table}")).await;
        assert_eq!((delivery.table(), delivered_numbers(&delivery)), (table, vec![number]));
        delivery
    }

    /// The next deliveries, until they hold this many rows.
    pub(super) async fn take(&mut self, rows: usize) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        let mut taken = 0;
        while taken < rows {
            let delivery = self.next(&format!("{rows} rows, {taken} came")).await;
            taken += delivery.stored().block.rows() as usize;
            deliveries.push(delivery);
        }
        assert_eq!(taken, rows, "as many rows as were published");
        deliveries
    }

    /// Takes and acks deliveries until they held this many rows.
    pub(super) async fn take_acked(&mut self, rows: usize) -> Vec<StoredBlock> {
        let mut blocks = Vec::new();
        let mut taken = 0;
        while taken < rows {
            let delivery = self.next(&format!("{rows} rows, {taken} came")).await;
            taken += delivery.stored().block.rows() as usize;
            blocks.push(delivery.stored().clone());
            delivery.ack();
        }
        assert_eq!(taken, rows, "as many rows as were published");
        blocks
    }

    /// Watches for a while that nothing comes.
    pub(super) async fn quiet(&mut self, why: &str) {
        match timeout(QUIET, self.poll()).await {
            Err(_) => {}
            Ok(outcome) => panic!("nothing may come: {why}; but: {outcome:?}"),
        }
    }

    pub(super) async fn release(self) {
        for unit in &self.units {
            within("a unit's release", unit.control.release()).await;
        }
    }
}

/// The rows of blocks by position; a position that comes twice fails.
pub(super) fn by_position<'a>(
    blocks: impl IntoIterator<Item = &'a StoredBlock>,
) -> BTreeMap<(TableRef, Position), Row> {
    let mut rows = BTreeMap::new();
    for stored in blocks {
        for (index, row) in (0..).zip(rows_of(&stored.block)) {
            let key = (stored.block.table.clone(), stored.position(index));
            let earlier = rows.insert(key, row);
            assert!(earlier.is_none(), "each row comes once");
        }
    }
    rows
}

/// A cut of one part over these blocks.
pub(super) fn cut_of(first: &Delivery, last: &Delivery, token: u128) -> Cut {
    assert_eq!(first.table(), last.table());
    Cut {
        table: first.table().clone(),
        first: first.sequence(),
        last: last.sequence(),
        blocks: u32::try_from(last.sequence().0 - first.sequence().0 + 1).expect("cases have few blocks"),
        splits: Vec::new(),
        done_rows: 0,
        token: InsertToken(token),
    }
}

/// Publishes and settles more rows of this table than a sweep may leave lying. Returns how many.
pub(super) async fn publish_settled(broker: &Arc<dyn Broker>, table: &TableRef) -> u64 {
    for number in (0..SETTLED_ROWS).step_by(8) {
        let blocks = (number..number + 8).map(|number| padded(table, number, SETTLED_ROW_BYTES)).collect();
        for result in within("results", broker.submit(blocks)).await {
            result.expect("accepted");
        }
    }
    let mut reader = Reader::open(broker, AMPLE).await;
    let (mut settled, mut others) = (0, Vec::new());
    while settled < SETTLED_ROWS {
        let delivery = reader.next("rows to settle").await;
        if delivery.table() == table {
            settled += u64::from(delivery.stored().block.rows());
            delivery.ack();
        } else {
            others.push(delivery);
        }
    }
    drop(others);
    reader.release().await;
    SETTLED_ROWS
}
