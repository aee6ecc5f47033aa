//! Processes of either role over one queue: what they tell of themselves, and what ends or stops them.

use bytes::Bytes;
use serde_json::Value;
use wavehouse_testkit::{Engine, wait_for};

use crate::boot::{TABLE, wait_count};
use crate::nats::Servers;
use crate::program::{Program, SOON};

const PARTITIONS: u64 = 2;
const SHARDS: u64 = 4;

/// Servers and an engine with a table.
async fn ground() -> (Engine, Servers) {
    let engine = Engine::start().await;
    engine.query(TABLE).await;
    (engine, Servers::provisioned(PARTITIONS, SHARDS).await)
}

/// A process of these roles, ready.
async fn process(engine: &Engine, servers: &Servers, roles: &str) -> Program {
    let mut env = servers.env();
    let more = [("WH_ROLES", roles), ("WH_INSTANCE_ID", roles), ("WH_PROMETHEUS_ENABLED", "true")];
    env.extend(more.map(|(name, text)| (name.to_owned(), text.to_owned())));
    let env: Vec<(&str, &str)> = env.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let mut program = Program::serving(engine, &env);
    program.up().await;
    program.wait_status("/readyz", 200).await;
    program
}

/// Waits until it reads every shard.
async fn reads_all(process: &Program) {
    wait_for("every shard to be read", SOON, async || {
        metric(process, "wavehouse_ingest_shards_owned").await == Some((PARTITIONS * SHARDS) as f64)
    })
    .await;
}

/// One number of a process's metrics, as far as it has any.
async fn metric(process: &Program, name: &str) -> Option<f64> {
    let text = process.plain_client().get("/metrics").await.text;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim_start_matches("{}").trim().parse().ok())
}

async fn send(api: &Program, ids: std::ops::Range<u64>) {
    for id in ids {
        let answer = api.client().post("/v1/ingest?table=rows", format!(r#"{{"id":{id},"text":"a"}}"#)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
}

#[tokio::test]
async fn case_113_lost_durables_end_the_workers_and_rows_are_still_taken() {
    let (engine, servers) = ground().await;
    let (api, mut ingest) =
        (process(&engine, &servers, "api").await, process(&engine, &servers, "ingest").await);
    reads_all(&ingest).await;
    send(&api, 0..10).await;
    wait_count(&engine, "rows", 10).await;

    let explain = format!("explain 0 rows {} {} --json", servers.flags("wavehouse"), servers.counts());
    let (code, out, err) = servers.mq(&explain);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["now"]["shard"]["owners"], serde_json::json!(["ingest"]), "{out}");
    assert_eq!(told["now"]["unwritten"], 0, "{out}");

    let operator = servers.operator().await;
    for partition in 0..PARTITIONS {
        for shard in 0..SHARDS {
            let durable = format!("CONSUMER.DELETE.WH_INGEST_{partition}.wh-ingest-{shard}");
            operator.call::<Value>(&durable, Bytes::new()).await.unwrap();
        }
    }
    assert_eq!(ingest.ended().await, Some(1));
    assert!(ingest.log().contains("delivery ended"), "{}", ingest.log());
    send(&api, 10..12).await;
}

#[tokio::test]
async fn case_41_a_request_that_is_refused_is_seen_at_once() {
    let (engine, mut servers) = ground().await;
    let mut ingest = process(&engine, &servers, "ingest").await;
    reads_all(&ingest).await;
    assert_eq!(metric(&ingest, "wavehouse_mq_topology_ok").await, Some(1.0));
    assert_eq!(metric(&ingest, "wavehouse_mq_connected").await, Some(1.0));
    wait_for("a look at the history", SOON, async || {
        metric(&ingest, "wavehouse_mq_history_behind_seconds").await == Some(0.0)
    })
    .await;
    servers.restrict("CONSUMER.MSG.NEXT.*.wh-ingest-3").await;
    ingest.wait_status("/readyz", 503).await;
    assert_eq!(metric(&ingest, "wavehouse_mq_topology_ok").await, Some(0.0));
    assert!(ingest.log().contains("may not publish to $JS.API.CONSUMER.MSG.NEXT."), "{}", ingest.log());
}

#[tokio::test]
async fn a_process_alone_may_have_both_roles_and_bury_rows() {
    let (engine, mut servers) = ground().await;
    let gateway = process(&engine, &servers, "api,ingest").await;
    send(&gateway, 0..2).await;
    wait_count(&engine, "rows", 2).await;
    engine.query("ALTER TABLE rows ADD CONSTRAINT small CHECK id < 100").await;
    send(&gateway, 1_000..1_001).await;
    wait_for("a dead letter", SOON, async || {
        gateway.client().get("/v1/ops/dlq/stats").await.text.contains(r#""total":1"#)
    })
    .await;
    let operator = servers.operator().await;
    operator.publish("wh.ingest.0.0.0.rows", None, Bytes::from_static(b"no block")).await.unwrap();
    wait_for("another one", SOON, async || {
        let text = gateway.plain_client().get("/metrics").await.text;
        text.contains(
            r#"wavehouse_ingest_poison_total{tenant="0",table="rows",reason="unknown_format",disposition="parked"} 1"#,
        )
    })
    .await;
    let listed = gateway.client().get("/v1/ops/dlq?table=rows").await.text;
    assert!(listed.contains(r#""row":"no block""#), "{listed}");
    servers.server.kill9();
    wait_for("the link to be seen as lost", SOON, async || {
        metric(&gateway, "wavehouse_mq_connected").await == Some(0.0)
    })
    .await;
}
