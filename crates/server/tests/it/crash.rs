//! Killed at any instant and started again: every row that got its 200 is there, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::Method;
use tokio::task::JoinSet;

use crate::dev::{wait_events, wait_page};
use crate::http::Client;
use crate::program::Program;

/// Writers at once.
const WRITERS: u64 = 8;

/// Starts writers that each send row after row until they get no answer; counts the answers of 200.
pub(crate) fn write(
    client: &Client,
    path: &'static str,
    row: fn(u64) -> String,
) -> (JoinSet<()>, Arc<AtomicU64>) {
    let acknowledged = Arc::new(AtomicU64::new(0));
    let next = Arc::new(AtomicU64::new(1));
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (client, acknowledged, next) = (client.clone(), Arc::clone(&acknowledged), Arc::clone(&next));
        writers.spawn(async move {
            loop {
                let row = row(next.fetch_add(1, Ordering::Relaxed));
                match client.send(Method::POST, path, row).await {
                    Ok(answer) if answer.status == 200 => acknowledged.fetch_add(1, Ordering::Relaxed),
                    _ => return,
                };
            }
        });
    }
    (writers, acknowledged)
}

#[tokio::test]
async fn kill_9_and_a_restart_keep_every_acknowledged_row() {
    let mut gateway = Program::dev(&[]);
    gateway.up().await;
    wait_page(&gateway).await;
    let mut least = 0;
    let mut most = 0;
    for _ in 0..3 {
        let row = |id| format!(r#"{{"name":"n","user_id":{id}}}"#);
        let (mut writers, acknowledged) = write(&gateway.plain_client(), "/v1/ingest?table=events", row);
        wavehouse_testkit::wait_for("writers under way", crate::program::SOON, async || {
            acknowledged.load(Ordering::Relaxed) >= 300
        })
        .await;
        gateway.kill9();
        while writers.join_next().await.is_some() {}
        let sent = acknowledged.load(Ordering::Relaxed);
        least += sent;
        // A row whose answer was lost may be there.
        most += sent + WRITERS;
        gateway.up().await;
    }
    // One more row, and everything before it is in.
    let answer = gateway.plain_client().post("/v1/ingest?table=events", r#"{"name":"last"}"#).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let client = gateway.plain_client();
    let last = r#"{"sql":"SELECT count() AS n FROM events WHERE name = 'last'"}"#;
    wavehouse_testkit::wait_for("the last row", crate::program::SOON, async || {
        client.post("/v1/ops/query", last).await.text.contains('1')
    })
    .await;
    let count = crate::dev::count_events(&client).await.unwrap() - 1;
    assert!(
        (least..=most).contains(&count),
        "{least} were acknowledged and at most {most} sent; {count} are there"
    );
    wait_events(&gateway, count + 1).await;
}
