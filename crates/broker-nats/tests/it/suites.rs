//! Both suites, of brokers and of lease buckets, on servers that all cases share: three that keep everything three times,
//! and one of the next line of versions. Each case finds everything made anew.

use std::cell::RefCell;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::runtime::{Handle, Runtime};
use tokio::task::block_in_place;
use wavehouse_broker::LeaseBucket;
use wavehouse_broker::conformance::{LeaseCase, LeaseFixture, Promise, run, run_lease_case};
use wavehouse_broker_nats::NatsBucket;
use wavehouse_nats::ConnectOptions;
use wavehouse_testkit::{NatsCluster, NatsServer};
use wavehouse_topology::{TopologyInput, TopologySpec, permissions};

use crate::conformance::{Fixture, Running};
use crate::fixture::{accounts, connect, input, operator_options, options, provision};

/// The next line of versions, which is warned of and must work.
const NEXT_VERSION: &str = "2.15.1";

thread_local! {
    /// What the cases of this thread run on.
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// The servers that the cases of this thread share, with everything made anew; none if each case has its own.
pub(crate) async fn shared() -> Option<Running> {
    let running = RUNNING.with_borrow(Clone::clone)?;
    make_anew(&running).await;
    Some(running)
}

/// Removes everything and makes it anew.
async fn make_anew(running: &Running) {
    let operator = connect(&running.operator).await;
    for stream in operator.stream_names(None).await.expect("names") {
        operator.call::<Value>(&format!("STREAM.DELETE.{stream}"), "".into()).await.expect("removed");
    }
    provision(&operator, &running.spec).await;
    operator.connection().close().await;
}

/// A bucket of servers that run.
struct BucketOnRunning(Running);

#[async_trait]
impl LeaseFixture for BucketOnRunning {
    async fn start() -> Self {
        let shared = block_in_place(|| Handle::current().block_on(shared()));
        Self(shared.expect("servers run"))
    }

    async fn handle(&self) -> Arc<dyn LeaseBucket> {
        // The only answers that the user may hear.
        let inbox_prefix = format!("_INBOX_{}", self.0.spec.prefix());
        let options = ConnectOptions { inbox_prefix, ..self.0.options.connect.clone() };
        let user = block_in_place(|| Handle::current().block_on(connect(&options)));
        Arc::new(NatsBucket::new(&user, &self.0.spec.coord_bucket()))
    }
}

fn both_suites(running: Running) {
    RUNNING.set(Some(running));
    Promise::ALL.iter().for_each(|promise| run::<Fixture>(*promise));
    LeaseCase::ALL.iter().for_each(|case| run_lease_case::<BucketOnRunning>(*case));
}

fn spec(replicas: u32) -> TopologySpec {
    TopologyInput { partitions: 1, shards: 1, replicas, ..input() }.check().expect("a legal topology")
}

#[test]
fn both_suites_pass_on_three_servers_that_keep_everything_three_times() {
    let spec = spec(3);
    let runtime = Runtime::new().expect("a runtime");
    let cluster = runtime.block_on(NatsCluster::start(&accounts(&permissions(&spec))));
    let urls = cluster.urls();
    let options = options(&spec, cluster.node(0), urls.clone());
    both_suites(Running { spec, options, operator: operator_options(cluster.node(0)), urls });
}

#[test]
fn both_suites_pass_on_the_next_line_of_versions() {
    let spec = spec(1);
    let runtime = Runtime::new().expect("a runtime");
    let config = NatsServer::jetstream_config(&accounts(&permissions(&spec)));
    let server = runtime.block_on(NatsServer::start_version(NEXT_VERSION, &config));
    let urls = vec![server.url()];
    let options = options(&spec, &server, urls.clone());
    both_suites(Running { spec, options, operator: operator_options(&server), urls });
}
