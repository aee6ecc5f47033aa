//! Large results and large inserts: they stream, in bounded memory, and an error in the middle cannot be missed.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wavehouse_testkit::{Engine, wait_for};

use crate::raw;

const PATIENCE: Duration = Duration::from_secs(60);

/// Resident memory of the engine's process, in bytes.
fn resident(engine: &Engine) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", engine.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn large_results_stream_in_any_format() {
    let engine = Engine::start().await;
    let sql = "SELECT number FROM numbers(60000000) FORMAT RowBinary";
    let mut body = engine.request("/", sql).await.unwrap().into_body();
    let (mut seen, mut largest) = (0_u64, 0);
    while let Some(frame) = body.frame().await {
        seen += frame.unwrap().into_data().unwrap().len() as u64;
        largest = largest.max(resident(&engine));
    }
    assert_eq!(seen, 480_000_000);
    assert!(largest < 450_000_000, "{largest} bytes resident for a result of {seen}");

    // Formats with a beginning and an end stay one document.
    let response = engine.request("/", "SELECT number FROM numbers(300000) FORMAT JSON").await.unwrap();
    let json: serde_json::Value =
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!((json["rows"].as_u64(), json["data"].as_array().unwrap().len()), (Some(300_000), 300_000));
    let csv = engine.query("SELECT number AS n FROM numbers(300000) FORMAT CSVWithNames").await;
    assert_eq!((csv.lines().count(), csv.matches("\"n\"").count()), (300_001, 1));
}

#[tokio::test]
async fn a_slow_reader_slows_the_query_and_not_the_server() {
    let engine = Engine::start().await;
    let mut slow =
        raw::send(&engine, "/", "", b"SELECT number FROM numbers(200000000) FORMAT RowBinary").await;
    let mut piece = [0; 1024];
    slow.read_exact(&mut piece).await.unwrap();
    for _ in 0..20 {
        assert_eq!(engine.query("SELECT 1").await, "1\n");
    }
    assert!(resident(&engine) < 450_000_000);
    drop(slow);
    let gone = "SELECT count() FROM system.processes WHERE query LIKE '%200000000%' AND query NOT LIKE '%processes%'";
    wait_for("the query to stop", PATIENCE, async || engine.query(gone).await == "0\n").await;
}

#[tokio::test]
async fn an_error_in_mid_stream_is_written_and_breaks_the_body() {
    let engine = Engine::start().await;
    let sql = "SELECT number, throwIf(number = 900000) FROM numbers(1000000) SETTINGS max_block_size = 10000, max_threads = 1";
    let text = raw::read_all(raw::send(&engine, "/", "", sql.as_bytes()).await).await;
    assert!(text.starts_with("HTTP/1.1 200 OK"));
    let tag = text.lines().find_map(|line| line.strip_prefix("x-clickhouse-exception-tag: ")).unwrap();
    let (_, block) = text.split_once(&format!("\r\n__exception__\r\n{tag}\r\n")).expect("an exception block");
    let (message, rest) = block.split_once(&format!(" {tag}\r\n__exception__\r\n")).unwrap();
    let (message, length) = message.rsplit_once('\n').unwrap();
    assert!(message.starts_with("Code: 395. DB::Exception: "), "{message}");
    assert_eq!(length.parse::<usize>().unwrap(), message.len() + 1);
    // A whole body ends with a chunk of no bytes.
    assert!(!rest.contains("0\r\n\r\n") && !text.ends_with("0\r\n\r\n"), "{rest:?}");

    let response = engine.request("/", sql).await.unwrap();
    assert!(response.into_body().collect().await.is_err(), "a client library sees a failure");
    // With the whole result awaited, the same error still gets its status.
    let response = engine.request("/?wait_end_of_query=1", sql).await.unwrap();
    assert_eq!(response.status(), 500);
}

#[tokio::test]
async fn inserts_stream_in_bounded_memory() {
    let engine = Engine::start_with(&["--max-memory", "2000000000"]).await;
    engine.query("CREATE TABLE t (a UInt64, s String) ENGINE = MergeTree ORDER BY a").await;
    let target = "/?query=INSERT+INTO+t+FORMAT+JSONEachRow&max_insert_block_size=100000&min_insert_block_size_bytes=10000000";
    let mut stream = raw::connect(&engine).await;
    stream
        .write_all(
            raw::head(&engine, target, "transfer-encoding: chunked\r\nconnection: close\r\n").as_bytes(),
        )
        .await
        .unwrap();
    let (mut rows, mut sent, mut largest) = (0_u64, 0, 0);
    while sent < 200_000_000 {
        let mut chunk = String::new();
        while chunk.len() < 1 << 20 {
            writeln!(chunk, "{{\"a\":{rows},\"s\":\"some text that makes the row a little longer {rows}\"}}")
                .unwrap();
            rows += 1;
        }
        stream.write_all(format!("{:x}\r\n{chunk}\r\n", chunk.len()).as_bytes()).await.unwrap();
        sent += chunk.len();
        largest = largest.max(resident(&engine));
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let answer = raw::read_all(stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains(&format!(r#""written_rows":"{rows}""#)), "{answer}");
    assert_eq!(engine.query("SELECT count(), uniqExact(a) FROM t").await, format!("{rows}\t{rows}\n"));
    assert!(largest < 900_000_000, "{largest} bytes resident");
}

#[tokio::test]
async fn a_refused_insert_is_answered_while_the_client_still_sends() {
    let engine = Engine::start().await;
    let body = Bytes::from(vec![b'x'; 8 << 20]);
    for target in ["/?query=INSERT+INTO+absent+FORMAT+TSV", "/?nope=1&query=INSERT+INTO+t+FORMAT+TSV"] {
        let response = engine.request(target, body.clone()).await.unwrap();
        assert_eq!(response.status(), 404, "{target}");
    }
}

#[tokio::test]
async fn a_query_past_the_memory_limit_fails_alone() {
    let engine = Engine::start_with(&["--max-memory", "700000000"]).await;
    let sql = "SELECT length(groupArray(toString(number))) FROM numbers(100000000)";
    let (status, text) = engine.try_query(sql).await.unwrap_err();
    assert!(status == 500 && text.starts_with("Code: 241."), "{text}");
    assert_eq!(engine.query("SELECT 1").await, "1\n");
    let lifted = format!("{sql} SETTINGS max_memory_usage_for_user = 0");
    let (_, text) = engine.try_query(&lifted).await.unwrap_err();
    assert!(text.starts_with("Code: 452."), "nobody lifts it: {text}");
}

/// Each such table allocates buffers of some MiB and hardly touches them, so the sum is far above the limit.
#[tokio::test]
async fn many_tables_with_a_deduplication_window_can_be_opened_again_under_a_small_limit() {
    const TABLES: usize = 200;
    let mut engine = Engine::start_with(&["--max-memory", "150000000"]).await;
    for table in 0..TABLES {
        let sql = format!(
            "CREATE TABLE t{table} (a UInt64) ENGINE = MergeTree ORDER BY a \
             SETTINGS non_replicated_deduplication_window = 100"
        );
        engine.query(&sql).await;
    }
    engine.query("INSERT INTO t7 VALUES (7)").await;
    engine.terminate().await;
    engine.restart().await;
    assert_eq!(engine.query("SELECT a FROM t7").await, "7\n");
}
