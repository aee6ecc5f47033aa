//! Workers on a cluster of three that keeps everything three times, while one server after the other is killed.

use std::time::Duration;

use tokio::time::sleep;
use wavehouse_broker::Broker;
use wavehouse_broker_nats::NatsBroker;
use wavehouse_testkit::{NatsCluster, wait_for};
use wavehouse_topology::{Desired, TopologyInput, permissions};

use crate::fixture::{accounts, input, operator, options, provision};
use crate::workers::{ClickHouse, Process, Publisher, all_read, landed, split, tables};

/// An election, and a server that catches up.
const LONG: Duration = Duration::from_secs(60);

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
        let other = operator(cluster.node((node + 1) % 3)).await;
        wait_for("every copy to be current", LONG, async || {
            let desired = Desired::new(&spec).expect("it fits the store");
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
        clickhouse.forget();
    }
    split("an even split in the end", &[&one, &two], 4).await;
    all_read(&api).await;
    two.stop().await;
    one.stop().await;
    api.close().await.unwrap();
}
