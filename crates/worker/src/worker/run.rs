//! The worker's loop: one task that owns the core, and hears of deliveries, of inserts, of time, and of units that come
//! and go.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{Deliveries, Delivery, OpenUnit, UnitControl, UnitLost, UnitSharing};
use wavehouse_core::UnitId;

use super::WorkerFault;
use crate::claims::{Command, UnitEnd};
use crate::core::{Core, Stalled};
use crate::flush::{Report, Tools, flush};

/// Deliveries between the queue and the worker's loop. Their rows count against what is held, so this only bounds how
/// many tiny blocks are taken out at once.
const DELIVERIES_MAX: usize = 1024;
/// Deliveries that are taken in before timers and reports are looked at again.
const DELIVERIES_AT_ONCE: usize = 256;
/// How often batches that are being brought back are compared with the queue, if they do not come on.
const COMPARE_EVERY: Duration = Duration::from_secs(10);
/// How long a unit may take to tell whether it has handed everything out.
const COMPARE_WAIT: Duration = Duration::from_secs(5);
/// How long giving the units and the slot among the members back may take, after everything is let go of.
const GIVE_BACK: Duration = Duration::from_secs(15);

/// Who decides which units there are.
pub(super) enum Away {
    /// Nobody: those that were opened at the start are all.
    None,
    /// The claims, which run until `end`.
    Claims {
        commands: mpsc::Receiver<Command>,
        gone: mpsc::Receiver<UnitId>,
        sharing: Arc<dyn UnitSharing>,
        end: CancellationToken,
    },
}

enum Event {
    Delivered(usize, Delivery),
    Ended(usize),
    Lost(usize, UnitLost),
}

/// An opened unit, as the loop knows it.
struct Opened {
    control: Arc<dyn UnitControl>,
    /// Who waits for its end; nobody if it is this loop's own to release.
    ended: Option<oneshot::Sender<UnitEnd>>,
}

pub(super) struct Run {
    core: Core,
    tools: Tools,
    away: Away,
    pub(super) claims: JoinSet<()>,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
    pumps: JoinSet<()>,
    flights: JoinSet<Report>,
    /// By the number of the opening; to give up inserts of a unit whose time is over.
    in_flight: HashMap<usize, Vec<AbortHandle>>,
    questions: JoinSet<Vec<Stalled>>,
    units: HashMap<usize, Opened>,
}

impl Run {
    pub(super) fn new(core: Core, tools: Tools, away: Away) -> Self {
        let (events, inbox) = mpsc::channel(DELIVERIES_MAX);
        Self {
            core,
            tools,
            away,
            claims: JoinSet::new(),
            events,
            inbox,
            pumps: JoinSet::new(),
            flights: JoinSet::new(),
            in_flight: HashMap::new(),
            questions: JoinSet::new(),
            units: HashMap::new(),
        }
    }

    pub(super) fn take_on(
        &mut self,
        unit: UnitId,
        opened: OpenUnit,
        ended: Option<oneshot::Sender<UnitEnd>>,
    ) {
        let OpenUnit { deliveries, control, cuts } = opened;
        let number = self.core.add_unit(unit, Arc::clone(&control), cuts, Instant::now());
        self.units.insert(number, Opened { control, ended });
        self.pumps.spawn(pump(number, deliveries, self.events.clone()));
    }

    pub(super) async fn work(
        &mut self,
        stop: &CancellationToken,
        budget: Duration,
    ) -> Result<(), WorkerFault> {
        let mut deadline: Option<Instant> = None;
        let mut compare_at = Instant::now() + COMPARE_EVERY;
        let mut events = Vec::with_capacity(DELIVERIES_AT_ONCE);
        loop {
            self.let_units_go();
            self.core.balance();
            self.launch();
            if let Some(fault) = self.core.take_fault() {
                return Err(fault);
            }
            if deadline.is_some() && self.core.all_ended() && self.core.idle() {
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
                Some(ended) = self.claims.join_next() => ended.map_err(panicked)?,
                order = self.away.next() => match order {
                    Order::Command(command) => self.obey(command, deadline.is_some()),
                    Order::Gone(unit) => return Err(WorkerFault::Gone { unit }),
                },
                Some(report) = self.flights.join_next() => self.landed(report)?,
                () = until(wake) => self.core.tick(Instant::now()),
                Some(answers) = self.questions.join_next() => {
                    self.core.compare(answers.map_err(panicked)?, &self.tools.broker.depths(), Instant::now());
                }
                () = sleep_until(compare_at) => {
                    compare_at = Instant::now() + COMPARE_EVERY;
                    self.question();
                }
                _count = self.inbox.recv_many(&mut events, DELIVERIES_AT_ONCE) => {
                    for event in events.drain(..) {
                        self.heard(event)?;
                    }
                }
            }
        }
    }

    fn obey(&mut self, command: Command, stopping: bool) {
        let now = Instant::now();
        match command {
            // Too late; whoever opened it hears that it is let go of.
            Command::TakeOn { opened, .. } if stopping => opened.control.halt(),
            Command::TakeOn { unit, opened, ended } => self.take_on(unit, opened, Some(ended)),
            Command::GiveUp { unit, until } => self.core.give_up(unit, until, now),
            Command::Disown { unit } => self.core.disown(unit, now),
        }
    }

    fn heard(&mut self, event: Event) -> Result<(), WorkerFault> {
        match event {
            Event::Delivered(unit, delivery) => self.core.delivered(unit, delivery, Instant::now()),
            Event::Ended(unit) => self.core.delivery_ended(unit),
            Event::Lost(unit, lost) => match self.away {
                Away::None => return Err(WorkerFault::Lost(lost)),
                Away::Claims { .. } => {
                    self.core.delivery_ended(unit);
                    self.core.fence(unit, Some(lost.reason), Instant::now());
                }
            },
        }
        Ok(())
    }

    fn landed(&mut self, report: Result<Report, JoinError>) -> Result<(), WorkerFault> {
        match report {
            Ok(report) => {
                if let Some(handles) = self.in_flight.get_mut(&report.unit) {
                    handles.retain(|handle| !handle.is_finished());
                }
                self.core.reported(report, Instant::now());
                Ok(())
            }
            // Given up with its unit.
            Err(error) if error.is_cancelled() => Ok(()),
            Err(error) => Err(panicked(error)),
        }
    }

    /// Lets units go that are done with, and gives inserts up for which there is no time left.
    fn let_units_go(&mut self) {
        for finished in self.core.take_finished(Instant::now()) {
            for handle in self.in_flight.remove(&finished.unit).into_iter().flatten() {
                handle.abort();
            }
            if let Some(Opened { ended: Some(ended), .. }) = self.units.remove(&finished.unit) {
                let end = UnitEnd { unsettled_rows: finished.unsettled_rows, lost: finished.lost };
                let _nobody_waits = ended.send(end);
            }
        }
    }

    fn launch(&mut self) {
        for job in self.core.take_jobs() {
            let Some(control) = self.core.control(job.unit) else { continue };
            let unit = job.unit;
            let handle = self.flights.spawn(flush(job, control, self.tools.clone()));
            self.in_flight.entry(unit).or_default().push(handle);
        }
    }

    /// Asks the units of batches that do not come back whether they have handed everything out.
    fn question(&mut self) {
        let stalled = self.core.stalled(Instant::now());
        if stalled.is_empty() || !self.questions.is_empty() {
            return;
        }
        let asked: Vec<_> = stalled.into_iter().map(|one| (self.core.control(one.unit), one)).collect();
        self.questions.spawn(async move {
            let mut answers = Vec::with_capacity(asked.len());
            for (control, mut one) in asked {
                if let Some(control) = control {
                    // A unit that does not answer is asked again next time.
                    let passed = timeout(COMPARE_WAIT, control.passed(&one.table, one.last)).await;
                    one.passed = passed.unwrap_or(Some(false));
                }
                answers.push(one);
            }
            answers
        });
    }

    /// Lets everything go: inserts are given up, blocks go back, units are released.
    pub(super) async fn end(self, outcome: Result<(), WorkerFault>) -> Result<(), WorkerFault> {
        let Self { core, mut pumps, mut flights, units, inbox, events, away, mut claims, .. } = self;
        for unit in units.values() {
            unit.control.halt();
        }
        flights.shutdown().await;
        pumps.shutdown().await;
        drop((core, inbox, events));
        let mut own = Vec::new();
        for (_, Opened { control, ended }) in units {
            if ended.is_none() {
                own.push(control);
            }
        }
        for control in own {
            control.release().await;
        }
        if let Away::Claims { commands, gone, end, .. } = away {
            // Whoever waits for a unit has heard of its end by now.
            end.cancel();
            drop((commands, gone));
            if timeout(GIVE_BACK, async { while claims.join_next().await.is_some() {} }).await.is_err() {
                tracing::warn!("units could not be given back in time, they are left to lapse");
                claims.shutdown().await;
            }
        }
        outcome
    }
}

/// What the claims want.
enum Order {
    Command(Command),
    Gone(String),
}

impl Away {
    /// What the claims want next; never, if there are none.
    async fn next(&mut self) -> Order {
        let Self::Claims { commands, gone, sharing, .. } = self else {
            return std::future::pending().await;
        };
        tokio::select! {
            biased;
            Some(unit) = gone.recv() => Order::Gone(sharing.unit_name(unit)),
            Some(command) = commands.recv() => Order::Command(command),
            else => std::future::pending().await,
        }
    }
}

fn panicked(error: JoinError) -> WorkerFault {
    WorkerFault::Panicked(error.to_string())
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
            Ok(None) => Event::Ended(unit),
            Err(lost) => Event::Lost(unit, lost),
        };
        let last = !matches!(event, Event::Delivered(..));
        if events.send(event).await.is_err() || last {
            return;
        }
    }
}
