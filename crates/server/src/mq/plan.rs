//! What provisioning would do to an object that is there already. Pure.
//!
//! Little is changed on what runs: metadata, the duplicate window, byte limits that grow, the history's age, and how many
//! messages a durable hands out. Everything else that differs is told and left, since a change could lose rows.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use wavehouse_topology::{ConsumerConfig, StreamConfig};

/// One field that is not as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    /// As JetStream's JSON calls it.
    pub(super) field: String,
    /// What is there.
    pub(super) found: String,
    /// What was asked for.
    pub(super) wanted: String,
}

/// An object that is there, held against what was asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Compared {
    /// What is changed.
    pub(super) changed: Vec<Difference>,
    /// What is left as it is.
    pub(super) left: Vec<Difference>,
    /// The object's whole configuration with the changes.
    pub(super) config: Value,
}

/// Fields that servers fill in or that change nothing when nobody asked for them.
const FILLED: [&str; 4] = ["duplicate_window", "persist_mode", "allow_direct", "max_waiting"];

/// Holds a stream against what was asked for.
///
/// # Errors
/// When the servers' answer is none that can be read.
pub(super) fn stream(wanted: &StreamConfig, found: &Value) -> Result<Compared, serde_json::Error> {
    let mut known: StreamConfig = parse(found)?;
    let unknown = known.unknown_fields();
    known.other = wanted.other.clone();
    let grows = known.max_bytes > 0 && wanted.max_bytes > known.max_bytes;
    let may = |field: &str| match field {
        "duplicate_window" | "max_age" => !wanted_is_unset(wanted, field),
        "max_bytes" => grows,
        _ => false,
    };
    let mut compared = compare(&object(wanted)?, &object(&known)?, found, &may, unknown);
    for (key, text) in &wanted.metadata {
        let there = known.metadata.get(key);
        if there != Some(text) {
            let found = there.map_or("unset", String::as_str).to_owned();
            compared.changed.push(Difference {
                field: format!("metadata.{key}"),
                found,
                wanted: text.clone(),
            });
            compared.config["metadata"][key.as_str()] = text.as_str().into();
        }
    }
    Ok(compared)
}

/// Holds a durable against what was asked for.
///
/// # Errors
/// As [`stream`].
pub(super) fn durable(wanted: &ConsumerConfig, found: &Value) -> Result<Compared, serde_json::Error> {
    let mut known: ConsumerConfig = parse(found)?;
    let unknown = known.unknown_fields();
    known.other = wanted.other.clone();
    let may = |field: &str| field == "max_ack_pending";
    Ok(compare(&object(wanted)?, &object(&known)?, found, &may, unknown))
}

/// A partition keeps rows of any age, so that an age there is none of ours to set.
fn wanted_is_unset(wanted: &StreamConfig, field: &str) -> bool {
    match field {
        "max_age" => wanted.max_age.is_unset(),
        _ => wanted.duplicate_window.is_unset(),
    }
}

fn compare(
    wanted: &Map<String, Value>,
    known: &Map<String, Value>,
    found: &Value,
    may_change: &dyn Fn(&str) -> bool,
    unknown: Vec<String>,
) -> Compared {
    let mut compared = Compared { config: found.clone(), ..Compared::default() };
    let fields = wanted.keys().chain(known.keys().filter(|field| !wanted.contains_key(*field)));
    for field in fields.filter(|field| !["name", "metadata"].contains(&field.as_str())) {
        let (asked, there) = (wanted.get(field), known.get(field));
        if asked == there || (asked.is_none() && FILLED.contains(&field.as_str())) {
            continue;
        }
        let difference =
            Difference { field: field.clone(), found: show(field, there), wanted: show(field, asked) };
        match asked {
            Some(value) if may_change(field) => {
                compared.config[field.as_str()] = value.clone();
                compared.changed.push(difference);
            }
            _ => compared.left.push(difference),
        }
    }
    compared.left.extend(unknown.into_iter().map(|field| Difference {
        found: "set, and this version does not know it".to_owned(),
        wanted: "unset".to_owned(),
        field,
    }));
    compared
}

fn parse<T: DeserializeOwned>(found: &Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(found.clone())
}

fn object(config: &impl Serialize) -> Result<Map<String, Value>, serde_json::Error> {
    serde_json::from_value(serde_json::to_value(config)?)
}

/// Times of a configuration are nanoseconds.
const TIMES: [&str; 6] =
    ["duplicate_window", "max_age", "ack_wait", "priority_timeout", "inactive_threshold", "max_expires"];

fn show(field: &str, value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "unset".to_owned(),
        Some(Value::Number(number)) if TIMES.contains(&field) => {
            wavehouse_topology::Nanos(number.as_u64().unwrap_or_default()).to_string()
        }
        Some(Value::Number(number)) if field == "max_bytes" => match number.as_u64() {
            Some(bytes) => wavehouse_topology::format_size(bytes),
            None => "unbounded".to_owned(),
        },
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wavehouse_topology::{Desired, TopologyInput};

    use super::*;

    fn desired() -> Desired {
        Desired::new(&TopologyInput { shards: 2, ..TopologyInput::default() }.check().unwrap()).unwrap()
    }

    /// What a server makes of a configuration.
    fn served(config: &impl Serialize, more: &Value) -> Value {
        let mut config = serde_json::to_value(config).unwrap();
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    }

    fn fields(differences: &[Difference]) -> Vec<&str> {
        differences.iter().map(|difference| difference.field.as_str()).collect()
    }

    #[test]
    fn what_servers_fill_in_is_no_difference() {
        let desired = desired();
        let filled = json!({"compression": "none", "max_consumers": -1, "consumer_limits": {}, "persist_mode": "default"});
        let (partition, durables) = &desired.partitions[0];
        assert_eq!(stream(partition, &served(partition, &filled)).unwrap().left, []);
        let history =
            served(&desired.history, &json!({"duplicate_window": 120_000_000_000_u64, "allow_direct": true}));
        assert_eq!(stream(&desired.history, &history).unwrap().left, []);
        let filled = json!({"max_waiting": 512, "num_replicas": 0, "name": "wh-ingest-0", "metadata": {"_nats.ver": "x"}});
        let compared = durable(&durables[0], &served(&durables[0], &filled)).unwrap();
        assert_eq!((compared.left, compared.changed), (vec![], vec![]));
    }

    #[test]
    fn little_is_changed_and_the_rest_is_told() {
        let desired = desired();
        let partition = &desired.partitions[0].0;
        let found = served(
            partition,
            &json!({
                "max_bytes": 1024, "duplicate_window": 60_000_000_000_u64, "num_replicas": 1, "discard": "old",
                "max_age": 1, "hovercraft": "full", "metadata": {"wavehouse.dev/shards": "32", "mine": "kept"},
            }),
        );
        let compared = stream(partition, &found).unwrap();
        let metadata = [
            "metadata.wavehouse.dev/partition",
            "metadata.wavehouse.dev/partitions",
            "metadata.wavehouse.dev/shards",
        ];
        assert_eq!(fields(&compared.changed), [&["duplicate_window", "max_bytes"][..], &metadata].concat());
        assert_eq!(fields(&compared.left), ["discard", "max_age", "num_replicas", "hovercraft"]);
        let config = &compared.config;
        assert_eq!(config["metadata"]["mine"], "kept");
        assert_eq!(config["metadata"]["wavehouse.dev/shards"], "2");
        assert_eq!((&config["discard"], &config["hovercraft"]), (&json!("old"), &json!("full")));
        assert_eq!(config["max_bytes"], partition.max_bytes);

        let larger = served(partition, &json!({"max_bytes": i64::MAX}));
        assert_eq!(fields(&stream(partition, &larger).unwrap().left), ["max_bytes"], "bytes never shrink");
        let unbounded = served(partition, &json!({"max_bytes": -1}));
        assert_eq!(fields(&stream(partition, &unbounded).unwrap().left), ["max_bytes"]);
        let history = served(&desired.history, &json!({"max_age": 1}));
        assert_eq!(fields(&stream(&desired.history, &history).unwrap().changed), ["max_age"]);
    }

    #[test]
    fn of_a_durable_only_the_number_that_it_hands_out_is_changed() {
        let wanted = &desired().partitions[0].1[0];
        let found =
            served(wanted, &json!({"max_ack_pending": 5, "ack_wait": 1_000_000_000_u64, "backoff": [1]}));
        let compared = durable(wanted, &found).unwrap();
        assert_eq!(fields(&compared.changed), ["max_ack_pending"]);
        assert_eq!(fields(&compared.left), ["ack_wait", "backoff"]);
        assert_eq!(compared.left[0].found, "1s");
        assert_eq!(compared.config["ack_wait"], 1_000_000_000_u64);
    }
}
