//! Workers on a queue whose servers or connections fail under load: everything lands once, in order, and nobody has to be
//! started anew.

use std::time::Duration;

use tokio::time::sleep;
use wavehouse_broker::Broker;
use wavehouse_testkit::Link;

use crate::workers::{ClickHouse, Process, Publisher, all_read, landed, split, start, tables};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_started_again() {
    let (mut servers, clickhouse) = (start(2, 2).await, ClickHouse::default());
    let (api, tables) = (servers.open().await, tables());
    let one = Process::start(&servers, &clickhouse, 1).await;
    let two = Process::start(&servers, &clickhouse, 2).await;
    split("an even split", &[&one, &two], 4).await;
    for _ in 0..2 {
        let publisher = Publisher::start(&api, &tables, Duration::from_millis(50));
        sleep(Duration::from_secs(2)).await;
        // Whoever publishes would be told of the failure; what is taken stays.
        let each = publisher.end().await;
        servers.server.restart().await;
        landed(&clickhouse, &tables, each).await;
        clickhouse.forget();
    }
    all_read(&api).await;
    two.stop().await;
    one.stop().await;
    api.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_again_and_again_under_load() {
    let (servers, clickhouse) = (start(2, 2).await, ClickHouse::default());
    let (api, tables) = (servers.open().await, tables());
    let link = Link::to(servers.server.port());
    let url = format!("nats://127.0.0.1:{}", link.port());
    let one = Process::start_at(&servers, url, &clickhouse, 1).await;
    split("all for one", &[&one], 4).await;
    let publisher = Publisher::start(&api, &tables, Duration::from_millis(20));
    for down in [200, 1500, 50, 4000] {
        sleep(Duration::from_secs(2)).await;
        link.cut();
        sleep(Duration::from_millis(down)).await;
        link.heal();
    }
    let each = publisher.end().await;
    landed(&clickhouse, &tables, each).await;
    one.stop().await;
    api.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_is_cut_off_for_longer_than_its_term_is_replaced_and_comes_back() {
    let (servers, clickhouse) = (start(2, 2).await, ClickHouse::default());
    let (api, tables) = (servers.open().await, tables());
    let link = Link::to(servers.server.port());
    let url = format!("nats://127.0.0.1:{}", link.port());
    let one = Process::start_at(&servers, url, &clickhouse, 1).await;
    let two = Process::start(&servers, &clickhouse, 2).await;
    split("an even split", &[&one, &two], 4).await;
    let publisher = Publisher::start(&api, &tables, Duration::from_millis(50));
    sleep(Duration::from_secs(2)).await;
    link.cut();
    split("all for the other", &[&two], 4).await;
    sleep(Duration::from_secs(8)).await;
    link.heal();
    split("an even split again", &[&one, &two], 4).await;
    let each = publisher.end().await;
    landed(&clickhouse, &tables, each).await;
    all_read(&api).await;
    two.stop().await;
    one.stop().await;
    api.close().await.unwrap();
}
