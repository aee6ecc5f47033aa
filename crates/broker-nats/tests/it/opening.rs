//! Opening the queue, and what refuses it.

use wavehouse_broker::Broker;

use crate::fixture::Servers;

#[tokio::test]
async fn a_queue_opens_on_what_the_manifests_make() {
    let servers = Servers::start().await;
    let broker = servers.open().await;
    assert_eq!(broker.units().len(), 4);
    assert!(broker.block_bytes_max() > 1_000_000);
    broker.close().await.unwrap();
}
