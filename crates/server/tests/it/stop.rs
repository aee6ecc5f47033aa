//! Ends: asked for under load, hurried, and what they leave behind.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use wavehouse_testkit::{Engine, wait_for};

use crate::boot::{TABLE, wait_count};
use crate::crash::write;
use crate::program::{Program, SOON};

#[tokio::test]
async fn a_stop_under_load_is_clean_and_loses_nothing() {
    let engine = Engine::start().await;
    engine.query(TABLE).await;
    let mut gateway = Program::serving(&engine, &[]);
    gateway.up().await;
    let (mut writers, acknowledged) =
        write(&gateway.client(), "/v1/ingest?table=rows", |id| format!(r#"{{"id":{id}}}"#));
    wait_for("writers under way", SOON, async || acknowledged.load(Ordering::Relaxed) > 500).await;
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended().await, Some(0), "{}", gateway.log());
    while writers.join_next().await.is_some() {}

    // The worker wrote what it had in hand; what came after is in the queue for the next start.
    let sent = acknowledged.load(Ordering::Relaxed);
    gateway.up().await;
    wait_for("every row", SOON, async || {
        let count: u64 = engine.query("SELECT count() FROM rows").await.trim().parse().unwrap();
        count >= sent
    })
    .await;
    assert_eq!(engine.query("SELECT count() - uniqExact(id) FROM rows").await, "0\n", "nothing twice");
    let stored: u64 = engine.query("SELECT count() FROM rows").await.trim().parse().unwrap();
    assert_eq!(stored, sent, "a clean stop answers everything that it stores");
}

#[tokio::test]
async fn a_second_signal_does_not_wait() {
    let engine = Engine::start().await;
    engine.query(TABLE).await;
    let mut gateway = Program::serving(&engine, &[("WH_SERVER_SHUTDOWN_TIMEOUT", "50")]);
    gateway.up().await;
    // An engine that hangs keeps the worker's last batch in hand.
    engine.stop_signal();
    for id in 1..=3 {
        let answer = gateway.client().post("/v1/ingest?table=rows", format!(r#"{{"id":{id}}}"#)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    gateway.signal(Signal::TERM);
    wait_for("the stop to begin", SOON, async || gateway.log().contains("stopping")).await;
    let began = Instant::now();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended().await, Some(1), "{}", gateway.log());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());

    engine.cont();
    gateway.up().await;
    wait_count(&engine, "rows", 3).await;
}

#[tokio::test]
async fn a_stop_tells_load_balancers_first() {
    let engine = Engine::start().await;
    engine.query(TABLE).await;
    let mut gateway = Program::serving(&engine, &[("WH_SERVER_DRAIN_DELAY", "3")]);
    gateway.up().await;
    gateway.wait_status("/readyz", 200).await;
    gateway.signal(Signal::TERM);
    gateway.wait_status("/readyz", 503).await;
    let answer = gateway.client().post("/v1/ingest?table=rows", r#"{"id":1}"#).await;
    assert_eq!(answer.status, 200, "rows are still taken: {}", answer.text);
    assert_eq!(gateway.ended().await, Some(0), "{}", gateway.log());
    gateway.up().await;
    wait_count(&engine, "rows", 1).await;
}
