//! The memory broker under test.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use wavehouse_core::TenantId;

use super::{MemoryBroker, MemoryOptions, MemoryStore};
use crate::conformance::{BrokerFixture, Promise};
use crate::contract::{SharedBroker, TenantLimits};

/// A [`MemoryBroker`] and the store that outlives it.
pub struct MemoryFixture {
    store: MemoryStore,
    options: MemoryOptions,
    broker: SharedBroker,
}

impl MemoryFixture {
    fn reopen(&mut self) {
        self.broker = Arc::new(MemoryBroker::open(&self.store, self.options));
    }
}

#[async_trait]
impl BrokerFixture for MemoryFixture {
    async fn start() -> Self {
        let (store, options) = (MemoryStore::default(), MemoryOptions::default());
        let broker = Arc::new(MemoryBroker::open(&store, options));
        Self { store, options, broker }
    }

    fn broker(&self) -> SharedBroker {
        Arc::clone(&self.broker)
    }

    async fn restart(&mut self) {
        if let Err(error) = self.broker.close().await {
            panic!("a memory broker closes: {error}");
        }
        self.reopen();
    }

    async fn crash(&mut self) {
        self.store.crash();
        self.reopen();
    }

    async fn set_ack_wait(&mut self, ack_wait: Duration) {
        self.options.ack_wait = ack_wait;
        self.restart().await;
    }

    async fn fill(&mut self, tenant: &TenantId) {
        let limits = self.broker.limits(tenant);
        self.broker.set_limits(tenant, TenantLimits { unwritten_bytes_max: 0, ..limits });
    }

    async fn end_delivery(&mut self) {
        self.store.end_delivery();
    }

    fn lacks() -> &'static [(Promise, &'static str)] {
        &[]
    }
}
