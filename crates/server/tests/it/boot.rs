//! From nothing to rows in ClickHouse, with ClickHouse there from the start, later, or never.

use wavehouse_testkit::{Engine, free_port, wait_for};

use crate::http::Client;
use crate::program::{Program, SOON, run};

pub(crate) const TABLE: &str = "CREATE TABLE rows (id UInt64, text String DEFAULT '') ENGINE = MergeTree ORDER BY id \
                         SETTINGS non_replicated_deduplication_window = 10000";

pub(crate) async fn wait_count(engine: &Engine, table: &str, wanted: u64) {
    wait_for(&format!("{wanted} rows in {table}"), SOON, async || {
        let count = engine.try_query(&format!("SELECT count() FROM {table}")).await.unwrap_or_default();
        count.trim() == wanted.to_string()
    })
    .await;
}

#[tokio::test]
async fn a_row_that_got_its_200_is_in_clickhouse() {
    let engine = Engine::start().await;
    engine.query(TABLE).await;
    let metrics_port = free_port();
    let env = [("WH_PROMETHEUS_ENABLED", "true"), ("WH_PROMETHEUS_PORT", &metrics_port.to_string())];
    let mut gateway = Program::serving(&engine, &env);
    gateway.up().await;
    gateway.wait_status("/readyz", 200).await;

    let refused = gateway.plain_client().post("/v1/ingest?table=rows", r#"{"id":1}"#).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    let answer = gateway.client().post("/v1/ingest?table=rows", r#"{"id":1,"text":"a"}"#).await;
    assert_eq!((answer.status, answer.text.trim()), (200, r#"{"ok":true}"#));
    wait_count(&engine, "rows", 1).await;
    assert_eq!(engine.query("SELECT id, text FROM rows").await, "1\ta\n");

    let metrics = Client::new(&format!("http://127.0.0.1:{metrics_port}"));
    let text = metrics.get("/metrics").await.text;
    for name in [
        "wavehouse_http_requests_total",
        "wavehouse_ingest_",
        "wavehouse_queue_",
        "wavehouse_queue_unwritten_rows",
    ] {
        assert!(text.contains(name), "{name} is not in {text}");
    }
    assert_eq!(metrics.status("/other").await, 404);
    assert_eq!(gateway.client().status("/metrics").await, 404, "metrics have a port of their own");

    let port = gateway.port.to_string();
    assert_eq!(run(gateway.dir.path(), &["health"], &[("WH_SERVER_PORT", &port)]).status.code(), Some(0));
}

#[tokio::test]
async fn without_clickhouse_the_gateway_waits_and_recovers() {
    let mut engine = Engine::start().await;
    engine.query(TABLE).await;
    engine.kill9();
    let mut gateway = Program::serving(&engine, &[]);
    gateway.start();
    gateway.wait_status("/livez", 503).await;
    let client = gateway.client();
    assert_eq!(client.get("/readyz").await.status, 503);
    let answer = client.post("/v1/ingest?table=rows", r#"{"id":1}"#).await;
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert_eq!(answer.headers.get("retry-after").and_then(|value| value.to_str().ok()), Some("5"));
    let port = gateway.port.to_string();
    assert_eq!(run(gateway.dir.path(), &["health"], &[("WH_SERVER_PORT", &port)]).status.code(), Some(1));

    engine.restart().await;
    gateway.wait_status("/livez", 200).await;
    gateway.wait_status("/readyz", 200).await;
    assert_eq!(client.post("/v1/ingest?table=rows", r#"{"id":1}"#).await.status, 200);
    wait_count(&engine, "rows", 1).await;
}

#[tokio::test]
async fn what_is_taken_is_told() {
    let engine = Engine::start().await;
    let mut first = Program::serving(&engine, &[]);
    first.up().await;

    let port = first.port.to_string();
    let mut same_port = Program::serving(&engine, &[("WH_SERVER_PORT", &port)]);
    same_port.start();
    assert_eq!(same_port.ended().await, Some(1));
    assert!(same_port.log().contains("cannot listen on"), "{}", same_port.log());

    let data = first.dir.path().join("data").display().to_string();
    let mut same_data = Program::serving(&engine, &[("WH_DATA_DIR", &data)]);
    same_data.start();
    assert_eq!(same_data.ended().await, Some(1));
    assert!(same_data.log().contains("in use"), "{}", same_data.log());
}
