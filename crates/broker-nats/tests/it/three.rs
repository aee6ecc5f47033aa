//! Workers on a cluster of three that keeps everything three times, while one server after the other is killed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{Broker, PublishError};
use wavehouse_broker_nats::NatsBroker;
use wavehouse_core::TableRef;
use wavehouse_testkit::{NatsCluster, wait_for};
use wavehouse_topology::{Desired, TopologyInput, TopologySpec, permissions};

use crate::fixture::{accounts, input, operator, options, provision};
use crate::publish::{publish, rows};
use crate::workers::{ClickHouse, Process, Publisher, all_read, landed, landed_but_for, split, tables};

/// An election, and a server that catches up.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Waits until a server that was started again has all that the others have.
pub(crate) async fn all_current(cluster: &NatsCluster, spec: &TopologySpec, asked: usize) {
    let other = operator(cluster.node(asked)).await;
    let desired = Desired::new(spec).expect("it fits the store");
    wait_for("every copy to be current", LONG, async || {
        for (stream, _) in &desired.partitions {
            let Ok(info) = other.stream_info(&stream.name).await else { return false };
            let text = info.cluster.map(|cluster| cluster.to_string()).unwrap_or_default();
            if text.matches("\"current\":true").count() < 2 {
                return false;
            }
        }
        true
    })
    .await;
}

/// Which server leads a stream.
pub(crate) async fn leader(cluster: &NatsCluster, stream: &str) -> usize {
    let asked = operator(cluster.node(0)).await;
    let led = asked.stream_info(stream).await.expect("it is there").cluster.expect("it has copies");
    led["leader"].as_str().and_then(|name| cluster.number(name)).expect("a leader")
}

/// Publishes numbered rows to a table, one block after the other, until it is told to stop. A block that was not taken is
/// sent again, as a client would. Gives back how many rows were taken, and the first row of each block of which an
/// earlier attempt may be stored too.
async fn publish_on(
    broker: Arc<NatsBroker>,
    table: TableRef,
    stop: CancellationToken,
) -> (TableRef, u64, BTreeSet<u64>) {
    let (mut next, mut doubtful) = (0, BTreeSet::new());
    while !stop.is_cancelled() {
        match publish(&broker, rows(&table, next..next + 10)).await {
            Ok(_receipt) => next += 10,
            Err(PublishError::Unknown { .. } | PublishError::Unconfirmed { .. }) => {
                doubtful.insert(next);
            }
            Err(PublishError::Unavailable { .. }) => {}
            Err(error) => panic!("{table}: {error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
    // The last block, too, is sent until it is taken.
    while doubtful.contains(&next) {
        if publish(&broker, rows(&table, next..next + 10)).await.is_ok() {
            next += 10;
        }
    }
    (table, next, doubtful)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partitions_leader_is_killed_while_rows_are_taken() {
    let spec = TopologyInput { replicas: 3, ..input() }.check().expect("a legal topology");
    let mut cluster = NatsCluster::start(&accounts(&permissions(&spec))).await;
    provision(&operator(cluster.node(0)).await, &spec).await;
    let reach = options(&spec, cluster.node(0), cluster.urls());
    let (clickhouse, tables) = (ClickHouse::default(), tables());
    let api = NatsBroker::open(reach.clone()).await.expect("the queue opens");
    let one = Process::start_with(reach, &clickhouse, 1, Duration::ZERO).await;
    split("all for one", &[&one], 4).await;
    let (stop, mut publishers) = (CancellationToken::new(), JoinSet::new());
    for table in &tables {
        publishers.spawn(publish_on(Arc::clone(&api), table.clone(), stop.clone()));
    }
    for _ in 0..2 {
        sleep(Duration::from_secs(2)).await;
        let leader = leader(&cluster, "WH_INGEST_0").await;
        cluster.node_mut(leader).kill9();
        let before = clickhouse.count();
        wait_for("rows that were taken after it", LONG, async || clickhouse.count() > before + 1000).await;
        cluster.node_mut(leader).restart().await;
        all_current(&cluster, &spec, (leader + 1) % 3).await;
    }
    stop.cancel();
    let mut sent = Vec::new();
    while let Some(table) = publishers.join_next().await {
        sent.push(table.unwrap());
    }
    landed_but_for(&clickhouse, &sent).await;
    let doubtful: usize = sent.iter().map(|(_, _, doubtful)| doubtful.len()).sum();
    println!("{} blocks sent again after an answer that did not come", doubtful);
    all_read(&api).await;
    one.stop().await;
    api.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_servers_are_killed_in_turn() {
    let spec = TopologyInput { replicas: 3, ..input() }.check().expect("a legal topology");
    let mut cluster = NatsCluster::start(&accounts(&permissions(&spec))).await;
    let asked = operator(cluster.node(0)).await;
    provision(&asked, &spec).await;
    let reach = options(&spec, cluster.node(0), cluster.urls());
    let (clickhouse, tables) = (ClickHouse::default(), tables());
    let api = NatsBroker::open(reach.clone()).await.expect("the queue opens");
    let one = Process::start_with(reach.clone(), &clickhouse, 1, Duration::from_millis(100)).await;
    let two = Process::start_with(reach, &clickhouse, 2, Duration::from_millis(100)).await;
    split("an even split", &[&one, &two], 4).await;
    for node in [2, 1, 0] {
        let publisher = Publisher::start(&api, &tables, Duration::from_millis(50));
        sleep(Duration::from_secs(2)).await;
        // What is taken is in the queue; the workers have some of it in hand.
        let each = publisher.end().await;
        cluster.node_mut(node).kill9();
        landed(&clickhouse, &tables, each).await;
        cluster.node_mut(node).restart().await;
        all_current(&cluster, &spec, (node + 1) % 3).await;
        clickhouse.forget();
    }
    split("an even split in the end", &[&one, &two], 4).await;
    all_read(&api).await;
    two.stop().await;
    one.stop().await;
    api.close().await.unwrap();
}
