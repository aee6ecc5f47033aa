//! Rows that ClickHouse refuses: they cost their own table, not its neighbours, and only themselves.

use std::time::{Duration, Instant};

use wavehouse_broker::{Broker, LetterFilter};
use wavehouse_broker_embedded::{EmbeddedBroker, Metrics, Options};
use wavehouse_core::TenantId;
use wavehouse_testkit::{Engine, wait_for};

use super::ONE_AT_A_TIME;
use super::audit::{audit, number};
use super::gateway::Gateway;
use super::load::{Load, create_table};

const HEALTHY: usize = 20;
const DEAD_LETTERS: &str = "wavehouse_ingest_buried_rows_total";
/// How long each of the two measures of pace takes.
const MEASURE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn soak_refused_table_beside_healthy_ones() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let engine = Engine::start().await;
    // The table is looked at once an hour, so that rows are still taken after its column has gone.
    let mut gateway = Gateway::serve(&engine, &[("WH_SCHEMA_REFRESH_INTERVAL", "3600")]);
    gateway.start().await;
    let tables: Vec<String> = (0..HEALTHY).map(|number| format!("healthy_{number}")).collect();
    for table in tables.iter().map(String::as_str).chain(["sick"]) {
        gateway.sql(&create_table(table)).await;
    }
    gateway.refresh_schema().await;

    let plan: Vec<(String, u64)> = tables.iter().map(|table| (table.clone(), 10)).collect();
    let load = Load::start(&gateway, &plan);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let alone = stored_a_second(&gateway, &tables).await;

    engine.query("ALTER TABLE sick DROP COLUMN mark").await;
    let sick: String = (0..2_000)
        .map(|n| format!("{{\"writer\":1,\"n\":{n},\"sent\":{n},\"try\":0,\"mark\":{n}}}\n"))
        .collect();
    let (status, _, text) = gateway.post("sick", sick).await.expect("an answer");
    assert_eq!(status, 200, "the schema in hand still has the column: {text}");
    wait_for("the first refused row", Duration::from_secs(30), async || {
        gateway.metric("wavehouse_ingest_refusals_total").await > 0.0
            || gateway.metric("wavehouse_ingest_retries_total").await > 0.0
    })
    .await;
    let beside = stored_a_second(&gateway, &tables).await;
    let ledgers = load.finish().await;
    let report = audit(&gateway, &ledgers).await;
    println!("healthy tables: {alone:.0} rows/s alone, {beside:.0} rows/s beside a refused table\n{report}");
    report.assert_kept();
    assert!(beside > alone * 0.4, "the healthy tables keep their pace: {alone:.0} rows/s, then {beside:.0}");

    // No row of the refused table is stored, and none is lost: each waits or is a dead letter.
    assert_eq!(engine.query("SELECT count() FROM sick").await.trim(), "0");
    engine.query("ALTER TABLE sick ADD COLUMN mark UInt64").await;
    wait_for("each refused row to be stored or dead", Duration::from_secs(180), async || {
        let stored: f64 = engine.query("SELECT count() FROM sick").await.trim().parse().expect("a count");
        stored + gateway.metric(DEAD_LETTERS).await == 2_000.0
    })
    .await;
}

async fn stored_a_second(gateway: &Gateway, tables: &[String]) -> f64 {
    let union: Vec<String> = tables.iter().map(|table| format!("SELECT count() AS c FROM {table}")).collect();
    let count = format!("SELECT sum(c) AS c FROM ({})", union.join(" UNION ALL "));
    let (from, begun) = (number(&gateway.sql(&count).await[0], "c"), Instant::now());
    tokio::time::sleep(MEASURE).await;
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rows = (number(&gateway.sql(&count).await[0], "c") - from) as f64;
    rows / begun.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_seven_of_ten_thousand_break_a_check() {
    let _alone = ONE_AT_A_TIME.lock().await;
    const BAD: [u64; 7] = [0, 1, 777, 4_999, 5_000, 9_000, 9_999];
    let engine = Engine::start().await;
    let mut gateway = Gateway::serve(&engine, &[]);
    gateway.start().await;
    gateway
        .sql("CREATE TABLE checked (n UInt64, v Int64, CONSTRAINT positive CHECK v > 0) ENGINE = MergeTree ORDER BY n")
        .await;
    gateway.refresh_schema().await;
    let rows: String = (0..10_000)
        .map(|n| format!("{{\"n\":{n},\"v\":{}}}\n", if BAD.contains(&n) { -1 } else { 1 }))
        .collect();
    let (status, _, text) = gateway.post("checked", rows).await.expect("an answer");
    assert_eq!(status, 200, "a CHECK is the engine's to judge: {text}");
    wait_for("every row to be stored or dead", Duration::from_secs(120), async || {
        let stored = number(&gateway.sql("SELECT count() AS c FROM checked").await[0], "c");
        stored == 9_993 && gateway.metric(DEAD_LETTERS).await == 7.0
    })
    .await;
    let bad: String = engine.query("SELECT count() FROM checked WHERE v <= 0").await;
    assert_eq!(bad.trim(), "0");
    assert_eq!(engine.query("SELECT uniqExact(n) FROM checked").await.trim(), "9993");
    let log = gateway.log();
    let told =
        log.lines().filter(|line| line.contains("dead letters") && line.contains("Constraint `positive`"));
    assert!((1..=2).contains(&told.count()), "the log tells it, and not for every row:\n{log}");
    assert_eq!(dead_letters(&mut gateway).await, BAD.map(|n| format!("{{\"n\":{n},\"v\":-1}}")));
}

/// The dead letters of the queue of a gateway that is ended for it: their rows, each with the engine's text.
async fn dead_letters(gateway: &mut Gateway) -> Vec<String> {
    gateway.kill9();
    let options = Options::new(gateway.home().join("data"));
    let broker = EmbeddedBroker::open(&options, Metrics::default()).expect("the queue opens");
    let filter =
        LetterFilter { tenant: TenantId::default(), table: None, code: None, from: None, until: None };
    let page = broker.letters(&filter, None, 100).await.expect("letters");
    for letter in &page.letters {
        assert_eq!(letter.code, Some(469), "{}", letter.reason);
        assert!(letter.reason.contains("Constraint `positive`"), "{}", letter.reason);
    }
    page.letters.iter().map(|letter| String::from_utf8_lossy(&letter.line).into_owned()).collect()
}
