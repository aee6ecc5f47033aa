//! Owns every long task of the process. Each has a name, a phase in which it is stopped, and a rule for what its end
//! means. A task that ends outside a stop has died, and by default takes the process with it; the first cause is what
//! is reported. A stop goes phase by phase, each within its budget; a second signal ends it at once.

mod signals;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub(crate) use signals::{Signal, listen};

/// When a task is told to stop. Tasks of one phase are told together, and the next phase begins when they are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// What takes requests: refuses new rows and finishes what is in flight.
    Api,
    /// What carries rows to ClickHouse: finishes what is in its hands.
    Worker,
    /// What runs on timers.
    Background,
    /// What the others stood on: the queue, the engine.
    Release,
}

impl Phase {
    /// The order of a stop.
    const ORDER: [Self; 4] = [Self::Api, Self::Worker, Self::Background, Self::Release];
}

/// What the end of a task outside a stop means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnExit {
    /// The process cannot go on without it.
    StopProcess,
    /// It was done, or others can do without it; a failure is logged.
    Log,
}

/// How long each part of a stop may take; the parts add up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopBudget {
    /// For those who balance load to hear that we go, before anything is refused.
    pub(crate) delay: Duration,
    /// For requests and batches in flight, both together.
    pub(crate) drain: Duration,
}

impl StopBudget {
    /// What the worker gets even when requests took the whole drain.
    const WORKER_MIN: Duration = Duration::from_secs(1);
    /// For what runs on timers.
    const BACKGROUND: Duration = Duration::from_secs(1);
    /// For the queue and the engine.
    const RELEASE: Duration = Duration::from_secs(5);

    fn deadline(&self, phase: Phase, stop_began: Instant, now: Instant) -> Instant {
        let drained = stop_began + self.delay + self.drain;
        match phase {
            Phase::Api => drained,
            Phase::Worker => drained.max(now + Self::WORKER_MIN),
            Phase::Background => now + Self::BACKGROUND,
            Phase::Release => now + Self::RELEASE,
        }
    }
}

/// Why the process stops.
#[derive(Debug)]
pub(crate) enum Cause {
    /// Somebody asked for it.
    Signal(Signal),
    /// A task failed.
    Failed {
        /// Which.
        task: &'static str,
        /// How.
        error: anyhow::Error,
    },
    /// A task that should go on for ever ended without a failure.
    Ended {
        /// Which.
        task: &'static str,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => write!(f, "{signal}"),
            Self::Failed { task, error } => write!(f, "{task} failed: {error:#}"),
            Self::Ended { task } => write!(f, "{task} ended by itself"),
        }
    }
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The first cause.
    pub(crate) cause: Cause,
    /// Tasks that did not stop within their budget, or failed while stopping.
    pub(crate) cut_off: Vec<&'static str>,
    /// Whether a second signal cut the stop short.
    pub(crate) hurried: bool,
}

impl Outcome {
    /// Stopped before everything was started.
    pub(crate) fn before_start(signal: Signal) -> Self {
        Self { cause: Cause::Signal(signal), cut_off: Vec::new(), hurried: false }
    }

    /// Whether the process may say that it stopped cleanly.
    pub(crate) fn clean(&self) -> bool {
        matches!(self.cause, Cause::Signal(_)) && self.cut_off.is_empty() && !self.hurried
    }
}

struct Task {
    name: &'static str,
    phase: Phase,
    on_exit: OnExit,
    abort: AbortHandle,
}

/// The owner of all long tasks.
pub(crate) struct Supervisor {
    set: JoinSet<anyhow::Result<()>>,
    tasks: HashMap<Id, Task>,
    stops: HashMap<Phase, CancellationToken>,
    budget: StopBudget,
}

impl Supervisor {
    pub(crate) fn new(budget: StopBudget) -> Self {
        let stops = Phase::ORDER.iter().map(|phase| (*phase, CancellationToken::new())).collect();
        Self { set: JoinSet::new(), tasks: HashMap::new(), stops, budget }
    }

    /// Starts a task. It is handed the token that tells it to stop.
    pub(crate) fn spawn<F>(
        &mut self,
        name: &'static str,
        phase: Phase,
        on_exit: OnExit,
        task: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let stop = self.stops.entry(phase).or_default().clone();
        let abort = self.set.spawn(task(stop));
        self.tasks.insert(abort.id(), Task { name, phase, on_exit, abort });
    }

    /// Runs until a signal or until a task that must not end does, then stops everything.
    pub(crate) async fn run(mut self, mut signals: mpsc::Receiver<Signal>) -> Outcome {
        let cause = loop {
            tokio::select! {
                biased;
                Some(signal) = signals.recv() => break Cause::Signal(signal),
                Some(ended) = self.set.join_next_with_id() => {
                    if let Some(cause) = self.judge(ended) {
                        break cause;
                    }
                }
            }
        };
        match &cause {
            Cause::Signal(signal) => info!(%signal, "stopping"),
            cause => error!(%cause, "stopping: a component is gone"),
        }
        self.stop(cause, signals).await
    }

    /// What the end of a task means while the process is meant to run.
    fn judge(&mut self, ended: Result<(Id, anyhow::Result<()>), JoinError>) -> Option<Cause> {
        let (task, result) = self.settle(ended)?;
        match (task.on_exit, result) {
            (OnExit::StopProcess, Ok(())) => Some(Cause::Ended { task: task.name }),
            (OnExit::StopProcess, Err(error)) => Some(Cause::Failed { task: task.name, error }),
            (OnExit::Log, Ok(())) => None,
            (OnExit::Log, Err(error)) => {
                warn!(task = task.name, error = format!("{error:#}"), "a task ended; the rest goes on");
                None
            }
        }
    }

    fn settle(
        &mut self,
        ended: Result<(Id, anyhow::Result<()>), JoinError>,
    ) -> Option<(Task, anyhow::Result<()>)> {
        match ended {
            Ok((id, result)) => self.tasks.remove(&id).map(|task| (task, result)),
            Err(error) => self.tasks.remove(&error.id()).map(|task| (task, Err(error.into()))),
        }
    }

    /// Phase by phase: tell, wait, cut off at the deadline. One line at the end says how long each phase took.
    async fn stop(mut self, cause: Cause, mut signals: mpsc::Receiver<Signal>) -> Outcome {
        let began = Instant::now();
        let mut cut_off = Vec::new();
        let mut took = Vec::new();
        for phase in Phase::ORDER {
            let phase_began = Instant::now();
            let deadline = self.budget.deadline(phase, began, phase_began);
            if let Some(stop) = self.stops.get(&phase) {
                stop.cancel();
            }
            while self.tasks.values().any(|task| task.phase == phase) {
                tokio::select! {
                    biased;
                    Some(signal) = signals.recv() => {
                        warn!(%signal, "second signal: leaving at once");
                        return Outcome { cause, cut_off, hurried: true };
                    }
                    Some(ended) = self.set.join_next_with_id() => {
                        if let Some((task, Err(error))) = self.settle(ended) {
                            warn!(task = task.name, error = format!("{error:#}"), "did not stop cleanly");
                            cut_off.push(task.name);
                        }
                    }
                    () = sleep_until(deadline) => cut_off.extend(self.abandon(phase)),
                }
            }
            took.push(format!("{phase:?} {:.1} s", phase_began.elapsed().as_secs_f64()));
        }
        info!(cause = %cause, phases = took.join(", "), cut_off = cut_off.join(", "), "stopped");
        Outcome { cause, cut_off, hurried: false }
    }

    /// Gives up on what is left of a phase.
    fn abandon(&mut self, phase: Phase) -> Vec<&'static str> {
        let late: Vec<Id> =
            self.tasks.iter().filter(|(_, task)| task.phase == phase).map(|(id, _)| *id).collect();
        let tasks = late.iter().filter_map(|id| self.tasks.remove(id));
        tasks
            .map(|task| {
                warn!(task = task.name, "not stopped in time: cut off");
                task.abort.abort();
                task.name
            })
            .collect()
    }
}
