//! The worker as a component: opens the queue's units and runs each until stopped.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{Broker, CutError, OpenUnitError, UnitLost};
use wavehouse_clickhouse::RowSink;
use wavehouse_core::FaultKind;

use crate::flush::FlushContext;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::unit::Unit;

/// Why the worker ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerFault {
    /// A unit could not be opened.
    #[error("worker cannot open a unit")]
    Open(#[source] OpenUnitError),
    /// Delivery ended on its own.
    #[error("worker lost its unit")]
    Lost(#[source] UnitLost),
    /// A cut could not be recorded because the unit is another's.
    #[error("worker lost its unit while recording a cut")]
    Cut(#[source] CutError),
    /// A task of the worker panicked.
    #[error("a task of the worker died: {0}")]
    Died(String),
}

impl WorkerFault {
    /// What the process should do.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        FaultKind::Stop
    }
}

/// Moves rows from the queue into ClickHouse.
pub struct Worker {
    options: Options,
    broker: Arc<dyn Broker>,
    sink: Arc<dyn RowSink>,
    metrics: Metrics,
}

impl Worker {
    /// A worker that reads `broker` and writes through `sink`.
    pub fn new(options: Options, broker: Arc<dyn Broker>, sink: Arc<dyn RowSink>, metrics: Metrics) -> Self {
        Self { options, broker, sink, metrics }
    }

    /// Runs until `stop`; then writes what is in hand, for as long as [`Options::stop_flush`], and gives the units up.
    /// Dropping the future leaves everything in hand to be delivered again.
    ///
    /// # Errors
    /// [`WorkerFault`] when it cannot go on; the process should end, and start again.
    pub async fn run(self, stop: CancellationToken) -> Result<(), WorkerFault> {
        let mut units = JoinSet::new();
        for id in self.broker.units() {
            let opened = self.broker.open_unit(id, self.options.held).await.map_err(WorkerFault::Open)?;
            let context = FlushContext {
                broker: Arc::clone(&self.broker),
                sink: Arc::clone(&self.sink),
                control: Arc::clone(&opened.control),
                metrics: self.metrics.clone(),
                refusals_in_a_row_max: self.options.refusals_in_a_row_max,
            };
            units.spawn(Unit::new(self.options.clone(), context, opened).run(stop.clone()));
        }
        while let Some(ended) = units.join_next().await {
            ended.map_err(|error| WorkerFault::Died(error.to_string()))??;
        }
        Ok(())
    }
}
