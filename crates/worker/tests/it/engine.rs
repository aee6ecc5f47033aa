//! The worker between the embedded queue and the real engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{Broker, DeadLetter, LetterFilter};
use wavehouse_broker_embedded::{EmbeddedBroker, Metrics, Options as QueueOptions};
use wavehouse_clickhouse::{
    CatalogOptions, ClickHouseMetrics, ClickHouseSink, Connection, RowBatch, RowSink, Secret, Target,
    Targets, WriteError,
};
use wavehouse_core::{RowBlock, TenantId};
use wavehouse_testkit::{Engine, wait_for};
use wavehouse_worker::{Options, Worker, WorkerFault, WorkerMetrics};

use crate::kit::{block, lines, table};

const LIMIT: Duration = Duration::from_secs(90);
const TABLE: &str = "CREATE TABLE t (n UInt32, at DateTime64(9) DEFAULT now64(9), \
    CONSTRAINT small CHECK n < 1000000) ENGINE = MergeTree ORDER BY n \
    SETTINGS non_replicated_deduplication_window = 1000";

/// Stores batches, but from some call on never comes back, as if the process died there.
struct Dying {
    inner: ClickHouseSink,
    calls_left: AtomicU32,
}

#[async_trait]
impl RowSink for Dying {
    async fn write(&self, batch: &RowBatch) -> Result<(), WriteError> {
        let outcome = self.inner.write(batch).await;
        let left = self.calls_left.load(Ordering::SeqCst);
        if left == 0 {
            return std::future::pending().await;
        }
        if left != u32::MAX {
            self.calls_left.store(left - 1, Ordering::SeqCst);
        }
        outcome
    }

    fn target(&self, tenant: &TenantId) -> Arc<str> {
        self.inner.target(tenant)
    }
}

struct House {
    engine: Engine,
    dir: TempDir,
    broker: Arc<EmbeddedBroker>,
    sink: Arc<Dying>,
    workers: JoinSet<Result<(), WorkerFault>>,
    stop: CancellationToken,
}

fn queue(dir: &Path) -> Arc<EmbeddedBroker> {
    let mut options = QueueOptions::new(PathBuf::from(dir));
    options.disk_bytes_max = Some(256 << 20);
    EmbeddedBroker::open(&options, Metrics::default()).unwrap()
}

impl House {
    async fn new() -> Self {
        let engine = Engine::start().await;
        engine.query(TABLE).await;
        let target = Target::new(&engine.url(), &engine.user, Secret::new(&engine.password), "default");
        let metrics = ClickHouseMetrics::default();
        let connection = Connection::new(target, CatalogOptions::default(), &metrics).unwrap();
        connection.catalog.refresh().await.unwrap();
        let inner = ClickHouseSink::new(Targets::one(TenantId::default(), Arc::new(connection)), metrics);
        let dir = tempfile::tempdir().unwrap();
        let broker = queue(dir.path());
        let sink = Arc::new(Dying { inner, calls_left: AtomicU32::new(u32::MAX) });
        Self { engine, dir, broker, sink, workers: JoinSet::new(), stop: CancellationToken::new() }
    }

    fn start(&mut self, calls: u32) {
        self.sink.calls_left.store(calls, Ordering::SeqCst);
        self.stop = CancellationToken::new();
        let options = Options { linger: Duration::from_millis(100), seed: 7, ..Options::default() };
        let broker: Arc<dyn Broker> = Arc::clone(&self.broker) as Arc<dyn Broker>;
        let sink: Arc<dyn RowSink> = Arc::clone(&self.sink) as Arc<dyn RowSink>;
        let worker = Worker::new(options, broker, sink, WorkerMetrics::default());
        self.workers.spawn(worker.run(self.stop.clone()));
    }

    /// The worker ends where it stands; the queue is opened anew.
    async fn crash(&mut self) {
        self.workers.shutdown().await;
        self.broker.close().await.unwrap();
        self.broker = queue(self.dir.path());
    }

    async fn publish(&self, blocks: Vec<RowBlock>) {
        for result in self.broker.submit(blocks).await {
            result.unwrap();
        }
    }

    async fn drained(&self) {
        wait_for("the queue to be written", LIMIT, async || self.broker.depths().is_empty()).await;
    }

    async fn letters(&self) -> Vec<DeadLetter> {
        let tenant = TenantId::default();
        let filter = LetterFilter { tenant, table: None, code: None, from: None, until: None };
        self.broker.letters(&filter, None, 1000).await.unwrap().letters
    }

    /// How many rows, how many different ones, and whether they were inserted in order.
    async fn stored(&self) -> String {
        let sql = "SELECT count(), uniqExact(n), groupArray(n) = arraySort(groupArray(n)) \
            FROM (SELECT n FROM t ORDER BY at, n)";
        self.engine.query(sql).await.trim().to_owned()
    }
}

/// 10,000 rows of which seven break the table's constraint.
fn mixed() -> Vec<RowBlock> {
    let mut rows = lines(0..10_000);
    for bad in [0, 1, 17, 4999, 5000, 8123, 9999] {
        rows[bad] = format!("{{\"n\":{}}}", bad + 1_000_000);
    }
    rows.chunks(700).map(|rows| block(&table("t"), rows.to_vec())).collect()
}

#[tokio::test]
async fn seven_rows_of_ten_thousand_break_a_constraint() {
    let mut house = House::new().await;
    house.start(u32::MAX);
    house.publish(mixed()).await;
    house.drained().await;
    assert_eq!(house.stored().await, "9993\t9993\t1");
    let letters = house.letters().await;
    let buried: Vec<String> =
        letters.iter().map(|letter| String::from_utf8(letter.line.to_vec()).unwrap()).collect();
    let expected = [0, 1, 17, 4999, 5000, 8123, 9999].map(|bad| format!("{{\"n\":{}}}", bad + 1_000_000));
    assert_eq!(buried, expected);
    for letter in letters {
        assert_eq!(letter.code, Some(469));
        assert!(letter.reason.contains("Constraint `small` for table default.t"), "{}", letter.reason);
    }
}

#[tokio::test]
async fn a_death_after_any_insert_leaves_no_twin_and_no_gap() {
    let mut house = House::new().await;
    house.publish(mixed()).await;
    // Dies again and again, each time a few inserts later, with the answer to the last one lost.
    for calls in 0..12 {
        house.start(calls % 4);
        let died = || house.sink.calls_left.load(Ordering::SeqCst) == 0;
        wait_for("the worker to die or to be done", LIMIT, async || {
            died() || house.broker.depths().is_empty()
        })
        .await;
        // The insert that it dies on lands.
        tokio::time::sleep(Duration::from_millis(300)).await;
        house.crash().await;
    }
    house.start(u32::MAX);
    house.drained().await;
    assert_eq!(house.stored().await, "9993\t9993\t1");
    assert_eq!(house.letters().await.len(), 7);
}

#[tokio::test]
async fn an_engine_that_is_killed_and_frozen_under_load() {
    let mut house = House::new().await;
    house.start(u32::MAX);
    for round in 0..40_u32 {
        house
            .publish(
                (0..5)
                    .map(|part| {
                        let from = (round * 5 + part) * 200;
                        block(&table("t"), lines(from..from + 200))
                    })
                    .collect(),
            )
            .await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        match round {
            5 | 25 => house.engine.kill9(),
            12 | 30 => house.engine.restart().await,
            15 => house.engine.stop_signal(),
            20 => house.engine.cont(),
            _ => {}
        }
    }
    house.drained().await;
    assert_eq!(house.stored().await, "40000\t40000\t1");
    assert!(house.letters().await.is_empty());
}

#[tokio::test]
async fn the_same_rows_again_are_other_rows_also_from_a_new_queue() {
    let mut house = House::new().await;
    for times in 1..=2 {
        house.start(u32::MAX);
        house.publish(vec![block(&table("t"), lines(0..100))]).await;
        house.drained().await;
        assert_eq!(house.stored().await.split('\t').next(), Some((times * 100).to_string().as_str()));
        house.crash().await;
    }
    // The queue's directory is lost: sequences begin again, tokens do not.
    house.broker.close().await.unwrap();
    house.dir = tempfile::tempdir().unwrap();
    house.broker = queue(house.dir.path());
    for times in 3..=4 {
        house.start(u32::MAX);
        house.publish(vec![block(&table("t"), lines(0..100))]).await;
        house.drained().await;
        assert_eq!(house.stored().await.split('\t').next(), Some((times * 100).to_string().as_str()));
        house.crash().await;
    }
}

#[tokio::test]
async fn stopping_leaves_nothing_behind() {
    let mut house = House::new().await;
    house.start(u32::MAX);
    house.publish(vec![block(&table("t"), lines(0..100))]).await;
    house.stop.cancel();
    house.workers.join_next().await.unwrap().unwrap().unwrap();
    let stored = house.stored().await;
    house.crash().await;
    house.start(u32::MAX);
    house.drained().await;
    assert!(["0\t0\t1", "100\t100\t1"].contains(&stored.as_str()), "{stored}");
    assert_eq!(house.stored().await, "100\t100\t1");
}
