//! `wavehouse mq provision` against a real server: what it makes, what it changes, what it leaves, whom it refuses.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::nats::Servers;

#[tokio::test]
async fn everything_is_made_once() {
    let servers = Servers::start(2, 3).await;
    let (code, out, err) = servers.provision("--dry-run");
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(out.matches("would create").count(), 2 * (1 + 3) + 3, "{out}");
    let operator = servers.operator().await;
    assert!(operator.stream_names(None).await.unwrap().is_empty(), "a dry run makes nothing");

    let (code, out, err) = servers.provision("");
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(out.matches("created").count(), 11, "{out}");
    let mut names = operator.stream_names(None).await.unwrap();
    names.sort();
    assert_eq!(names, ["KV_wh_coord", "WH_DLQ", "WH_HISTORY", "WH_INGEST_0", "WH_INGEST_1"]);
    assert_eq!(operator.consumer_names("WH_INGEST_1").await.unwrap().len(), 3);

    let (code, out, _) = servers.provision("");
    assert_eq!((code, out.trim()), (0, "as it should  11 of 11 objects"));
    let (code, out, _) = servers.provision("--json --dry-run");
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &told["dry_run"], told["objects"].as_array().unwrap().len()), (0, &json!(true), 11));
}

#[tokio::test]
async fn little_is_changed_the_rest_is_told_and_nothing_is_removed() {
    let servers = Servers::provisioned(1, 2).await;
    let operator = servers.operator().await;
    let mut config = operator.stream_info("WH_INGEST_0").await.unwrap().config;
    config["max_bytes"] = 1_048_576.into();
    config["duplicate_window"] = 60_000_000_000_u64.into();
    config["discard_new_per_subject"] = false.into();
    config["metadata"]["wavehouse.dev/shards"] = "7".into();
    operator.call::<Value>("STREAM.UPDATE.WH_INGEST_0", Bytes::from(config.to_string())).await.unwrap();
    let mut durable = operator.consumer_info("WH_INGEST_0", "wh-ingest-1").await.unwrap().config;
    durable["max_ack_pending"] = 5.into();
    durable["ack_wait"] = 30_000_000_000_u64.into();
    let body = json!({"stream_name": "WH_INGEST_0", "config": durable, "action": "update"});
    let request = "CONSUMER.CREATE.WH_INGEST_0.wh-ingest-1.wh.ingest.0.1.>";
    operator.call::<Value>(request, Bytes::from(body.to_string())).await.unwrap();

    let (code, out, err) = servers.provision("");
    assert_eq!((code, err.as_str()), (3, ""), "{out}");
    for told in [
        "changed       stream WH_INGEST_0: duplicate_window: 1m to 2m",
        "changed       stream WH_INGEST_0: max_bytes: 1Mi to ",
        "changed       stream WH_INGEST_0: metadata.wavehouse.dev/shards: 7 to 2",
        "left          stream WH_INGEST_0: discard_new_per_subject: is unset, not true",
        "changed       consumer WH_INGEST_0/wh-ingest-1: max_ack_pending: 5 to 10000",
        "left          consumer WH_INGEST_0/wh-ingest-1: ack_wait: is 30s, not 1m",
    ] {
        assert!(out.contains(told), "{told} is not in\n{out}");
    }
    let config = operator.stream_info("WH_INGEST_0").await.unwrap().config;
    assert_eq!(config["metadata"]["wavehouse.dev/shards"], "2");
    assert_eq!(config["duplicate_window"], 120_000_000_000_u64);
    let durable = operator.consumer_info("WH_INGEST_0", "wh-ingest-1").await.unwrap().config;
    assert_eq!(
        (&durable["max_ack_pending"], &durable["ack_wait"]),
        (&json!(10_000), &json!(30_000_000_000_u64))
    );

    // Fewer partitions and shards: what is beyond them stays.
    let fewer =
        servers.mq(&format!("provision {} --shards 1 {}", servers.flags("operator"), crate::nats::SMALL));
    assert_eq!(fewer.0, 3, "{fewer:?}");
    assert_eq!(operator.consumer_names("WH_INGEST_0").await.unwrap().len(), 2);
}

#[tokio::test]
async fn only_the_operator_may() {
    let servers = Servers::start(1, 1).await;
    let line =
        format!("provision {} {} {}", servers.flags("wavehouse"), servers.counts(), crate::nats::SMALL);
    let (code, out, err) = servers.mq(&line);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("connect as the operator"), "{err}");

    // The user of the configuration is refused whatever it may do.
    let mut env = servers.env();
    for (name, text) in &mut env {
        if name == "WH_MQ_NATS_USER" {
            "operator".clone_into(text);
        }
    }
    let env: Vec<(&str, &str)> = env.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let line = format!("provision {} {} {}", servers.flags("operator"), servers.counts(), crate::nats::SMALL);
    let (code, _, err) = servers.mq_with(&line, &env);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("credentials of mq.nats"), "{err}");
    assert!(servers.operator().await.stream_names(None).await.unwrap().is_empty());
}

#[tokio::test]
async fn servers_that_do_not_answer_and_flags_that_cannot_be() {
    let mut servers = Servers::start(1, 1).await;
    for (line, code, told) in [
        ("provision", 2, "--server"),
        ("provision --server nats://u:p@h", 2, "has a user in it"),
        ("provision --server x --creds a --user b", 2, "one of them at most"),
        ("provision --server x --partitions 0", 2, "must be 1 or more"),
        ("provision --server x --partitions 6", 1, "105Gi"),
        ("provision --server x --js-domain a.b", 1, "--js-domain"),
    ] {
        let (got, out, err) = servers.mq(line);
        assert_eq!((got, out.as_str()), (code, ""), "{line}: {err}");
        assert!(err.contains(told), "{line}: {err}");
    }
    servers.server.kill9();
    let (code, _, err) = servers.provision("--wait 300ms");
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("no message server took the connection within 300ms"), "{err}");
}

#[tokio::test]
async fn what_is_there_is_verified() {
    let servers = Servers::start(2, 3).await;
    let line = |more: &str| format!("verify {} {} {more}", servers.flags("wavehouse"), servers.counts());
    let (code, out, err) = servers.mq(&line(""));
    assert_eq!((code, err.as_str()), (3, ""), "{out}");
    for told in [
        "ingest partition 0: subjects: ",
        "[partition-missing]",
        "[history-missing]",
        "[dlq-stream]",
        "[bucket-missing]",
    ] {
        assert!(out.contains(told), "{told} is not in\n{out}");
    }
    assert_eq!(servers.provision("").0, 0);
    // One server: every stream should have replicas, and nothing else is amiss.
    let (code, out, _) = servers.mq(&line("--json"));
    let told: Value = serde_json::from_str(&out).unwrap();
    let rules: Vec<&str> =
        told["findings"].as_array().unwrap().iter().map(|found| found["rule"].as_str().unwrap()).collect();
    let one = [
        "partition-replicas-one",
        "partition-replicas-one",
        "history-replicas-one",
        "dlq-replicas-one",
        "bucket-replicas",
    ];
    assert_eq!((code, rules), (3, one.to_vec()), "{out}");
    let (code, out, _) = servers.mq(&line("--required"));
    assert_eq!((code, out.trim()), (0, "everything on the servers is as it should be"));

    // The configuration says where and what, and a user with permissions for fewer shards is told of it.
    let env = servers.env();
    let env: Vec<(&str, &str)> = env.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(servers.mq_with("verify --required", &env).0, 0);
    let more =
        format!("provision {} --partitions 2 --shards 4 {}", servers.flags("operator"), crate::nats::SMALL);
    assert_eq!(servers.mq(&more).0, 0);
    let (code, out, _) =
        servers.mq(&format!("verify {} --partitions 2 --shards 4", servers.flags("wavehouse")));
    assert_eq!(code, 3, "{out}");
    assert_eq!(out.matches("[permission-durable]").count(), 2, "{out}");
    assert!(out.contains("wavehouse mq permissions --shards 4"), "{out}");

    let (code, _, err) = servers.mq("verify");
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("--server"), "{err}");
}
