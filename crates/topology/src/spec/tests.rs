//! Everything that is wrong with an input is told at once.

use super::*;

fn settings(input: TopologyInput) -> Vec<&'static str> {
    input.check().err().unwrap_or_default().iter().map(|finding| finding.setting).collect()
}

fn usual() -> TopologyInput {
    TopologyInput::default()
}

#[test]
fn names_follow_from_the_prefix_unless_given() {
    let spec = TopologyInput { prefix: "a-b_9".to_owned(), ..usual() }.check().unwrap();
    let unit = UnitId { partition: PartitionId(2), shard: ShardId(7) };
    assert_eq!(spec.unit_name(unit), "A-B_9_INGEST_2/wh-ingest-7");
    let names = [spec.history_stream(), spec.dlq_stream(), spec.coord_bucket(), spec.coord_stream()];
    assert_eq!(names, ["A-B_9_HISTORY", "A-B_9_DLQ", "a-b_9_coord", "KV_a-b_9_coord"]);
    assert_eq!(spec.api_prefix(), "$JS.API.");
    let given = TopologyInput {
        history_stream: Some("H".to_owned()),
        dlq_stream: Some("D".to_owned()),
        coord_bucket: Some("b".to_owned()),
        js_domain: Some("hub".to_owned()),
        ..usual()
    };
    let spec = given.check().unwrap();
    let names = [spec.history_stream(), spec.dlq_stream(), spec.coord_bucket(), spec.api_prefix()];
    assert_eq!(names, ["H", "D", "b", "$JS.hub.API."]);
}

#[test]
fn durables_are_read_back_unless_padded() {
    let spec = usual().check().unwrap();
    for (durable, shard) in
        [("wh-ingest-0", 0), ("wh-ingest-10", 10), ("wh-ingest-2147483647", 2_147_483_647)]
    {
        assert_eq!(spec.shard_of(durable), Some(shard), "{durable}");
    }
    for other in [
        "wh-ingest",
        "wh-ingest-",
        "wh-ingest-00",
        "wh-ingest-01",
        "wh-ingest-2147483648",
        "wh-ingest-+1",
        "x-0",
    ] {
        assert_eq!(spec.shard_of(other), None, "{other}");
    }
}

#[test]
fn every_finding_is_told() {
    let all = TopologyInput {
        prefix: "Wh".to_owned(),
        partitions: 0,
        shards: 257,
        replicas: 6,
        ingest_consumer: "a.b".to_owned(),
        history_stream: Some("a b".to_owned()),
        dlq_stream: Some("*".to_owned()),
        coord_bucket: Some("a.b".to_owned()),
        js_domain: Some("a.b".to_owned()),
        publish_timeout: Duration::ZERO,
        pinned_ttl: Duration::from_secs(9),
        history_age: Duration::ZERO,
        ..usual()
    };
    let expected = [
        "prefix",
        "ingest-consumer",
        "history-stream",
        "dlq-stream",
        "coord-bucket",
        "js-domain",
        "replicas",
        "publish-timeout",
        "pinned-ttl",
        "history-max-age",
        "partitions",
        "shards",
    ];
    assert_eq!(settings(all), expected);
}

// Case 27.
#[test]
fn one_wrong_setting_is_one_finding() {
    let long = "x".repeat(201);
    let some = |name: &str| Some(name.to_owned());
    let cases = [
        ("partitions", TopologyInput { partitions: 0, ..usual() }),
        ("partitions", TopologyInput { partitions: 1025, ..usual() }),
        ("shards", TopologyInput { shards: 0, ..usual() }),
        ("shards", TopologyInput { shards: 257, ..usual() }),
        ("replicas", TopologyInput { replicas: 0, ..usual() }),
        ("ingest-consumer", TopologyInput { ingest_consumer: String::new(), ..usual() }),
        ("history-stream", TopologyInput { history_stream: some(""), ..usual() }),
        ("history-stream", TopologyInput { history_stream: some("WH_INGEST_0"), ..usual() }),
        ("dlq-stream", TopologyInput { dlq_stream: some("WH_HISTORY"), ..usual() }),
        ("dlq-stream", TopologyInput { dlq_stream: some("KV_wh_coord"), ..usual() }),
        ("js-domain", TopologyInput { js_domain: some("two.tokens"), ..usual() }),
        ("coord-bucket", TopologyInput { coord_bucket: Some(long.clone()), ..usual() }),
        ("prefix", TopologyInput { prefix: long, ..usual() }),
    ];
    for (setting, input) in cases {
        assert_eq!(settings(input), [setting]);
    }
    assert_eq!(settings(usual()), [] as [&str; 0]);
}
