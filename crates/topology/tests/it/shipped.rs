//! The files under `deployments/nats` are what the generator writes, and fit the store that they ask for.
#![expect(clippy::expect_used, reason = "a harness has nothing to do about what fails it")]

use std::fs;
use std::path::Path;

use serde_json::Value;
use wavehouse_topology::{TopologyInput, manifests, parse_size, permissions};

use crate::kit::spec;

fn shipped(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deployments/nats").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn values() -> Value {
    serde_saphyr::from_str(&shipped("values.yaml")).expect("the values are YAML")
}

fn shipped_input() -> TopologyInput {
    TopologyInput { partitions: 4, shards: 8, ..TopologyInput::default() }
}

#[test]
fn case_29_the_manifests_are_the_generator_s() {
    let generated = manifests(&spec(shipped_input())).expect("it fits");
    assert!(
        shipped("jetstream.yaml") == generated,
        "write deployments/nats/jetstream.yaml again: wavehouse mq manifests --partitions 4 --shards 8"
    );
}

#[test]
fn case_29_the_permissions_are_the_generator_s() {
    let values = values();
    let account = &values["config"]["merge"]["accounts"]["WAVEHOUSE"];
    assert_eq!(account["jetstream"], "enabled");
    let users = account["users"].as_array().expect("a list");
    let names: Vec<_> = users.iter().map(|user| (user["user"].as_str(), user["password"].as_str())).collect();
    let expected = [
        (Some("nack"), Some("<< $NACK_PASSWORD >>")),
        (Some("wavehouse"), Some("<< $WAVEHOUSE_PASSWORD >>")),
    ];
    assert_eq!(names, expected);
    assert!(users[0].get("permissions").is_none(), "nack makes the objects and may do everything");
    let set = permissions(&spec(shipped_input()));
    let generated = serde_json::json!({
        "publish": {"allow": set.publish_allow, "deny": set.publish_deny},
        "subscribe": {"allow": set.subscribe_allow},
    });
    assert!(
        users[1]["permissions"] == generated,
        "write the permissions in deployments/nats/values.yaml again: wavehouse mq permissions --shards 8"
    );
}

#[test]
fn the_values_are_for_three_servers_with_passwords_from_one_secret() {
    let values = values();
    assert_eq!(values["config"]["cluster"], serde_json::json!({"enabled": true, "replicas": 3}));
    assert_eq!(values["container"]["image"]["tag"], "2.14.6-alpine");
    for (variable, key) in [("NACK_PASSWORD", "nack"), ("WAVEHOUSE_PASSWORD", "wavehouse")] {
        let from = &values["container"]["env"][variable]["valueFrom"]["secretKeyRef"];
        assert_eq!(*from, serde_json::json!({"name": "nats-users", "key": key}));
    }
    assert!(!shipped("values.yaml").contains("sync"), "how the servers sync is left to whoever runs them");
}

/// What the shipped values give each server for streams, in bytes.
fn store_bytes() -> u64 {
    let values = values();
    let size = values["config"]["jetstream"]["fileStore"]["pvc"]["size"].as_str().expect("a size");
    parse_size(size).expect("a size")
}

/// What the shipped streams reserve, in bytes.
fn reserved_bytes() -> u64 {
    let text = shipped("jetstream.yaml");
    let sizes = text.lines().filter_map(|line| line.trim().strip_prefix("maxBytes: "));
    sizes.map(|bytes| bytes.parse::<u64>().expect("a number")).sum()
}

#[test]
fn case_30_the_streams_reserve_at_most_three_quarters_of_the_store_by_default() {
    assert_eq!(store_bytes(), 100 << 30);
    // Four partitions, the history and the dead letters: 60, 10 and 5 of 100.
    assert_eq!(reserved_bytes(), 75 << 30);
    assert!(reserved_bytes() * 4 <= store_bytes() * 3);
}

#[test]
fn case_35_a_store_of_just_that_size_holds_them_and_one_byte_less_does_not() {
    // Nothing else bounds a partition than what the history and the letters leave of the store.
    let (history, letters) = (10_u64 << 30, 5_u64 << 30);
    let left = (store_bytes() - history - letters) / 4;
    let fits = |partition_bytes| {
        manifests(&spec(TopologyInput {
            file_store_bytes: store_bytes(),
            partition_bytes: Some(partition_bytes),
            ..shipped_input()
        }))
        .is_ok()
    };
    assert!(fits(left) && !fits(left + 1));
}
