//! A process's share of a queue that many read: it takes a place among the others, works out with them who reads which
//! unit, and takes and gives up units as members come and go.
//!
//! This file is the loop: it waits for looks, answers and ends, lets `plan` decide, and starts what was decided. Nothing
//! here waits for a server, so that a lost place is acted upon at once.

mod command;
mod holding;
mod members;
mod options;
mod plan;
mod suspects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{Answer, Broker, RowBudget, SharingError, TakeOver, UnitSharing};
use wavehouse_core::{MemberSlot, UnitId, chain};

pub(crate) use command::{COMMANDS_MAX, Command, UnitEnd};
pub use options::ClaimOptions;

use self::holding::{HoldEnd, Holding, Means, Wish};
use self::members::{Look, Membership, Seen, Wanted};
use self::plan::{Former, Member, Memory, World, plan};
use self::suspects::{Question, Suspects};
use crate::lease::{Ended, LeaseValue, Term, View, hold, resign};
use crate::metrics::WorkerMetrics;

/// Longest that one look at the members may take.
const LOOK: Duration = Duration::from_secs(10);
/// How often one process counts the units that nobody reads, and how long that may take.
const COUNT_EVERY: Duration = Duration::from_secs(15);
const COUNT: Duration = Duration::from_secs(10);
/// Between the two questions to one that may be gone.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// After so many failures to become askable a process goes on without.
const ANSWER_TRIES: u32 = 3;
/// Giving the place back, and telling the others.
const RESIGN: Duration = Duration::from_secs(5);

/// Something that was waited for.
enum Done {
    Looked(Box<Membership>, Option<Look>),
    Term(Ended),
    Unit(UnitId, HoldEnd),
    Asked(Question, bool),
    Counted(Option<usize>),
    /// Nothing follows from it.
    Told,
}

/// A unit that a task of this process is about.
struct Unit {
    wish: watch::Sender<Wish>,
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

/// The place that this process has.
struct Place {
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
    place: Option<Place>,
    units: BTreeMap<UnitId, Unit>,
    memory: Memory,
    suspects: Suspects,
    former: Vec<Former>,
    views: Vec<View>,
    lowest: bool,
    next_look: Instant,
    next_count: Instant,
    counting: bool,
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
            place: None,
            units: BTreeMap::new(),
            memory: Memory::default(),
            suspects: Suspects::default(),
            former: Vec::new(),
            views: Vec::new(),
            lowest: false,
            next_look: Instant::now(),
            next_count: Instant::now(),
            counting: false,
        }
    }

    /// Takes part until `stop`, then gives everything back as soon as the worker's loop has let go of it. Tells `gone` of
    /// a configured unit that does not exist any more.
    pub(crate) async fn run(mut self, stop: CancellationToken, gone: mpsc::Sender<UnitId>) {
        let live = tokio::select! {
            () = stop.cancelled() => return,
            live = self.become_askable() => live,
        };
        self.membership = Some(Box::new(self.new_membership(live)));
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
                Ok(false) => return None,
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(attempt, %error, "other processes cannot ask this one yet");
                    sleep(self.means.retry).await;
                }
            }
        }
        None
    }

    fn new_membership(&self, live: Option<String>) -> Membership {
        let value = LeaseValue {
            holder: self.options.instance_id.clone(),
            duration: self.options.timings.duration(),
            session: self.options.session.clone(),
            view: Some(self.view),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            live,
        };
        Membership::new(self.sharing.leases(), self.options.timings, self.configured.len(), value)
    }

    fn look(&mut self) {
        self.next_look = Instant::now() + self.options.timings.renew_every();
        let Some(mut membership) = self.membership.take() else { return };
        let gone = self.former.iter().filter(|former| former.how == TakeOver::Suspected);
        let gone = gone.map(|former| former.member.session.clone()).collect();
        let wanted = Wanted { join: self.place.is_none(), gone, met: self.suspects.met() };
        self.jobs.spawn(async move {
            let look = match timeout(LOOK, membership.look(&wanted)).await {
                Ok(Ok(look)) => Some(look),
                Ok(Err(error)) => {
                    tracing::warn!(error = %chain(&error), "members cannot be read, nothing is moved");
                    None
                }
                Err(_elapsed) => {
                    tracing::warn!("members could not be read in time, nothing is moved");
                    None
                }
            };
            Done::Looked(membership, look)
        });
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
                    tracing::warn!(session = %question.session, "a member does not answer and does not renew its place");
                }
                if nobody || self.place.is_none() {
                    self.next_look = Instant::now();
                }
            }
            Ok(Done::Counted(count)) => {
                self.counting = false;
                if let Some(count) = count.filter(|_| self.lowest) {
                    self.metrics.shards_unowned(Some(count));
                }
            }
            Ok(Done::Term(Ended::Told(_)) | Done::Told) => {}
            Err(error) => tracing::error!(%error, "a task of the claims failed"),
        }
        None
    }

    /// Works out who is there, and what follows.
    fn looked(&mut self, look: Look) {
        let Look { seen, joined } = look;
        let before = std::mem::take(&mut self.former);
        if let Some((slot, term)) = joined {
            self.joined(slot, term);
            // The one that was replaced is not seen any more.
            self.former.extend(before.into_iter().filter(|former| former.member.slot == slot));
        }
        self.ask(&seen);
        let session = &self.options.session;
        let mut members = Vec::with_capacity(seen.len());
        for seen in &seen {
            let (slot, session_of) = (seen.slot, seen.value.session.clone());
            let member = Member { slot, session: session_of, view: seen.value.view };
            let mine = seen.value.session == *session;
            if mine && self.place.as_ref().is_none_or(|place| place.slot != slot) {
                continue;
            }
            if mine || !(seen.lapsed() || self.suspects.suspected(seen)) {
                members.push(member);
            } else {
                let how = if seen.lapsed() { TakeOver::Lapsed } else { TakeOver::Suspected };
                self.former.push(Former { member, how });
            }
        }
        self.metrics.shard_members(members.len());
        self.see_views(&members);
        self.act(&members);
    }

    fn joined(&mut self, slot: MemberSlot, term: Term) {
        tracing::info!(slot = slot.0, token = term.token.0, "this process shares the queue's units");
        let resign = CancellationToken::new();
        let (bucket, timings, stop) = (self.sharing.leases(), self.options.timings, resign.clone());
        self.jobs.spawn(async move { Done::Term(hold(bucket, term, timings, stop).await) });
        self.place = Some(Place { slot, resign });
        let sharing = Arc::clone(&self.sharing);
        self.jobs.spawn(async move {
            let _late = timeout(RESIGN, sharing.nudge()).await;
            Done::Told
        });
    }

    /// Asks those who have been silent for a while; and at once those whose successor this process may be, before it
    /// takes another place.
    fn ask(&mut self, seen: &[Seen]) {
        let namesake = self.place.is_none().then_some(self.options.instance_id.as_str());
        let questions = self.suspects.questions(seen, &self.options.session, namesake, self.options.timings);
        for question in questions {
            let sharing = Arc::clone(&self.sharing);
            self.jobs.spawn(async move {
                let mut nobody = sharing.ask(&question.live).await == Answer::Nobody;
                if nobody {
                    sleep(ASK_AGAIN).await;
                    nobody = sharing.ask(&question.live).await == Answer::Nobody;
                }
                Done::Asked(question, nobody)
            });
        }
    }

    /// Members that see the queue otherwise: what they leave behind is looked for at once.
    fn see_views(&mut self, members: &[Member]) {
        let mut views: Vec<View> = Vec::new();
        for view in members.iter().map(|member| member.view.unwrap_or(self.view)) {
            if !views.contains(&view) {
                views.push(view);
            }
        }
        if views != self.views {
            self.views = views;
            self.refresh_extras();
        }
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

    fn act(&mut self, members: &[Member]) {
        let wished = |wish: Wish| {
            let such = self
                .units
                .iter()
                .filter(move |(_, unit)| (*unit.wish.borrow() == Wish::Hold) == (wish == Wish::Hold));
            such.map(|(unit, _)| *unit).collect::<BTreeSet<UnitId>>()
        };
        let (held, leaving, extras) = (wished(Wish::Hold), wished(Wish::GiveUp), self.sharing.extras());
        let world = World {
            view: self.view,
            extras: &extras,
            members,
            former: &self.former,
            session: &self.options.session,
            held: &held,
            leaving: &leaving,
        };
        let decided = plan(&mut self.memory, &world, &|unit| self.sharing.unit_name(unit));
        for unit in decided.give_up {
            self.wish(unit, Wish::GiveUp);
        }
        for (unit, take_over) in decided.take {
            let (sender, wish) = watch::channel(Wish::Hold);
            self.units.insert(unit, Unit { wish: sender });
            let holding = Holding { unit, take_over, wish, means: Arc::clone(&self.means) };
            self.jobs.spawn(async move { Done::Unit(unit, holding.run().await) });
        }
        if self.lowest && !decided.lowest {
            self.metrics.shards_unowned(None);
        }
        self.lowest = decided.lowest;
    }

    fn wish(&self, unit: UnitId, wish: Wish) {
        if let Some(unit) = self.units.get(&unit) {
            unit.wish.send_if_modified(|before| {
                let more = wish > *before;
                *before = (*before).max(wish);
                more
            });
        }
    }

    /// The place is lost: nothing is begun any more, and a new place is looked for at once.
    fn lost(&mut self, reason: &str) {
        tracing::error!(%reason, units = self.units.len(), "place among the members is lost, every unit is given up");
        self.metrics.shard_event("lost");
        self.place = None;
        for unit in self.units.keys().copied().collect::<Vec<_>>() {
            self.wish(unit, Wish::Disown);
        }
        self.next_look = Instant::now();
    }

    fn unit_ended(&mut self, unit: UnitId, end: &HoldEnd) -> Option<UnitId> {
        self.units.remove(&unit);
        match end {
            HoldEnd::Released => {}
            HoldEnd::Lost => self.memory.lost(unit),
            HoldEnd::Gone if self.configured.contains(&unit) => return Some(unit),
            HoldEnd::Gone => {
                tracing::info!(%unit, "unit beside the configured ones does not exist any more");
                self.refresh_extras();
            }
            HoldEnd::Closed => tracing::debug!(%unit, "queue is closed"),
        }
        None
    }

    fn count(&mut self) {
        self.counting = true;
        self.next_count = Instant::now() + COUNT_EVERY;
        let mut units = self.configured.clone();
        units.extend(self.sharing.extras());
        let sharing = Arc::clone(&self.sharing);
        self.jobs.spawn(async move {
            let counted: Option<Result<Vec<UnitId>, SharingError>> =
                timeout(COUNT, sharing.unread(&units)).await.ok();
            match counted {
                Some(Ok(unread)) => return Done::Counted(Some(unread.len())),
                Some(Err(error)) => {
                    tracing::warn!(error = %chain(&error), "units that nobody reads cannot be counted");
                }
                None => tracing::warn!("units that nobody reads could not be counted in time"),
            }
            Done::Counted(None)
        });
    }

    /// Waits until every unit is given up, gives the place back and tells the others. The place is renewed until then.
    async fn give_back(mut self) {
        for unit in self.units.keys().copied().collect::<Vec<_>>() {
            self.wish(unit, Wish::Stop);
        }
        while !self.units.is_empty() {
            match self.jobs.join_next().await {
                Some(Ok(Done::Unit(unit, _))) => {
                    self.units.remove(&unit);
                }
                Some(Ok(Done::Term(Ended::Lost(reason)))) => self.lost(&reason),
                // A look that took a place just now.
                Some(Ok(Done::Looked(_, Some(Look { joined: Some((slot, term)), .. })))) => {
                    self.joined(slot, term)
                }
                Some(_) => {}
                None => break,
            }
        }
        if let Some(place) = self.place.take() {
            place.resign.cancel();
        }
        let bucket = self.sharing.leases();
        let _late = timeout(RESIGN, async {
            while let Some(done) = self.jobs.join_next().await {
                let term = match done {
                    Ok(
                        Done::Term(Ended::Told(term))
                        | Done::Looked(_, Some(Look { joined: Some((_, term)), .. })),
                    ) => term,
                    _ => continue,
                };
                if let Err(error) = resign(&*bucket, &term).await {
                    tracing::warn!(error = %chain(&error), "place among the members is left to lapse");
                }
            }
            self.sharing.nudge().await;
        })
        .await;
        self.metrics.shards_unowned(None);
    }
}
