//! Opening the queue, and what refuses it.

use std::time::Duration;

use wavehouse_broker::Broker;
use wavehouse_broker_nats::{NatsBroker, OpenError};
use wavehouse_testkit::NatsServer;

use crate::fixture::{Servers, config, input, options};

#[tokio::test]
async fn a_queue_opens_on_what_the_manifests_make() {
    let servers = Servers::start().await;
    let broker = servers.open().await;
    assert_eq!(broker.units().len(), 4);
    assert!(broker.block_bytes_max() > 1_000_000);
    broker.close().await.unwrap();
}

#[tokio::test]
async fn older_servers_are_refused_with_the_version_that_is_needed() {
    let spec = input().check().expect("a legal topology");
    for version in ["2.12.8", "2.10.26"] {
        let server = NatsServer::start_version(version, &config(&spec, "")).await;
        let mut options = options(&spec, &server, vec![server.url()]);
        options.topology_wait = Duration::from_secs(1);
        let Err(OpenError::Topology(refused)) = NatsBroker::open(options).await else {
            panic!("{version} is refused for what it is");
        };
        let refused = refused.to_string();
        assert!(refused.contains(version) && refused.contains("2.14.0"), "{refused}");
    }
}
