//! Rules about servers, places, what is left over and what is permitted; and that no rule goes untested.

use std::collections::BTreeSet;
use std::time::Duration;

use wavehouse_topology::{
    GoneStream, RULES, Refusal, ServerObserved, Severity, StreamObserved, TopologyError, TopologyInput,
    TopologyObserved, TopologySpec, verify,
};

use crate::kit::{Case, Short, after, applied, each_brings_its_finding, input, one, short, spec};
use crate::rules_of_durables::durable_rules;
use crate::rules_of_streams::{bucket_rules, history_rules, letter_rules, partition_rules};

fn case(rule: &'static str, change: fn(&mut TopologyObserved)) -> Case {
    Case { rule, change }
}

fn version(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// A partition beyond the configured ones, as an older count left it.
fn left_over(consumers: bool) -> StreamObserved {
    let wider = applied(&spec(TopologyInput { partitions: 3, ..input() }));
    let mut stream = wider.streams[2].clone();
    stream.info.state.messages = 7;
    for consumer in &mut stream.consumers {
        (consumer.num_pending, consumer.num_ack_pending) = (4, 3);
    }
    if !consumers {
        stream.consumers.clear();
    }
    stream
}

fn server_rules() -> Vec<&'static str> {
    let cases = [
        case("server-version-unreadable", |o| o.servers[0].version = version("latest")),
        case("server-version-old", |o| o.servers[0].version = version("2.13.9")),
        case("server-version-untested", |o| o.servers[0].version = version("2.15.0")),
        case("server-version-untested", |o| o.servers[0].version = version("3.0.0")),
        case("server-max-payload-small", |o| o.max_payload_bytes = (256 << 10) - 1),
        case("server-max-payload-low", |o| o.max_payload_bytes = (1 << 20) - 1),
        case("permission-live", |o| o.refusals = vec![Refusal::Live("wh.live.s".to_owned())]),
    ];
    let mut rules = each_brings_its_finding(&cases, "server");
    let second = [case("server-unreached", |o| {
        o.servers.push(ServerObserved { name: "nats-1".to_owned(), version: None });
    })];
    rules.extend(each_brings_its_finding(&second, "server nats-1"));
    rules
}

fn place_rules() -> Vec<&'static str> {
    let cases = [
        case("partition-missing", |o| drop(o.streams.remove(1))),
        case("partition-ambiguous", |o| {
            let mut second = o.streams[1].clone();
            second.info.config.name = "SECOND".to_owned();
            o.streams.push(second);
        }),
        case("partition-gone", |o| {
            o.streams.remove(1);
            let gone = GoneStream { name: "WH_INGEST_1".to_owned(), listed_for: "wh.ingest.1.x".to_owned() };
            o.gone.push(gone);
        }),
    ];
    let mut rules = each_brings_its_finding(&cases, "ingest partition 1");
    let left = [case("extra-stream", |o| o.streams.push(left_over(false)))];
    rules.extend(each_brings_its_finding(&left, "stream WH_INGEST_2"));
    let left = [case("extra-durable", |o| {
        let mut fourth = o.streams[1].consumers[2].clone();
        fourth.name = "wh-ingest-3".to_owned();
        o.streams[1].consumers.push(fourth);
    })];
    rules.extend(each_brings_its_finding(&left, "consumer WH_INGEST_1/wh-ingest-3"));
    let refused = [case("permission-durable", |o| {
        o.refusals.push(Refusal::Durable {
            stream: "WH_INGEST_0".to_owned(),
            durable: "wh-ingest-1".to_owned(),
            subject: "$JS.API.CONSUMER.MSG.NEXT.WH_INGEST_0.wh-ingest-1".to_owned(),
        });
    })];
    rules.extend(each_brings_its_finding(&refused, "consumer WH_INGEST_0/wh-ingest-1"));
    let letters = [case("permission-dlq", |o| {
        o.refusals.push(Refusal::DeadLetters("$JS.API.STREAM.MSG.GET.WH_DLQ".to_owned()));
    })];
    rules.extend(each_brings_its_finding(&letters, "stream WH_DLQ"));
    rules
}

/// Rules that need other settings, or cannot come alone.
const ELSEWHERE: [&str; 2] = ["partition-duplicate-window", "partition-shared"];

#[test]
fn case_20_every_rule_has_a_case() {
    let tables = [
        server_rules(),
        place_rules(),
        partition_rules(),
        durable_rules(),
        history_rules(),
        letter_rules(),
        bucket_rules(),
    ];
    let mut tested: BTreeSet<_> = tables.into_iter().flatten().collect();
    tested.extend(ELSEWHERE);
    let all: BTreeSet<_> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(all.len(), RULES.len(), "names are unique");
    assert_eq!(tested, all);
}

#[test]
fn case_20_required_findings_come_first() {
    let found = after(input(), |o| {
        o.servers[0].version = version("2.15.0");
        one(o).num_replicas = 1;
        one(o).retention = "limits".to_owned();
        o.streams.remove(2);
    });
    let expected: [Short; 4] = [
        ("partition-retention", Severity::Required, "stream WH_INGEST_1".to_owned(), "retention"),
        ("history-missing", Severity::Required, "stream WH_HISTORY".to_owned(), "name"),
        ("server-version-untested", Severity::Recommended, "server".to_owned(), "version"),
        ("partition-replicas-one", Severity::Recommended, "stream WH_INGEST_1".to_owned(), "num_replicas"),
    ];
    assert_eq!(found.iter().map(short).collect::<Vec<_>>(), expected);
    insta::assert_snapshot!("topology_error", TopologyError(found));
}

#[test]
fn case_19_at_one_replica_only_replicas_are_recommended() {
    let found = after(input(), |o| {
        for stream in &mut o.streams {
            stream.info.config.num_replicas = 1;
        }
    });
    let rules: Vec<_> = found.iter().map(|finding| finding.rule).collect();
    let expected = [
        "partition-replicas-one",
        "partition-replicas-one",
        "history-replicas-one",
        "dlq-replicas-one",
        "bucket-replicas",
    ];
    assert_eq!(rules, expected);
}

#[test]
fn case_21_what_a_higher_count_left_behind_never_stops_a_start() {
    let found = after(input(), |o| o.streams.push(left_over(true)));
    let objects: Vec<_> = found.iter().map(|finding| (finding.rule, finding.object.as_str())).collect();
    let durables =
        ["wh-ingest-0", "wh-ingest-1", "wh-ingest-2"].map(|name| format!("consumer WH_INGEST_2/{name}"));
    assert_eq!(objects, durables.each_ref().map(|object| ("extra-durable", object.as_str())));
    assert!(found.iter().all(|finding| finding.severity == Severity::Recommended));
    assert!(found[0].found.contains("7 messages"), "{}", found[0]);
    let found = after(input(), |o| o.streams.push(left_over(false)));
    assert!(found[0].found.contains("7 messages"), "{}", found[0]);
}

#[test]
fn a_padded_or_foreign_durable_is_nobody_s() {
    let found = after(input(), |o| {
        for name in ["wh-ingest-07", "other-9", "wh-ingest-x"] {
            let mut consumer = o.streams[1].consumers[2].clone();
            consumer.name = name.to_owned();
            o.streams[1].consumers.push(consumer);
        }
    });
    assert_eq!(found, []);
}

#[test]
fn case_22_a_stream_may_not_hold_two_partitions() {
    let found = after(input(), |o| {
        let second = o.streams.remove(1).info.config.subjects;
        o.streams[0].info.config.subjects.extend(second);
    });
    let shared = found.iter().find(|finding| finding.rule == "partition-shared").expect("it is found");
    assert_eq!(shared.severity, Severity::Required);
    assert!(shared.found.contains("partitions 0 and 1"), "{shared}");
}

#[test]
fn case_24_all_is_told_at_once() {
    let found = after(input(), |o| {
        o.streams[0].consumers.remove(0);
        o.streams.drain(2..4);
    });
    let rules: Vec<_> = found.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["durable-missing", "history-missing", "dlq-stream"]);
}

#[test]
fn case_28_the_window_must_cover_every_attempt() {
    let made_for_5s = applied(&spec(TopologyInput { partitions: 4, ..input() }));
    let slow = |publish_s: u64| TopologyInput {
        partitions: 4,
        publish_timeout: Duration::from_secs(publish_s),
        dedupe_lease: Duration::ZERO,
        ..input()
    };
    // The window is two minutes: twice the one time-out, and four times the other.
    let found = verify(&spec(slow(60)), &made_for_5s);
    let rules: Vec<_> = found.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["partition-duplicate-window"; 4]);
    assert_eq!(verify(&spec(slow(30)), &made_for_5s), []);
}

#[test]
fn case_37_and_38_a_refusal_names_the_command() {
    let refused = |spec: &TopologySpec| {
        let mut observed = applied(spec);
        for partition in 0..2 {
            for shard in 8..16 {
                let (stream, durable) = (format!("WH_INGEST_{partition}"), format!("wh-ingest-{shard}"));
                let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}");
                observed.refusals.push(Refusal::Durable { stream, durable, subject });
            }
        }
        verify(spec, &observed)
    };
    let found = refused(&spec(TopologyInput { shards: 16, ..input() }));
    assert_eq!(found.len(), 16);
    assert!(found.iter().all(|finding| finding.severity == Severity::Required));
    let text = found[0].to_string();
    for part in
        ["$JS.API.CONSUMER.MSG.NEXT.WH_INGEST_0.wh-ingest-8", "`wavehouse mq permissions --shards 16`"]
    {
        assert!(text.contains(part), "{text}");
    }
    let odd = TopologyInput {
        prefix: "x".to_owned(),
        shards: 16,
        ingest_consumer: "c".to_owned(),
        history_stream: Some("H".to_owned()),
        coord_bucket: Some("b".to_owned()),
        dlq_stream: Some("D".to_owned()),
        js_domain: Some("hub".to_owned()),
        ..input()
    };
    let command = "`wavehouse mq permissions --shards 16 --prefix x --ingest-consumer c --history-stream H \
                   --coord-bucket b --dlq-stream D --js-domain hub`";
    let text = refused(&spec(odd))[0].to_string();
    assert!(text.contains(command), "{text}");
}

#[test]
fn names_that_are_not_the_usual_ones_are_right_too() {
    let odd = TopologyInput {
        prefix: "a-b".to_owned(),
        ingest_consumer: "readers".to_owned(),
        history_stream: Some("H".to_owned()),
        dlq_stream: Some("D".to_owned()),
        coord_bucket: Some("leases".to_owned()),
        js_domain: Some("hub".to_owned()),
        ..input()
    };
    // Streams of partitions are found by subject, whatever they are called.
    let found = after(odd, |o| one(o).name = "anything".to_owned());
    assert_eq!(found, []);
    let local = TopologyInput { coord_on_nats: false, ..input() };
    assert_eq!(
        after(local, |o| drop(o.streams.remove(4))),
        [],
        "without leases there the bucket is not judged"
    );
}
