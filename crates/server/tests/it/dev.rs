//! `wavehouse dev`: the first hour, and why it is safe to leave it open on this machine.

use rustix::process::Signal;
use wavehouse_testkit::wait_for;

use crate::program::{Program, SOON, send_signal};

/// Answers of the sample table's count.
pub(crate) async fn wait_events(gateway: &Program, wanted: u64) {
    let client = gateway.plain_client();
    wait_for(&format!("{wanted} events"), SOON, async || count_events(&client).await == Some(wanted)).await;
}

pub(crate) async fn count_events(client: &crate::http::Client) -> Option<u64> {
    let answer = client.post("/v1/ops/query", r#"{"sql":"SELECT count() AS n FROM events"}"#).await;
    let rows: serde_json::Value = serde_json::from_str(&answer.text).ok()?;
    let count = &rows.get(0)?["n"];
    count.as_u64().or_else(|| count.as_str()?.parse().ok())
}

/// Waits until the page is printed: the sample table is there then.
pub(crate) async fn wait_page(gateway: &Program) {
    let address = format!("http://127.0.0.1:{}", gateway.port);
    wait_for("the page", SOON, async || gateway.out().contains(&address)).await;
}

#[tokio::test]
async fn the_first_hour() {
    let mut gateway = Program::dev(&[]);
    gateway.up().await;
    wait_page(&gateway).await;
    let client = gateway.plain_client();

    let row = r#"{"name":"signup","user_id":7,"properties":{"plan":"pro"}}"#;
    let answer = client.post("/v1/ingest?table=events", row).await;
    assert_eq!((answer.status, answer.text.trim()), (200, r#"{"ok":true}"#));
    let bare = client.post("/v1/ingest?table=events", r#"{"name":"bare"}"#).await;
    assert_eq!(bare.status, 200, "{}", bare.text);
    wait_events(&gateway, 2).await;
    assert_eq!(client.get("/metrics").await.status, 200);

    let with_origin = gateway.plain_client().with("origin", "http://elsewhere.example");
    let answer = with_origin.get("/livez").await;
    assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control")), "{answer:?}");
    let renamed = gateway.plain_client().with("host", &format!("elsewhere.example:{}", gateway.port));
    let answer = renamed.post("/v1/ops/query", r#"{"sql":"SELECT 1"}"#).await;
    assert!(
        (400..500).contains(&answer.status),
        "another host's name must not reach an open server: {answer:?}"
    );

    gateway.signal(Signal::INT);
    assert_eq!(gateway.ended().await, Some(0), "{}", gateway.log());

    // A second start finds everything.
    gateway.up().await;
    wait_events(&gateway, 2).await;
}

#[tokio::test]
async fn a_dead_engine_harms_no_one_and_comes_back() {
    let mut gateway = Program::dev(&[]);
    gateway.up().await;
    wait_page(&gateway).await;
    let client = gateway.plain_client();
    for round in 1..=2 {
        let engine = wait_for("the engine", SOON, async || gateway.engine_pid()).await;
        send_signal(engine, Signal::KILL);
        let answer = client.post("/v1/ingest?table=events", r#"{"name":"while it was dead"}"#).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        wait_events(&gateway, round).await;
        assert_ne!(gateway.engine_pid(), Some(engine));
    }
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended().await, Some(0), "{}", gateway.log());
}

#[tokio::test]
async fn the_engine_does_not_outlive_the_gateway() {
    let mut gateway = Program::dev(&[]);
    gateway.up().await;
    let engine = wait_for("the engine", SOON, async || gateway.engine_pid()).await;
    gateway.kill9();
    wait_for("the engine to leave", SOON, async || {
        let status = std::fs::read_to_string(format!("/proc/{engine}/stat")).unwrap_or_default();
        // An engine that has ended may stay in the table until somebody asks for its status.
        status.is_empty() || status.contains(") Z ")
    })
    .await;
}
