//! The manifests, word for word, and every key against the resource definitions of nack v1beta2.
#![expect(clippy::expect_used, reason = "a harness has nothing to do about what fails it")]

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use wavehouse_topology::{TopologyInput, manifests, manifests_command};

use crate::kit::spec;

/// The keys under `spec` that nack's resource definitions of v1beta2 have.
const STREAM_KEYS: &[&str] = &[
    "account",
    "allowAtomic",
    "allowDirect",
    "allowMsgCounter",
    "allowMsgSchedules",
    "allowMsgTtl",
    "allowRollup",
    "compression",
    "consumerLimits",
    "creds",
    "denyDelete",
    "denyPurge",
    "description",
    "discard",
    "discardPerSubject",
    "duplicateWindow",
    "firstSequence",
    "jsDomain",
    "maxAge",
    "maxBytes",
    "maxConsumers",
    "maxMsgSize",
    "maxMsgs",
    "maxMsgsPerSubject",
    "metadata",
    "mirror",
    "mirrorDirect",
    "name",
    "nkey",
    "noAck",
    "persistMode",
    "placement",
    "preventDelete",
    "preventUpdate",
    "replicas",
    "republish",
    "retention",
    "sealed",
    "servers",
    "sources",
    "storage",
    "subjectDeleteMarkerTtl",
    "subjectTransform",
    "subjects",
    "tls",
    "tlsFirst",
];
const CONSUMER_KEYS: &[&str] = &[
    "account",
    "ackPolicy",
    "ackWait",
    "backoff",
    "creds",
    "deliverGroup",
    "deliverPolicy",
    "deliverSubject",
    "description",
    "durableName",
    "filterSubject",
    "filterSubjects",
    "flowControl",
    "headersOnly",
    "heartbeatInterval",
    "inactiveThreshold",
    "jsDomain",
    "maxAckPending",
    "maxDeliver",
    "maxRequestBatch",
    "maxRequestExpires",
    "maxRequestMaxBytes",
    "maxWaiting",
    "memStorage",
    "metadata",
    "nkey",
    "optStartSeq",
    "optStartTime",
    "pauseUntil",
    "pinnedTtl",
    "preventDelete",
    "preventUpdate",
    "priorityGroups",
    "priorityPolicy",
    "rateLimitBps",
    "replayPolicy",
    "replicas",
    "sampleFreq",
    "servers",
    "streamName",
    "tls",
    "tlsFirst",
];
const BUCKET_KEYS: &[&str] = &[
    "account",
    "bucket",
    "compression",
    "creds",
    "description",
    "history",
    "jsDomain",
    "maxBytes",
    "maxValueSize",
    "mirror",
    "nkey",
    "placement",
    "preventDelete",
    "preventUpdate",
    "replicas",
    "republish",
    "servers",
    "sources",
    "storage",
    "tls",
    "tlsFirst",
    "ttl",
];

fn counts(partitions: u64, shards: u64) -> TopologyInput {
    TopologyInput { partitions, shards, ..TopologyInput::default() }
}

fn text(input: TopologyInput) -> String {
    manifests(&spec(input)).expect("it fits")
}

/// The documents of a stream of YAML.
fn documents(text: &str) -> Vec<Value> {
    let parse =
        |document| serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{document}: {error}"));
    text.split("---\n").map(parse).collect()
}

/// Everything but the partitions after the first, which differ from it in numbers alone.
fn outline(text: &str) -> String {
    let documents: Vec<_> = text.split("---\n").collect();
    let consumers = documents.iter().filter(|document| document.contains("kind: Consumer")).count();
    let kept = documents.iter().enumerate().filter(|(at, _)| *at < 2 || *at + 4 >= documents.len());
    let kept: Vec<_> = kept.map(|(_, document)| *document).collect();
    format!("{} documents, {consumers} durables\n{}", documents.len(), kept.join("---\n"))
}

#[test]
fn four_by_eight() {
    insta::assert_snapshot!("4x8", outline(&text(counts(4, 8))));
}

#[test]
fn one_by_thirty_two() {
    insta::assert_snapshot!("1x32", outline(&text(counts(1, 32))));
}

#[test]
fn everything_called_otherwise() {
    let input = TopologyInput {
        prefix: "my_app".to_owned(),
        ingest_consumer: "readers".to_owned(),
        history_stream: Some("H".to_owned()),
        dlq_stream: Some("D".to_owned()),
        coord_bucket: Some("007".to_owned()),
        replicas: 1,
        publish_timeout: Duration::from_secs(60),
        dedupe_lease: Duration::from_secs(90),
        file_store_bytes: 10 << 30,
        partition_bytes: Some(1536 << 20),
        ..counts(2, 1)
    };
    insta::assert_snapshot!("called_otherwise", text(input));
}

#[test]
fn other_stores_give_other_sizes() {
    let sizes = |bytes| {
        let documents = documents(&text(TopologyInput { file_store_bytes: bytes, ..counts(1, 1) }));
        let sizes = documents.iter().filter_map(|document| document["spec"]["maxBytes"].as_i64());
        sizes.collect::<Vec<_>>()
    };
    assert_eq!(sizes(100 << 30), [16_106_127_360, 10_737_418_240, 5_368_709_120]);
    assert_eq!(sizes(1_000_000), [150_000, 100_000, 50_000]);
    // The hundredth is taken first, rounded down.
    assert_eq!(sizes(1_999), [285, 199, 99]);
}

#[test]
fn there_are_as_many_documents_as_objects_in_their_order() {
    for (partitions, shards, count) in [(4, 8, 39), (4, 32, 135), (1, 1, 5)] {
        let documents = documents(&text(counts(partitions, shards)));
        assert_eq!(documents.len(), count);
        let mut names = Vec::new();
        for p in 0..partitions {
            names.push(("Stream".to_owned(), format!("wh-ingest-{p}")));
            names.extend((0..shards).map(|s| ("Consumer".to_owned(), format!("wh-ingest-{p}-{s}"))));
        }
        let last = [("Stream", "wh-history"), ("Stream", "wh-dlq"), ("KeyValue", "wh-coord")];
        names.extend(last.map(|(kind, name)| (kind.to_owned(), name.to_owned())));
        let of = |value: &Value| value.as_str().expect("a text").to_owned();
        let found = documents.iter().map(|one| (of(&one["kind"]), of(&one["metadata"]["name"])));
        assert_eq!(found.collect::<Vec<_>>(), names);
    }
}

#[test]
fn every_key_is_one_that_nack_knows() {
    let mut kinds = BTreeSet::new();
    for document in documents(&text(counts(2, 2))) {
        let kind = document["kind"].as_str().expect("a kind").to_owned();
        let known = match kind.as_str() {
            "Stream" => STREAM_KEYS,
            "Consumer" => CONSUMER_KEYS,
            _ => BUCKET_KEYS,
        };
        let keys = document["spec"].as_object().expect("a mapping").keys();
        let unknown: Vec<_> = keys.filter(|key| !known.contains(&key.as_str())).collect();
        assert_eq!(unknown, [] as [&str; 0], "{kind}");
        assert_eq!(document["apiVersion"], "jetstream.nats.io/v1beta2");
        let top: Vec<_> = document.as_object().expect("a mapping").keys().map(String::as_str).collect();
        assert_eq!(BTreeSet::from_iter(top), BTreeSet::from(["apiVersion", "kind", "metadata", "spec"]));
        kinds.insert(kind);
    }
    assert_eq!(kinds, BTreeSet::from(["Consumer", "KeyValue", "Stream"].map(str::to_owned)));
}

#[test]
fn numbers_in_metadata_are_texts() {
    let documents = documents(&text(counts(4, 8)));
    let expected = serde_json::json!({
        "wavehouse.dev/partition": "0", "wavehouse.dev/partitions": "4", "wavehouse.dev/shards": "8",
    });
    assert_eq!(documents[0]["spec"]["metadata"], expected);
}

#[test]
fn the_window_grows_with_what_it_must_cover() {
    let window = |publish_s: f64, lease_s: f64| {
        let input = TopologyInput {
            publish_timeout: Duration::from_secs_f64(publish_s),
            dedupe_lease: Duration::from_secs_f64(lease_s),
            ..counts(1, 1)
        };
        documents(&text(input))[0]["spec"]["duplicateWindow"].as_str().expect("a text").to_owned()
    };
    for (publish_s, lease_s, expected) in [
        (5.0, 30.0, "2m"),
        (5.0, 59.0, "2m"),
        (5.0, 60.0, "2m1s"),
        (60.0, 0.0, "3m0.5s"),
        (5.0, 1799.5, "1h0m0.5s"),
    ] {
        assert_eq!(window(publish_s, lease_s), expected, "{publish_s} {lease_s}");
    }
}

#[test]
fn the_command_writes_the_same_again() {
    let usual =
        "wavehouse mq manifests --partitions 1 --shards 32 --prefix wh --replicas 3 --file-store 100Gi";
    assert_eq!(manifests_command(&spec(TopologyInput::default())), usual);
    let input = TopologyInput {
        ingest_consumer: "c".to_owned(),
        history_stream: Some("H".to_owned()),
        dlq_stream: Some("D".to_owned()),
        coord_bucket: Some("b".to_owned()),
        publish_timeout: Duration::from_millis(1_500),
        dedupe_lease: Duration::ZERO,
        partition_bytes: Some(1 << 30),
        ..TopologyInput::default()
    };
    let all = format!(
        "{usual} --partition-max-bytes 1Gi --ingest-consumer c --history-stream H --publish-timeout 1.5s \
         --coord-bucket b --dlq-stream D --dedupe-lease 0h"
    );
    assert_eq!(manifests_command(&spec(input)), all);
    let said = TopologyInput {
        history_stream: Some("WH_HISTORY".to_owned()),
        coord_bucket: Some("wh_coord".to_owned()),
        partition_bytes: Some(15 << 30),
        ..TopologyInput::default()
    };
    assert_eq!(manifests_command(&spec(said)), usual, "what is usual need not be said");
}

#[test]
fn case_31_streams_over_the_store_are_refused() {
    let fits = |partitions, partition_bytes| {
        manifests(&spec(TopologyInput { partition_bytes, ..counts(partitions, 1) })).is_ok()
    };
    assert!(fits(5, None) && !fits(6, None) && fits(6, Some(10 << 30)) && !fits(1, Some(86 << 30)));
}

#[test]
fn resources_have_names_that_kubernetes_takes() {
    for (prefix, name) in
        [("my_app", "my-app-ingest-0"), ("_x", "x-ingest-0"), ("_", "ingest-0"), ("0", "0-ingest-0")]
    {
        let input = TopologyInput { prefix: prefix.to_owned(), ..counts(1, 1) };
        assert_eq!(documents(&text(input))[0]["metadata"]["name"], name);
    }
}
