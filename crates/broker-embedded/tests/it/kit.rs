//! What the tests share: tables, blocks, and reading a unit.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use wavehouse_broker::{Broker, Delivery, OpenUnit, PublishError, Receipt, RowBudget};
use wavehouse_broker_embedded::files::Files;
use wavehouse_broker_embedded::{EmbeddedBroker, Metrics, Options};
use wavehouse_core::{RowBlock, Scope, TableName, TableRef, TenantId, Timestamp, UnitId};

/// A budget that is never reached.
pub(crate) const WIDE: RowBudget = RowBudget { rows: u64::MAX, bytes: u64::MAX };
/// Nothing in these tests takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn table(name: &str) -> TableRef {
    TableRef::new(TenantId::default(), TableName::parse(name).unwrap())
}

/// A block of `rows` rows that all say `text`.
pub(crate) fn block(table: &TableRef, rows: u32, text: &str) -> RowBlock {
    let lines: String = (0..rows).map(|n| format!("{{\"n\":{n},\"text\":\"{text}\"}}\n")).collect();
    RowBlock::new(table.clone(), Timestamp(u64::from(rows) + 1), Scope::default(), rows, lines.into())
}

/// A one-row block that carries a number.
pub(crate) fn numbered(table: &TableRef, number: u64, padding: usize) -> RowBlock {
    let line = format!("{{\"n\":{number},\"pad\":\"{}\"}}\n", "x".repeat(padding));
    RowBlock::new(table.clone(), Timestamp(1_000 + number), Scope::default(), 1, line.into())
}

/// The numbers that the rows of a block carry.
pub(crate) fn numbers(block: &RowBlock) -> Vec<u64> {
    let number = |line: &[u8]| {
        let text = std::str::from_utf8(line).unwrap();
        let digits = text.strip_prefix("{\"n\":").unwrap();
        digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap()].parse().unwrap()
    };
    block.lines().map(number).collect()
}

pub(crate) fn options(dir: &Path) -> Options {
    let mut options = Options::new(dir.to_owned());
    options.disk_bytes_max = Some(64 << 20);
    options.file_bytes = Some(1 << 20);
    options
}

pub(crate) fn open(options: &Options) -> Arc<EmbeddedBroker> {
    EmbeddedBroker::open(options, Metrics::default()).unwrap()
}

pub(crate) fn open_on(options: &Options, files: Arc<dyn Files>) -> Arc<EmbeddedBroker> {
    EmbeddedBroker::open_on(options, Metrics::default(), files).unwrap()
}

pub(crate) async fn submit(broker: &EmbeddedBroker, block: RowBlock) -> Result<Receipt, PublishError> {
    within(broker.submit(vec![block])).await.remove(0)
}

pub(crate) async fn open_unit(broker: &EmbeddedBroker) -> OpenUnit {
    broker.open_unit(UnitId::WHOLE, WIDE).await.unwrap()
}

/// The next delivery, which must come.
pub(crate) async fn next(unit: &mut OpenUnit) -> Delivery {
    within(unit.deliveries.next()).await.unwrap().unwrap()
}

/// Waits for what must come.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let start = std::time::Instant::now();
    while !so().await {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
