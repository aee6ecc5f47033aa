//! A process that runs a worker.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::conformance::MemoryBucket;
use wavehouse_clickhouse::{RowBatch, RowSink, WriteError};
use wavehouse_core::{Placement, TenantId};
use wavehouse_worker::{ClaimOptions, Options, Worker, WorkerFault, WorkerMetrics};

use super::world::{Gate, Process, World, pass};
use crate::kit::Scripted;

/// ClickHouse as one process reaches it.
struct Reached {
    world: Arc<World>,
    number: usize,
    sink: Arc<Scripted>,
    gate: Arc<Gate>,
}

#[async_trait]
impl RowSink for Reached {
    async fn write(&self, batch: &RowBatch) -> Result<(), WriteError> {
        self.world.begins_to_insert(self.number, batch);
        pass(&self.gate).await;
        let written = self.sink.write(batch).await;
        pass(&self.gate).await;
        written
    }

    fn target(&self, tenant: &TenantId) -> Arc<str> {
        self.sink.target(tenant)
    }
}

/// A process that runs.
pub(crate) struct Running {
    pub(crate) number: usize,
    /// How it was told that the queue is divided.
    pub(crate) placement: Placement,
    world: Arc<World>,
    stop: CancellationToken,
    gate: Arc<Gate>,
    /// Its own hand on the bucket, which can be cut off.
    pub(crate) bucket: MemoryBucket,
    registry: Registry,
    worker: JoinSet<Result<(), WorkerFault>>,
}

impl Running {
    /// Starts a process; its number must be new.
    pub(crate) fn start(
        world: &Arc<World>,
        number: usize,
        placement: Placement,
        sink: &Arc<Scripted>,
    ) -> Self {
        Self::named(world, number, &format!("host-{number}"), placement, sink)
    }

    pub(crate) fn named(
        world: &Arc<World>,
        number: usize,
        name: &str,
        placement: Placement,
        sink: &Arc<Scripted>,
    ) -> Self {
        let gate: Arc<Gate> = Arc::new(Gate::new(true));
        world.inner.lock().unwrap().gates.insert(number, Arc::clone(&gate));
        let process = Process {
            number,
            placement,
            world: Arc::clone(world),
            gate: Arc::clone(&gate),
            bucket: world.bucket.another(),
            open: Arc::default(),
        };
        let (stop, bucket) = (CancellationToken::new(), process.bucket.clone());
        let mut registry = Registry::default();
        let metrics = WorkerMetrics::register(&mut registry);
        let options = Options { seed: number as u64, held_rows: 200_000, ..Options::default() };
        let (world, sink) = (Arc::clone(world), Arc::clone(sink));
        let sink = Arc::new(Reached { world: Arc::clone(&world), number, sink, gate: Arc::clone(&gate) });
        let claims = ClaimOptions { session: format!("session{number}"), ..ClaimOptions::new(name) };
        let made = Worker::new(options, Arc::new(process), sink, metrics).with_claims(claims);
        let mut worker = JoinSet::new();
        worker.spawn(made.run(stop.clone()));
        Self { number, placement, world, stop, gate, bucket, registry, worker }
    }

    /// Stops it as a signal does.
    pub(crate) async fn stop(mut self) -> Result<(), WorkerFault> {
        self.stop.cancel();
        let ended = self.ended().await;
        assert_eq!(self.world.broken(), Vec::<String>::new());
        ended
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(&mut self) -> Result<(), WorkerFault> {
        self.worker.join_next().await.unwrap().unwrap()
    }

    /// Nothing of it reaches anything, and it does not answer.
    pub(crate) fn freeze(&self) {
        self.world.stands(self.number, true);
        self.gate.send_replace(false);
    }

    pub(crate) fn thaw(&self) {
        if !self.gate.send_replace(true) {
            self.world.stands(self.number, false);
        }
    }

    /// Ends it at this instant.
    pub(crate) async fn kill(mut self) {
        self.freeze();
        self.worker.shutdown().await;
    }

    /// One of its metrics, if it shows it.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find(|line| line.split(' ').next() == Some(name))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

/// Waits for a fact; the clock runs by itself while nothing else can happen.
pub(crate) async fn until(within: Duration, what: &str, mut fact: impl FnMut() -> bool) -> Duration {
    let began = tokio::time::Instant::now();
    while !fact() {
        assert!(began.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    began.elapsed()
}
