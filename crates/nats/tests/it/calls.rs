//! Streams, publishing, keys and single messages.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use wavehouse_nats::{CallError, HeaderMap, codes};
use wavehouse_testkit::wait_for;

use crate::kit::{BUCKET, HISTORY, Kit, LETTERS, LONG, PARTITION, body, make_stream};

fn headers(pairs: &[(&'static str, &str)]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.insert(*name, *value);
    }
    Some(headers)
}

#[tokio::test]
async fn streams_are_found_by_subject_and_read() {
    let kit = Kit::start("").await;
    let user = &kit.user;
    assert_eq!(user.stream_names(Some("wh.ingest.0.1.0.t")).await.expect("names"), [PARTITION]);
    assert_eq!(user.stream_names(Some("wh.ingest.>")).await.expect("names"), [PARTITION]);
    assert_eq!(user.stream_names(Some("wh.ingest.9.>")).await.expect("names"), [] as [&str; 0]);
    let mut all = user.stream_names(None).await.expect("names");
    all.sort();
    assert_eq!(all, ["KV_wh_coord", LETTERS, HISTORY, PARTITION]);

    kit.row(0, "a", "1").await;
    kit.row(0, "a", "2").await;
    kit.row(1, "b", "3").await;
    let info = user.stream_info(PARTITION).await.expect("a stream");
    assert_eq!((info.state.messages, info.state.last_seq, info.state.subjects.is_none()), (3, 3, true));
    assert_eq!(
        (info.config["retention"].as_str(), info.config["name"].as_str()),
        (Some("workqueue"), Some(PARTITION))
    );
    assert!(info.created.starts_with("20") && info.ts.starts_with("20"));
    let counted = user.stream_subjects(PARTITION, "wh.ingest.0.0.>").await.expect("a stream");
    let subjects: Vec<_> = counted.state.subjects.expect("counts").into_iter().collect();
    assert_eq!(subjects, [("wh.ingest.0.0.0.a".to_owned(), 2)]);
    let none = user.stream_subjects(PARTITION, "wh.ingest.0.0.none").await.expect("a stream");
    assert_eq!(none.state.subjects.expect("counts").len(), 0);

    let error = user.stream_info("NONE").await.expect_err("no such stream");
    assert!(error.is_stream_gone() && error.is_gone() && !error.is_unknown(), "{error}");
    assert_eq!(error.to_string(), "$JS.API.STREAM.INFO.NONE: stream not found (status 404, error 10059)");
}

#[tokio::test]
async fn long_listings_come_in_pages() {
    let kit = Kit::start("").await;
    const STREAMS: usize = 1_100;
    for number in 0..STREAMS {
        let name = format!("S{number}");
        let config = json!({"name": name, "subjects": [format!("s.{number}")], "storage": "memory"});
        let verb = format!("STREAM.CREATE.{name}");
        kit.operator.call::<serde_json::Value>(&verb, body(&config)).await.expect("the stream is made");
    }
    let names = kit.user.stream_names(Some("s.*")).await.expect("names");
    assert_eq!(names.len(), STREAMS);
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), STREAMS);
}

#[tokio::test]
async fn publishing_is_answered() {
    let kit = Kit::start("").await;
    let subject = "wh.ingest.0.0.0.t";
    let payload = || Bytes::from_static(b"{}\n");
    let id = || headers(&[("Nats-Msg-Id", "one")]);
    let first = kit.user.publish(subject, id(), payload()).await.expect("stored");
    assert_eq!((first.stream.as_str(), first.sequence, first.duplicate), (PARTITION, 1, false));
    let second = kit.user.publish(subject, id(), payload()).await.expect("stored");
    assert_eq!((second.sequence, second.duplicate), (1, true));

    let other = headers(&[("Nats-Expected-Stream", "OTHER")]);
    let error = kit.user.publish(subject, other, payload()).await.expect_err("another stream");
    assert_eq!(error.code(), Some(codes::STREAM_NOT_EXPECTED), "{error}");

    let error = kit.user.publish("wh.ingest.7.0.0.t", None, payload()).await.expect_err("no stream has it");
    assert!(matches!(error, CallError::NoResponders { .. }), "{error}");
    let large = Bytes::from(vec![b'x'; 1_048_577]);
    let error = kit.user.publish(subject, None, large).await.expect_err("too large");
    assert!(matches!(error, CallError::TooLarge { .. }), "{error}");
    let error = kit.user.publish("a b", None, payload()).await.expect_err("no subject");
    assert!(matches!(error, CallError::BadSubject { .. }), "{error}");
}

#[tokio::test]
async fn a_full_stream_says_so() {
    let kit = Kit::start("").await;
    make_stream(
        &kit.operator,
        "FULL",
        json!({"subjects": ["wh.ingest.5.>"], "discard": "new", "max_msgs_per_subject": 1,
               "discard_new_per_subject": true, "max_bytes": 2_000}),
    )
    .await;
    let publish =
        |subject: &'static str, size| kit.user.publish(subject, None, Bytes::from(vec![b'x'; size]));
    publish("wh.ingest.5.0.0.a", 10).await.expect("stored");
    let error = publish("wh.ingest.5.0.0.a", 10).await.expect_err("this subject is full");
    assert!(error.is_stream_full() && error.code() == Some(codes::STREAM_STORE_FAILED), "{error}");
    let error = publish("wh.ingest.5.0.0.b", 2_500).await.expect_err("the stream is full");
    assert!(error.is_stream_full(), "{error}");
    assert_eq!(error.fault(), wavehouse_core::FaultKind::Retry { after: None });
    publish("wh.ingest.5.0.0.c", 10).await.expect("others go on");
}

#[tokio::test]
async fn keys_are_written_over_the_revision_that_was_read() {
    let kit = Kit::start("").await;
    keys(&kit).await;
}

#[tokio::test]
async fn keys_are_written_in_a_domain_too() {
    let kit = Kit::start_in_domain("", Some("hub")).await;
    assert_eq!(kit.user.subject("STREAM.NAMES"), "$JS.hub.API.STREAM.NAMES");
    keys(&kit).await;
}

async fn keys(kit: &Kit) {
    let bucket = kit.user.bucket(BUCKET);
    let (one, two) = (Bytes::from_static(b"one"), Bytes::from_static(b"two"));
    assert_eq!(bucket.get("lease.a").await.expect("an answer"), None);
    let first = bucket.create("lease.a", one.clone()).await.expect("written");
    let entry = bucket.get("lease.a").await.expect("an answer").expect("it is there");
    assert_eq!((entry.revision, &entry.value, entry.deleted), (first, &one, false));
    assert!(entry.time.starts_with("20"));

    let error = bucket.create("lease.a", two.clone()).await.expect_err("it is there");
    assert!(error.is_conflict(), "{error}");
    let second = bucket.update("lease.a", two.clone(), first).await.expect("written");
    assert!(second > first);
    let error = bucket.update("lease.a", one.clone(), first).await.expect_err("it was written since");
    assert!(error.is_conflict(), "{error}");
    let error = bucket.delete("lease.a", first).await.expect_err("it was written since");
    assert!(error.is_conflict(), "{error}");

    let mark = bucket.delete("lease.a", second).await.expect("deleted");
    let entry = bucket.get("lease.a").await.expect("an answer").expect("a mark");
    assert_eq!((entry.revision, entry.value.len(), entry.deleted), (mark, 0, true));
    assert!(bucket.create("lease.a", one.clone()).await.expect_err("a mark is a write").is_conflict());
    bucket.update("lease.a", one, mark).await.expect("written over the mark");
    bucket.create("lease.b", two).await.expect("written");

    let subjects =
        kit.user.stream_subjects(&bucket.stream(), &bucket.subject("lease.>")).await.expect("a stream");
    let keys: Vec<_> = subjects.state.subjects.expect("counts").into_keys().collect();
    assert_eq!(keys, [bucket.subject("lease.a"), bucket.subject("lease.b")]);
    let none = kit.operator.bucket("none").get("lease.a").await.expect_err("no such bucket");
    assert!(matches!(none, CallError::NoResponders { .. }), "{none}");
}

#[tokio::test]
async fn dead_letters_are_read_and_removed_one_by_one() {
    let kit = Kit::start("").await;
    let letter = |table: &str, text: &'static str| {
        let subject = format!("wh.dlq.0.{table}");
        let headers =
            headers(&[("Nats-Expected-Stream", LETTERS), ("X-DLQ-Error", "no: such column"), ("X-Two", "ä")]);
        let user = kit.user.clone();
        async move {
            user.publish(&subject, headers, Bytes::from_static(text.as_bytes()))
                .await
                .expect("stored")
                .sequence
        }
    };
    let sequences = [letter("a", "1").await, letter("b", "2").await, letter("a", "\u{1}bin").await];
    assert_eq!(sequences, [1, 2, 3]);

    let found = kit.user.message(LETTERS, 3).await.expect("an answer").expect("it is there");
    assert_eq!(
        (found.subject.as_str(), found.sequence, &found.payload[..]),
        ("wh.dlq.0.a", 3, &b"\x01bin"[..])
    );
    let header = |name: &str| found.headers.get(name).map(|value| value.as_str().to_owned());
    assert_eq!(
        (header("X-DLQ-Error").as_deref(), header("X-Two").as_deref()),
        (Some("no: such column"), Some("ä"))
    );
    let next = |sequence, filter: &'static str| kit.user.next_message(LETTERS, sequence, filter);
    assert_eq!(next(0, "wh.dlq.0.a").await.expect("an answer").map(|found| found.sequence), Some(1));
    assert_eq!(next(2, "wh.dlq.0.a").await.expect("an answer").map(|found| found.sequence), Some(3));
    assert_eq!(next(4, "wh.dlq.>").await.expect("an answer"), None);
    let last = kit.user.last_message(LETTERS, "wh.dlq.0.b").await.expect("an answer");
    assert_eq!(last.map(|found| found.sequence), Some(2));

    assert!(kit.user.delete_message(LETTERS, 1).await.expect("an answer"));
    assert!(!kit.user.delete_message(LETTERS, 1).await.expect("an answer"), "it is gone");
    assert!(!kit.user.delete_message(LETTERS, 99).await.expect("an answer"), "it never was");
    assert_eq!(kit.user.message(LETTERS, 1).await.expect("an answer"), None);
    assert_eq!(kit.user.message(LETTERS, 99).await.expect("an answer"), None);
    assert_eq!(kit.user.stream_info(LETTERS).await.expect("a stream").state.messages, 2);
}

#[tokio::test]
async fn direct_reads_tell_nothing_from_no_stream() {
    let kit = Kit::start("").await;
    let operator = kit.operator.with_timeout(Duration::from_secs(2));
    make_stream(&operator, "DIRECT", json!({"subjects": ["d.>"], "allow_direct": true})).await;
    operator.publish("d.a", headers(&[("Own", "yes")]), Bytes::from_static(b"1")).await.expect("stored");
    let found = operator.direct_get_last("DIRECT", "d.a").await.expect("an answer").expect("it is there");
    assert_eq!((found.subject.as_str(), found.sequence, &found.payload[..]), ("d.a", 1, &b"1"[..]));
    assert_eq!(found.headers.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>(), ["Own"]);
    assert_eq!(operator.direct_get_last("DIRECT", "d.b").await.expect("an answer"), None);
    let error = operator.direct_get_last(LETTERS, "wh.dlq.0.a").await.expect_err("not allowed there");
    assert!(matches!(error, CallError::NoResponders { .. }), "{error}");
}

#[tokio::test]
async fn a_republished_row_is_in_the_history() {
    let kit = Kit::start("").await;
    kit.row(0, "a%2Eb", "row").await;
    let held = async || kit.user.stream_info(HISTORY).await.expect("a stream").state.messages == 1;
    wait_for("the history to have it", LONG, held).await;
}
