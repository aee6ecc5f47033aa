//! `wavehouse mq status` and `mq explain` against a real server.
#![expect(clippy::unwrap_used, reason = "a harness has nothing to do about a machine that fails it")]

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use wavehouse_nats::{PullRequest, Pulled};

use crate::nats::Servers;

/// A member's lease, as processes write it.
const LEASE: &str = r#"{"holder":"host-1","duration_ms":15000,"session":"s","partitions":2,"shards":2,"version":"1.2.3","held":{"0":"2","1":"3"}}"#;
/// One that does not count any more: what it says that it has is nobody's.
const DEAD: &str = r#"{"holder":"host-2","duration_ms":1,"session":"t","held":{"0":"3"}}"#;

/// Two partitions of two shards; rows of one table in one of them, another that was delivered, one dead letter.
async fn busy() -> Servers {
    let servers = Servers::provisioned(2, 2).await;
    let operator = servers.operator().await;
    let publish = async |subject: &str| {
        operator.publish(subject, None, Bytes::from_static(b"row")).await.unwrap();
    };
    for subject in ["wh.ingest.0.1.0.t", "wh.ingest.0.1.0.t.eu", "wh.ingest.0.1.0.u"] {
        publish(subject).await;
    }
    publish("wh.dlq.0.t.eu").await;
    publish("wh.dlq.0.t").await;
    operator
        .bucket("wh_coord")
        .create("lease.ingest.m0", Bytes::from_static(LEASE.as_bytes()))
        .await
        .unwrap();
    operator.bucket("wh_coord").create("lease.ingest.m1", Bytes::from_static(DEAD.as_bytes())).await.unwrap();
    // One message is held by a pinned reader that does not settle it.
    let mut puller = operator.puller("WH_INGEST_0", "wh-ingest-1").await.unwrap();
    let (expires, group) = (Duration::from_secs(5), Some("wavehouse".to_owned()));
    puller.pull(&PullRequest { batch: 1, expires, group, ..PullRequest::default() }).await.unwrap();
    assert!(matches!(puller.next().await, Some(Pulled::Message(_))));
    servers
}

#[tokio::test]
async fn the_status_tells_what_waits_who_reads_and_what_is_missing() {
    let servers = busy().await;
    let line = |more: &str| format!("status {} {} {more}", servers.flags("wavehouse"), servers.counts());
    let (code, out, err) = servers.mq(&line("--json"));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let told: Value = serde_json::from_str(&out).unwrap();
    let partition = &told["partitions"][0];
    assert_eq!((&partition["stream"], &partition["unwritten"]), (&json!("WH_INGEST_0"), &json!(3)), "{out}");
    assert!(partition["oldest_unwritten_s"].as_u64().is_some(), "{out}");
    let shard = &partition["shards"][1];
    let seen = [&shard["pending"], &shard["held"], &shard["pinned"], &shard["owners"]];
    assert_eq!(seen, [&json!(2), &json!(1), &json!(true), &json!(["host-1"])], "{out}");
    let idle = &partition["shards"][0];
    assert_eq!([&idle["pinned"], &idle["owners"]], [&json!(false), &json!([])], "{out}");
    assert_eq!(told["partitions"][1]["oldest_unwritten_s"], Value::Null);
    let member = &told["members"][0];
    assert_eq!([&member["instance_id"], &member["units"]], [&json!("host-1"), &json!(3)], "{out}");
    assert_eq!(told["dead_letters"]["tables"], json!({"0.t": 2}), "{out}");
    assert_eq!([&told["history"]["messages"], &told["history"]["behind_s"]], [&json!(3), &json!(0)], "{out}");
    assert_eq!(told["missing"], json!([]));

    // As the configuration here says, for people.
    let env = servers.env();
    let env: Vec<(&str, &str)> = env.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let (code, out, _) = servers.mq_with("status", &env);
    assert_eq!(code, 0, "{out}");
    for told in [
        "member 0      host-1: 3 units, 2x2, 1.2.3",
        "member 1      host-2: 2 units, unknown counts, unknown version, renewed ",
        " ago, lapsed\n",
        "partition 0   WH_INGEST_0: 3 unwritten messages, oldest ",
        "  wh-ingest-1  2 pending, 1 held, pinned for ",
        "  wh-ingest-0  0 pending, 0 held, nobody pinned, nobody's",
        "history       WH_HISTORY: 3 messages",
        "dead letters  WH_DLQ: 2, ",
    ] {
        assert!(out.contains(told), "{told} is not in\n{out}");
    }

    let operator = servers.operator().await;
    for gone in ["STREAM.DELETE.WH_HISTORY", "CONSUMER.DELETE.WH_INGEST_1.wh-ingest-0"] {
        operator.call::<Value>(gone, Bytes::new()).await.unwrap();
    }
    let (code, out, _) = servers.mq(&line(""));
    assert_eq!(code, 3, "{out}");
    for told in ["missing       consumer WH_INGEST_1/wh-ingest-0", "missing       stream WH_HISTORY"] {
        assert!(out.contains(told), "{told} is not in\n{out}");
    }
}

#[tokio::test]
async fn a_table_is_explained_as_it_is_now() {
    let servers = busy().await;
    // Where the table of the rows above belongs by its name does not matter here: another one is looked for, by name.
    let found = servers.spec.placement();
    let name = (0..)
        .map(|number| format!("t{number}"))
        .find(|name| {
            let table = wavehouse_core::TableName::parse(name).unwrap();
            let table = wavehouse_core::TableRef::new(wavehouse_core::TenantId::default(), table);
            let unit = found.unit_for(&table);
            (unit.partition.0, unit.shard.0) == (0, 1)
        })
        .unwrap();
    let operator = servers.operator().await;
    for subject in [format!("wh.ingest.0.1.0.{name}"), format!("wh.ingest.0.1.0.{name}.eu")] {
        operator.publish(&subject, None, Bytes::from_static(b"row")).await.unwrap();
    }
    let line =
        |more: &str| format!("explain 0 {name} {} {} {more}", servers.flags("wavehouse"), servers.counts());
    let (code, out, err) = servers.mq(&line("--json"));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!([&told["partition"], &told["shard"]], [&json!(0), &json!(1)]);
    assert_eq!(told["now"]["unwritten"], 2, "{out}");
    let shard = &told["now"]["shard"];
    assert_eq!(
        [&shard["owners"], &shard["pending"], &shard["held"]],
        [&json!(["host-1"]), &json!(4), &json!(1)]
    );
    let (_, out, _) = servers.mq(&line(""));
    assert!(out.contains("unwritten     2 messages of the table\nits shard     4 pending, 1 held"), "{out}");

    // Counts alone ask nobody; servers that are not there are named.
    let env = servers.env();
    let env: Vec<(&str, &str)> = env.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let (code, out, _) = servers.mq_with("explain 0 t --partitions 4 --shards 8", &env);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains(" of 4\n") && !out.contains("its shard"), "{out}");
    let (code, out, _) = servers.mq_with("explain 0 t", &env);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains(" of 2\n") && out.contains("its shard"), "{out}");
}
