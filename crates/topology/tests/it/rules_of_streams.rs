//! Every rule about a stream or the bucket: one changed field, one finding.

use std::time::Duration;

use wavehouse_topology::{Present, Republish, TopologyObserved};

use crate::kit::{Case, bucket, each_brings_its_finding, history, letters, one};

fn case(rule: &'static str, change: fn(&mut TopologyObserved)) -> Case {
    Case { rule, change }
}

fn republish(observed: &mut TopologyObserved) -> &mut Republish {
    one(observed).republish.get_or_insert_default()
}

#[test]
fn case_20_partitions() {
    partition_rules();
}

pub(crate) fn partition_rules() -> Vec<&'static str> {
    let unknown = |observed: &mut TopologyObserved| {
        one(observed).other.0.insert("shiny".to_owned());
    };
    let cases = [
        case("partition-subjects", |o| one(o).subjects = vec!["wh.ingest.1.*".to_owned()]),
        case("partition-retention", |o| one(o).retention = "interest".to_owned()),
        case("partition-republish-missing", |o| one(o).republish = None),
        case("partition-republish-wrong", |o| republish(o).src = "wh.ingest.1.>".to_owned()),
        case("partition-republish-wrong", |o| republish(o).dest = "x.>".to_owned()),
        case("partition-republish-headers-only", |o| republish(o).headers_only = true),
        case("partition-discard", |o| one(o).discard = "old".to_owned()),
        case("partition-max-bytes", |o| one(o).max_bytes = -1),
        case("partition-max-age", |o| one(o).max_age = Duration::from_secs(1).into()),
        case("partition-storage", |o| one(o).storage = "memory".to_owned()),
        case("partition-duplicate-window-dedupe", |o| {
            one(o).duplicate_window = Duration::from_secs(60).into()
        }),
        case("partition-no-ack", |o| one(o).no_ack = true),
        case("partition-sealed", |o| one(o).sealed = true),
        case("partition-mirror", |o| one(o).mirror = Some(Present)),
        case("partition-sources", |o| one(o).sources = vec![Present]),
        case("partition-subject-transform", |o| one(o).subject_transform = Some(Present)),
        case("partition-msg-counter", |o| one(o).allow_msg_counter = true),
        case("partition-topic-cap-discard", |o| one(o).discard_new_per_subject = false),
        case("partition-topic-cap", |o| one(o).max_msgs_per_subject = -1),
        case("partition-deny", |o| one(o).deny_purge = false),
        case("partition-deny", |o| one(o).deny_delete = false),
        case("partition-persist-mode", |o| one(o).persist_mode = "async".to_owned()),
        case("partition-max-msgs", |o| one(o).max_msgs = 5),
        case("partition-max-msg-size", |o| one(o).max_msg_size = (1 << 20) - 1),
        case("partition-replicas-one", |o| one(o).num_replicas = 1),
        case("partition-replicas-two", |o| one(o).num_replicas = 2),
        case("partition-metadata-missing", |o| drop(one(o).metadata.remove("wavehouse.dev/partition"))),
        case("partition-metadata-missing", |o| drop(one(o).metadata.remove("wavehouse.dev/partitions"))),
        case("partition-metadata-wrong", |o| {
            drop(one(o).metadata.insert("wavehouse.dev/partitions".to_owned(), "8".to_owned()));
        }),
        case("partition-shards-missing", |o| drop(one(o).metadata.remove("wavehouse.dev/shards"))),
        case("partition-shards-wrong", |o| {
            drop(one(o).metadata.insert("wavehouse.dev/shards".to_owned(), "32".to_owned()));
        }),
        case("stream-unknown-field", unknown),
    ];
    each_brings_its_finding(&cases, "stream WH_INGEST_1")
}

#[test]
fn case_20_the_history() {
    history_rules();
}

pub(crate) fn history_rules() -> Vec<&'static str> {
    let cases = [
        case("history-missing", |o| drop(o.streams.remove(2))),
        case("history-subjects", |o| history(o).subjects.push("x.>".to_owned())),
        case("history-sources", |o| history(o).sources = vec![Present]),
        case("history-sources", |o| history(o).mirror = Some(Present)),
        case("history-retention", |o| history(o).retention = "workqueue".to_owned()),
        case("history-subject-transform", |o| history(o).subject_transform = Some(Present)),
        case("history-discard", |o| history(o).discard = "new".to_owned()),
        case("history-max-age", |o| history(o).max_age = Duration::ZERO.into()),
        case("history-max-bytes", |o| history(o).max_bytes = -1),
        case("history-max-msgs", |o| history(o).max_msgs = 5),
        case("history-max-msg-size", |o| history(o).max_msg_size = 5),
        case("history-replicas-one", |o| history(o).num_replicas = 1),
        case("history-replicas-two", |o| history(o).num_replicas = 2),
    ];
    each_brings_its_finding(&cases, "stream WH_HISTORY")
}

#[test]
fn case_20_the_dead_letters() {
    letter_rules();
}

pub(crate) fn letter_rules() -> Vec<&'static str> {
    let cases = [
        case("dlq-subjects", |o| letters(o).subjects = vec!["wh.dlq.*".to_owned()]),
        case("dlq-retention", |o| letters(o).retention = "workqueue".to_owned()),
        case("dlq-discard", |o| letters(o).discard = "new".to_owned()),
        case("dlq-storage", |o| letters(o).storage = "memory".to_owned()),
        case("dlq-max-bytes", |o| letters(o).max_bytes = 0),
        case("dlq-topic-cap", |o| letters(o).max_msgs_per_subject = -1),
        case("dlq-persist-mode", |o| letters(o).persist_mode = "async".to_owned()),
        case("dlq-subject-transform", |o| letters(o).subject_transform = Some(Present)),
        case("dlq-max-msgs", |o| letters(o).max_msgs = 5),
        case("dlq-max-msg-size", |o| letters(o).max_msg_size = 5),
        case("dlq-deny-delete", |o| letters(o).deny_delete = true),
        case("dlq-replicas-one", |o| letters(o).num_replicas = 1),
        case("dlq-replicas-two", |o| letters(o).num_replicas = 2),
    ];
    let mut gone = each_brings_its_finding(&cases, "stream WH_DLQ");
    let named = [case("dlq-name", |o| letters(o).name = "LETTERS".to_owned())];
    gone.extend(each_brings_its_finding(&named, "stream LETTERS"));
    let held = [
        case("dlq-stream", |o| drop(o.streams.remove(3))),
        case("dlq-stream", |o| {
            let mut second = o.streams[3].clone();
            second.info.config.name = "SECOND".to_owned();
            o.streams.push(second);
        }),
    ];
    gone.extend(each_brings_its_finding(&held, "dead-letter stream"));
    gone
}

#[test]
fn case_20_the_bucket() {
    bucket_rules();
}

pub(crate) fn bucket_rules() -> Vec<&'static str> {
    let cases = [
        case("bucket-missing", |o| drop(o.streams.remove(4))),
        case("bucket-history", |o| bucket(o).max_msgs_per_subject = 0),
        case("bucket-allow-direct", |o| bucket(o).allow_direct = false),
        case("bucket-ttl", |o| bucket(o).max_age = Duration::from_secs(60).into()),
        case("bucket-storage", |o| bucket(o).storage = "memory".to_owned()),
        case("bucket-replicas", |o| bucket(o).num_replicas = 2),
    ];
    each_brings_its_finding(&cases, "kv bucket wh_coord")
}
