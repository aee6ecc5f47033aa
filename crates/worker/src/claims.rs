//! A process's share of a queue that many read: it takes a slot among the others, works out with them who reads which
//! unit, and takes and gives up units as members come and go.
//!
//! This file is the loop: it waits for looks (`looks`), answers and ends, and never for a server, so that a lost slot is
//! acted upon at once. `plan` decides who reads what, `shares` does it, `leave` ends it.

mod command;
mod holding;
mod leave;
mod looks;
mod members;
mod options;
mod plan;
mod shares;
mod suspects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{Broker, RowBudget, UnitSharing};
use wavehouse_core::{MemberSlot, UnitId, chain};

pub(crate) use command::{COMMANDS_MAX, Command, UnitEnd};
pub use options::ClaimOptions;

use self::holding::{HoldEnd, Means, Wish};
use self::members::{Look, Membership};
use self::plan::{Former, Memory};
use self::suspects::{Question, Suspects};
use crate::lease::{Ended, LeaseValue, View};
use crate::metrics::WorkerMetrics;

/// Longest that one look at the members may take.
const LOOK: Duration = Duration::from_secs(10);
/// After so many failures to become askable a process goes on without.
const ANSWER_TRIES: u32 = 3;
/// By then the others can read what this process says of its units.
const SAY: Duration = Duration::from_millis(50);
/// Giving the slot back, and telling the others.
const RESIGN: Duration = Duration::from_secs(5);

/// Something that was waited for.
enum Done {
    Looked(Box<Membership>, Option<Look>),
    Term(Ended),
    Unit(UnitId, HoldEnd),
    Asked(Question, bool),
    Counted(Option<usize>),
    Nudged,
    /// Nothing follows from it.
    Told,
}

/// A unit that a task of this process is about.
struct Unit {
    wish: watch::Sender<Wish>,
    /// Whether giving it up takes too long, so that others need not wait for it.
    late: Arc<AtomicBool>,
}

/// What the claims need from the worker.
pub(crate) struct Setting {
    pub(crate) options: ClaimOptions,
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) sharing: Arc<dyn UnitSharing>,
    pub(crate) metrics: WorkerMetrics,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) budget: RowBudget,
}

/// The slot that this process has.
struct OwnSlot {
    slot: MemberSlot,
    /// Ends the renewing, to resign.
    resign: CancellationToken,
}

pub(crate) struct Claims {
    options: ClaimOptions,
    sharing: Arc<dyn UnitSharing>,
    metrics: WorkerMetrics,
    means: Arc<Means>,
    configured: Vec<UnitId>,
    view: View,
    jobs: JoinSet<Done>,
    /// Away while a look is going on.
    membership: Option<Box<Membership>>,
    own: Option<OwnSlot>,
    /// What this process's lease says, once it is known; without the units.
    value: Option<LeaseValue>,
    /// The same with the units, as it is to be written.
    said: watch::Sender<Bytes>,
    units: BTreeMap<UnitId, Unit>,
    /// Units that are to be taken as soon as the others can read it.
    claimed: BTreeSet<UnitId>,
    memory: Memory,
    suspects: Suspects,
    former: Vec<Former>,
    views: Vec<View>,
    lowest: bool,
    next_look: Instant,
    next_count: Instant,
    counting: bool,
    nudging: bool,
}

impl Claims {
    pub(crate) fn new(setting: Setting) -> Self {
        let Setting { options, broker, sharing, metrics, commands, budget } = setting;
        let configured = broker.units();
        let retry = options.timings.renew_every();
        let means = Means {
            broker,
            sharing: Arc::clone(&sharing),
            metrics: metrics.clone(),
            commands,
            budget,
            retry,
            stop: CancellationToken::new(),
        };
        Self {
            view: View(sharing.placement()),
            options,
            sharing,
            metrics,
            means: Arc::new(means),
            configured,
            jobs: JoinSet::new(),
            membership: None,
            own: None,
            value: None,
            said: watch::Sender::new(Bytes::new()),
            units: BTreeMap::new(),
            claimed: BTreeSet::new(),
            memory: Memory::default(),
            suspects: Suspects::default(),
            former: Vec::new(),
            views: Vec::new(),
            lowest: false,
            next_look: Instant::now(),
            next_count: Instant::now(),
            counting: false,
            nudging: false,
        }
    }

    /// Takes part until `stop`, then gives everything back as soon as the worker's loop has let go of it. Tells `gone` of
    /// a configured unit that does not exist any more.
    pub(crate) async fn run(mut self, stop: CancellationToken, gone: mpsc::Sender<UnitId>) {
        let live = tokio::select! {
            () = stop.cancelled() => return,
            live = self.become_askable() => live,
        };
        let value = self.new_value(live);
        let (leases, timings, units) = (self.sharing.leases(), self.options.timings, self.configured.len());
        self.membership = Some(Box::new(Membership::new(leases, timings, units, value.clone())));
        self.value = Some(value);
        let mut nudges = self.sharing.nudges();
        self.refresh_extras();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(done) = self.jobs.join_next() => {
                    if let Some(unit) = self.finished(done) {
                        // One is enough to end the worker.
                        let _full = gone.try_send(unit);
                    }
                }
                Ok(()) = nudges.changed() => self.next_look = Instant::now(),
                () = sleep_until(self.next_look), if self.membership.is_some() => self.look(),
                () = sleep_until(self.next_count), if self.lowest && !self.counting => self.count(),
            }
        }
        self.give_back().await;
    }

    /// Lets other processes ask whether this one is there. The name, if they can.
    async fn become_askable(&self) -> Option<String> {
        let session = &self.options.session;
        for attempt in 1..=ANSWER_TRIES {
            match self.sharing.answer_as(session).await {
                Ok(true) => return Some(session.clone()),
                Ok(false) => {
                    tracing::warn!(
                        "other processes are not permitted to ask this one whether it lives: should it die, its units \
                         wait until its lease has lapsed"
                    );
                    return None;
                }
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(attempt, %error, "other processes cannot ask this one yet");
                    sleep(self.means.retry).await;
                }
            }
        }
        None
    }

    fn new_value(&self, live: Option<String>) -> LeaseValue {
        LeaseValue {
            holder: self.options.instance_id.clone(),
            duration: self.options.timings.duration(),
            session: self.options.session.clone(),
            view: Some(self.view),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            live,
            held: BTreeSet::new(),
        }
    }

    /// Acts on what was waited for. A configured unit if there is none any more.
    fn finished(&mut self, done: Result<Done, tokio::task::JoinError>) -> Option<UnitId> {
        match done {
            Ok(Done::Looked(membership, look)) => {
                self.membership = Some(membership);
                if let Some(look) = look {
                    self.looked(look);
                }
            }
            Ok(Done::Term(Ended::Lost(reason))) => self.lost(&reason),
            Ok(Done::Unit(unit, end)) => return self.unit_ended(unit, &end),
            Ok(Done::Asked(question, nobody)) => {
                self.suspects.answered(&question, nobody);
                if nobody {
                    tracing::warn!(session = %question.session, "a member does not answer and does not renew its slot");
                }
                // Whoever is there and silent is asked again with the next look, and not before.
                if nobody || question.namesake {
                    self.next_look = Instant::now();
                }
            }
            Ok(Done::Counted(count)) => {
                self.counting = false;
                if let Some(count) = count.filter(|_| self.lowest) {
                    self.metrics.shards_unowned(Some(count));
                }
            }
            Ok(Done::Nudged) => self.nudging = false,
            Ok(Done::Term(Ended::Told(_)) | Done::Told) => {}
            Err(error) => tracing::error!(%error, "a task of the claims failed"),
        }
        None
    }

    /// Makes the others look again; nudges that are waited for are one.
    fn nudge(&mut self, after: Duration) {
        if std::mem::replace(&mut self.nudging, true) {
            return;
        }
        let sharing = Arc::clone(&self.sharing);
        self.jobs.spawn(async move {
            sleep(after).await;
            let _late = timeout(RESIGN, sharing.nudge()).await;
            Done::Nudged
        });
    }

    fn refresh_extras(&mut self) {
        let sharing = Arc::clone(&self.sharing);
        self.jobs.spawn(async move {
            match timeout(LOOK, sharing.refresh_extras()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(error = %chain(&error), "units beside the configured ones cannot be looked for");
                }
                Err(_elapsed) => tracing::warn!("units beside the configured ones could not be looked for in time"),
            }
            Done::Told
        });
    }
}
