//! The worker as a component: opens the units, feeds the core, runs its jobs, stops in order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{
    Broker, CutError, Deliveries, Delivery, OpenUnit, OpenUnitError, UnitControl, UnitLost,
};
use wavehouse_clickhouse::RowSink;
use wavehouse_core::FaultKind;

use crate::core::Core;
use crate::flush::{Report, Tools, flush};
use crate::metrics::WorkerMetrics;
use crate::options::Options;

/// Deliveries between the queue and the worker's loop. Their rows count against what is held, so this only bounds how
/// many tiny blocks are taken out at once.
const DELIVERIES_MAX: usize = 1024;
/// Deliveries that are taken in before timers and reports are looked at again.
const DELIVERIES_AT_ONCE: usize = 256;
/// How often batches that are being brought back are compared with the queue, if they do not come on.
const COMPARE_EVERY: Duration = Duration::from_secs(10);
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
    broker: Arc<dyn Broker>,
    sink: Arc<dyn RowSink>,
    metrics: WorkerMetrics,
}

enum Event {
    Delivered(usize, Delivery),
    Ended,
    Lost(UnitLost),
}

impl Worker {
    /// A worker for all units of a broker.
    #[must_use]
    pub fn new(
        options: Options,
        broker: Arc<dyn Broker>,
        sink: Arc<dyn RowSink>,
        metrics: WorkerMetrics,
    ) -> Self {
        Self { options: options.sane(), broker, sink, metrics }
    }

    /// Works until `stop`; then takes in no more, writes what is in hand within the stop budget, hands the rest back and
    /// gives the units up.
    ///
    /// # Errors
    /// [`WorkerFault`]: the worker cannot go on. What it had in hand goes back to the queue.
    pub async fn run(self, stop: CancellationToken) -> Result<(), WorkerFault> {
        let Self { options, broker, sink, metrics } = self;
        let core = Core::new(&options, Arc::clone(&broker), Arc::clone(&sink), metrics.clone());
        let tools = Tools { broker: Arc::clone(&broker), sink, metrics, now: options.now };
        let (events, inbox) = mpsc::channel(DELIVERIES_MAX);
        let mut run =
            Run { core, tools, inbox, pumps: JoinSet::new(), flights: JoinSet::new(), units: Vec::new() };
        for unit in broker.units() {
            let opened = loop {
                match broker.open_unit(unit, options.budget()).await {
                    Ok(opened) => break opened,
                    Err(error) if matches!(error.fault(), FaultKind::Retry { .. }) => {
                        tracing::warn!(%unit, error = %wavehouse_core::chain(&error), "unit cannot be opened yet");
                        tokio::select! {
                            () = stop.cancelled() => return run.end(Ok(())).await,
                            () = tokio::time::sleep(OPEN_RETRY) => {}
                        }
                    }
                    Err(error) => return run.end(Err(WorkerFault::Open(error))).await,
                }
            };
            run.take_on(opened, &events);
        }
        drop(events);
        let outcome = run.work(&stop, options.stop_budget).await;
        run.end(outcome).await
    }
}

struct Run {
    core: Core,
    tools: Tools,
    inbox: mpsc::Receiver<Event>,
    pumps: JoinSet<()>,
    flights: JoinSet<Report>,
    units: Vec<Arc<dyn UnitControl>>,
}

impl Run {
    fn take_on(&mut self, opened: OpenUnit, events: &mpsc::Sender<Event>) {
        let OpenUnit { deliveries, control, cuts } = opened;
        self.units.push(Arc::clone(&control));
        let unit = self.core.add_unit(control, cuts, Instant::now());
        self.pumps.spawn(pump(unit, deliveries, events.clone()));
    }

    async fn work(&mut self, stop: &CancellationToken, budget: Duration) -> Result<(), WorkerFault> {
        let mut deadline: Option<Instant> = None;
        let mut compare_at = Instant::now() + COMPARE_EVERY;
        let (mut inbox_open, mut events) = (true, Vec::with_capacity(DELIVERIES_AT_ONCE));
        loop {
            self.launch();
            if let Some(fault) = self.core.take_fault() {
                return Err(fault);
            }
            if deadline.is_some() && !inbox_open && self.core.idle() {
                return Ok(());
            }
            let wake = self.core.next_wake();
            tokio::select! {
                biased;
                () = stop.cancelled(), if deadline.is_none() => {
                    deadline = Some(Instant::now() + budget);
                    self.core.stop(Instant::now());
                }
                () = until(deadline) => {
                    tracing::warn!(rows = self.core.held().rows, "stopping: rows in hand stay in the queue");
                    return Ok(());
                }
                Some(report) = self.flights.join_next() => match report {
                    Ok(report) => self.core.reported(report, Instant::now()),
                    Err(error) => return Err(WorkerFault::Panicked(error.to_string())),
                },
                () = until(wake) => self.core.tick(Instant::now()),
                () = sleep_until(compare_at) => {
                    compare_at = Instant::now() + COMPARE_EVERY;
                    self.compare();
                }
                count = self.inbox.recv_many(&mut events, DELIVERIES_AT_ONCE), if inbox_open => {
                    inbox_open = count > 0;
                    for event in events.drain(..) {
                        match event {
                            Event::Delivered(unit, delivery) => self.core.delivered(unit, delivery, Instant::now()),
                            Event::Ended => {}
                            Event::Lost(lost) => return Err(WorkerFault::Lost(lost)),
                        }
                    }
                }
            }
        }
    }

    fn launch(&mut self) {
        for job in self.core.take_jobs() {
            let control = self.core.control(job.index);
            self.flights.spawn(flush(job, control, self.tools.clone()));
        }
    }

    fn compare(&mut self) {
        let now = Instant::now();
        if self.core.rebuild_stalled(now) {
            let depths = self.tools.broker.depths();
            self.core.compare(&depths, now);
        }
    }

    /// Lets everything go: inserts are given up, blocks go back, units are released.
    async fn end(self, outcome: Result<(), WorkerFault>) -> Result<(), WorkerFault> {
        let Self { core, mut pumps, mut flights, units, inbox, .. } = self;
        for unit in &units {
            unit.halt();
        }
        flights.shutdown().await;
        pumps.shutdown().await;
        drop((core, inbox));
        for unit in units {
            unit.release().await;
        }
        outcome
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Takes blocks out of a unit as fast as the worker's loop takes them in.
async fn pump(unit: usize, mut deliveries: Box<dyn Deliveries>, events: mpsc::Sender<Event>) {
    loop {
        let event = match deliveries.next().await {
            Ok(Some(delivery)) => Event::Delivered(unit, delivery),
            Ok(None) => Event::Ended,
            Err(lost) => Event::Lost(lost),
        };
        let last = !matches!(event, Event::Delivered(..));
        if events.send(event).await.is_err() || last {
            return;
        }
    }
}
