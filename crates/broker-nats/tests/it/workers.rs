//! Workers of several processes on one queue: who reads which unit as they come, stop and die, and what lands.
//!
//! Each process has its own connection, through a line that is cut when it dies: a process that is killed sends nothing
//! any more, not even a word that it goes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::Broker;
use wavehouse_broker_nats::NatsBroker;
use wavehouse_clickhouse::{RowBatch, RowSink, WriteError};
use wavehouse_core::{Placement, TableRef, TenantId};
use wavehouse_testkit::wait_for;
use wavehouse_topology::TopologyInput;
use wavehouse_worker::{ClaimOptions, Options, Worker, WorkerFault, WorkerMetrics};

use crate::fixture::{Line, Servers, input};
use crate::publish::{publish, rows, table};

/// Who had written by when.
struct Insert {
    by: usize,
    table: TableRef,
    at: Instant,
}

/// A ClickHouse whose tables have a window: what comes again under its token is not stored again.
#[derive(Default)]
struct Tables {
    stored: BTreeMap<TableRef, Vec<u64>>,
    tokens: HashSet<String>,
    inserts: Vec<Insert>,
    repeated: usize,
}

#[derive(Clone, Default)]
pub(crate) struct ClickHouse(Arc<Mutex<Tables>>);

impl ClickHouse {
    fn tables<T>(&self, look: impl FnOnce(&Tables) -> T) -> T {
        look(&self.0.lock().unwrap())
    }

    fn store(&self, by: usize, batch: &RowBatch) {
        let mut tables = self.0.lock().unwrap();
        if !tables.tokens.insert(batch.token.clone()) {
            tables.repeated += 1;
            return;
        }
        let text = String::from_utf8(batch.lines.concat()).unwrap();
        let number =
            |line: &str| line.trim_start_matches("{\"n\":").trim_end_matches('}').parse::<u64>().unwrap();
        tables.stored.entry(batch.table.clone()).or_default().extend(text.lines().map(number));
        tables.inserts.push(Insert { by, table: batch.table.clone(), at: Instant::now() });
    }

    /// Begins anew, with nothing stored.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap().stored.clear();
    }

    pub(crate) fn count(&self) -> usize {
        self.tables(|tables| tables.stored.values().map(Vec::len).sum())
    }
}

/// It as one process reaches it.
struct Reached {
    by: usize,
    clickhouse: ClickHouse,
    /// How long an insert takes.
    takes: Duration,
}

#[async_trait]
impl RowSink for Reached {
    async fn write(&self, batch: &RowBatch) -> Result<(), WriteError> {
        self.clickhouse.store(self.by, batch);
        // Stored, and the answer is on its way.
        tokio::time::sleep(self.takes).await;
        Ok(())
    }

    fn target(&self, _tenant: &TenantId) -> Arc<str> {
        "clickhouse".into()
    }
}

/// A process that writes its share.
pub(crate) struct Process {
    line: Option<Line>,
    stop: CancellationToken,
    broker: Arc<NatsBroker>,
    registry: Registry,
    worker: JoinSet<Result<(), WorkerFault>>,
}

impl Process {
    pub(crate) async fn start(servers: &Servers, clickhouse: &ClickHouse, by: usize) -> Self {
        Self::start_slow(servers, clickhouse, by, Duration::ZERO).await
    }

    async fn start_slow(servers: &Servers, clickhouse: &ClickHouse, by: usize, takes: Duration) -> Self {
        let line = Line::to(servers.server.port()).await;
        let mut started = Self::start_with(servers.options_at(line.url()), clickhouse, by, takes).await;
        started.line = Some(line);
        started
    }

    /// One that reaches the servers another way.
    pub(crate) async fn start_at(servers: &Servers, url: String, clickhouse: &ClickHouse, by: usize) -> Self {
        Self::start_with(servers.options_at(url), clickhouse, by, Duration::ZERO).await
    }

    pub(crate) async fn start_with(
        options: wavehouse_broker_nats::Options,
        clickhouse: &ClickHouse,
        by: usize,
        takes: Duration,
    ) -> Self {
        let broker = NatsBroker::open(options).await.expect("the queue opens");
        let mut registry = Registry::default();
        let metrics = WorkerMetrics::register(&mut registry);
        let options =
            Options { linger: Duration::from_millis(50), held_rows: 200_000, seed: 1, ..Options::default() };
        let sink = Arc::new(Reached { by, clickhouse: clickhouse.clone(), takes });
        let made = Worker::new(options, Arc::clone(&broker) as Arc<dyn Broker>, sink, metrics);
        let stop = CancellationToken::new();
        let mut worker = JoinSet::new();
        worker.spawn(made.with_claims(ClaimOptions::new(format!("process-{by}"))).run(stop.clone()));
        Self { line: None, stop, broker, registry, worker }
    }

    fn metric(&self, name: &str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find(|line| line.split(' ').next() == Some(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
    }

    fn owned(&self) -> usize {
        self.metric("wavehouse_ingest_shards_owned") as usize
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        self.worker.join_next().await.unwrap().unwrap().unwrap();
        self.broker.close().await.unwrap();
    }

    /// Ends it at this instant.
    async fn kill(mut self) {
        if let Some(line) = &mut self.line {
            line.cut().await;
        }
        self.worker.shutdown().await;
    }
}

/// One that publishes numbered rows to every table, on and on.
pub(crate) struct Publisher {
    stop: CancellationToken,
    sent: JoinSet<u64>,
}

impl Publisher {
    pub(crate) fn start(broker: &Arc<NatsBroker>, tables: &[TableRef], every: Duration) -> Self {
        let stop = CancellationToken::new();
        let mut sent = JoinSet::new();
        let (broker, tables, end) = (Arc::clone(broker), tables.to_vec(), stop.clone());
        sent.spawn(async move {
            let mut next = 0;
            while !end.is_cancelled() {
                for table in &tables {
                    publish(&broker, rows(table, next..next + 10)).await.unwrap();
                }
                next += 10;
                tokio::time::sleep(every).await;
            }
            next
        });
        Self { stop, sent }
    }

    /// How many rows each table was sent.
    pub(crate) async fn end(mut self) -> u64 {
        self.stop.cancel();
        self.sent.join_next().await.unwrap().unwrap()
    }
}

pub(crate) async fn start(partitions: u64, shards: u64) -> Servers {
    let servers = Servers::start_with(TopologyInput { partitions, shards, ..input() }, "").await;
    assert_eq!(servers.spec.placement(), Placement::new(partitions, shards).unwrap());
    servers
}

pub(crate) async fn split(what: &str, processes: &[&Process], units: usize) -> Duration {
    let began = Instant::now();
    let cap = units.div_ceil(processes.len());
    wait_for(what, Duration::from_secs(40), async || {
        let loads: Vec<usize> = processes.iter().map(|process| process.owned()).collect();
        loads.iter().sum::<usize>() == units && loads.iter().all(|load| *load <= cap)
    })
    .await;
    began.elapsed()
}

/// Waits until nobody leaves a unit with rows unread.
pub(crate) async fn all_read(broker: &Arc<NatsBroker>) {
    let sharing = broker.sharing().unwrap();
    let units = broker.units();
    wait_for("no unit to be unread", Duration::from_secs(10), async || {
        sharing.unread(&units).await.unwrap().is_empty()
    })
    .await;
}

/// Every row of every table once and in order.
pub(crate) async fn landed(clickhouse: &ClickHouse, tables: &[TableRef], each: u64) {
    let all = usize::try_from(each).unwrap() * tables.len();
    wait_for("every row", Duration::from_secs(60), async || clickhouse.count() >= all).await;
    clickhouse.tables(|stored| {
        for table in tables {
            let rows = &stored.stored[table];
            assert!(rows.iter().copied().eq(0..each), "{table}: {} rows of {each}", rows.len());
        }
    });
}

/// Every row of every table in order, and once but for those of blocks that their sender had to send again.
pub(crate) async fn landed_but_for(clickhouse: &ClickHouse, sent: &[(TableRef, u64, BTreeSet<u64>)]) {
    let is_whole = |rows: &[u64], each: u64| rows.iter().collect::<BTreeSet<_>>().len() as u64 == each;
    wait_for("every row", Duration::from_secs(60), async || {
        clickhouse.tables(|all| {
            sent.iter()
                .all(|(table, each, _)| is_whole(all.stored.get(table).map_or(&[], Vec::as_slice), *each))
        })
    })
    .await;
    clickhouse.tables(|all| {
        for (table, each, doubtful) in sent {
            let mut seen = BTreeSet::new();
            let (twice, firsts): (Vec<u64>, Vec<u64>) =
                all.stored[table].iter().partition(|row| !seen.insert(**row));
            let again: BTreeSet<u64> = twice.iter().map(|row| row - row % 10).collect();
            assert!(firsts.iter().copied().eq(0..*each), "{table}: out of order");
            assert!(again.is_subset(doubtful), "{table}: {again:?} twice, sent again were {doubtful:?}");
        }
    });
}

pub(crate) fn tables() -> Vec<TableRef> {
    (0..16).map(|number| table(&format!("t{number}"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_111_scale_up_and_down_with_one_writer_a_table_and_no_row_twice() {
    let (servers, clickhouse) = (start(2, 4).await, ClickHouse::default());
    let (api, tables) = (servers.open().await, tables());
    let publisher = Publisher::start(&api, &tables, Duration::from_millis(100));
    let one = Process::start(&servers, &clickhouse, 1).await;
    split("all for one", &[&one], 8).await;
    let two = Process::start(&servers, &clickhouse, 2).await;
    let three = Process::start(&servers, &clickhouse, 3).await;
    let took = split("an even split among three", &[&one, &two, &three], 8).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    all_read(&api).await;
    // From here on each table has one writer.
    let settled = Instant::now();
    wait_for("rows by all three", Duration::from_secs(20), async || {
        clickhouse.tables(|tables| {
            let late = tables.inserts.iter().filter(|insert| insert.at > settled + Duration::from_secs(1));
            late.map(|insert| insert.by).collect::<BTreeSet<_>>().len() == 3
        })
    })
    .await;
    clickhouse.tables(|all| {
        let mut writers: BTreeMap<&TableRef, BTreeSet<usize>> = BTreeMap::new();
        for insert in all.inserts.iter().filter(|insert| insert.at > settled + Duration::from_secs(1)) {
            writers.entry(&insert.table).or_default().insert(insert.by);
        }
        assert!(writers.values().all(|by| by.len() == 1), "{writers:?}");
    });
    let stopped = Instant::now();
    two.stop().await;
    split("an even split among the rest", &[&one, &three], 8).await;
    assert!(stopped.elapsed() < Duration::from_secs(10), "{:?}", stopped.elapsed());
    let each = publisher.end().await;
    landed(&clickhouse, &tables, each).await;
    assert_eq!(clickhouse.tables(|tables| tables.repeated), 0, "nothing was inserted twice");
    three.stop().await;
    one.stop().await;
    api.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_112_the_rows_of_one_that_dies_are_written_by_another() {
    let (servers, clickhouse) = (start(2, 4).await, ClickHouse::default());
    let (api, tables) = (servers.open().await, tables());
    let one = Process::start_slow(&servers, &clickhouse, 1, Duration::from_secs(3)).await;
    split("all for one", &[&one], 8).await;
    let two = Process::start(&servers, &clickhouse, 2).await;
    split("an even split", &[&one, &two], 8).await;
    let publisher = Publisher::start(&api, &tables, Duration::from_millis(100));
    wait_for("inserts of the first", Duration::from_secs(20), async || {
        clickhouse.tables(|tables| tables.inserts.iter().any(|insert| insert.by == 1))
    })
    .await;
    // It dies with rows in hand, and with inserts that ClickHouse has stored and not answered.
    one.kill().await;
    let died = Instant::now();
    split("all for the other", &[&two], 8).await;
    let took = died.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert!(two.metric("wavehouse_ingest_shard_events_total{event=\"reset\"}") >= 1.0);
    all_read(&api).await;
    let each = publisher.end().await;
    landed(&clickhouse, &tables, each).await;
    let repeated = clickhouse.tables(|tables| tables.repeated);
    println!("taken over after {took:?}, {repeated} batches came again under their tokens");
    two.stop().await;
    api.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_110_a_stop_under_load_keeps_order_and_is_quick() {
    let (servers, clickhouse) = (start(2, 4).await, ClickHouse::default());
    let (api, tables) = (servers.open().await, tables());
    let one = Process::start_slow(&servers, &clickhouse, 1, Duration::from_secs(3)).await;
    split("all for one", &[&one], 8).await;
    let publisher = Publisher::start(&api, &tables, Duration::from_millis(50));
    wait_for("inserts of the first", Duration::from_secs(20), async || clickhouse.count() > 0).await;
    // A handover under load, while every insert of the first takes three seconds.
    let two = Process::start(&servers, &clickhouse, 2).await;
    split("an even split", &[&one, &two], 8).await;
    one.stop().await;
    let stopped = Instant::now();
    split("all for the other", &[&two], 8).await;
    assert!(stopped.elapsed() < Duration::from_secs(7), "{:?}", stopped.elapsed());
    let each = publisher.end().await;
    landed(&clickhouse, &tables, each).await;
    clickhouse.tables(|all| {
        for table in &tables {
            let mut writers: Vec<usize> =
                all.inserts.iter().filter(|insert| insert.table == *table).map(|insert| insert.by).collect();
            writers.dedup();
            assert!(writers.len() <= 3, "{table} changed writers {writers:?}");
        }
        assert_eq!(all.repeated, 0, "every batch once");
    });
    two.stop().await;
    api.close().await.unwrap();
}
