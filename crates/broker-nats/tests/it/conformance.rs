//! The suite that every broker passes, on a real message server and as the restricted user.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use wavehouse_broker::conformance::{BrokerFixture, Promise, lacks_report};
use wavehouse_broker::{Broker, RowBudget, SharedBroker, broker_conformance};
use wavehouse_broker_nats::{NatsBroker, Options};
use wavehouse_core::TenantId;
use wavehouse_nats::ConnectOptions;
use wavehouse_topology::{TopologyInput, TopologySpec};

use crate::fixture::{Line, Servers, input, operator_options};
use crate::suites;

/// Longer than any case.
const ACK_WAIT: Duration = Duration::from_secs(180);

/// Servers that run, and how to reach them.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) spec: TopologySpec,
    /// What the restricted user connects with.
    pub(crate) options: Options,
    /// What the operator connects with.
    pub(crate) operator: ConnectOptions,
    /// Where the servers listen.
    pub(crate) urls: Vec<String>,
}

/// Cases begin at another server each, where there are several.
static TURN: AtomicUsize = AtomicUsize::new(0);

/// A broker on a server of the case's own, or on servers that cases share.
pub(crate) struct Fixture {
    _own: Option<Servers>,
    running: Running,
    ack_wait: Duration,
    turn: usize,
    line: Line,
    broker: Arc<NatsBroker>,
}

async fn start() -> (Option<Servers>, Running) {
    if let Some(running) = suites::shared().await {
        return (None, running);
    }
    let servers = Servers::start_with(TopologyInput { partitions: 1, shards: 1, ..input() }, "").await;
    let running = Running {
        spec: servers.spec.clone(),
        options: servers.options(),
        operator: operator_options(&servers.server),
        urls: vec![servers.server.url()],
    };
    (Some(servers), running)
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

/// Another process takes every unit, and gives it up again.
async fn take_all(options: Options) {
    let other = NatsBroker::open(options).await.expect("the queue opens");
    for unit in other.units() {
        let budget = RowBudget { rows: 1, bytes: 1 };
        let opened = other.open_unit(unit, budget).await.expect("another process takes the unit");
        opened.control.release().await;
    }
    other.close().await.expect("a clean close");
}

impl Fixture {
    async fn reopen(&mut self) {
        self.turn += 1;
        (self.line, self.broker) = open(&self.running, self.ack_wait, self.turn).await;
    }
}

#[async_trait]
impl BrokerFixture for Fixture {
    async fn start() -> Self {
        // Its futures borrow in ways that may not cross threads.
        let (own, running) = block_in_place(|| Handle::current().block_on(start()));
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let (line, broker) = open(&running, ACK_WAIT, turn).await;
        Self { _own: own, running, ack_wait: ACK_WAIT, turn, line, broker }
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
        const BUDGETS: &str = "the servers bound topics, partitions and the store, not tenants";
        const SWEEP: &str = "the servers free what is written, and what is old in the history, by themselves";
        &[
            (
                Promise::SequencesWithoutGaps,
                "a sequence numbers the messages of a partition, which many tables share",
            ),
            (Promise::HistoryHoleAfterSweep, SWEEP),
            (Promise::HistorySweepUnderAReader, SWEEP),
            (Promise::FullForOneTenant, BUDGETS),
            (Promise::OnlyUnwrittenCounts, BUDGETS),
            (Promise::BudgetsApart, BUDGETS),
            (Promise::LimitsBelowUse, BUDGETS),
            (Promise::BudgetOverRestart, BUDGETS),
            (Promise::Depths, "what waits of each table is known to the servers alone: wavehouse mq status"),
            (Promise::StuckTableFreesOthers, SWEEP),
        ]
    }
}

broker_conformance!(Fixture);

#[test]
fn what_is_lacking_is_told() {
    insta::assert_snapshot!(lacks_report::<Fixture>());
}
