//! The suite that every broker passes, on a real message server and as the restricted user.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use wavehouse_broker::conformance::{BrokerFixture, Promise, lacks_report};
use wavehouse_broker::{Broker, RowBudget, SharedBroker, broker_conformance};
use wavehouse_broker_nats::{NatsBroker, Options};
use wavehouse_core::TenantId;
use wavehouse_topology::TopologyInput;

use crate::fixture::{Line, Servers, input};

/// Longer than any case.
pub(crate) const ACK_WAIT: Duration = Duration::from_secs(180);

struct Fixture {
    servers: Servers,
    ack_wait: Duration,
    line: Line,
    broker: Arc<NatsBroker>,
}

async fn open(servers: &Servers, ack_wait: Duration) -> (Line, Arc<NatsBroker>) {
    let line = Line::to(servers.server.port()).await;
    let mut options = servers.options_at(line.url());
    options.ack_wait = Some(ack_wait);
    let broker = NatsBroker::open(options).await.expect("the queue opens");
    (line, broker)
}

/// Another process takes every unit, and gives it up again.
pub(crate) async fn take_all(options: Options) {
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
        (self.line, self.broker) = open(&self.servers, self.ack_wait).await;
    }
}

#[async_trait]
impl BrokerFixture for Fixture {
    async fn start() -> Self {
        // Its futures borrow in ways that may not cross threads.
        let topology = TopologyInput { partitions: 1, shards: 1, ..input() };
        let servers = block_in_place(|| Handle::current().block_on(Servers::start_with(topology, "")));
        let (line, broker) = open(&servers, ACK_WAIT).await;
        Self { servers, ack_wait: ACK_WAIT, line, broker }
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
        take_all(self.servers.options()).await;
    }

    fn lacks() -> &'static [(Promise, &'static str)] {
        lacks()
    }
}

/// What the queue on message servers does not promise.
pub(crate) fn lacks() -> &'static [(Promise, &'static str)] {
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

broker_conformance!(Fixture);

#[test]
fn what_is_lacking_is_told() {
    insta::assert_snapshot!(lacks_report::<Fixture>());
}
