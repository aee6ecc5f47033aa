//! What the queue relies on in JetStream itself, held against a real server.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use wavehouse_nats::{CallError, HeaderMap, JetStream, PullRequest, PullStatus, Pulled, Settle};
use wavehouse_testkit::wait_for;

use crate::consumers::{group_pull, message};
use crate::kit::{GROUP, HISTORY, Kit, LONG, PARTITION, body, config, connect, make_durable, make_stream};

/// A filter that overlaps that of another consumer of a work queue.
const OVERLAPS: u32 = 10_100;

/// A durable of the partition beside the product's, for the operator's pulls.
const OWN: &str = "own";

async fn messages(kit: &Kit, stream: &str) -> u64 {
    kit.operator.stream_info(stream).await.expect("a stream").state.messages
}

async fn wait_messages(kit: &Kit, stream: &str, wanted: u64) {
    let what = format!("{stream} to hold {wanted}");
    wait_for(&what, LONG, async || messages(kit, stream).await == wanted).await;
}

/// Another connection of the operator.
async fn operator(kit: &Kit) -> JetStream {
    connect(&kit.server, "operator", "_INBOX", None).await.jetstream()
}

async fn pin(kit: &Kit) -> String {
    let info = kit.operator.consumer_info(PARTITION, OWN).await.expect("a consumer");
    info.priority_groups.first().map(|group| group.pinned_client_id.clone()).unwrap_or_default()
}

/// The durable [`OWN`], with rows `1` and `2`.
async fn with_own(more: Value) -> Kit {
    let kit = Kit::start("").await;
    make_durable(&kit.operator, OWN, "wh.ingest.0.9.>", more).await;
    for text in ["1", "2"] {
        kit.row(9, "t", text).await;
    }
    kit
}

#[tokio::test]
async fn case_73_a_work_queue_keeps_what_nobody_reads_yet() {
    let kit = Kit::start("").await;
    make_stream(&kit.operator, "INTEREST", json!({"subjects": ["i.>"], "retention": "interest"})).await;
    kit.operator.publish("i.t", None, Bytes::from_static(b"1")).await.expect("stored");
    assert_eq!(messages(&kit, "INTEREST").await, 0, "nobody has an interest");
    kit.row(9, "t", "1").await;
    assert_eq!(messages(&kit, PARTITION).await, 1);
}

#[tokio::test]
async fn case_74_readers_of_a_work_queue_do_not_overlap() {
    let kit = Kit::start("").await;
    let make = async |filter: &str, action: &str| {
        let config = json!({"durable_name": "another", "ack_policy": "explicit", "filter_subject": filter});
        let request = json!({"stream_name": PARTITION, "config": config, "action": action});
        let verb = format!("CONSUMER.DURABLE.CREATE.{PARTITION}.another");
        let made = kit.operator.call::<Value>(&verb, body(&request)).await;
        made.map_err(|error| error.code())
    };
    for filter in ["wh.ingest.0.1.>", "wh.ingest.0.1.0.t", "wh.ingest.0.>", "wh.ingest.>"] {
        assert_eq!(make(filter, "create").await.err(), Some(Some(OVERLAPS)), "{filter}");
    }
    make("wh.ingest.0.9.>", "create").await.expect("apart from the others");
    assert_eq!(make("wh.ingest.0.1.>", "update").await.err(), Some(Some(OVERLAPS)));
}

#[tokio::test]
async fn case_75_the_history_is_fed_under_the_shorter_subject_and_acks_do_not_empty_it() {
    let kit = Kit::start("").await;
    kit.row(0, "t", "1").await;
    kit.row(1, "u", "2").await;
    wait_messages(&kit, HISTORY, 2).await;
    let mut puller = kit.user.puller(PARTITION, "wh-ingest-0").await.expect("ready");
    puller.pull(&group_pull(1)).await.expect("sent");
    let row = message(&mut puller).await;
    kit.user.connection().settle_confirmed(&row.reply, Settle::Ack, LONG).await.expect("acked");
    assert_eq!((messages(&kit, PARTITION).await, messages(&kit, HISTORY).await), (1, 2));
    let counted = kit.user.stream_subjects(HISTORY, "wh.hist.>").await.expect("a stream").state.subjects;
    let subjects: Vec<_> = counted.expect("counts").into_iter().collect();
    assert_eq!(subjects, [("wh.hist.0.t".to_owned(), 1), ("wh.hist.0.u".to_owned(), 1)]);
}

#[tokio::test]
async fn case_76_a_history_that_is_gone_or_full_holds_up_no_row() {
    let kit = Kit::start("").await;
    let deleted = kit.operator.call::<Value>(&format!("STREAM.DELETE.{HISTORY}"), Bytes::new()).await;
    deleted.expect("deleted");
    kit.row(0, "t", "1").await;
    let full = json!({"subjects": ["wh.hist.>"], "discard": "new", "max_msgs": 1});
    make_stream(&kit.operator, HISTORY, full).await;
    for text in ["2", "3", "4"] {
        kit.row(0, "t", text).await;
    }
    wait_messages(&kit, HISTORY, 1).await;
    assert_eq!(messages(&kit, PARTITION).await, 4);
}

#[tokio::test]
async fn case_77_a_row_that_expects_its_stream_has_no_copy_and_others_keep_their_id() {
    let kit = Kit::start("").await;
    let publish = async |headers: &[(&'static str, &str)]| {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.insert(*name, *value);
        }
        kit.user.publish("wh.ingest.0.0.0.t", Some(all), Bytes::from_static(b"row")).await.expect("stored")
    };
    publish(&[("Nats-Msg-Id", "a"), ("Nats-Expected-Stream", PARTITION)]).await;
    publish(&[("Nats-Msg-Id", "b")]).await;
    wait_messages(&kit, HISTORY, 1).await;
    assert_eq!(messages(&kit, PARTITION).await, 2);
    let copy = kit.operator.last_message(HISTORY, "wh.hist.0.t").await.expect("an answer").expect("a copy");
    let header = |name: &str| copy.headers.get(name).map(|value| value.as_str().to_owned());
    assert_eq!(header("Nats-Msg-Id").as_deref(), Some("b"));
    assert_eq!(header("Nats-Stream").as_deref(), Some(PARTITION));
}

#[tokio::test]
async fn case_79_an_emptied_work_queue_keeps_its_last_time() {
    let kit = Kit::start("").await;
    kit.row(0, "t", "1").await;
    let before = kit.user.stream_info(PARTITION).await.expect("a stream").state;
    let mut puller = kit.user.puller(PARTITION, "wh-ingest-0").await.expect("ready");
    puller.pull(&group_pull(1)).await.expect("sent");
    let row = message(&mut puller).await;
    kit.user.connection().settle_confirmed(&row.reply, Settle::Ack, LONG).await.expect("acked");
    let after = kit.user.stream_info(PARTITION).await.expect("a stream").state;
    assert_eq!((after.messages, &after.last_ts, after.last_seq), (0, &before.last_ts, 1));
    assert!(after.last_ts.starts_with("20"), "{}", after.last_ts);
}

#[tokio::test]
async fn case_81_the_pin_of_a_dead_reader_lapses_and_its_rows_come_back() {
    let kit = with_own(json!({"ack_wait": 6_000_000_000_u64})).await;
    let (dying, heir) = (operator(&kit).await, operator(&kit).await);
    let mut owner = dying.puller(PARTITION, OWN).await.expect("ready");
    owner.pull(&group_pull(1)).await.expect("sent");
    let first = message(&mut owner).await;
    let began = tokio::time::Instant::now();
    dying.connection().close().await;
    let mut waiting = heir.puller(PARTITION, OWN).await.expect("ready");
    waiting.pull(&PullRequest { expires: LONG, ..group_pull(1) }).await.expect("sent");
    let second = message(&mut waiting).await;
    let lapsed = began.elapsed();
    assert_eq!(second.address.stream_sequence, 2);
    assert!(lapsed > Duration::from_secs(1), "not before its pin has lapsed: {lapsed:?}");
    assert!(lapsed < Duration::from_secs(5), "as soon as its pin has lapsed: {lapsed:?}");
    assert_ne!(second.pin, first.pin);
    // Short pulls keep its own pin meanwhile.
    let again = loop {
        let pin = second.pin.clone();
        waiting.pull(&PullRequest { pin, ..group_pull(1) }).await.expect("sent");
        match waiting.next().await.expect("the connection is open") {
            Pulled::Message(delivered) => break delivered,
            Pulled::Status { status, .. } => assert_eq!(status, PullStatus::Expired),
        }
    };
    assert_eq!((again.address.stream_sequence, again.address.attempt), (1, 2));
    assert!(began.elapsed() > Duration::from_secs(5), "not before the ack wait: {:?}", began.elapsed());
}

#[tokio::test]
async fn case_83_a_reader_that_was_silent_too_long_is_told_so() {
    let kit = with_own(json!({})).await;
    let (silent, heir) = (operator(&kit).await, operator(&kit).await);
    let mut owner = silent.puller(PARTITION, OWN).await.expect("ready");
    owner.pull(&group_pull(1)).await.expect("sent");
    let pin = message(&mut owner).await.pin;
    let mut waiting = heir.puller(PARTITION, OWN).await.expect("ready");
    waiting.pull(&PullRequest { expires: LONG, ..group_pull(1) }).await.expect("sent");
    assert_eq!(message(&mut waiting).await.address.stream_sequence, 2);
    let late = owner.pull(&PullRequest { pin, ..group_pull(1) }).await.expect("sent");
    let Some(Pulled::Status { pull, status }) = owner.next().await else { panic!("no status") };
    assert_eq!((pull, status), (late, PullStatus::PinLost));
}

#[tokio::test]
async fn case_84_short_pulls_keep_an_idle_pin_and_a_long_one_loses_it() {
    let kit = with_own(json!({})).await;
    let mut owner = kit.operator.puller(PARTITION, OWN).await.expect("ready");
    owner.pull(&group_pull(2)).await.expect("sent");
    let held = message(&mut owner).await.pin;
    message(&mut owner).await;
    let expected = held.clone().expect("a pin");
    // Over twice as long as the pin lasts.
    for _ in 0..5 {
        owner.pull(&PullRequest { pin: held.clone(), ..group_pull(1) }).await.expect("sent");
        let Some(Pulled::Status { status, .. }) = owner.next().await else { panic!("no status") };
        assert_eq!(status, PullStatus::Expired);
        assert_eq!(pin(&kit).await, expected);
    }
    owner.pull(&PullRequest { pin: held, expires: LONG, ..group_pull(1) }).await.expect("sent");
    let began = tokio::time::Instant::now();
    wait_for("the pin to lapse", LONG, async || pin(&kit).await.is_empty()).await;
    assert!(began.elapsed() < Duration::from_secs(6), "long before its pull ends: {:?}", began.elapsed());
}

#[tokio::test]
async fn case_86_a_wildcard_for_a_part_of_a_token_permits_nothing() {
    let mut kit = Kit::start("").await;
    assert!(kit.user.renew_pin(PARTITION, "wh-ingest-0", GROUP, "p").await.is_ok());
    let exact = "\"$JS.API.CONSUMER.MSG.NEXT.*.wh-ingest-0\"";
    let partial = config("", None).replace(exact, "\"$JS.API.CONSUMER.MSG.NEXT.*.wh-ingest-*\"");
    assert!(partial.contains("wh-ingest-*"));
    kit.server.reload(&partial).await;
    wait_for("the pull to be refused", LONG, async || {
        let pulled = kit.user.renew_pin(PARTITION, "wh-ingest-0", GROUP, "p").await;
        matches!(pulled, Err(CallError::Refused { .. }))
    })
    .await;
    assert!(kit.user.renew_pin(PARTITION, "wh-ingest-1", GROUP, "p").await.is_ok(), "its name is given");
}

#[tokio::test]
async fn case_45_an_ack_of_another_durable_is_refused_and_the_row_stays() {
    let kit = with_own(json!({})).await;
    let mut puller = kit.operator.puller(PARTITION, OWN).await.expect("ready");
    puller.pull(&group_pull(1)).await.expect("sent");
    let row = message(&mut puller).await;
    let user = kit.user.connection();
    let acked = user.settle_confirmed(&row.reply, Settle::Ack, Duration::from_secs(2)).await;
    assert!(acked.is_err(), "{acked:?}");
    let info = kit.operator.consumer_info(PARTITION, OWN).await.expect("a consumer");
    assert_eq!((info.num_ack_pending, messages(&kit, PARTITION).await), (1, 2));
    let operator = kit.operator.connection();
    operator.settle_confirmed(&row.reply, Settle::Ack, LONG).await.expect("its owner may");
    assert_eq!(messages(&kit, PARTITION).await, 1);
}
