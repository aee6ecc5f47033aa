//! What is changed for each rule, and what that is to show.

use serde_json::json;

use super::{BUCKET, HISTORY, LETTERS, PARTITION, World, change};

/// What a broken rule is to show: its finding, or that the server itself refuses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shows {
    Finding,
    Refusal,
}
use Shows::{Finding as Found, Refusal as Refused};

pub(super) type Case = (&'static str, Shows, fn(&mut World));

pub(super) fn partition_cases() -> Vec<Case> {
    vec![
        ("partition-missing", Found, |w| drop(w.streams.remove(PARTITION))),
        ("partition-subjects", Found, |w| {
            w.stream(PARTITION, json!({"subjects": ["wh.ingest.0.*", "wh.ingest.0.*.>"]}));
        }),
        ("partition-retention", Found, |w| w.stream(PARTITION, json!({"retention": "limits"}))),
        ("partition-republish-missing", Found, |w| w.stream(PARTITION, json!({"republish": null}))),
        ("partition-republish-wrong", Found, |w| {
            w.stream(PARTITION, json!({"republish": {"src": "wh.ingest.0.*.>", "dest": "wh.history.>"}}));
        }),
        ("partition-republish-headers-only", Found, |w| {
            let republish = json!({"src": "wh.ingest.0.*.>", "dest": "wh.hist.>", "headers_only": true});
            w.stream(PARTITION, json!({"republish": republish}));
        }),
        ("partition-discard", Found, |w| {
            w.stream(PARTITION, json!({"discard": "old", "discard_new_per_subject": null}));
        }),
        ("partition-max-bytes", Found, |w| w.stream(PARTITION, json!({"max_bytes": -1}))),
        ("partition-max-age", Found, |w| w.stream(PARTITION, json!({"max_age": 3_600_000_000_000_u64}))),
        ("partition-storage", Found, |w| {
            w.stream(PARTITION, json!({"storage": "memory", "max_bytes": 1 << 20}));
        }),
        ("partition-duplicate-window", Found, |w| {
            w.stream(PARTITION, json!({"duplicate_window": 2_000_000_000_u64}));
        }),
        ("partition-duplicate-window-dedupe", Found, |w| {
            w.stream(PARTITION, json!({"duplicate_window": 30_000_000_000_u64}));
        }),
        ("partition-no-ack", Found, |w| w.stream(PARTITION, json!({"no_ack": true}))),
        ("partition-sealed", Found, |w| {
            let mut sealed = w.streams[PARTITION].0.clone();
            change(&mut sealed, json!({"sealed": true}));
            w.updates.push(sealed);
        }),
        ("partition-sources", Found, |w| {
            w.more(json!({"name": "OTHER", "subjects": ["other"], "storage": "file", "num_replicas": 1}));
            w.stream(PARTITION, json!({"sources": [{"name": "OTHER"}]}));
        }),
        ("partition-subject-transform", Found, |w| {
            let transform = json!({"src": "wh.ingest.0.0.>", "dest": "wh.ingest.0.1.>"});
            w.stream(PARTITION, json!({"subject_transform": transform}));
        }),
        ("partition-msg-counter", Found, |w| {
            let counter = json!({"allow_msg_counter": true, "retention": "limits", "discard": "old",
                "discard_new_per_subject": null});
            w.stream(PARTITION, counter);
        }),
        ("partition-topic-cap-discard", Found, |w| {
            w.stream(PARTITION, json!({"discard_new_per_subject": null}));
        }),
        ("partition-topic-cap", Found, |w| {
            w.stream(PARTITION, json!({"discard_new_per_subject": null, "max_msgs_per_subject": -1}));
        }),
        ("partition-deny", Found, |w| w.stream(PARTITION, json!({"deny_purge": null}))),
        ("partition-persist-mode", Found, |w| w.stream(PARTITION, json!({"persist_mode": "async"}))),
        ("partition-max-msgs", Found, |w| w.stream(PARTITION, json!({"max_msgs": 1_000}))),
        ("partition-max-msg-size", Found, |w| w.stream(PARTITION, json!({"max_msg_size": 1_000}))),
        ("partition-replicas-one", Found, |_| {}),
        ("partition-metadata-missing", Found, |w| {
            w.stream(PARTITION, json!({"metadata": {"wavehouse.dev/shards": "2"}}));
        }),
        ("partition-metadata-wrong", Found, |w| metadata(w, "0", "3", "2")),
        ("partition-shards-missing", Found, |w| {
            let metadata = json!({"wavehouse.dev/partition": "0", "wavehouse.dev/partitions": "1"});
            w.stream(PARTITION, json!({"metadata": metadata}));
        }),
        ("partition-shards-wrong", Found, |w| metadata(w, "0", "1", "3")),
    ]
}

fn metadata(world: &mut World, partition: &str, partitions: &str, shards: &str) {
    let metadata = json!({
        "wavehouse.dev/partition": partition,
        "wavehouse.dev/partitions": partitions,
        "wavehouse.dev/shards": shards,
    });
    world.stream(PARTITION, json!({"metadata": metadata}));
}

pub(super) fn durable_cases() -> Vec<Case> {
    vec![
        ("durable-missing", Found, |w| drop(w.streams[PARTITION].1.pop())),
        ("durable-push", Found, |w| {
            w.durable(
                json!({"deliver_subject": "push.here", "priority_policy": null, "priority_groups": null,
                "priority_timeout": null}),
            );
        }),
        ("durable-ack-policy", Refused, |w| w.durable(json!({"ack_policy": "none"}))),
        ("durable-ack-wait", Found, |w| w.durable(json!({"ack_wait": 30_000_000_000_u64}))),
        ("durable-backoff", Found, |w| {
            w.durable(json!({"backoff": [1_000_000_000_u64, 2_000_000_000_u64], "max_deliver": 5}));
        }),
        ("durable-max-deliver", Found, |w| w.durable(json!({"max_deliver": 5}))),
        ("durable-max-ack-pending", Found, |w| w.durable(json!({"max_ack_pending": -1}))),
        ("durable-max-ack-pending-low", Found, |w| w.durable(json!({"max_ack_pending": 9_999}))),
        ("durable-deliver-policy", Refused, |w| w.durable(json!({"deliver_policy": "new"}))),
        ("durable-filter", Found, |w| w.durable(json!({"filter_subject": "wh.ingest.0.1.0.>"}))),
        ("durable-headers-only", Found, |w| w.durable(json!({"headers_only": true}))),
        ("durable-replay-policy", Found, |w| w.durable(json!({"replay_policy": "original"}))),
        ("durable-inactive-threshold", Found, |w| {
            w.durable(json!({"inactive_threshold": 3_600_000_000_000_u64}));
        }),
        ("durable-max-expires", Found, |w| w.durable(json!({"max_expires": 1_000_000_000_u64}))),
        ("durable-max-request-batch", Found, |w| w.durable(json!({"max_batch": 499}))),
        ("durable-max-bytes", Found, |w| w.durable(json!({"max_bytes": 1_000}))),
        ("durable-max-waiting", Found, |w| w.durable(json!({"max_waiting": 5}))),
        ("durable-paused", Found, |w| w.durable(json!({"pause_until": "2999-01-01T00:00:00Z"}))),
        ("durable-mem-storage", Found, |w| w.durable(json!({"mem_storage": true}))),
        ("durable-priority-policy", Found, |w| {
            w.durable(json!({"priority_policy": "overflow", "priority_timeout": null}));
        }),
        ("durable-priority-groups", Found, |w| w.durable(json!({"priority_groups": ["other"]}))),
        ("durable-pinned-ttl-short", Found, |w| w.durable(json!({"priority_timeout": 5_000_000_000_u64}))),
        ("durable-pinned-ttl-long", Found, |w| w.durable(json!({"priority_timeout": 20_000_000_000_u64}))),
        ("extra-stream", Found, |w| {
            w.more(
                json!({"name": "OLD", "subjects": ["wh.ingest.7.>"], "storage": "file", "num_replicas": 1}),
            );
        }),
        ("extra-durable", Found, |w| {
            let mut extra = w.streams[PARTITION].1[1].clone();
            change(&mut extra, json!({"durable_name": "wh-ingest-5", "filter_subject": "wh.ingest.0.5.>"}));
            w.streams[PARTITION].1.push(extra);
        }),
    ]
}

pub(super) fn history_cases() -> Vec<Case> {
    vec![
        ("history-missing", Found, |w| drop(w.streams.remove(HISTORY))),
        ("history-subjects", Found, |w| w.stream(HISTORY, json!({"subjects": ["wh.hist.>", "more"]}))),
        ("history-sources", Found, |w| {
            w.more(json!({"name": "OTHER", "subjects": ["other"], "storage": "file", "num_replicas": 1}));
            w.stream(HISTORY, json!({"sources": [{"name": "OTHER"}]}));
        }),
        ("history-retention", Found, |w| w.stream(HISTORY, json!({"retention": "interest"}))),
        ("history-subject-transform", Found, |w| {
            w.stream(HISTORY, json!({"subject_transform": {"src": "wh.hist.a.>", "dest": "wh.hist.b.>"}}));
        }),
        ("history-discard", Found, |w| w.stream(HISTORY, json!({"discard": "new"}))),
        ("history-max-age", Found, |w| w.stream(HISTORY, json!({"max_age": 0}))),
        ("history-max-bytes", Found, |w| w.stream(HISTORY, json!({"max_bytes": -1}))),
        ("history-max-msgs", Found, |w| w.stream(HISTORY, json!({"max_msgs": 10}))),
        ("history-max-msg-size", Found, |w| w.stream(HISTORY, json!({"max_msg_size": 1_000}))),
        ("history-replicas-one", Found, |_| {}),
        ("bucket-missing", Found, |w| drop(w.streams.remove(BUCKET))),
        // Zero is one to a server.
        ("bucket-history", Found, |w| w.stream(BUCKET, json!({"max_msgs_per_subject": -1}))),
        ("bucket-allow-direct", Found, |w| w.stream(BUCKET, json!({"allow_direct": false}))),
        ("bucket-ttl", Found, |w| w.stream(BUCKET, json!({"max_age": 60_000_000_000_u64}))),
        ("bucket-storage", Found, |w| w.stream(BUCKET, json!({"storage": "memory"}))),
        ("bucket-replicas", Found, |_| {}),
    ]
}

pub(super) fn letter_cases() -> Vec<Case> {
    vec![
        ("dlq-stream", Found, |w| drop(w.streams.remove(LETTERS))),
        ("dlq-subjects", Found, |w| w.stream(LETTERS, json!({"subjects": ["wh.dlq.*", "wh.dlq.*.*"]}))),
        ("dlq-retention", Found, |w| w.stream(LETTERS, json!({"retention": "interest"}))),
        ("dlq-discard", Found, |w| w.stream(LETTERS, json!({"discard": "new"}))),
        ("dlq-storage", Found, |w| w.stream(LETTERS, json!({"storage": "memory", "max_bytes": 1 << 20}))),
        ("dlq-max-bytes", Found, |w| w.stream(LETTERS, json!({"max_bytes": -1}))),
        ("dlq-topic-cap", Found, |w| w.stream(LETTERS, json!({"max_msgs_per_subject": -1}))),
        ("dlq-persist-mode", Found, |w| w.stream(LETTERS, json!({"persist_mode": "async"}))),
        ("dlq-subject-transform", Found, |w| {
            w.stream(LETTERS, json!({"subject_transform": {"src": "wh.dlq.a.>", "dest": "wh.dlq.b.>"}}));
        }),
        ("dlq-max-msgs", Found, |w| w.stream(LETTERS, json!({"max_msgs": 10}))),
        ("dlq-max-msg-size", Found, |w| w.stream(LETTERS, json!({"max_msg_size": 1_000}))),
        ("dlq-name", Found, |w| w.stream(LETTERS, json!({"name": "LETTERS"}))),
        ("dlq-deny-delete", Found, |w| w.stream(LETTERS, json!({"deny_delete": true}))),
        ("dlq-replicas-one", Found, |_| {}),
    ]
}

/// Rules that no single server shows, and where they are tested.
pub(super) const ELSEWHERE: [(&str, &str); 18] = [
    ("server-version-unreadable", "no server has such a version; cases of the rule itself"),
    ("server-version-old", "servers of other versions, below"),
    ("server-version-untested", "servers of other versions, below"),
    ("server-unreached", "topology::the_versions_of_all_servers_are_known"),
    ("server-max-payload-small", "servers of other versions, below"),
    ("server-max-payload-low", "servers of other versions, below"),
    ("partition-ambiguous", "servers refuse subjects that overlap; cases of the rule itself"),
    ("partition-gone", "a moment between two requests; cases of the rule itself"),
    ("partition-mirror", "a mirror holds no subjects, so no partition is found; cases of the rule itself"),
    ("partition-replicas-two", "needs two servers; cases of the rule itself"),
    ("partition-shared", "one stream for two partitions, below"),
    ("stream-unknown-field", "a server of a later version; cases of the rule itself"),
    ("durable-unknown-field", "a server of a later version; cases of the rule itself"),
    ("durable-num-replicas", "needs two servers; cases of the rule itself"),
    ("history-replicas-two", "needs two servers; cases of the rule itself"),
    ("dlq-replicas-two", "needs two servers; cases of the rule itself"),
    ("permission-dlq", "topology::letters_and_signs_of_life_that_are_not_permitted_are_advice"),
    ("permission-live", "topology::letters_and_signs_of_life_that_are_not_permitted_are_advice"),
];
