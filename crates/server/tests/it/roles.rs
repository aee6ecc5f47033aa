//! Several processes on one queue, as they are deployed: some take rows, some write them. Writers share the shards, hand
//! them over when one comes or goes, and take them over from one that is killed.
#![expect(clippy::unwrap_used, reason = "a harness has nothing to do about a machine that fails it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::task::JoinSet;
use wavehouse_testkit::{Engine, wait_for};

use crate::http::Client;
use crate::nats::Servers;
use crate::program::{Program, SOON};

const PARTITIONS: u64 = 4;
const SHARDS: u64 = 8;
const UNITS: u64 = PARTITIONS * SHARDS;
/// Tables, spread over the shards by their names.
const TABLES: u64 = 16;
/// Rows of one request.
const ROWS: u64 = 10;

/// A table that knows in which order its rows were stored, and a window that no test outgrows.
fn create(table: &str) -> String {
    format!(
        "CREATE TABLE {table} (n UInt64) ENGINE = MergeTree ORDER BY tuple() SETTINGS enable_block_number_column = 1, \
         enable_block_offset_column = 1, non_replicated_deduplication_window = 100000"
    )
}

fn name(table: u64) -> String {
    format!("t{table}")
}

/// A deployment.
struct House {
    servers: Servers,
    engine: Engine,
}

impl House {
    async fn start() -> Self {
        let (servers, engine) = (Servers::provisioned(PARTITIONS, SHARDS).await, Engine::start().await);
        for table in 0..TABLES {
            engine.query(&create(&name(table))).await;
        }
        Self { servers, engine }
    }

    /// A process that does a part of the work.
    async fn process(&self, role: &str) -> Program {
        let mut env = self.servers.env();
        env.push(("WH_ROLES".to_owned(), role.to_owned()));
        env.push(("WH_PROMETHEUS_ENABLED".to_owned(), "true".to_owned()));
        let env: Vec<(&str, &str)> = env.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let mut process = Program::serving(&self.engine, &env);
        process.up().await;
        process.wait_status("/readyz", 200).await;
        process
    }

    /// Every row that was taken is there once, and in the order in which it was sent.
    async fn landed(&self, sent: &BTreeMap<u64, u64>) {
        for (table, sent) in sent {
            let table = name(*table);
            let count = format!("SELECT count() FROM {table}");
            wait_for(&format!("{sent} rows in {table}"), SOON, async || {
                self.engine.query(&count).await.trim().parse::<u64>().unwrap() >= *sent
            })
            .await;
            let wrong = format!(
                "SELECT count(), uniqExact(n), countIf(n < before) FROM (SELECT n, lagInFrame(n, 1, 0) OVER \
                 (ORDER BY _block_number, _block_offset ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before \
                 FROM {table})"
            );
            let found = self.engine.query(&wrong).await;
            assert_eq!(
                found.trim(),
                format!("{sent}\t{sent}\t0"),
                "{table}: rows, distinct ones, out of order"
            );
        }
    }
}

/// One of a process's metrics, if it shows it.
async fn metric(client: &Client, name: &str) -> Option<f64> {
    let text = client.get("/metrics").await.text;
    let line = text.lines().find(|line| line.split(' ').next() == Some(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

async fn owned(process: &Program) -> u64 {
    metric(&process.client(), "wavehouse_ingest_shards_owned").await.unwrap_or(0.0) as u64
}

/// Waits until all shards are read and nobody has more than his share; how long it took.
async fn split(what: &str, processes: &[&Program]) -> Duration {
    let began = Instant::now();
    let cap = UNITS.div_ceil(processes.len() as u64);
    wait_for(what, SOON, async || {
        let mut loads = Vec::with_capacity(processes.len());
        for process in processes {
            loads.push(owned(process).await);
        }
        loads.iter().sum::<u64>() == UNITS && loads.iter().all(|load| *load <= cap)
    })
    .await;
    began.elapsed()
}

/// What the lowest member tells of shards that nobody reads.
async fn unowned(processes: &[&Program]) -> f64 {
    let mut most = None;
    for process in processes {
        let told = metric(&process.client(), "wavehouse_ingest_shards_unowned").await;
        most = most.into_iter().chain(told).reduce(f64::max);
    }
    most.unwrap_or_else(|| panic!("none of them tells"))
}

/// One writer a table, each through one of the gateways, until told to end; how many rows each table was sent.
struct Writers {
    end: Arc<AtomicBool>,
    writing: JoinSet<(u64, u64)>,
}

impl Writers {
    fn start(gateways: &[&Program]) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let mut writing = JoinSet::new();
        for table in 0..TABLES {
            let client = gateways[usize::try_from(table).unwrap() % gateways.len()].client();
            let end = Arc::clone(&end);
            writing.spawn(async move {
                let path = format!("/v1/ingest?table={}", name(table));
                let mut next = 0;
                while !end.load(Ordering::Relaxed) {
                    let rows: String = (next..next + ROWS).map(|n| format!("{{\"n\":{n}}}\n")).collect();
                    let answer = client.post(&path, rows).await;
                    assert_eq!(answer.status, 200, "{}", answer.text);
                    next += ROWS;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                (table, next)
            });
        }
        Self { end, writing }
    }

    /// How many rows each table was sent.
    async fn end(mut self) -> BTreeMap<u64, u64> {
        self.end.store(true, Ordering::Relaxed);
        let mut sent = BTreeMap::new();
        while let Some(ended) = self.writing.join_next().await {
            let (table, rows) = ended.unwrap();
            sent.insert(table, rows);
        }
        sent
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_115_writers_share_the_shards_hand_them_over_and_take_them_over() {
    let house = House::start().await;
    let gateways = [house.process("api").await, house.process("api").await];
    let (mut one, mut two) = (house.process("ingest").await, house.process("ingest").await);
    split("16 shards each", &[&one, &two]).await;
    let writers = Writers::start(&[&gateways[0], &gateways[1]]);

    // A third takes its share, which nobody has to be fenced off from.
    let three = house.process("ingest").await;
    let took = split("a share for the third", &[&one, &two, &three]).await;
    println!("a third has its share after {took:?}");
    let resets = "wavehouse_ingest_shard_events_total{event=\"reset\"}";
    assert_eq!(metric(&three.client(), resets).await, None);

    // One stops as it is asked to.
    two.signal(Signal::TERM);
    assert_eq!(two.ended().await, Some(0), "{}", two.log());
    let took = split("the share of the one that stopped", &[&one, &three]).await;
    println!("the share of one that stopped is read after {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");

    // One is killed.
    one.kill9();
    let took = split("the share of the one that was killed", &[&three]).await;
    println!("the share of one that was killed is read after {took:?}");
    assert!(took < Duration::from_secs(25), "{took:?}");
    assert!(metric(&three.client(), resets).await >= Some(1.0));

    let sent = writers.end().await;
    house.landed(&sent).await;
    wait_for("nothing to be unowned", SOON, async || unowned(&[&three]).await == 0.0).await;
    let letters = gateways[0].client().get("/v1/ops/dlq/stats").await;
    assert!(letters.text.contains("\"total\":0"), "{}", letters.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_stands_still_is_taken_over_and_has_its_share_again_when_it_goes_on() {
    let house = House::start().await;
    let gateway = house.process("api").await;
    let (one, two) = (house.process("ingest").await, house.process("ingest").await);
    split("16 shards each", &[&one, &two]).await;
    let writers = Writers::start(&[&gateway]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    one.signal(Signal::STOP);
    let took = split("everything for the other", &[&two]).await;
    println!("the share of one that stands still is read after {took:?}");
    tokio::time::sleep(Duration::from_secs(15)).await;
    one.signal(Signal::CONT);
    let took = split("16 shards each again", &[&one, &two]).await;
    println!("it has its share again after {took:?}");
    let sent = writers.end().await;
    house.landed(&sent).await;
}
