//! Pulling, pins, resets, acks, and readers of the history.

use std::time::Duration;

use wavehouse_core::Timestamp;
use wavehouse_nats::{
    CallError, Delivered, HistoryConsumer, PullRequest, PullStatus, Pulled, Puller, Settle, StartAt,
};
use wavehouse_testkit::wait_for;

use crate::kit::{GROUP, HISTORY, Kit, LONG, PARTITION, make_durable};

const SHARD_0: &str = "wh-ingest-0";

pub(crate) fn group_pull(batch: u32) -> PullRequest {
    PullRequest {
        batch,
        expires: Duration::from_secs(1),
        group: Some(GROUP.to_owned()),
        ..PullRequest::default()
    }
}

fn pinned(batch: u32, pin: &str) -> PullRequest {
    PullRequest { pin: Some(pin.to_owned()), ..group_pull(batch) }
}

async fn next(puller: &mut Puller) -> Pulled {
    let next = tokio::time::timeout(LONG, puller.next()).await;
    next.expect("something comes in time").expect("the connection is open")
}

pub(crate) async fn message(puller: &mut Puller) -> Delivered {
    match next(puller).await {
        Pulled::Message(delivered) => *delivered,
        Pulled::Status { pull, status } => panic!("pull {pull} ended with {status:?}"),
    }
}

async fn status(puller: &mut Puller) -> (u64, PullStatus) {
    match next(puller).await {
        Pulled::Status { pull, status } => (pull, status),
        Pulled::Message(delivered) => panic!("{delivered:?} came"),
    }
}

// Cases 44, 80.
#[tokio::test]
async fn pulled_rows_come_in_order_with_a_pin_and_leave_when_acked() {
    let kit = Kit::start("").await;
    for text in ["1", "2", "3"] {
        kit.row(0, "t", text).await;
    }
    let mut puller = kit.user.puller(PARTITION, SHARD_0).await.expect("ready");
    assert_eq!(puller.subject(), "$JS.API.CONSUMER.MSG.NEXT.WH_INGEST_0.wh-ingest-0");
    let pull = puller.pull(&group_pull(10)).await.expect("sent");
    let mut rows = Vec::new();
    for _ in 0..3 {
        rows.push(message(&mut puller).await);
    }
    assert_eq!(status(&mut puller).await, (pull, PullStatus::Expired));
    let texts: Vec<_> = rows.iter().map(|row| String::from_utf8_lossy(&row.payload).into_owned()).collect();
    assert_eq!(texts, ["1", "2", "3"]);
    let pin = rows[0].pin.clone().expect("a pin");
    assert!(rows.iter().all(|row| row.pin.as_deref() == Some(&pin) && row.subject == "wh.ingest.0.0.0.t"));
    let address = &rows[1].address;
    assert_eq!((address.stream.as_str(), address.consumer.as_str()), (PARTITION, SHARD_0));
    assert_eq!(
        (address.attempt, address.stream_sequence, address.consumer_sequence, address.pending),
        (1, 2, 2, 1)
    );
    assert!(rows[1].size_bytes > 1);

    let info = kit.user.consumer_info(PARTITION, SHARD_0).await.expect("a consumer");
    assert_eq!(
        (info.num_pending, info.num_ack_pending, info.delivered.stream_seq, info.ack_floor.stream_seq),
        (0, 3, 3, 0)
    );
    assert_eq!(info.priority_groups[0].pinned_client_id, pin);
    assert!(info.delivered.last_active.is_some() && info.ts.starts_with("20"));

    let connection = kit.user.connection();
    connection.settle_confirmed(&rows[0].reply, Settle::Ack, LONG).await.expect("acked");
    assert_eq!(kit.user.stream_info(PARTITION).await.expect("a stream").state.messages, 2);
    connection.settle(&rows[1].reply, Settle::Ack).await.expect("sent");
    connection.settle(&rows[2].reply, Settle::Nak).await.expect("sent");
    puller.pull(&pinned(1, &pin)).await.expect("sent");
    let again = message(&mut puller).await;
    assert_eq!((again.address.stream_sequence, again.address.attempt), (3, 2));
    connection.settle(&again.reply, Settle::NakAfter(Duration::from_millis(300))).await.expect("sent");
    puller.pull(&pinned(1, &pin)).await.expect("sent");
    assert_eq!(message(&mut puller).await.address.attempt, 3);
    let left = kit.user.stream_info(PARTITION).await.expect("a stream").state;
    assert_eq!((left.messages, left.first_seq), (1, 3));
}

// Case 44.
#[tokio::test]
async fn rows_are_settled_in_the_longer_layout_of_addresses_too() {
    let kit = Kit::start("feature_flags { js_ack_fc_v2: true }").await;
    kit.row(0, "t", "1").await;
    let mut puller = kit.user.puller(PARTITION, SHARD_0).await.expect("ready");
    puller.pull(&group_pull(1)).await.expect("sent");
    let row = message(&mut puller).await;
    assert!(row.reply.split('.').count() >= 11, "{}", row.reply);
    let address = &row.address;
    assert_eq!((address.stream.as_str(), address.consumer.as_str()), (PARTITION, SHARD_0));
    assert_eq!((address.domain.as_deref(), address.stream_sequence, address.pending), (None, 1, 0));
    kit.user.connection().settle_confirmed(&row.reply, Settle::Ack, LONG).await.expect("acked");
    assert_eq!(kit.user.stream_info(PARTITION).await.expect("a stream").state.messages, 0);
}

// Cases 80, 82.
#[tokio::test]
async fn one_of_a_group_is_pinned_until_the_pin_is_taken() {
    let kit = Kit::start("").await;
    let other = kit.another().await;
    kit.row(0, "t", "1").await;
    let mut owner = kit.user.puller(PARTITION, SHARD_0).await.expect("ready");
    owner.pull(&group_pull(1)).await.expect("sent");
    let first = message(&mut owner).await;
    let pin = first.pin.expect("a pin");

    // Without the pin, and with a wrong one.
    let mut waiting = other.puller(PARTITION, SHARD_0).await.expect("ready");
    let wrong = waiting.pull(&pinned(1, "another")).await.expect("sent");
    assert_eq!(status(&mut waiting).await, (wrong, PullStatus::PinLost));
    let patient = PullRequest { expires: Duration::from_secs(10), ..group_pull(5) };
    waiting.pull(&patient).await.expect("sent");

    // The owner keeps its pin with pulls that take nothing, whether or not something is there.
    let renewed = kit.user.renew_pin(PARTITION, SHARD_0, GROUP, &pin).await.expect("an answer");
    assert_eq!(renewed, PullStatus::Expired);
    kit.row(0, "t", "2").await;
    let renewed = kit.user.renew_pin(PARTITION, SHARD_0, GROUP, &pin).await.expect("an answer");
    assert_eq!(renewed, PullStatus::OverMaxBytes);
    assert_eq!(
        other.renew_pin(PARTITION, SHARD_0, GROUP, "another").await.expect("an answer"),
        PullStatus::PinLost
    );

    other.unpin(PARTITION, SHARD_0, GROUP).await.expect("unpinned");
    let second = message(&mut waiting).await;
    assert_eq!(&second.payload[..], b"2");
    assert_ne!(second.pin.expect("a pin"), pin);
    let lost = owner.pull(&pinned(1, &pin)).await.expect("sent");
    assert_eq!(status(&mut owner).await, (lost, PullStatus::PinLost));
}

// Case 85.
#[tokio::test]
async fn a_reset_brings_back_what_is_not_acked() {
    let kit = Kit::start("").await;
    for text in ["1", "2", "3"] {
        kit.row(0, "t", text).await;
    }
    let mut owner = kit.user.puller(PARTITION, SHARD_0).await.expect("ready");
    owner.pull(&group_pull(3)).await.expect("sent");
    let first = message(&mut owner).await;
    message(&mut owner).await;
    message(&mut owner).await;
    let pin = first.pin.clone().expect("a pin");
    kit.user.connection().settle_confirmed(&first.reply, Settle::Ack, LONG).await.expect("acked");
    kit.user.reset(PARTITION, SHARD_0).await.expect("reset");
    owner.pull(&pinned(3, &pin)).await.expect("sent");
    let back = [message(&mut owner).await, message(&mut owner).await].map(|row| row.address.stream_sequence);
    assert_eq!(back, [2, 3]);
}

#[tokio::test]
async fn pulls_end_in_ways_that_are_told_apart() {
    let kit = Kit::start("").await;
    make_durable(&kit.operator, "few", "wh.ingest.0.9.>", serde_json::json!({"max_batch": 2})).await;
    let mut few = kit.operator.puller(PARTITION, "few").await.expect("ready");
    let many = few.pull(&group_pull(3)).await.expect("sent");
    let (pull, ended) = status(&mut few).await;
    assert!(pull == many && matches!(ended, PullStatus::OverLimit(_)), "{ended:?}");

    let stranger = few.pull(&PullRequest { group: None, ..group_pull(1) }).await.expect("sent");
    let (pull, ended) = status(&mut few).await;
    assert!(pull == stranger && matches!(ended, PullStatus::BadRequest(_)), "{ended:?}");
    let now = few
        .pull(&PullRequest { no_wait: true, expires: Duration::ZERO, ..group_pull(1) })
        .await
        .expect("sent");
    assert_eq!(status(&mut few).await, (now, PullStatus::NothingNow));

    let heartbeat = Some(Duration::from_millis(200));
    let beating = few.pull(&PullRequest { heartbeat, ..group_pull(1) }).await.expect("sent");
    assert_eq!(status(&mut few).await, (beating, PullStatus::Heartbeat));
    kit.operator.delete_consumer(PARTITION, "few").await.expect("deleted");
    let ended = loop {
        match status(&mut few).await {
            (_, ended) if ended.goes_on() => {}
            (pull, ended) => break (pull, ended),
        }
    };
    assert_eq!(ended, (beating, PullStatus::ConsumerDeleted));
    let gone = few.pull(&group_pull(1)).await.expect("sent");
    assert_eq!(status(&mut few).await, (gone, PullStatus::NoResponders));
    let error = kit.operator.renew_pin(PARTITION, "few", GROUP, "p").await.expect_err("it is gone");
    assert!(matches!(error, CallError::NoResponders { .. }), "{error}");
    let error = kit.operator.consumer_info(PARTITION, "few").await.expect_err("it is gone");
    assert!(error.is_gone() && !error.is_stream_gone(), "{error}");
    // To this one the server says nothing at all.
    let hasty = kit.operator.with_timeout(Duration::from_millis(300));
    let error = hasty.reset(PARTITION, "few").await.expect_err("it is gone");
    assert!(matches!(error, CallError::NoAnswer { .. }), "{error}");
}

#[tokio::test]
async fn consumers_are_listed_in_pages() {
    let kit = Kit::start("").await;
    let mut names = kit.user.consumer_names(PARTITION).await.expect("names");
    names.sort();
    assert_eq!(names, ["wh-ingest-0", "wh-ingest-1"]);
    const READERS: usize = 1_100;
    for number in 0..READERS {
        let reader = reader(&format!("r{number}"), None, StartAt::New);
        kit.user.create_history_consumer(HISTORY, &reader).await.expect("made");
    }
    assert_eq!(kit.user.consumer_names(HISTORY).await.expect("names").len(), READERS);
    assert!(kit.user.consumer_names("NONE").await.expect_err("no such stream").is_stream_gone());
}

fn reader(name: &str, filter: Option<&str>, start: StartAt) -> HistoryConsumer {
    let inactive = Duration::from_secs(60);
    let filters = filter.map(str::to_owned).into_iter().collect();
    HistoryConsumer { name: name.to_owned(), filters, start, inactive }
}

#[tokio::test]
async fn the_history_is_read_from_anywhere() {
    let kit = Kit::start("").await;
    for (table, text) in [("a", "1"), ("b", "2"), ("a", "3")] {
        kit.row(0, table, text).await;
    }
    let held = async || kit.user.stream_info(HISTORY).await.expect("a stream").state.messages == 3;
    wait_for("the history to have all", LONG, held).await;
    let second = kit.operator.message(HISTORY, 2).await.expect("an answer").expect("it is there");
    let time = Timestamp::parse_rfc3339(&second.time).expect("a time");
    let cases = [
        ("first", None, StartAt::First, vec!["1", "2", "3"]),
        ("topic", Some("wh.hist.0.a"), StartAt::First, vec!["1", "3"]),
        ("sequence", None, StartAt::Sequence(3), vec!["3"]),
        ("time", None, StartAt::Time(time), vec!["2", "3"]),
        ("new", None, StartAt::New, vec![]),
    ];
    for (name, filter, start, expected) in cases {
        let info =
            kit.user.create_history_consumer(HISTORY, &reader(name, filter, start)).await.expect("made");
        assert_eq!(info.num_pending, u64::try_from(expected.len()).expect("few"), "{name}");
        assert_eq!(
            (info.config["ack_policy"].as_str(), info.config["mem_storage"].as_bool()),
            (Some("none"), Some(true))
        );
        let mut puller = kit.user.puller(HISTORY, name).await.expect("ready");
        puller.pull(&PullRequest { batch: 10, no_wait: true, ..PullRequest::default() }).await.expect("sent");
        let mut texts = Vec::new();
        while let Pulled::Message(delivered) = next(&mut puller).await {
            let header = |name: &str| delivered.headers.get(name).map(|value| value.as_str().to_owned());
            assert_eq!(header("Nats-Stream").as_deref(), Some(PARTITION));
            assert_eq!(header("Nats-Sequence"), Some(delivered.address.stream_sequence.to_string()));
            texts.push(String::from_utf8_lossy(&delivered.payload).into_owned());
        }
        assert_eq!(texts, expected, "{name}");
        kit.user.delete_consumer(HISTORY, name).await.expect("deleted");
        assert!(kit.user.delete_consumer(HISTORY, name).await.expect_err("it is gone").is_gone());
    }
}
