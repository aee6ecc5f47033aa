//! What operators ask for.

use wavehouse_testkit::Engine;

use crate::harness::{Harness, open_options};

async fn sql(api: &Harness, sql: &str) -> crate::harness::Answer {
    api.send("POST", "/v1/ops/query", &[], serde_json::json!({ "sql": sql }).to_string()).await
}

#[tokio::test]
async fn sql_goes_through_and_rows_come_back_as_an_array() {
    let engine = Engine::start().await;
    let api = Harness::start(&engine, open_options()).await;
    let answer =
        sql(&api, "CREATE TABLE t (a UInt64, at DateTime64(3, 'UTC')) ENGINE = MergeTree ORDER BY a").await;
    assert_eq!((answer.status, answer.text.trim()), (200, "[]"));
    assert_eq!(
        sql(&api, "INSERT INTO t VALUES (18446744073709551615, '2026-06-21 04:00:00.120')").await.status,
        200
    );
    let answer = sql(&api, "SELECT * FROM t").await;
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(
        answer.json(),
        serde_json::json!([{"a": 18_446_744_073_709_551_615_u64, "at": "2026-06-21T04:00:00.120Z"}])
    );
    let csv = sql(&api, "SELECT a FROM t FORMAT CSV").await;
    assert_eq!(csv.text, "18446744073709551615\n");
    assert!(csv.header("content-type").is_some_and(|media| media.starts_with("text/csv")));
    for (statement, status, code, exception) in [
        ("SELECT nope", 400, "clickhouse.rejected", Some(47)),
        ("SELECT * FROM ghost", 400, "clickhouse.rejected", Some(60)),
        (
            "SELECT number FROM numbers(100) SETTINGS max_rows_to_read = 10",
            400,
            "clickhouse.limit_exceeded",
            Some(158),
        ),
    ] {
        let answer = sql(&api, statement).await;
        let json = answer.json();
        assert_eq!(
            (answer.status, json["code"].as_str(), json["exception_code"].as_u64()),
            (status, Some(code), exception),
            "{}",
            answer.text
        );
        assert_eq!(json["retryable"], false);
    }
    assert_eq!(api.send("POST", "/v1/ops/query", &[], "{").await.error(), "invalid json");
    assert_eq!(api.send("POST", "/v1/ops/query", &[], "{\"sql\":\" \"}").await.error(), "missing sql");
}

#[tokio::test]
async fn the_schema_is_shown_and_looked_up_again() {
    let engine = Engine::start().await;
    let api = Harness::start(&engine, open_options()).await;
    assert_eq!(api.send("GET", "/v1/ops/schema", &[], "").await.json(), serde_json::json!([]));
    engine.query("CREATE TABLE t (a UInt8, b Nullable(String), c String DEFAULT 'x') ENGINE = MergeTree ORDER BY a").await;
    assert_eq!(api.send("GET", "/v1/ops/schema?table=t", &[], "").await.error(), "table not found");
    let all = api.send("POST", "/v1/ops/schema/refresh", &[], "").await.json();
    let one = api.send("GET", "/v1/ops/schema?table=t", &[], "").await.json();
    assert_eq!(all, serde_json::json!([one]));
    assert_eq!(
        one["columns"][1],
        serde_json::json!({"name": "b", "type": "Nullable(String)", "is_nullable": true, "has_default": false, "position": 2})
    );
    assert_eq!(one["columns"][2]["default_kind"], "DEFAULT");
    assert_eq!(one["columns"][2]["default_expression"], "'x'");
    assert_eq!(api.send("GET", "/v1/ops/schema?tenant=acme", &[], "").await.status, 404);
    assert_eq!(api.send("GET", "/v1/ops/schema?tenant=", &[], "").await.status, 400);
}

#[tokio::test]
async fn without_clickhouse_everything_says_so_and_recovers() {
    let mut engine = Engine::start().await;
    engine.query("CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a").await;
    engine.kill9();
    let api = Harness::start_at(&engine.url(), &engine, open_options(), Default::default()).await;
    for (method, path, body) in [
        ("POST", "/v1/ingest?table=t", "{\"a\":1}"),
        ("GET", "/v1/ops/schema", ""),
        ("POST", "/v1/ops/schema/refresh", ""),
        ("POST", "/v1/ops/query", "{\"sql\":\"SELECT 1\"}"),
    ] {
        let answer = api.send(method, path, &[], body).await;
        assert_eq!(
            (answer.status, answer.header("retry-after")),
            (503, Some("5")),
            "{path}: {}",
            answer.text
        );
    }
    assert_eq!(api.send("GET", "/livez", &[], "").await.status, 503);
    assert_eq!(api.send("GET", "/readyz", &[], "").await.status, 503);
    assert_eq!(api.send("GET", "/v1/health", &[], "").await.status, 503);
    engine.restart().await;
    assert_eq!(api.send("POST", "/v1/ops/schema/refresh", &[], "").await.status, 200);
    assert_eq!(api.send("GET", "/livez", &[], "").await.status, 200);
    assert_eq!(api.ingest("t", &[], "{\"a\":1}").await.status, 200);
    engine.kill9();
    assert_eq!(api.ingest("t", &[], "{\"a\":1}").await.status, 200, "ingest needs no clickhouse");
    assert_eq!(api.send("GET", "/livez", &[], "").await.status, 200, "alive stays alive");
}
