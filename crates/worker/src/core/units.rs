//! Units as they come and go. A unit that is given up is written out first; one that is lost is let go of, but for an
//! insert that is on its way, whose rows are acked if it succeeds. When nothing of a unit is in hand any more, all that
//! was known of its tables is forgotten: whoever reads them next, this process or another, begins anew.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{Cut, RowBudget, UnitControl};
use wavehouse_core::{TableRef, UnitId};

use super::{Core, Sharing};
use crate::batcher::Load;
use crate::budget::shares;
use crate::table::{Pending, Table};

/// In what state a unit is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Held,
    /// Written out until then at most.
    Leaving(Instant),
    /// Another process may have it; with the reason, if nobody here wished it.
    Fenced(Option<String>),
}

/// One opened unit.
pub(super) struct Unit {
    id: UnitId,
    pub(super) control: Arc<dyn UnitControl>,
    pub(super) tables: HashMap<TableRef, usize>,
    /// What is in hand of it.
    pub(super) held: Load,
    /// What may be.
    pub(super) hand: Load,
    /// How many of its tables hold rows that are in no batch.
    pub(super) busy: usize,
    /// How many of its tables are bringing a batch back.
    pub(super) rebuilding: usize,
    stage: Stage,
    /// Whether its deliveries have ended.
    ended: bool,
    /// No insert begins once this is cancelled.
    pub(super) fenced: CancellationToken,
    budget: Option<RowBudget>,
}

/// A unit of which nothing is in hand any more.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) unit: usize,
    /// Rows that went back.
    pub(crate) unsettled_rows: u64,
    pub(crate) lost: Option<String>,
}

impl Core {
    /// Takes a unit on, before anything of it is delivered. Returns the worker's number of this opening of it.
    pub(crate) fn add_unit(
        &mut self,
        id: UnitId,
        control: Arc<dyn UnitControl>,
        cuts: Vec<Cut>,
        now: Instant,
    ) -> usize {
        let unit = self.next_unit;
        self.next_unit += 1;
        let opened = Unit {
            id,
            control,
            tables: HashMap::new(),
            held: Load::default(),
            hand: self.limits.hand,
            busy: 0,
            rebuilding: 0,
            stage: Stage::Held,
            ended: false,
            fenced: CancellationToken::new(),
            budget: None,
        };
        self.units.insert(unit, opened);
        self.balance();
        let mut cut_tables = Vec::new();
        for cut in cuts {
            let Some(index) = self.table(&cut.table, unit) else { continue };
            self.tables[index].pending = Some(Pending::new(cut, None, now));
            self.shut(index, now);
            cut_tables.push(index);
        }
        for index in cut_tables {
            self.wake(index, now);
        }
        unit
    }

    /// The number of the current opening of a unit.
    fn number(&self, id: UnitId) -> Option<usize> {
        self.units.iter().find(|(_, unit)| unit.id == id).map(|(number, _)| *number)
    }

    /// Takes in no more of a unit and writes what is in hand at once, until then at most.
    pub(crate) fn give_up(&mut self, id: UnitId, until: Instant, now: Instant) {
        let Some(number) = self.number(id) else { return };
        let Some(unit) = self.units.get_mut(&number).filter(|unit| unit.stage == Stage::Held) else { return };
        unit.stage = Stage::Leaving(until);
        unit.control.halt();
        let tables: Vec<usize> = unit.tables.values().copied().collect();
        for index in tables {
            self.check(index, now);
        }
    }

    /// A unit is not this process's any more, as it has decided itself.
    pub(crate) fn disown(&mut self, id: UnitId, now: Instant) {
        if let Some(number) = self.number(id) {
            self.fence(number, None, now);
        }
    }

    /// A unit is not this process's any more: nothing of it is begun, and what is in hand is let go.
    pub(crate) fn fence(&mut self, number: usize, reason: Option<String>, now: Instant) {
        let Some(unit) = self.units.get_mut(&number) else { return };
        if matches!(unit.stage, Stage::Fenced(_)) {
            return;
        }
        unit.stage = Stage::Fenced(reason);
        unit.fenced.cancel();
        unit.control.disown();
        let tables: Vec<usize> = unit.tables.values().copied().collect();
        for index in tables {
            self.cancel_job(index);
            self.let_go(index, now);
        }
    }

    /// Whether a unit comes to its end.
    pub(super) fn going(&self, number: usize) -> bool {
        self.units.get(&number).is_none_or(|unit| unit.stage != Stage::Held)
    }

    /// Whether nothing of a unit may be begun.
    pub(super) fn is_fenced(&self, number: usize) -> bool {
        self.units.get(&number).is_none_or(|unit| matches!(unit.stage, Stage::Fenced(_)))
    }

    /// Everything that a unit handed out has been delivered.
    pub(crate) fn delivery_ended(&mut self, number: usize) {
        if let Some(unit) = self.units.get_mut(&number) {
            unit.ended = true;
        }
    }

    /// Whether the deliveries of every unit have ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.units.values().all(|unit| unit.ended)
    }

    /// When the time of a unit that is given up is over.
    pub(super) fn unit_deadline(&self) -> Option<Instant> {
        let deadline = |unit: &Unit| match unit.stage {
            Stage::Leaving(until) => Some(until),
            Stage::Held | Stage::Fenced(_) => None,
        };
        self.units.values().filter_map(deadline).min()
    }

    /// Forgets the units that are done with. Inserts of theirs that are still on their way must be given up.
    pub(crate) fn take_finished(&mut self, now: Instant) -> Vec<Finished> {
        let in_flight = |unit: &Unit| unit.tables.values().any(|index| self.tables[*index].flight.is_some());
        let quiet = |unit: &Unit| unit.ended && unit.tables.values().all(|index| self.tables[*index].quiet());
        let done = |unit: &Unit| match unit.stage {
            Stage::Held => false,
            Stage::Leaving(until) => now >= until || quiet(unit),
            Stage::Fenced(_) => !in_flight(unit),
        };
        let done: Vec<usize> =
            self.units.iter().filter(|(_, unit)| done(unit)).map(|(number, _)| *number).collect();
        done.into_iter().filter_map(|number| self.drop_unit(number, now)).collect()
    }

    fn drop_unit(&mut self, number: usize, now: Instant) -> Option<Finished> {
        let tables: Vec<usize> = self.units.get(&number)?.tables.values().copied().collect();
        let unsettled_rows = self.units.get(&number)?.held.rows;
        for index in tables {
            self.drop_table(index, now);
        }
        let unit = self.units.remove(&number)?;
        self.balance();
        let lost = match unit.stage {
            Stage::Fenced(reason) => reason,
            Stage::Held | Stage::Leaving(_) => None,
        };
        Some(Finished { unit: number, unsettled_rows, lost })
    }

    /// A batch that was made and is not yet on its way stays here.
    fn cancel_job(&mut self, index: usize) {
        let before = self.jobs.len();
        self.jobs.retain(|job| job.index != index);
        if self.jobs.len() < before {
            self.end_flight(index);
        }
    }

    fn end_flight(&mut self, index: usize) {
        if let Some(flight) = self.tables[index].flight.take() {
            self.targets[self.tables[index].target].turns.finish();
            self.lets_go(index, &flight);
            for held in flight {
                held.delivery.retry(Duration::ZERO);
            }
        }
    }

    /// Hands back everything of a table but a batch in flight, for good.
    fn let_go(&mut self, index: usize, now: Instant) {
        let table = &mut self.tables[index];
        let target = table.target;
        if std::mem::take(&mut table.in_line) {
            self.targets[target].turns.leave(index);
        }
        let table = &mut self.tables[index];
        table.open = false;
        let waited = !table.queue.is_empty();
        let hand = table.empty_hand();
        table.pending = None;
        let number = table.unit;
        if let Some(unit) = self.units.get_mut(&number) {
            unit.busy -= usize::from(waited);
        }
        self.lets_go(index, &hand);
        for held in hand {
            held.delivery.retry(Duration::ZERO);
        }
        self.rebuilders.retain(|waiting| *waiting != index);
        self.tables[index].asked = false;
        self.give_up_permit(index, now);
    }

    /// Forgets a table.
    fn drop_table(&mut self, index: usize, now: Instant) {
        self.jobs.retain(|job| job.index != index);
        self.end_flight(index);
        self.let_go(index, now);
        let (target, name) = (self.tables[index].target, self.tables[index].name.clone());
        self.targets[target].tables.retain(|table| *table != index);
        if self.tables[index].told {
            self.metrics.slowed(&name, 0);
        }
        self.tables[index] = Table::vacant(name, target);
        self.vacant.push(index);
        if self.targets[target].down.as_ref().is_some_and(|down| down.probed_by(index)) {
            self.end_probe(target, now);
        }
        self.serve(target, now);
    }

    /// Shares out what may be held, if units share it.
    pub(crate) fn balance(&mut self) {
        let Some(Sharing { room }) = self.sharing else { return };
        let held: Vec<Load> = self.units.values().map(|unit| unit.held).collect();
        let shares = shares(self.limits.hand, &held);
        for (unit, share) in self.units.values_mut().zip(shares) {
            unit.hand = share;
            let rebuilding = unit.rebuilding as u64;
            let budget = RowBudget {
                rows: share.rows + rebuilding * room.rows,
                bytes: share.bytes + rebuilding * room.bytes,
            };
            if unit.budget != Some(budget) {
                unit.budget = Some(budget);
                unit.control.set_budget(budget);
            }
        }
    }
}
