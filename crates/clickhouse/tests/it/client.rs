//! Queries: answers, refusals, and answers that break off.

use std::time::Duration;

use http_body_util::BodyExt;
use serde::Deserialize;
use wavehouse_clickhouse::{Cause, Class, ClickHouseError, Client, RAW_BYTES_MAX, Secret};
use wavehouse_testkit::{Engine, free_port};

use crate::kit::target;

async fn body(client: &Client, sql: &str) -> Result<String, ClickHouseError> {
    let bytes = client.raw(sql).await?.body.collect().await?.to_bytes();
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn rows_are_read_and_parameters_bound() {
    #[derive(Deserialize, PartialEq, Debug)]
    struct Row {
        n: u64,
        s: String,
    }
    let engine = Engine::start().await;
    let client = Client::new(target(&engine)).unwrap();
    let sql = "SELECT number AS n, {s:String} AS s FROM numbers(3)";
    let rows: Vec<Row> = client.rows(sql, &[("param_s", "a'b&c")]).await.unwrap();
    let expected: Vec<Row> = (0..3).map(|n| Row { n, s: "a'b&c".to_owned() }).collect();
    assert_eq!(rows, expected);
    let unreadable = client.rows::<Row>("SELECT 1 AS x", &[]).await.unwrap_err();
    assert_eq!(unreadable.cause, Cause::Unreadable);
    client.ping().await.unwrap();
}

#[tokio::test]
async fn raw_statements_pass_as_they_are() {
    let engine = Engine::start().await;
    let client = Client::new(target(&engine)).unwrap();
    let json: serde_json::Value =
        serde_json::from_str(&body(&client, "SELECT 1 AS x").await.unwrap()).unwrap();
    assert_eq!(json["data"], serde_json::json!([{ "x": 1 }]));
    assert_eq!(body(&client, "SELECT 1 AS x FORMAT CSV").await.unwrap(), "1\n");
    let answer = client.raw("SELECT 1 FORMAT CSV").await.unwrap();
    assert!(answer.content_type.unwrap().to_str().unwrap().starts_with("text/csv"));
    assert_eq!(answer.format.as_deref(), Some("CSV"));
    assert_eq!(body(&client, "CREATE TABLE x (n UInt8) ENGINE = Memory").await.unwrap(), "");
    let wrong = body(&client, "SELEC 1").await.unwrap_err();
    assert_eq!((wrong.code, wrong.class, wrong.status), (Some(62), Class::Rejected, Some(400)), "{wrong}");
    let large = body(&client, "SELECT repeat('x', 1000000) FROM numbers(100) FORMAT TSV").await.unwrap_err();
    assert_eq!((large.cause, RAW_BYTES_MAX), (Cause::TooLarge, 64 << 20));
}

#[tokio::test]
async fn an_exception_behind_data_is_a_failure() {
    let engine = Engine::start().await;
    let client = Client::new(target(&engine)).unwrap();
    let sql = "SELECT number, throwIf(number = 3000000, 'too far') FROM numbers(10000000) \
        SETTINGS max_block_size = 1000 FORMAT TSV";
    let mut answer = client.raw(sql).await.unwrap().body;
    let mut bytes = 0;
    let error = loop {
        match answer.frame().await.unwrap() {
            Ok(frame) => bytes += frame.data_ref().unwrap().len(),
            Err(error) => break error,
        }
    };
    assert!(bytes > 0);
    assert_eq!((error.code, error.class), (Some(395), Class::Rejected), "{error}");
    assert!(error.message.contains("too far"), "{error}");
    assert!(answer.frame().await.is_none());
}

#[tokio::test]
async fn an_engine_that_dies_while_it_answers_is_a_failure() {
    let mut engine = Engine::start().await;
    let client = Client::new(target(&engine)).unwrap();
    let mut answer = client.raw("SELECT number FROM system.numbers FORMAT TSV").await.unwrap().body;
    answer.frame().await.unwrap().unwrap();
    engine.kill9();
    let error = loop {
        if let Err(error) = answer.frame().await.unwrap() {
            break error;
        }
    };
    assert_eq!((error.cause, error.class), (Cause::Broken, Class::Unavailable), "{error}");
}

#[tokio::test]
async fn whom_the_server_does_not_know_is_denied() {
    let engine = Engine::start().await;
    let mut wrong = target(&engine);
    wrong.password = Secret::new("wrong");
    let error = Client::new(wrong).unwrap().ping().await.unwrap_err();
    assert_eq!((error.class, error.code), (Class::Denied, Some(516)), "{error}");
}

#[tokio::test]
async fn nobody_there_and_no_tls_there() {
    let engine = Engine::start().await;
    let mut nobody = target(&engine);
    nobody.url = format!("http://127.0.0.1:{}", free_port());
    let error = Client::new(nobody).unwrap().ping().await.unwrap_err();
    assert_eq!((error.cause, error.class), (Cause::Connect, Class::Unavailable), "{error}");
    let mut plain = target(&engine);
    plain.url = plain.url.replace("http:", "https:");
    let error = Client::new(plain).unwrap().ping().await.unwrap_err();
    assert_eq!((error.cause, error.class), (Cause::Tls, Class::Unknown), "{error}");
}

#[tokio::test]
async fn a_frozen_server_is_late_and_forgiven() {
    let engine = Engine::start().await;
    let mut target = target(&engine);
    target.query_timeout = Duration::from_millis(300);
    let client = Client::new(target).unwrap();
    client.ping().await.unwrap();
    engine.stop_signal();
    let error = client.ping().await.unwrap_err();
    assert_eq!((error.cause, error.class), (Cause::Timeout, Class::Unavailable), "{error}");
    engine.cont();
    wavehouse_testkit::wait_for("the engine to answer", Duration::from_secs(20), async || {
        client.ping().await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn no_more_requests_at_a_time_than_allowed() {
    let engine = Engine::start().await;
    let mut target = target(&engine);
    target.max_open_conns = 2;
    let client = Client::new(target).unwrap();
    let held = client.raw("SELECT number FROM system.numbers").await.unwrap();
    let second = client.raw("SELECT number FROM system.numbers").await.unwrap();
    let third = tokio::time::timeout(Duration::from_millis(300), client.ping()).await;
    assert!(third.is_err());
    drop(held);
    client.ping().await.unwrap();
    drop(second);
}
