//! The worker as a component: opens the units or takes its share of them, feeds the core, runs its jobs, stops in order.

mod run;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{Broker, CutError, OpenUnit, OpenUnitError, UnitLost, UnitSharing};
use wavehouse_clickhouse::RowSink;
use wavehouse_core::{FaultKind, UnitId};

use self::run::{Away, Run};
use crate::claims::{COMMANDS_MAX, ClaimOptions, Claims, Setting};
use crate::core::Core;
use crate::flush::Tools;
use crate::metrics::WorkerMetrics;
use crate::options::Options;

/// Wait before opening a unit again that could not be opened.
const OPEN_RETRY: Duration = Duration::from_secs(1);

/// Why the worker ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum WorkerFault {
    /// A unit cannot be opened, now or later.
    #[error("a unit cannot be opened")]
    Open(#[source] OpenUnitError),
    /// Delivery of a unit ended.
    #[error("delivery ended")]
    Lost(#[source] UnitLost),
    /// A unit that this process was told of does not exist; the operator must make it.
    #[error("delivery ended: unit {unit} does not exist")]
    Gone {
        /// Its name on the servers.
        unit: String,
    },
    /// A unit was taken over while a batch was to be written.
    #[error("a cut cannot be recorded any more")]
    CutLost(#[source] CutError),
    /// A task of the worker panicked.
    #[error("a task of the worker panicked: {0}")]
    Panicked(String),
}

impl WorkerFault {
    /// What the caller should do.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        FaultKind::Stop
    }
}

/// Moves rows from the queue into ClickHouse.
pub struct Worker {
    options: Options,
    claims: ClaimOptions,
    broker: Arc<dyn Broker>,
    sink: Arc<dyn RowSink>,
    metrics: WorkerMetrics,
}

impl Worker {
    /// A worker for all units of a broker; where the broker [shares](Broker::sharing) its units among processes, for this
    /// process's share of them.
    #[must_use]
    pub fn new(
        options: Options,
        broker: Arc<dyn Broker>,
        sink: Arc<dyn RowSink>,
        metrics: WorkerMetrics,
    ) -> Self {
        Self { options, claims: ClaimOptions::default(), broker, sink, metrics }
    }

    /// Who this process is among those that share the units. Without it, it is somebody new each time. Means nothing to a
    /// broker that does not share its units.
    #[must_use]
    pub fn with_claims(mut self, claims: ClaimOptions) -> Self {
        self.claims = claims;
        self
    }

    /// Works until `stop`; then takes in no more, writes what is in hand within the stop budget, hands the rest back and
    /// gives the units up.
    ///
    /// # Errors
    /// [`WorkerFault`]: the worker cannot go on. What it had in hand goes back to the queue.
    pub async fn run(self, stop: CancellationToken) -> Result<(), WorkerFault> {
        match self.broker.sharing() {
            Some(sharing) => self.run_share(sharing, stop).await,
            None => self.run_all(stop).await,
        }
    }

    /// Works on every unit, from the beginning to the end.
    async fn run_all(self, stop: CancellationToken) -> Result<(), WorkerFault> {
        let options = self.options.clone().sane();
        let mut run = Run::new(self.core(&options), self.tools(&options), Away::None);
        for unit in self.broker.units() {
            match open(&*self.broker, unit, &options, &stop).await {
                Ok(Some(opened)) => run.take_on(unit, opened, None),
                Ok(None) => return run.end(Ok(())).await,
                Err(error) => return run.end(Err(WorkerFault::Open(error))).await,
            }
        }
        let outcome = run.work(&stop, options.stop_budget).await;
        run.end(outcome).await
    }

    /// Works on this process's share of the units, which come and go.
    async fn run_share(
        self,
        sharing: Arc<dyn UnitSharing>,
        stop: CancellationToken,
    ) -> Result<(), WorkerFault> {
        let options = self.options.clone().sane_shared();
        let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
        let (gone, told) = mpsc::channel(1);
        let claims = Claims::new(Setting {
            options: self.claims.clone(),
            broker: Arc::clone(&self.broker),
            sharing: Arc::clone(&sharing),
            metrics: self.metrics.clone(),
            commands,
            budget: Options::first_budget(),
        });
        let end = stop.child_token();
        let core = self.core(&options).shared(Options::rebuild_room());
        let away = Away::Claims { commands: inbox, gone: told, sharing, end: end.clone() };
        let mut run = Run::new(core, self.tools(&options), away);
        run.claims.spawn(claims.run(end, gone));
        let outcome = run.work(&stop, options.stop_budget).await;
        run.end(outcome).await
    }

    fn core(&self, options: &Options) -> Core {
        Core::new(options, Arc::clone(&self.broker), Arc::clone(&self.sink), self.metrics.clone())
    }

    fn tools(&self, options: &Options) -> Tools {
        Tools {
            broker: Arc::clone(&self.broker),
            sink: Arc::clone(&self.sink),
            metrics: self.metrics.clone(),
            now: options.now,
        }
    }
}

/// Opens a unit, however long it takes; `None` if it is time to stop.
async fn open(
    broker: &dyn Broker,
    unit: UnitId,
    options: &Options,
    stop: &CancellationToken,
) -> Result<Option<OpenUnit>, OpenUnitError> {
    loop {
        match broker.open_unit(unit, options.budget()).await {
            Ok(opened) => return Ok(Some(opened)),
            Err(error) if matches!(error.fault(), FaultKind::Retry { .. }) => {
                tracing::warn!(%unit, error = %wavehouse_core::chain(&error), "unit cannot be opened yet");
                tokio::select! {
                    () = stop.cancelled() => return Ok(None),
                    () = tokio::time::sleep(OPEN_RETRY) => {}
                }
            }
            Err(error) => return Err(error),
        }
    }
}
