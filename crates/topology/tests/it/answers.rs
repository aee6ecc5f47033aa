//! Answers of a real server, nats-server 2.14.6, read as they are: what was asked for is seen, and nothing is unknown.
#![expect(clippy::expect_used, reason = "a harness has nothing to do about what fails it")]

use serde::de::DeserializeOwned;
use wavehouse_topology::{
    ConsumerInfo, Desired, StreamInfo, StreamObserved, TopologyInput, TopologyObserved, verify,
};

use crate::kit::{applied, spec};

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).expect("an answer can be read")
}

#[test]
fn a_partition_and_its_durable_are_seen_as_they_were_made() {
    let spec =
        spec(TopologyInput { shards: 1, replicas: 1, coord_on_nats: false, ..TopologyInput::default() });
    let mut info: StreamInfo = read(include_str!("answers/partition.json"));
    let consumer: ConsumerInfo = read(include_str!("answers/durable.json"));
    // It was made with another size and without two of the keys.
    let desired = Desired::new(&spec).expect("it fits");
    let (wanted, durables) = &desired.partitions[0];
    assert_eq!(info.config.metadata["_nats.ver"], "2.14.6");
    info.config.metadata.clone_from(&wanted.metadata);
    info.config.max_bytes = wanted.max_bytes;
    assert!(info.config.unknown_fields().is_empty() && consumer.config.unknown_fields().is_empty());
    let mut observed = applied(&spec);
    observed.streams[0] = StreamObserved { info: info.clone(), consumers: vec![consumer.clone()] };
    let rules: Vec<_> = verify(&spec, &observed).iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["partition-replicas-one", "history-replicas-one", "dlq-replicas-one"]);
    info.config.other.0.clear();
    assert_eq!(&info.config, wanted);
    let mut config = consumer.config;
    config.max_waiting = 0;
    config.other.0.clear();
    assert_eq!(config, durables[0]);
}

#[test]
fn the_bucket_is_seen_as_it_was_made() {
    let spec = spec(TopologyInput { replicas: 1, ..TopologyInput::default() });
    let mut info: StreamInfo = read(include_str!("answers/bucket.json"));
    let wanted = Desired::new(&spec).expect("it fits").bucket.stream();
    assert!(info.config.unknown_fields().is_empty());
    info.config.other.0.clear();
    info.config.metadata.clear();
    info.config.duplicate_window = wanted.duplicate_window;
    assert_eq!(info.config, wanted);
}

#[test]
fn every_odd_field_is_seen() {
    let odd: StreamInfo = read(include_str!("answers/odd.json"));
    assert_eq!(odd.config.persist_mode, "async");
    assert!(odd.config.subject_transform.is_some());
    assert_eq!((odd.config.max_msg_size, odd.config.max_msgs), (7, -1));
    assert_eq!((odd.config.max_age.0, odd.config.duplicate_window.0), (1_000_000_000, 1_000_000_000));
    let sourced: StreamInfo = read(include_str!("answers/sourced.json"));
    assert_eq!(sourced.config.sources.len(), 1);
    let counter: StreamInfo = read(include_str!("answers/counter.json"));
    assert!(counter.config.allow_msg_counter && counter.config.allow_direct);
    let mirror: StreamInfo = read(include_str!("answers/mirror.json"));
    assert!(mirror.config.mirror.is_some() && mirror.config.subjects.is_empty());
    for info in [&odd, &sourced, &counter, &mirror] {
        assert_eq!(info.config.unknown_fields(), [] as [&str; 0], "{}", info.config.name);
    }
}

#[test]
fn every_odd_field_of_a_durable_is_seen() {
    let ConsumerInfo { name, config, paused, .. } = read(include_str!("answers/odd_durable.json"));
    assert_eq!((name.as_str(), paused), ("a", true));
    assert_eq!(config.pause_until.as_deref(), Some("2030-01-01T00:00:00Z"));
    assert_eq!(config.backoff.iter().map(|wait| wait.0).collect::<Vec<_>>(), [1_000_000_000, 2_000_000_000]);
    assert_eq!(config.filters(), ["odd.a", "odd.b"]);
    let numbers =
        (config.max_waiting, config.max_batch, config.max_bytes, config.max_deliver, config.num_replicas);
    assert_eq!(numbers, (5, 3, 77, 5, 1));
    assert_eq!((config.max_expires.0, config.inactive_threshold.0), (1_000_000_000, 5_000_000_000));
    assert!(config.headers_only && config.mem_storage && config.replay_policy == "original");
    assert_eq!(config.unknown_fields(), [] as [&str; 0]);
}

#[test]
fn what_nobody_knows_is_told() {
    let info: StreamInfo =
        read(r#"{"config": {"name": "S", "shiny": {"a": 1}, "placement": null, "compression": "s2"}}"#);
    assert_eq!(info.config.unknown_fields(), ["shiny"]);
    let consumer: ConsumerInfo =
        read(r#"{"name": "c", "config": {"durable_name": "c", "newer": 1, "sample_freq": "1"}}"#);
    assert_eq!(consumer.config.unknown_fields(), ["newer"]);
}

#[test]
fn what_was_observed_can_be_written_down_and_read_back() {
    let observed = applied(&spec(crate::kit::input()));
    let text = serde_json::to_string(&observed).expect("it is data");
    assert_eq!(read::<TopologyObserved>(&text), observed);
}
