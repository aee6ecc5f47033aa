//! Every rule about a durable: one changed field, one finding.

use std::time::Duration;

use wavehouse_topology::{Nanos, TopologyObserved};

use crate::kit::{Case, after, durable, each_brings_its_finding, input};

fn case(rule: &'static str, change: fn(&mut TopologyObserved)) -> Case {
    Case { rule, change }
}

fn s(seconds: u64) -> Nanos {
    Duration::from_secs(seconds).into()
}

#[test]
fn case_20_durables() {
    durable_rules();
}

pub(crate) fn durable_rules() -> Vec<&'static str> {
    let cases = [
        case("durable-missing", |o| drop(o.streams[1].consumers.remove(2))),
        case("durable-push", |o| durable(o).deliver_subject = "push.here".to_owned()),
        case("durable-ack-policy", |o| durable(o).ack_policy = "all".to_owned()),
        case("durable-ack-wait", |o| durable(o).ack_wait = s(59)),
        case("durable-backoff", |o| durable(o).backoff = vec![s(1), s(2)]),
        case("durable-max-deliver", |o| durable(o).max_deliver = 5),
        case("durable-max-ack-pending", |o| durable(o).max_ack_pending = -1),
        case("durable-max-ack-pending-low", |o| durable(o).max_ack_pending = 9_999),
        case("durable-deliver-policy", |o| durable(o).deliver_policy = "new".to_owned()),
        case("durable-filter", |o| durable(o).filter_subject = "wh.ingest.1.>".to_owned()),
        case("durable-filter", |o| durable(o).filter_subject = String::new()),
        case("durable-filter", |o| durable(o).filter_subjects = vec!["wh.ingest.1.0.>".to_owned()]),
        case("durable-headers-only", |o| durable(o).headers_only = true),
        case("durable-replay-policy", |o| durable(o).replay_policy = "original".to_owned()),
        case("durable-inactive-threshold", |o| durable(o).inactive_threshold = s(3600)),
        case("durable-max-expires", |o| durable(o).max_expires = s(4)),
        case("durable-max-request-batch", |o| durable(o).max_batch = 499),
        case("durable-max-bytes", |o| durable(o).max_bytes = (2 << 20) - 1),
        case("durable-max-waiting", |o| durable(o).max_waiting = 63),
        case("durable-paused", |o| o.streams[1].consumers[2].paused = true),
        case("durable-mem-storage", |o| durable(o).mem_storage = true),
        case("durable-num-replicas", |o| durable(o).num_replicas = 1),
        case("durable-priority-policy", |o| durable(o).priority_policy = "overflow".to_owned()),
        case("durable-priority-groups", |o| durable(o).priority_groups = vec!["other".to_owned()]),
        case("durable-priority-groups", |o| durable(o).priority_groups.push("second".to_owned())),
        case("durable-pinned-ttl-short", |o| durable(o).priority_timeout = s(9)),
        case("durable-pinned-ttl-long", |o| durable(o).priority_timeout = s(15)),
        case("durable-unknown-field", |o| {
            durable(o).other.0.insert("shiny".to_owned());
        }),
    ];
    each_brings_its_finding(&cases, "consumer WH_INGEST_1/wh-ingest-2")
}

#[test]
fn what_is_allowed_brings_none() {
    let changes: [fn(&mut TopologyObserved); 9] = [
        |o| durable(o).max_expires = s(5),
        |o| durable(o).max_batch = 500,
        |o| durable(o).max_bytes = 2 << 20,
        |o| durable(o).max_waiting = 64,
        |o| durable(o).priority_timeout = s(14),
        |o| durable(o).num_replicas = 3,
        |o| durable(o).pause_until = Some("2020-01-01T00:00:00Z".to_owned()),
        |o| {
            durable(o).filter_subjects = vec![std::mem::take(&mut durable(o).filter_subject)];
        },
        |o| {
            durable(o).other.0.insert("description".to_owned());
        },
    ];
    for (at, change) in changes.into_iter().enumerate() {
        assert_eq!(after(input(), change), [], "{at}");
    }
}
