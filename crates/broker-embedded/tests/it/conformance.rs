//! The suite that every broker passes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use wavehouse_broker::conformance::{BrokerFixture, Promise, lacks_report};
use wavehouse_broker::{Broker, SharedBroker, TenantLimits, broker_conformance};
use wavehouse_broker_embedded::{EmbeddedBroker, Options};
use wavehouse_core::TenantId;

use crate::kit::open_on;
use crate::mortal::Mortal;

struct Fixture {
    dir: TempDir,
    ack_wait: Duration,
    life: Mortal,
    broker: Arc<EmbeddedBroker>,
}

fn open(dir: &TempDir, ack_wait: Duration) -> (Mortal, Arc<EmbeddedBroker>) {
    let mut options = Options::new(dir.path().to_owned());
    options.disk_bytes_max = Some(256 << 20);
    options.file_bytes = Some(1 << 20);
    options.ack_wait = ack_wait;
    let life = Mortal::new(dir.path());
    let broker = open_on(&options, Arc::new(life.clone()));
    (life, broker)
}

impl Fixture {
    fn reopen(&mut self) {
        (self.life, self.broker) = open(&self.dir, self.ack_wait);
    }
}

#[async_trait]
impl BrokerFixture for Fixture {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ack_wait = Duration::from_secs(60);
        let (life, broker) = open(&dir, ack_wait);
        Self { dir, ack_wait, life, broker }
    }

    fn broker(&self) -> SharedBroker {
        self.broker.clone()
    }

    async fn restart(&mut self) {
        self.broker.close().await.unwrap();
        self.reopen();
    }

    async fn crash(&mut self) {
        self.life.kill();
        // Its threads are not gone, as they would be; they are powerless.
        let _failed = self.broker.close().await;
        self.reopen();
    }

    async fn set_ack_wait(&mut self, ack_wait: Duration) {
        self.ack_wait = ack_wait;
        self.restart().await;
    }

    async fn fill(&mut self, tenant: &TenantId) {
        let limits = self.broker.limits(tenant);
        self.broker.set_limits(tenant, TenantLimits { unwritten_bytes_max: 0, ..limits });
    }

    async fn end_delivery(&mut self) {
        // Nobody can take the unit over; its end is that of the queue.
        self.broker.close().await.unwrap();
    }

    fn lacks() -> &'static [(Promise, &'static str)] {
        &[]
    }
}

broker_conformance!(Fixture);

#[test]
fn what_it_lacks() {
    insta::assert_snapshot!(lacks_report::<Fixture>(), @"lacks nothing");
}
