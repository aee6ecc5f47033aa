//! A client that goes away takes its query with it; what it had finished sending stays.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use wavehouse_testkit::{Engine, wait_for};

use crate::raw;

const PATIENCE: Duration = Duration::from_secs(60);

async fn live(engine: &Engine, mark: &str) -> u32 {
    let sql = format!(
        "SELECT count() FROM system.processes WHERE query LIKE '%{mark}%' AND query NOT LIKE '%processes%'"
    );
    engine.query(&sql).await.trim().parse().unwrap()
}

#[tokio::test]
async fn an_aggregation_stops_when_its_client_goes() {
    let engine = Engine::start().await;
    let sql = b"SELECT 'm1', sum(sipHash64(number)) FROM numbers(1000000000000)";
    let clients =
        [raw::send(&engine, "/", "", sql).await, raw::send(&engine, "/?log_comment=mine", "", sql).await];
    wait_for("the queries to run", PATIENCE, async || live(&engine, "m1").await == 2).await;
    drop(clients);
    wait_for("the queries to stop", PATIENCE, async || live(&engine, "m1").await == 0).await;
}

#[tokio::test]
async fn an_insert_that_broke_off_stores_nothing() {
    let engine = Engine::start().await;
    engine.query("CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a").await;
    let mut stream = raw::connect(&engine).await;
    let target = "/?query=INSERT+INTO+t+FORMAT+TSV";
    stream.write_all(raw::head(&engine, target, "content-length: 100\r\n").as_bytes()).await.unwrap();
    stream.write_all(b"1\n2\n3\n").await.unwrap();
    wait_for("the insert to begin", PATIENCE, async || live(&engine, "INSERT INTO t").await == 1).await;
    drop(stream);
    wait_for("the insert to end", PATIENCE, async || live(&engine, "INSERT INTO t").await == 0).await;
    assert_eq!(engine.query("SELECT count() FROM t").await, "0\n");
}

#[tokio::test]
async fn crowds_wait_and_then_are_refused() {
    let engine = Engine::start().await;
    let sql = b"SELECT 'm3', sleepEachRow(3) FROM numbers(1000) SETTINGS max_block_size = 1";
    let mut crowd = Vec::new();
    for _ in 0..64 {
        crowd.push(raw::send(&engine, "/", "", sql).await);
    }
    // Places go in the order of arrival at the gate, so a few of these may still run before it is full.
    for _ in 0..256 {
        crowd.push(raw::send(&engine, "/", "", b"SELECT 1").await);
    }
    wait_for("a refusal", PATIENCE, async || {
        let mut next = raw::send(&engine, "/", "", b"SELECT 1").await;
        let mut answer = vec![0; 1024];
        let read = timeout(Duration::from_millis(200), next.read(&mut answer)).await;
        crowd.push(next);
        let Ok(Ok(bytes)) = read else { return false };
        let answer = String::from_utf8_lossy(&answer[..bytes]).into_owned();
        answer.starts_with("HTTP/1.1 503") && answer.contains("x-clickhouse-exception-code: 202")
    })
    .await;
    drop(crowd);
    wait_for("room", PATIENCE, async || engine.try_query("SELECT 1").await.is_ok()).await;
}
