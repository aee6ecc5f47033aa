//! ClickHouse's HTTP protocol, as a plain HTTP client sees it.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use wavehouse_testkit::Engine;

use crate::raw;

fn header<'a>(response: &'a Response<Incoming>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

async fn body(response: Response<Incoming>) -> String {
    String::from_utf8(bytes(response).await.to_vec()).unwrap()
}

async fn bytes(response: Response<Incoming>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn answers_queries_and_stores_rows() {
    let engine = Engine::start().await;
    assert_eq!(engine.query("SELECT 1").await, "1\n");
    engine.query("CREATE TABLE t (a UInt32, b String) ENGINE = MergeTree ORDER BY a").await;
    engine.query("INSERT INTO t VALUES (1, 'x'), (2, 'y;z');").await;
    engine.query("INSERT INTO t FORMAT JSONEachRow\n{\"a\":3,\"b\":\"w\"}\n").await;
    // The statement in the URL and the rows in the body, cut in the middle of the statement or behind it.
    for (target, data) in [
        ("/?query=INSERT+INTO+t+FORMAT+CSV", "4,c\n"),
        ("/?query=INSERT+INTO+t", "FORMAT CSV\n5,c\n"),
        ("/?query=INSERT+INTO+t+VALUES", "(6,'c')"),
        ("/?query=INSERT+INTO+t+SELECT", "7, 'c'"),
        ("/?database=system&query=INSERT+INTO+default.t+FORMAT+TSV", "8\tc\n"),
        ("/?query=INSERT+INTO+t+FORMAT+JSONEachRow", ""),
    ] {
        let response = engine.request(target, data).await.unwrap();
        assert_eq!(
            (response.status(), body(response).await.as_str()),
            (hyper::StatusCode::OK, ""),
            "{target}"
        );
    }
    assert_eq!(engine.query("SELECT a, b FROM t WHERE a <= 3 ORDER BY a").await, "1\tx\n2\ty;z\n3\tw\n");
    assert_eq!(
        engine.query("SELECT groupArray(a) FROM (SELECT a FROM t ORDER BY a)").await,
        "[1,2,3,4,5,6,7,8]\n"
    );
}

#[tokio::test]
async fn tells_about_the_result_in_headers() {
    let engine = Engine::start().await;
    let response = engine.request("/?query_id=mine&default_format=JSON", "SELECT 1 AS a").await.unwrap();
    assert_eq!(header(&response, "x-clickhouse-query-id"), "mine");
    assert_eq!(header(&response, "x-clickhouse-format"), "JSON");
    assert_eq!(header(&response, "content-type"), "application/json; charset=UTF-8");
    assert_eq!(header(&response, "x-clickhouse-timezone"), engine.query("SELECT timezone()").await.trim());
    assert!(!header(&response, "x-clickhouse-server-display-name").is_empty());
    let summary: serde_json::Value = serde_json::from_str(header(&response, "x-clickhouse-summary")).unwrap();
    assert_eq!((summary["read_rows"].as_str(), summary["result_rows"].as_str()), (Some("1"), Some("1")));
    let json: serde_json::Value = serde_json::from_str(&body(response).await).unwrap();
    assert_eq!(json["data"][0]["a"], 1);
    let response = engine.request("/?default_format=JSON", "SELECT 1 FORMAT csv").await.unwrap();
    assert_eq!(header(&response, "x-clickhouse-format"), "CSV");
    assert_eq!(header(&response, "content-type"), "text/csv; charset=UTF-8; header=absent");
    let ids: Vec<String> = [engine.request("/", "SELECT 1").await, engine.request("/", "SELECT 1").await]
        .map(|response| header(&response.unwrap(), "x-clickhouse-query-id").to_owned())
        .into();
    assert!(ids[0].len() == 36 && ids[0] != ids[1], "{ids:?}");
    engine.query("CREATE TABLE t (a UInt8) ENGINE = Memory").await;
    let response = engine.request("/", "INSERT INTO t VALUES (1), (2)").await.unwrap();
    assert!(header(&response, "x-clickhouse-summary").contains(r#""written_rows":"2""#));
}

#[tokio::test]
async fn gives_every_error_a_real_servers_status() {
    let engine = Engine::start().await;
    engine.query("CREATE TABLE t (a UInt8, CONSTRAINT c CHECK a < 100) ENGINE = MergeTree ORDER BY a").await;
    for (target, sql, status, code) in [
        ("/", "SELEC 1", 400, 62),
        ("/", "SELECT 1; SELECT 2", 400, 62),
        ("/", "INSERT INTO t VALUES (1); SELECT 2", 400, 62),
        ("/", "", 400, 62),
        ("/", "-- only a comment", 400, 62),
        ("/", "SELECT * FROM absent", 404, 60),
        ("/", "INSERT INTO absent FORMAT CSV\n1", 404, 60),
        ("/", "SELECT nope", 404, 47),
        ("/", "SELECT 1 FORMAT Nope", 404, 73),
        ("/?default_format=Nope", "SELECT 1", 404, 73),
        ("/?database=absent", "SELECT 1", 404, 81),
        ("/?nope=1", "SELECT 1", 404, 115),
        ("/?max_threads=many", "SELECT 1", 400, 27),
        ("/", "SELECT {x:UInt8}", 500, 456),
        ("/", "INSERT INTO t FORMAT JSONEachRow {\"a\":1}\n{\"a\":\"x\"}", 400, 27),
        ("/", "INSERT INTO t FORMAT JSONEachRow {\"a\":1}\n{\"a\":101}", 500, 469),
        ("/?max_execution_time=0.2", "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)", 408, 159),
        ("/", "SELECT 1 INTO OUTFILE '/tmp/never'", 500, 358),
        ("/", "INSERT INTO t FROM INFILE '/etc/hostname' FORMAT CSV", 500, 1),
        ("/", "INSERT INTO t SELECT a FROM input('a UInt8') FORMAT CSV\n1", 501, 48),
        ("/?compress=1", "SELECT 1", 501, 48),
        ("/?query=CREATE+TABLE+u(a+Int8)ENGINE=Memory&readonly=1", "", 500, 164),
    ] {
        let response = engine.request(target, sql).await.unwrap();
        let seen = (response.status().as_u16(), header(&response, "x-clickhouse-exception-code").to_owned());
        let text = body(response).await;
        assert_eq!(seen, (status, code.to_string()), "{target} {sql}: {text}");
        assert!(text.starts_with(&format!("Code: {code}. DB::Exception: ")), "{text}");
        assert!(text.trim_end().ends_with(')') && text.contains(" (version 26."), "{text}");
        assert!(!text.contains("/proc/self/fd"), "{text}");
    }
    assert_eq!(engine.query("SELECT count() FROM t").await, "0\n", "no refused insert left a row");
}

#[tokio::test]
async fn a_get_reads_and_never_writes() {
    let engine = Engine::start().await;
    let get = async |target: &str| {
        let head = raw::head(&engine, target, "connection: close\r\n").replacen("POST", "GET", 1);
        let mut stream = raw::connect(&engine).await;
        tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
        raw::read_all(stream).await
    };
    assert!(get("/?query=SELECT+40%2B2").await.ends_with("\r\n\r\n42\n"));
    assert!(get("/").await.ends_with("\r\n\r\nOk.\n"));
    let refused = get("/?query=CREATE+TABLE+t(a+Int8)ENGINE=Memory").await;
    assert!(refused.contains("Code: 164.") && refused.contains("READONLY"), "{refused}");
    assert!(get("/play").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn lets_in_only_its_user() {
    let mut engine = Engine::start().await;
    let password = std::mem::replace(&mut engine.password, "wrong".to_owned());
    let (status, text) = engine.try_query("SELECT 1").await.unwrap_err();
    assert!(status == 403 && text.starts_with("Code: 516."), "{text}");
    engine.password = password;
    assert_eq!(engine.query("SELECT 1").await, "1\n");
    let mut stream = raw::connect(&engine).await;
    let bare = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 8\r\nconnection: close\r\n\r\nSELECT 1";
    tokio::io::AsyncWriteExt::write_all(&mut stream, bare.as_bytes()).await.unwrap();
    let answer = raw::read_all(stream).await;
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("www-authenticate: Basic"), "{answer}");
    let mut stream = raw::connect(&engine).await;
    let ping = "GET /ping HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut stream, ping.as_bytes()).await.unwrap();
    assert!(raw::read_all(stream).await.ends_with("\r\n\r\nOk.\n"));
}

#[tokio::test]
async fn settings_and_parameters_hold_for_one_request() {
    let engine = Engine::start().await;
    let ask =
        async |target: &str, sql: &str| body(engine.request(target, sql.to_owned()).await.unwrap()).await;
    let threads = "SELECT getSetting('max_threads')";
    assert_eq!(ask("/?max_threads=3", threads).await, "3\n");
    assert_ne!(ask("/", threads).await, "3\n");
    engine.query("SET max_threads = 5").await;
    assert_ne!(ask("/", threads).await, "5\n");
    assert_eq!(
        ask("/?param_s=it%27s+%5C%5C&param_n=%5CN", "SELECT {s:String}, {n:Nullable(Int8)}").await,
        "it\\'s \\\\\t\\N\n"
    );
    assert_eq!(ask("/?database=system", "SELECT currentDatabase()").await, "system\n");
    // Inserts are fsynced, whoever sends them.
    let fsync = "SELECT value FROM system.merge_tree_settings WHERE name LIKE 'fsync_after_insert' OR name = 'fsync_part_directory'";
    assert_eq!(ask("/", fsync).await, "1\n1\n");
    assert_eq!(
        ask("/?param_t=t1&param_v=7", "CREATE TABLE {t:Identifier} (a UInt8) ENGINE = Memory").await,
        ""
    );
    assert_eq!(ask("/?param_v=7", "INSERT INTO t1 VALUES ({v:UInt8})").await, "");
    assert_eq!(ask("/?session_id=s&role=r", "SELECT a FROM t1").await, "7\n");
}

#[tokio::test]
async fn an_insert_sent_again_with_its_token_is_stored_once() {
    let mut engine = Engine::start().await;
    let settings = "SETTINGS non_replicated_deduplication_window = 100";
    engine.query(&format!("CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a {settings}")).await;
    for (token, rows) in [("one", "1\n"), ("one", "1\n"), ("two", "1\n")] {
        let target = format!("/?query=INSERT+INTO+t+FORMAT+CSV&insert_deduplication_token={token}");
        assert_eq!(engine.request(&target, rows).await.unwrap().status(), 200);
    }
    assert_eq!(engine.query("SELECT count() FROM t").await, "2\n");
    engine.kill9();
    engine.restart().await;
    let again = "/?query=INSERT+INTO+t+FORMAT+CSV&insert_deduplication_token=two";
    assert_eq!(engine.request(again, "1\n").await.unwrap().status(), 200);
    assert_eq!(engine.query("SELECT count() FROM t").await, "2\n");
}
