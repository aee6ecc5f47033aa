//! Both suites, of brokers and of lease buckets, on servers that all cases share: three that keep everything three times,
//! and one of the next line of versions. Each case finds everything made anew.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::runtime::{Handle, Runtime};
use tokio::task::block_in_place;
use wavehouse_broker::conformance::{BrokerFixture, LeaseCase, LeaseFixture, Promise, run, run_lease_case};
use wavehouse_broker::{Broker, LeaseBucket, SharedBroker};
use wavehouse_broker_nats::{NatsBroker, NatsBucket, Options};
use wavehouse_core::TenantId;
use wavehouse_nats::ConnectOptions;
use wavehouse_testkit::{NatsCluster, NatsServer};
use wavehouse_topology::{TopologyInput, TopologySpec};

use crate::conformance::{ACK_WAIT, lacks, take_all};
use crate::fixture::{Line, accounts, connect, input, operator_options, options, provision};

/// The next line of versions, which is warned of and must work.
const NEXT_VERSION: &str = "2.15.1";

/// Servers that run.
#[derive(Clone)]
struct Running {
    spec: TopologySpec,
    /// What the restricted user connects with.
    options: Options,
    /// What the operator connects with.
    operator: ConnectOptions,
    /// Where the servers listen.
    urls: Vec<String>,
}

/// Cases begin at another server each.
static TURN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// What the cases of this thread run on.
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

fn running() -> Running {
    RUNNING.with_borrow(Clone::clone).expect("servers run")
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

/// Connects through a line that can be cut, and to one server alone: by others the process would live on.
async fn open(running: &Running, ack_wait: Duration, turn: usize) -> (Line, Arc<NatsBroker>) {
    let url = &running.urls[turn % running.urls.len()];
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let line = Line::to(port).await;
    let mut options = running.options.clone();
    options.connect.urls = vec![line.url()];
    options.ack_wait = Some(ack_wait);
    let broker = NatsBroker::open(options).await.expect("the queue opens");
    (line, broker)
}

struct OnRunning {
    running: Running,
    ack_wait: Duration,
    /// Each process connects to another server.
    turn: usize,
    line: Line,
    broker: Arc<NatsBroker>,
}

impl OnRunning {
    async fn reopen(&mut self) {
        self.turn += 1;
        (self.line, self.broker) = open(&self.running, self.ack_wait, self.turn).await;
    }
}

#[async_trait]
impl BrokerFixture for OnRunning {
    async fn start() -> Self {
        let running = running();
        block_in_place(|| Handle::current().block_on(make_anew(&running)));
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let (line, broker) = open(&running, ACK_WAIT, turn).await;
        Self { running, ack_wait: ACK_WAIT, turn, line, broker }
    }

    fn broker(&self) -> SharedBroker {
        self.broker.clone()
    }

    async fn restart(&mut self) {
        self.broker.close().await.expect("a clean close");
        self.reopen().await;
    }

    async fn crash(&mut self) {
        self.line.cut().await;
        self.reopen().await;
    }

    async fn set_ack_wait(&mut self, ack_wait: Duration) {
        self.ack_wait = ack_wait;
        self.restart().await;
    }

    async fn fill(&mut self, _tenant: &TenantId) {
        unreachable!("no case asks for it: the queue has no budgets of tenants");
    }

    async fn end_delivery(&mut self) {
        take_all(self.running.options.clone()).await;
    }

    fn lacks() -> &'static [(Promise, &'static str)] {
        lacks()
    }
}

/// A bucket of servers that run.
struct BucketOnRunning(Running);

#[async_trait]
impl LeaseFixture for BucketOnRunning {
    async fn start() -> Self {
        let running = running();
        block_in_place(|| Handle::current().block_on(make_anew(&running)));
        Self(running)
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
    Promise::ALL.iter().for_each(|promise| run::<OnRunning>(*promise));
    LeaseCase::ALL.iter().for_each(|case| run_lease_case::<BucketOnRunning>(*case));
}

fn spec(replicas: u32) -> TopologySpec {
    TopologyInput { partitions: 1, shards: 1, replicas, ..input() }.check().expect("a legal topology")
}

#[test]
fn both_suites_pass_on_three_servers_that_keep_everything_three_times() {
    let spec = spec(3);
    let runtime = Runtime::new().expect("a runtime");
    let cluster = runtime.block_on(NatsCluster::start(&accounts(&spec)));
    let urls = cluster.urls();
    let options = options(&spec, cluster.node(0), urls.clone());
    both_suites(Running { spec, options, operator: operator_options(cluster.node(0)), urls });
}

#[test]
fn both_suites_pass_on_the_next_line_of_versions() {
    let spec = spec(1);
    let runtime = Runtime::new().expect("a runtime");
    let config = NatsServer::jetstream_config(&accounts(&spec));
    let server = runtime.block_on(NatsServer::start_version(NEXT_VERSION, &config));
    let urls = vec![server.url()];
    let options = options(&spec, &server, urls.clone());
    both_suites(Running { spec, options, operator: operator_options(&server), urls });
}
