//! Publishing while something is amiss: servers that are gone or hang, topics that are full, streams that are not what
//! they were.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use wavehouse_broker::{Broker, BrokerHealth, PublishError, RowBudget, Stored};
use wavehouse_broker_nats::{NatsBroker, observe};
use wavehouse_testkit::wait_for;
use wavehouse_topology::{TopologyInput, verify};

use crate::fixture::{LONG, Servers, input};
use crate::publish::{publish, rows, table};

const STREAM: &str = "WH_INGEST_0";
const AMPLE: RowBudget = RowBudget { rows: 10_000, bytes: 8 << 20 };

/// One partition of one shard.
async fn one_unit() -> (Servers, Arc<NatsBroker>) {
    let servers = Servers::start_with(TopologyInput { partitions: 1, shards: 1, ..input() }, "").await;
    let broker = servers.open().await;
    (servers, broker)
}

async fn wait_broken(broker: &NatsBroker) {
    let ok = broker.topology_ok();
    wait_for("what is missing to be seen", LONG, async || !*ok.borrow()).await;
}

fn unavailable(result: Result<wavehouse_broker::Receipt, PublishError>) -> String {
    match result {
        Err(PublishError::Unavailable { reason }) => reason,
        other => panic!("not unavailable: {other:?}"),
    }
}

async fn config_of(servers: &Servers) -> Value {
    servers.operator.stream_info(STREAM).await.expect("a stream").config
}

#[tokio::test]
async fn case_47_a_server_that_is_down_is_unavailable_and_all_goes_on_when_it_is_back() {
    let (mut servers, broker) = one_unit().await;
    let t = table("t");
    let unit = broker.units()[0];
    publish(&broker, rows(&t, 0..1)).await.unwrap();
    let mut opened = broker.open_unit(unit, AMPLE).await.unwrap();
    timeout(LONG, opened.deliveries.next()).await.expect("in time").unwrap().expect("a block").ack();
    servers.server.kill9();
    let error = publish(&broker, rows(&t, 1..2)).await.expect_err("nobody is there");
    assert!(
        matches!(error, PublishError::Unavailable { .. } | PublishError::Unconfirmed { .. }),
        "not full: {error:?}"
    );
    servers.server.restart().await;
    wait_for("a row to be stored", Duration::from_secs(30), async || {
        publish(&broker, rows(&t, 2..3)).await.is_ok()
    })
    .await;
    let delivery = timeout(Duration::from_secs(30), opened.deliveries.next()).await.expect("it goes on");
    let delivery = delivery.expect("reading has not ended").expect("a block");
    assert_eq!(delivery.table(), &t);
    delivery.ack();
    opened.control.release().await;
}

#[tokio::test]
async fn case_48_a_message_whose_answers_are_lost_is_stored_once_or_not_at_all() {
    let (servers, broker) = one_unit().await;
    let t = table("t");
    publish(&broker, rows(&t, 0..1)).await.unwrap();
    // Its answers are lost for longer than one attempt takes, then for longer than all of them.
    let mut stored = vec![0];
    for (number, hang) in [(1, 3), (2, 12)] {
        servers.server.freeze().await;
        let sending = publish(&broker, rows(&t, number..number + 1));
        let thawing = async {
            sleep(Duration::from_secs(hang)).await;
            servers.server.thaw();
        };
        let (result, ()) = tokio::join!(sending, thawing);
        match result {
            Ok(_) => stored.push(number),
            Err(error) => assert!(
                matches!(error, PublishError::Unavailable { .. } | PublishError::Unconfirmed { .. }),
                "{error:?}"
            ),
        }
    }
    wait_for("a row to be stored", LONG, async || publish(&broker, rows(&t, 3..4)).await.is_ok()).await;
    stored.push(3);
    let mut opened = broker.open_unit(broker.units()[0], AMPLE).await.unwrap();
    let mut found = Vec::new();
    while found.last() != Some(&3) {
        let delivery = timeout(LONG, opened.deliveries.next()).await.expect("in time").unwrap();
        let delivery = delivery.expect("a block");
        let text = String::from_utf8_lossy(&delivery.stored().block.lines).into_owned();
        found.extend(text.lines().map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            row["n"].as_u64().unwrap()
        }));
        delivery.ack();
    }
    opened.control.release().await;
    let mut once = found.clone();
    once.dedup();
    assert_eq!(once, found, "none is stored twice");
    assert!(stored.iter().all(|number| found.contains(number)), "{stored:?} in {found:?}");
}

#[tokio::test]
async fn case_49_a_topic_at_its_cap_is_full_and_another_of_the_tenant_goes_on() {
    let (servers, broker) = one_unit().await;
    let mut config = config_of(&servers).await;
    config["max_msgs_per_subject"] = json!(2);
    servers.call(&format!("STREAM.UPDATE.{STREAM}"), &config).await;
    for number in 0..2 {
        publish(&broker, rows(&table("t"), number..number + 1)).await.unwrap();
    }
    let full = publish(&broker, rows(&table("t"), 2..3)).await.expect_err("its topic is at its cap");
    assert!(matches!(full, PublishError::Full { .. }), "{full:?}");
    assert_eq!(full.stored(), Stored::No);
    publish(&broker, rows(&table("u"), 0..1)).await.unwrap();
    assert_eq!(*broker.health().borrow(), BrokerHealth::Good);
}

#[tokio::test]
async fn case_50_a_partition_that_is_deleted_is_named_and_not_made_again() {
    let (servers, broker) = one_unit().await;
    publish(&broker, rows(&table("t"), 0..1)).await.unwrap();
    servers.call(&format!("STREAM.DELETE.{STREAM}"), &json!({})).await;
    let reason = unavailable(publish(&broker, rows(&table("t"), 1..2)).await);
    assert!(reason.contains(STREAM), "{reason}");
    wait_broken(&broker).await;
    assert!(servers.operator.stream_info(STREAM).await.is_err_and(|error| error.is_stream_gone()));
}

#[tokio::test]
async fn case_51_another_stream_in_the_place_of_a_partition_is_named() {
    let (servers, broker) = one_unit().await;
    let mut config = config_of(&servers).await;
    servers.call(&format!("STREAM.DELETE.{STREAM}"), &json!({})).await;
    config["name"] = json!("ANOTHER");
    servers.call("STREAM.CREATE.ANOTHER", &config).await;
    let reason = unavailable(publish(&broker, rows(&table("t"), 0..1)).await);
    assert!(reason.contains("ANOTHER") && reason.contains(STREAM), "{reason}");
    wait_broken(&broker).await;
}

#[tokio::test]
async fn case_52_one_replica_stores_and_only_more_replicas_are_advised() {
    let (servers, broker) = one_unit().await;
    publish(&broker, rows(&table("t"), 0..1)).await.unwrap();
    assert_eq!(servers.operator.stream_info(STREAM).await.expect("a stream").state.messages, 1);
    let observed = observe(servers.operator.connection(), &servers.spec).await.expect("a look");
    let rules: Vec<_> = verify(&servers.spec, &observed).iter().map(|finding| finding.rule).collect();
    assert!(!rules.is_empty() && rules.iter().all(|rule| rule.contains("replicas")), "{rules:?}");
}
