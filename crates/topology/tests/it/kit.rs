//! Servers as they are once the manifests are applied, to be broken one field at a time.
#![expect(clippy::expect_used, reason = "a harness has nothing to do about what fails it")]

use wavehouse_topology::{
    ConsumerConfig, ConsumerInfo, Desired, Finding, ServerObserved, Severity, StreamConfig, StreamInfo,
    StreamObserved, TopologyInput, TopologyObserved, TopologySpec, verify,
};

/// Two partitions of three shards: enough for a rule to hit the wrong one.
pub(crate) fn input() -> TopologyInput {
    TopologyInput { partitions: 2, shards: 3, ..TopologyInput::default() }
}

pub(crate) fn spec(input: TopologyInput) -> TopologySpec {
    input.check().unwrap_or_else(|findings| panic!("{findings:?}"))
}

fn stream(config: StreamConfig, consumers: Vec<ConsumerInfo>) -> StreamObserved {
    StreamObserved { info: StreamInfo { config, ..StreamInfo::default() }, consumers }
}

/// A durable as its server shows it.
pub(crate) fn consumer(config: ConsumerConfig) -> ConsumerInfo {
    let name = config.durable_name.clone();
    // A server fills this in.
    let config = ConsumerConfig { max_waiting: 512, ..config };
    ConsumerInfo { name, config, ..ConsumerInfo::default() }
}

/// What the servers show once the manifests are applied.
pub(crate) fn applied(spec: &TopologySpec) -> TopologyObserved {
    let desired = Desired::new(spec).expect("it fits");
    let partitions = desired.partitions.into_iter();
    let mut streams: Vec<_> = partitions
        .map(|(config, consumers)| stream(config, consumers.into_iter().map(consumer).collect()))
        .collect();
    streams.extend(
        [desired.history, desired.dead_letters, desired.bucket.stream()].map(|one| stream(one, vec![])),
    );
    TopologyObserved {
        servers: vec![ServerObserved { name: String::new(), version: Some("2.14.6".to_owned()) }],
        max_payload_bytes: 1 << 20,
        streams,
        ..TopologyObserved::default()
    }
}

/// A finding in short: its rule, how bad, where, and in which field.
pub(crate) type Short = (&'static str, Severity, String, &'static str);

pub(crate) fn short(finding: &Finding) -> Short {
    (finding.rule, finding.severity, finding.object.clone(), finding.field)
}

/// What is found after one change to servers that were right.
pub(crate) fn after(input: TopologyInput, change: impl FnOnce(&mut TopologyObserved)) -> Vec<Finding> {
    let spec = spec(input);
    let mut observed = applied(&spec);
    assert_eq!(verify(&spec, &observed), [], "nothing is found before the change");
    change(&mut observed);
    verify(&spec, &observed)
}

/// One change, and the one finding that it must bring.
pub(crate) struct Case {
    pub(crate) rule: &'static str,
    pub(crate) change: fn(&mut TopologyObserved),
}

/// Runs a table and says which rules it went through.
pub(crate) fn each_brings_its_finding(cases: &[Case], object: &str) -> Vec<&'static str> {
    for case in cases {
        let found = after(input(), case.change);
        let rules: Vec<_> = found.iter().map(|finding| finding.rule).collect();
        assert_eq!(rules, [case.rule], "{found:#?}");
        assert_eq!(found[0].object, object, "{}", case.rule);
        assert!(!found[0].mend.is_empty() && !found[0].expected.is_empty(), "{found:?}");
    }
    cases.iter().map(|case| case.rule).collect()
}

/// The stream of partition 1.
pub(crate) fn one(observed: &mut TopologyObserved) -> &mut StreamConfig {
    &mut observed.streams[1].info.config
}

pub(crate) fn history(observed: &mut TopologyObserved) -> &mut StreamConfig {
    &mut observed.streams[2].info.config
}

pub(crate) fn letters(observed: &mut TopologyObserved) -> &mut StreamConfig {
    &mut observed.streams[3].info.config
}

pub(crate) fn bucket(observed: &mut TopologyObserved) -> &mut StreamConfig {
    &mut observed.streams[4].info.config
}

/// Shard 2 of partition 1.
pub(crate) fn durable(observed: &mut TopologyObserved) -> &mut ConsumerConfig {
    &mut observed.streams[1].consumers[2].config
}
