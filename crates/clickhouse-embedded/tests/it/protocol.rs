//! ClickHouse's HTTP protocol, as a plain HTTP client sees it.

use wavehouse_testkit::Engine;

#[tokio::test]
async fn answers_queries_and_stores_rows() {
    let engine = Engine::start().await;
    assert_eq!(engine.query("SELECT 1").await, "1\n");
    engine.query("CREATE TABLE t (a UInt32, b String) ENGINE = MergeTree ORDER BY a").await;
    engine.query("INSERT INTO t VALUES (1, 'x'), (2, 'y;z')").await;
    engine.query("INSERT INTO t FORMAT JSONEachRow\n{\"a\":3,\"b\":\"w\"}\n").await;
    assert_eq!(engine.query("SELECT * FROM t ORDER BY a").await, "1\tx\n2\ty;z\n3\tw\n");
    let (status, text) = engine.try_query("SELECT nope FROM t").await.unwrap_err();
    assert_eq!(status, 404);
    assert!(text.starts_with("Code: 47. DB::Exception: Unknown expression"), "{text}");
}
