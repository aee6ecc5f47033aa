//! Each rule about what is on the servers, broken on a real one: what the server says of it is read, judged and told.
//!
//! Objects are made as the manifests say, one thing changed; a few changes no server takes, which is as good.

mod cases;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wavehouse_broker_nats::observe;
use wavehouse_testkit::NatsServer;
use wavehouse_topology::{
    Desired, Finding, RULES, Severity, TopologyInput, TopologySpec, permissions, verify,
};

use self::cases::{Case, ELSEWHERE, Shows, durable_cases, history_cases, letter_cases, partition_cases};
use crate::fixture::try_stream;
use crate::stage::{Stage, config, input, spec};

/// What is made: streams with their durables, in order, each as JetStream takes it.
struct World {
    streams: Vec<(Value, Vec<Value>)>,
    /// Configurations that streams are changed to afterwards.
    updates: Vec<Value>,
}

/// The places of the objects.
const PARTITION: usize = 0;
const HISTORY: usize = 1;
const LETTERS: usize = 2;
const BUCKET: usize = 3;

impl World {
    fn of(spec: &TopologySpec) -> Self {
        let desired = Desired::new(spec).expect("it fits");
        let partitions = desired.partitions.iter().map(|(stream, durables)| {
            (json!(stream), durables.iter().map(|durable| json!(durable)).collect())
        });
        let others =
            [&desired.history, &desired.dead_letters, &desired.bucket.stream()].map(|stream| json!(stream));
        let streams = partitions.chain(others.map(|stream| (stream, Vec::new()))).collect();
        Self { streams, updates: Vec::new() }
    }

    /// Replaces the world by one without anything; what is there on the server goes.
    async fn make(&self, stage: &Stage) -> Result<(), String> {
        for name in stage.operator.stream_names(None).await.expect("names") {
            let gone =
                stage.operator.call::<Value>(&format!("STREAM.DELETE.{name}"), bytes::Bytes::new()).await;
            gone.expect("it goes");
        }
        for (stream, durables) in &self.streams {
            try_stream(&stage.operator, stream).await.map_err(|error| error.to_string())?;
            let name = stream["name"].as_str().expect("a name");
            for durable in durables {
                stage.try_durable(name, durable).await?;
            }
        }
        for stream in &self.updates {
            let name = stream["name"].as_str().expect("a name");
            stage.call(&format!("STREAM.UPDATE.{name}"), stream).await?;
        }
        Ok(())
    }

    fn stream(&mut self, at: usize, changes: Value) {
        change(&mut self.streams[at].0, changes);
    }

    fn durable(&mut self, changes: Value) {
        change(&mut self.streams[PARTITION].1[1], changes);
    }

    fn more(&mut self, stream: Value) {
        self.streams.push((stream, Vec::new()));
    }
}

/// Sets fields; those that are null go.
fn change(object: &mut Value, changes: Value) {
    let Value::Object(changes) = changes else { panic!("no object: {changes}") };
    for (field, value) in changes {
        if value.is_null() {
            object.as_object_mut().expect("an object").remove(&field);
        } else {
            object[field] = value;
        }
    }
}

async fn look(stage: &Stage, spec: &TopologySpec) -> Vec<Finding> {
    let user = stage.user().await;
    let observed = observe(&user, spec).await.expect("a look");
    user.close().await;
    verify(spec, &observed)
}

#[test]
fn every_rule_has_a_case() {
    let groups = [partition_cases(), durable_cases(), history_cases(), letter_cases()];
    let mut tested: BTreeSet<&str> = groups.iter().flatten().map(|(rule, ..)| *rule).collect();
    tested.extend(ELSEWHERE.map(|(rule, _)| rule));
    tested.insert("permission-durable"); // topology::case_37 and case_38
    let all: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(tested, all);
}

async fn broken(cases: Vec<Case>) {
    // Claims of row ids make one more rule matter.
    let input = TopologyInput { dedupe_lease: std::time::Duration::from_secs(30), ..input() };
    let spec = spec(input);
    let stage = Stage::bare_with(&spec, &permissions(&spec)).await;
    for (rule, shows, breach) in cases {
        let mut world = World::of(&spec);
        breach(&mut world);
        match (world.make(&stage).await, shows) {
            (Ok(()), Shows::Finding) => {}
            (Err(_), Shows::Refusal) => continue,
            (made, _) => panic!("{rule}: {made:?}, but {shows:?} was expected"),
        }
        let found = look(&stage, &spec).await;
        let wanted = RULES.iter().find(|known| known.id == rule).expect("a rule");
        let told = found.iter().find(|finding| finding.rule == rule);
        let told = told.unwrap_or_else(|| panic!("{rule} is not found: {found:#?}"));
        assert_eq!((told.severity, told.field), (wanted.severity, wanted.field));
        assert!(found.is_sorted_by_key(|finding| finding.severity), "{rule}: required ones come first");
        let base =
            |finding: &Finding| finding.rule.ends_with("-replicas-one") || finding.rule == "bucket-replicas";
        let others = found.iter().filter(|finding| finding.rule != rule && !base(finding)).count();
        assert!(others <= 3, "{rule}: one change breaks more than it must: {found:#?}");
    }
}

#[tokio::test]
async fn case_20_a_partition_that_is_otherwise() {
    broken(partition_cases()).await;
}

#[tokio::test]
async fn case_20_a_durable_that_is_otherwise() {
    broken(durable_cases()).await;
}

#[tokio::test]
async fn case_20_a_history_or_a_bucket_that_is_otherwise() {
    broken(history_cases()).await;
}

#[tokio::test]
async fn case_20_dead_letters_that_are_otherwise() {
    broken(letter_cases()).await;
}

#[tokio::test]
async fn case_22_a_stream_with_two_partitions() {
    let spec = spec(TopologyInput { partitions: 2, ..input() });
    let stage = Stage::bare_with(&spec, &permissions(&spec)).await;
    let mut world = World::of(&spec);
    world.streams.remove(1);
    world.stream(PARTITION, json!({"subjects": ["wh.ingest.0.>", "wh.ingest.1.>"]}));
    world.make(&stage).await.expect("made");
    let found = look(&stage, &spec).await;
    let shared = found.iter().find(|finding| finding.rule == "partition-shared");
    assert_eq!(shared.map(|finding| finding.severity), Some(Severity::Required), "{found:#?}");
}

#[tokio::test]
async fn case_21_what_a_larger_count_left_is_named_with_its_rows() {
    let spec = spec(TopologyInput { partitions: 1, ..input() });
    let larger = crate::stage::spec(TopologyInput { partitions: 2, ..input() });
    let stage = Stage::bare_with(&spec, &permissions(&spec)).await;
    World::of(&larger).make(&stage).await.expect("made");
    for shard in [0, 1, 1] {
        let subject = format!("wh.ingest.1.{shard}.0.t");
        stage.operator.publish(&subject, None, bytes::Bytes::from_static(b"row")).await.expect("stored");
    }
    let found = look(&stage, &spec).await;
    assert!(found.iter().any(|finding| finding.rule == "partition-metadata-wrong"), "{found:#?}");
    let extras: Vec<_> = found.iter().filter(|finding| finding.rule == "extra-durable").collect();
    let told: Vec<_> = extras.iter().map(|finding| (finding.object.as_str(), finding.severity)).collect();
    assert_eq!(
        told,
        [
            ("consumer WH_INGEST_1/wh-ingest-0", Severity::Recommended),
            ("consumer WH_INGEST_1/wh-ingest-1", Severity::Recommended),
        ]
    );
    assert!(extras[1].found.contains("with 2 messages"), "{}", extras[1]);
}

#[tokio::test]
async fn case_26_servers_of_other_versions_and_sizes() {
    let spec = spec(input());
    for (version, more, rule) in [
        ("2.12.8", "", "server-version-old"),
        ("2.15.1", "", "server-version-untested"),
        ("2.14.6", "max_payload: 200KB", "server-max-payload-small"),
        ("2.14.6", "max_payload: 512KB", "server-max-payload-low"),
    ] {
        let config = config(&permissions(&spec), None) + more + "\n";
        let server = NatsServer::start_version(version, &config).await;
        let user = crate::stage::connect(&server, "wavehouse", "_INBOX_wh", &spec).await;
        let observed = observe(&user, &spec).await.expect("a look");
        let found = verify(&spec, &observed);
        let told =
            found.iter().filter(|finding| finding.object.starts_with("server")).map(|finding| finding.rule);
        assert_eq!(told.collect::<Vec<_>>(), [rule], "{version} {more}");
    }
}
