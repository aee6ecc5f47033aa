//! What the user may not do is told at once, and only to those who asked after it was told.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use wavehouse_nats::{CallError, Connection};
use wavehouse_testkit::wait_for;

use crate::kit::{HISTORY, Kit, LETTERS, LONG, PARTITION, SHARDS, body, config, make_durable};

fn assert_refused(error: &CallError, expected: &str) {
    assert!(matches!(error, CallError::Refused { subject } if subject == expected), "{error}");
}

// Case 46.
#[tokio::test]
async fn what_only_the_operator_may_do_is_refused_at_once() {
    let kit = Kit::start("").await;
    let begun = Instant::now();
    let verbs = [
        "STREAM.CREATE.X".to_owned(),
        format!("STREAM.UPDATE.{PARTITION}"),
        format!("STREAM.PURGE.{PARTITION}"),
        format!("STREAM.DELETE.{PARTITION}"),
        format!("STREAM.MSG.GET.{HISTORY}"),
        format!("STREAM.MSG.DELETE.{PARTITION}"),
        format!("CONSUMER.DELETE.{PARTITION}.wh-ingest-0"),
        format!("CONSUMER.CREATE.{PARTITION}.x"),
        format!("CONSUMER.DURABLE.CREATE.{HISTORY}.x"),
        format!("CONSUMER.RESET.{PARTITION}.wh-ingest-{SHARDS}"),
        format!("DIRECT.GET.{LETTERS}.wh.dlq.0.t"),
    ];
    for verb in &verbs {
        let error = kit.user.call::<Value>(verb, body(&json!({}))).await.expect_err("refused");
        assert_refused(&error, &format!("$JS.API.{verb}"));
        assert!(!error.is_unknown());
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "none waited for its time-out");
    let connection = kit.user.connection();
    let refused = connection.refused_since(0);
    let numbers: Vec<_> = refused.iter().map(|refused| refused.number).collect();
    assert_eq!(numbers, (1..).take(verbs.len()).collect::<Vec<u64>>());
    assert_eq!(*connection.refusals().borrow(), 11);
    assert_eq!(kit.user.connection().link().borrow().times, 1, "a refusal is no silence");
    kit.user.stream_info(PARTITION).await.expect("it is there");
}

// Case 40.
#[tokio::test]
async fn an_older_refusal_never_counts() {
    let mut kit = Kit::start("").await;
    let connection = kit.user.connection().clone();
    let subject = "$JS.API.STREAM.PURGE.WH_DLQ";
    kit.user.call::<Value>("STREAM.PURGE.WH_DLQ", Bytes::new()).await.expect_err("refused");
    let number = *connection.refusals().borrow();
    assert_eq!(connection.publish_refused_since(number, subject), None);
    assert!(connection.publish_refused_since(number - 1, subject).is_some());

    let wider = config("", None)
        .replace("\"$JS.API.INFO\"", "\"$JS.API.INFO\", \"$JS.API.STREAM.PURGE.WH_DLQ\"")
        .replace("\"$JS.API.STREAM.PURGE.>\",", "");
    kit.server.reload(&wider).await;
    let allowed = async || kit.user.call::<Value>("STREAM.PURGE.WH_DLQ", Bytes::new()).await.is_ok();
    wait_for("the new permissions to hold", LONG, allowed).await;
}

/// Asks whether a durable may be pulled from, in a way that delivers nothing: the heartbeat is longer than the server
/// takes.
async fn probe(connection: &Connection, subject: &str) -> Result<(), CallError> {
    let request = json!({"batch": 1, "expires": 1_000_000_000, "idle_heartbeat": 1_000_000_000});
    let answer = connection.request(subject, None, body(&request), Duration::from_secs(2)).await?;
    assert_eq!(answer.status.map(|status| status.as_u16()), Some(400), "{answer:?}");
    Ok(())
}

// Case 39.
#[tokio::test]
async fn a_probe_is_answered_or_refused_and_touches_nothing() {
    let kit = Kit::start("").await;
    make_durable(&kit.operator, "wh-ingest-2", "wh.ingest.0.2.>", json!({})).await;
    kit.row(0, "t", "row").await;
    let connection = kit.user.connection();
    let subject = |shard: u32| format!("$JS.API.CONSUMER.MSG.NEXT.{PARTITION}.wh-ingest-{shard}");
    probe(connection, &subject(0)).await.expect("allowed");
    assert_refused(&probe(connection, &subject(2)).await.expect_err("not allowed"), &subject(2));

    let error =
        kit.user.call::<Value>(&format!("CONSUMER.UNPIN.{PARTITION}.wh-ingest-0"), body(&json!({}))).await;
    assert!(matches!(error, Err(CallError::JetStream { .. })), "{error:?}");
    let error = kit.user.unpin(PARTITION, "wh-ingest-2", "wavehouse").await.expect_err("not allowed");
    assert_refused(&error, &format!("$JS.API.CONSUMER.UNPIN.{PARTITION}.wh-ingest-2"));
    let info = kit.user.consumer_info(PARTITION, "wh-ingest-0").await.expect("a consumer");
    assert_eq!((info.num_pending, info.num_ack_pending, info.delivered.stream_seq), (1, 0, 0));
    assert!(info.priority_groups.iter().all(|group| group.pinned_client_id.is_empty()));
}

// Case 38.
#[tokio::test]
async fn under_a_domain_the_refusal_is_found_in_either_form() {
    let kit = Kit::start_in_domain("", Some("hub")).await;
    let begun = Instant::now();
    let connection = kit.user.connection();
    let subject = kit.user.subject(&format!("CONSUMER.MSG.NEXT.{PARTITION}.wh-ingest-7"));
    assert!(subject.starts_with("$JS.hub.API."));
    let error = probe(connection, &subject).await.expect_err("not allowed");
    assert!(matches!(error, CallError::Refused { .. }), "{error}");
    assert!(connection.publish_refused_since(0, &subject).is_some());
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn acks_and_rows_are_not_recorded_but_subscriptions_and_chosen_subjects_are() {
    let kit = Kit::start("").await;
    let connection = kit.user.connection();
    connection.publish("$JS.ACK.S.C.1.2.3.4.5", None, Bytes::new()).await.expect("sent");
    connection.publish("wh.hist.0.t", None, Bytes::new()).await.expect("sent");
    let _refused = connection.subscribe("wh.ingest.>").await.expect("sent");
    kit.user.stream_info(PARTITION).await.expect("all before has arrived");
    wait_for("the refusal", LONG, async || !connection.refused_since(0).is_empty()).await;
    let refused = connection.refused_since(0);
    let told: Vec<_> =
        refused.iter().map(|refused| (refused.subject.as_str(), refused.subscribing)).collect();
    assert_eq!(told, [("wh.ingest.>", true)]);
    assert_eq!(connection.publish_refused_since(0, "wh.ingest.>"), None, "that was no publish");
}
