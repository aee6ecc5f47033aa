//! The unit, opened: blocks out, steering in. All decisions are the session's; here is the waiting and reading.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wavehouse_broker::{
    Cut, CutError, Deliveries, Delivery, OpenUnit, OpenUnitError, RowBudget, SPLITS_MAX, UnitControl,
    UnitLost,
};
use wavehouse_core::{Sequence, TableRef, UnitId};

use crate::intake::{Item, WriteFault};
use crate::read::{Got, may_wait, read_plan};
use crate::session::{Ahead, Choice, Offer};
use crate::shared::{Settler, Shared};
use crate::state::End;

/// Opens the unit.
pub(crate) fn open_unit(
    shared: &Arc<Shared>,
    unit: UnitId,
    budget: RowBudget,
) -> Result<OpenUnit, OpenUnitError> {
    if unit != UnitId::WHOLE {
        return Err(OpenUnitError::Unknown(unit));
    }
    let (session, cuts) = {
        let mut state = shared.state();
        match &state.end {
            Some(End::Closed) => return Err(OpenUnitError::Closed),
            Some(End::Failed(reason)) => {
                return Err(OpenUnitError::Unavailable { unit, reason: reason.clone() });
            }
            None if state.session.is_some() => return Err(OpenUnitError::Open(unit)),
            None => {}
        }
        let session = state.begin_session(budget, shared.ack_wait);
        (session, state.tables.iter().filter_map(|table| table.cut.clone()).collect())
    };
    let held = Arc::new(Held { shared: Arc::clone(shared), session });
    let settler = Arc::new(Settler { shared: Arc::clone(shared), session });
    let reader =
        Reader { held: Arc::clone(&held), settler, got: VecDeque::new(), reading: None, told: false };
    Ok(OpenUnit { deliveries: Box::new(reader), control: Arc::new(Control { held }), cuts })
}

/// The unit is held as long as its deliveries or its control are.
struct Held {
    shared: Arc<Shared>,
    session: u64,
}

impl Held {
    fn give_up(&self) {
        let mut state = self.shared.state();
        if state.session_of(self.session).is_some() {
            state.session = None;
        }
        drop(state);
        self.shared.unit_wake.notify_one();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_up();
    }
}

struct Reading {
    /// Which tables are read, and how many blocks of each were asked for.
    tables: Vec<u32>,
    task: JoinHandle<Vec<Got>>,
}

struct Reader {
    held: Arc<Held>,
    settler: Arc<Settler>,
    /// Read and not handed out.
    got: VecDeque<Got>,
    /// Kept across calls, so that a call that is cancelled loses nothing.
    reading: Option<Reading>,
    /// Whether it has been told that delivery ended.
    told: bool,
}

enum Step {
    Hand(Box<Delivery>),
    Read(Vec<Ahead>),
    Wait(Option<Instant>),
    Over,
    Lost(String),
}

impl Reader {
    fn shared(&self) -> &Arc<Shared> {
        &self.held.shared
    }

    /// Does what can be done without waiting.
    fn step(&mut self) -> Step {
        let (now, session) = (Instant::now(), self.held.session);
        let shared = Arc::clone(self.shared());
        let mut state = shared.state();
        let halted = state.session_of(session).is_none_or(|session| session.halted);
        match &state.end {
            _ if halted => return Step::Over,
            Some(End::Closed) => return Step::Lost("the broker was closed".to_owned()),
            Some(End::Failed(reason)) => return Step::Lost(reason.clone()),
            None => {}
        }
        while let Some(got) = self.got.pop_front() {
            let id = got.table();
            match got {
                Got::Damaged { sequence, why, .. } => {
                    state.mark_damaged(id, sequence, &why);
                }
                Got::Block(fetched) => {
                    let key = (id, fetched.stored.sequence.0);
                    match state.offer(session, key, fetched.size, now) {
                        Offer::Hand(ticket) => {
                            state.put_down(session, id);
                            let settler = Arc::clone(&self.settler);
                            return Step::Hand(Box::new(Delivery::new(fetched.stored, ticket, settler)));
                        }
                        Offer::Stale => {}
                        Offer::Full(until) => {
                            self.got.push_front(Got::Block(fetched));
                            return Step::Wait(until);
                        }
                        Offer::Over => return Step::Over,
                    }
                }
            }
            state.put_down(session, id);
        }
        match state.choose(session, now) {
            Choice::Read(plan) => Step::Read(plan),
            Choice::Wait(until) => Step::Wait(until),
            Choice::Over => Step::Over,
        }
    }

    fn begin_reading(&mut self, plan: Vec<Ahead>) {
        let tables = plan.iter().map(|ahead| ahead.table).collect();
        let log = self.shared().log;
        if may_wait(&plan) {
            let task = tokio::task::spawn_blocking(move || read_plan(log, &plan));
            self.reading = Some(Reading { tables, task });
        } else {
            let got = read_plan(log, &plan);
            self.take(&tables, got);
        }
    }

    fn take(&mut self, tables: &[u32], got: Vec<Got>) {
        let mut state = self.held.shared.state();
        for id in tables {
            let count = got.iter().filter(|got| got.table() == *id).count();
            state.read_ahead(self.held.session, *id, crate::codec::len_u32(count));
        }
        drop(state);
        self.got.extend(got);
    }

    fn lost(&mut self, reason: String) -> Result<Option<Delivery>, UnitLost> {
        self.got.clear();
        if std::mem::replace(&mut self.told, true) {
            return Ok(None);
        }
        Err(UnitLost { unit: UnitId::WHOLE, reason })
    }
}

#[async_trait]
impl Deliveries for Reader {
    async fn next(&mut self) -> Result<Option<Delivery>, UnitLost> {
        loop {
            if let Some(reading) = &mut self.reading {
                let result = (&mut reading.task).await;
                let tables = std::mem::take(&mut reading.tables);
                self.reading = None;
                match result {
                    Ok(got) => self.take(&tables, got),
                    Err(error) => return self.lost(format!("reading failed: {error}")),
                }
            }
            match self.step() {
                Step::Hand(delivery) => return Ok(Some(*delivery)),
                Step::Read(plan) => self.begin_reading(plan),
                Step::Over => {
                    self.got.clear();
                    return Ok(None);
                }
                Step::Lost(reason) => return self.lost(reason),
                Step::Wait(until) => {
                    let woken = self.held.shared.unit_wake.notified();
                    match until {
                        Some(until) => tokio::select! {
                            () = woken => {}
                            () = tokio::time::sleep_until(until) => {}
                        },
                        None => woken.await,
                    }
                }
            }
        }
    }
}

struct Control {
    held: Arc<Held>,
}

impl Control {
    /// Checks what can be checked before the cut is written.
    fn check(&self, cut: &Cut) -> Result<(), CutError> {
        let table = cut.table.clone();
        let mut state = self.held.shared.state();
        if state.end.is_some() || state.session_of(self.held.session).is_none() {
            return Err(CutError::Lost { table });
        }
        let id = state.by_name.get(&cut.table).copied();
        let end = id.and_then(|id| state.table(id)).map_or(1, |table| table.end);
        let reason = if cut.splits.len() > SPLITS_MAX {
            format!("it has more than {SPLITS_MAX} splits")
        } else if cut.first > cut.last || cut.last.0 >= end {
            "it names blocks that are not stored".to_owned()
        } else {
            return Ok(());
        };
        Err(CutError::Unavailable { table, reason })
    }
}

#[async_trait]
impl UnitControl for Control {
    fn set_budget(&self, budget: RowBudget) {
        if let Some(session) = self.held.shared.state().session_of(self.held.session) {
            session.budget = budget;
        }
        self.held.shared.unit_wake.notify_one();
    }

    fn pause(&self, table: &TableRef, until: Instant) {
        self.held.shared.state().pause(self.held.session, table, until);
        self.held.shared.unit_wake.notify_one();
    }

    async fn record_cut(&self, cut: Cut) -> Result<(), CutError> {
        self.check(&cut)?;
        let table = cut.table.clone();
        let (done, answer) = oneshot::channel();
        if self.held.shared.intake.push(Item::Cut(cut, done)).is_err() {
            return Err(CutError::Lost { table });
        }
        match answer.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(WriteFault::Full)) => {
                Err(CutError::Unavailable { table, reason: "no room is left on the disk".to_owned() })
            }
            Ok(Err(WriteFault::Ended(reason))) => Err(CutError::Unavailable { table, reason }),
            Err(_) => Err(CutError::Lost { table }),
        }
    }

    fn damaged(&self, table: &TableRef, first: Sequence, last: Sequence) -> bool {
        let state = self.held.shared.state();
        let table = state.by_name.get(table).and_then(|id| state.table(*id));
        first <= last && table.is_some_and(|table| table.damaged.range(first.0..=last.0).next().is_some())
    }

    fn halt(&self) {
        if let Some(session) = self.held.shared.state().session_of(self.held.session) {
            session.halted = true;
        }
        self.held.shared.unit_wake.notify_one();
    }

    async fn release(&self) {
        self.halt();
        let (done, answer) = oneshot::channel();
        if self.held.shared.intake.push(Item::Flush(done)).is_ok() && !matches!(answer.await, Ok(Ok(()))) {
            tracing::warn!("settles could not be made durable; their blocks may be delivered again");
        }
        self.held.give_up();
    }
}
