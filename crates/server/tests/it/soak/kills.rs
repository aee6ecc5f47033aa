//! The gateway, and in another form its engine, is killed at random instants while rows come in at full speed.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use wavehouse_testkit::{Engine, wait_for};

use super::audit::audit;
use super::gateway::Gateway;
use super::load::{Load, create_table};
use super::{ONE_AT_A_TIME, Random, kills};

const TABLES: [&str; 4] = ["soak_a", "soak_b", "soak_c", "soak_d"];
/// Rows in the requests of the two writers of a table.
const ROWS: [u64; 2] = [1, 20];
/// The same where the engine is away for most of a quarter of an hour: what is counted must fit into its memory.
const ROWS_LONG: [u64; 2] = [1, 1];
/// Longest life before a kill, in milliseconds.
const LIFE_MS_MAX: u64 = 2_000;
/// One kill of this many comes right after the start, while the queue is being recovered.
const EARLY_IN: u64 = 4;
/// Longest life before an early kill, in milliseconds.
const EARLY_MS_MAX: u64 = 150;

/// Two writers a table.
fn plan(rows: [u64; 2]) -> Vec<(String, u64)> {
    TABLES.iter().flat_map(|table| rows.map(|rows| ((*table).to_owned(), rows))).collect()
}

async fn make_tables(gateway: &Gateway) {
    for table in TABLES {
        gateway.sql(&create_table(table)).await;
    }
    gateway.refresh_schema().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_gateway_killed_at_random_instants() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (kills, _long) = kills();
    let mut random = Random::new();
    let engine = Engine::start().await;
    let mut gateway = Gateway::serve(&engine, &[]);
    gateway.start().await;
    make_tables(&gateway).await;

    let begun = Instant::now();
    let load = Load::start(&gateway, &plan(ROWS));
    for _kill in 0..kills {
        let early = random.below(EARLY_IN) == 0;
        if !early {
            gateway.ready().await;
        }
        let life_ms = random.below(if early { EARLY_MS_MAX } else { LIFE_MS_MAX });
        tokio::time::sleep(Duration::from_millis(life_ms)).await;
        gateway.kill9();
        gateway.spawn();
    }
    gateway.ready().await;
    tokio::time::sleep(Duration::from_millis(500)).await; // some rows after the last kill
    let ledgers = load.finish().await;
    let wrote = begun.elapsed();
    let report = audit(&gateway, &ledgers).await;
    println!("{kills} kills of the gateway in {:.0} s\n{report}", wrote.as_secs_f64());
    report.assert_kept();
    assert_eq!(gateway.metric("wavehouse_ingest_buried_rows_total").await, 0.0, "nothing is dead-lettered");
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_engine_killed_at_random_instants() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (kills, long) = kills();
    let mut random = Random::new();
    let mut gateway = Gateway::dev();
    gateway.start().await;
    make_tables(&gateway).await;

    let begun = Instant::now();
    let load = Load::start(&gateway, &plan(if long { ROWS_LONG } else { ROWS }));
    let mut killed = 0;
    for _kill in 0..kills {
        if random.below(EARLY_IN) != 0 {
            engine_answers(&gateway).await; // so that most kills come in the middle of inserts
        }
        tokio::time::sleep(Duration::from_millis(random.below(LIFE_MS_MAX))).await;
        let engine =
            wait_for("an engine to kill", Duration::from_secs(60), async || gateway.engine_pid()).await;
        assert_ne!(engine, killed, "a new engine was started");
        let pid = Pid::from_raw(i32::try_from(engine).expect("a process id")).expect("a process id");
        kill_process(pid, Signal::KILL).expect("the engine can be killed");
        killed = engine;
        wait_for("the engine to end", Duration::from_secs(10), async || gateway.engine_pid() != Some(killed))
            .await;
    }
    let ledgers = load.finish().await;
    let wrote = begun.elapsed();
    assert!(gateway.runs(), "the gateway outlives its engine");
    gateway.ready().await;
    engine_answers(&gateway).await;
    let report = audit(&gateway, &ledgers).await;
    println!("{kills} kills of the engine in {:.0} s\n{report}", wrote.as_secs_f64());
    report.assert_kept();
    assert_eq!(report.answers(|status| status != 200), 0, "no request was refused or lost");
    assert_eq!(gateway.metric("wavehouse_ingest_buried_rows_total").await, 0.0, "nothing is dead-lettered");
}

async fn engine_answers(gateway: &Gateway) {
    wait_for("the engine to answer", Duration::from_secs(60), async || gateway.engine_answers().await).await;
}
