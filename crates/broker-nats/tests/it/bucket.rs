//! The lease bucket on a real server, as the restricted user, with and without a domain.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use wavehouse_broker::conformance::LeaseFixture;
use wavehouse_broker::{LeaseBucket, LeaseError, Revision};
use wavehouse_broker_nats::NatsBucket;
use wavehouse_topology::TopologyInput;

use crate::stage::{Stage, input};

/// Fixtures are made on a thread of the runtime that may wait.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(future))
}

async fn bucket(stage: &Stage) -> NatsBucket {
    NatsBucket::new(&stage.user().await.jetstream(), &stage.spec.coord_bucket())
}

/// A bucket of a server of its own.
struct Plain(Stage);

#[async_trait]
impl LeaseFixture for Plain {
    async fn start() -> Self {
        Self(wait(Stage::start(TopologyInput { shards: 1, ..input() })))
    }

    async fn handle(&self) -> Arc<dyn LeaseBucket> {
        Arc::new(wait(bucket(&self.0)))
    }
}

mod plain {
    wavehouse_broker::lease_conformance!(super::Plain);
}

/// The same under a domain of JetStream.
struct InDomain(Stage);

#[async_trait]
impl LeaseFixture for InDomain {
    async fn start() -> Self {
        let domain = Some("hub".to_owned());
        Self(wait(Stage::start(TopologyInput { shards: 1, js_domain: domain, ..input() })))
    }

    async fn handle(&self) -> Arc<dyn LeaseBucket> {
        Arc::new(wait(bucket(&self.0)))
    }
}

mod in_domain {
    wavehouse_broker::lease_conformance!(super::InDomain);
}

#[tokio::test]
async fn case_93_a_missing_bucket_is_named() {
    let stage = Stage::bare(input()).await;
    let bucket = bucket(&stage).await;
    let missing = LeaseError::NoBucket { bucket: "wh_coord".to_owned() };
    assert_eq!(bucket.get("lease.a").await, Err(missing.clone()));
    assert_eq!(bucket.create("lease.a", Bytes::new()).await, Err(missing.clone()));
    assert_eq!(bucket.list("lease.").await, Err(missing));
}

#[tokio::test]
async fn case_88_tokens_are_revisions_of_the_bucket() {
    let stage = Stage::start(input()).await;
    let bucket = bucket(&stage).await;
    let token = bucket.create("lease.a", Bytes::from_static(b"1")).await.expect("written");
    let last = bucket.update("lease.a", Bytes::from_static(b"2"), token).await.expect("written");
    let info = stage.operator.stream_info("KV_wh_coord").await.expect("a stream");
    assert_eq!((info.state.last_seq, token), (last.0, Revision(last.0 - 1)));
    let kept = stage.operator.message("KV_wh_coord", last.0).await.expect("an answer").expect("a message");
    assert_eq!(kept.subject, "$KV.wh_coord.lease.a");
}

// Case 46.
#[tokio::test]
async fn keys_outside_leases_are_refused_and_a_lost_server_is_told() {
    let mut stage = Stage::start(input()).await;
    let bucket = bucket(&stage).await;
    let refused = bucket.create("other", Bytes::new()).await;
    assert!(matches!(refused, Err(LeaseError::Unavailable { .. })), "{refused:?}");
    assert_eq!(stage.operator.stream_info("KV_wh_coord").await.expect("a stream").state.messages, 0);
    stage.server.kill9();
    let lost = bucket.get("lease.a").await;
    assert!(matches!(lost, Err(LeaseError::Unavailable { .. })), "{lost:?}");
}
