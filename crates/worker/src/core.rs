//! The worker's mind: what is in hand, who may insert, who must rest. It reads no clock and waits for nothing; settling
//! and pausing, which do not wait either, are all that it does by itself. What takes time it hands out as [`Job`]s and
//! hears back as [`Report`]s.

mod doors;
mod intake;
mod outcome;
mod probe;
mod ready;
mod units;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;
use wavehouse_broker::{Broker, UnitControl};
use wavehouse_clickhouse::RowSink;
use wavehouse_core::TableRef;

use crate::backoff::Jitter;
use crate::batcher::{Limits, Load};
use crate::flush::{Job, Report};
use crate::metrics::WorkerMetrics;
use crate::options::Options;
use crate::outage::Outage;
use crate::table::{Held, Table};
use crate::turns::Turns;
use crate::worker::WorkerFault;

pub(crate) use self::intake::Stalled;
use self::units::Unit;

/// One ClickHouse.
#[derive(Debug)]
struct Target {
    name: Arc<str>,
    turns: Turns<usize>,
    down: Option<Down>,
    /// When it last took rows.
    took: Option<Instant>,
    /// The tables that go there.
    tables: Vec<usize>,
    /// The earliest timer that is set.
    timer: Option<Instant>,
}

/// A ClickHouse that takes nothing: one table probes it.
#[derive(Debug)]
struct Down {
    outage: Outage,
    /// The table that probes, and until when it must have begun.
    probe: Option<(usize, Instant)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Table(usize),
    Target(usize),
}

/// Units come and go, and share what may be held.
#[derive(Debug, Clone, Copy)]
struct Sharing {
    /// Room beyond a unit's share for each batch that is brought back, which an earlier owner may have cut larger.
    room: Load,
}

/// All tables of all units. Tables of a unit stay known as long as it is open, and targets for good; their number is
/// bounded by what the tenants' databases hold, and each costs a few hundred bytes.
pub(crate) struct Core {
    limits: Limits,
    inserts_max: usize,
    rebuilds_max: usize,
    broker: Arc<dyn Broker>,
    sink: Arc<dyn RowSink>,
    metrics: WorkerMetrics,
    jitter: Jitter,
    sharing: Option<Sharing>,
    /// By the worker's number of each opening, which is never used again.
    units: BTreeMap<usize, Unit>,
    next_unit: usize,
    tables: Vec<Table>,
    /// Places in `tables` that are free.
    vacant: Vec<usize>,
    targets: Vec<Target>,
    by_target: HashMap<Arc<str>, usize>,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    /// Tables that wait for their turn to bring a batch back.
    rebuilders: VecDeque<usize>,
    rebuilding: usize,
    held: Load,
    jobs: Vec<Job>,
    stopping: bool,
    fault: Option<WorkerFault>,
}

impl Core {
    pub(crate) fn new(
        options: &Options,
        broker: Arc<dyn Broker>,
        sink: Arc<dyn RowSink>,
        metrics: WorkerMetrics,
    ) -> Self {
        Self {
            limits: Limits::new(options),
            inserts_max: options.inserts_max,
            rebuilds_max: options.rebuilds_max(),
            broker,
            sink,
            metrics,
            jitter: Jitter::new(options.seed),
            sharing: None,
            units: BTreeMap::new(),
            next_unit: 0,
            tables: Vec::new(),
            vacant: Vec::new(),
            targets: Vec::new(),
            by_target: HashMap::new(),
            timers: BinaryHeap::new(),
            rebuilders: VecDeque::new(),
            rebuilding: 0,
            held: Load::default(),
            jobs: Vec::new(),
            stopping: false,
            fault: None,
        }
    }

    /// The same for units that come and go and share what may be held. `room`: what a batch that is brought back may need
    /// beyond its unit's share.
    pub(crate) fn shared(mut self, room: Load) -> Self {
        self.sharing = Some(Sharing { room });
        self
    }

    /// What must be flushed now.
    pub(crate) fn take_jobs(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.jobs)
    }

    /// How to steer a unit; none if it is forgotten.
    pub(crate) fn control(&self, unit: usize) -> Option<Arc<dyn UnitControl>> {
        self.units.get(&unit).map(|unit| Arc::clone(&unit.control))
    }

    /// When [`tick`](Self::tick) or [`take_finished`](Self::take_finished) has something to do.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        timer.into_iter().chain(self.unit_deadline()).min()
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, now: Instant) {
        while let Some(Reverse((at, timer))) = self.timers.peek().copied() {
            if at > now {
                break;
            }
            self.timers.pop();
            match timer {
                Timer::Table(index) => {
                    if self.tables[index].timer == Some(at) {
                        self.tables[index].timer = None;
                    }
                    self.remind_table(index, now);
                    self.wake(index, now);
                }
                Timer::Target(target) => {
                    if self.targets[target].timer == Some(at) {
                        self.targets[target].timer = None;
                        self.check_target(target, now);
                    }
                }
            }
        }
    }

    /// Takes in no more and writes what is in hand at once.
    pub(crate) fn stop(&mut self, now: Instant) {
        self.stopping = true;
        for unit in self.units.values() {
            unit.control.halt();
        }
        for index in 0..self.tables.len() {
            self.check(index, now);
        }
    }

    /// Whether nothing is left that could be written now.
    pub(crate) fn idle(&self) -> bool {
        self.tables.iter().all(Table::quiet)
    }

    /// What the worker must end for.
    pub(crate) fn take_fault(&mut self) -> Option<WorkerFault> {
        self.fault.take()
    }

    /// Rows and bytes in hand.
    pub(crate) fn held(&self) -> Load {
        self.held
    }

    /// The worker's number of a table of a unit; a table that is new goes where its tenant's rows go. None if the unit is
    /// forgotten.
    fn table(&mut self, name: &TableRef, unit: usize) -> Option<usize> {
        if let Some(index) = self.units.get(&unit)?.tables.get(name) {
            return Some(*index);
        }
        let target = self.target(&self.sink.target(&name.tenant));
        let table = Table::new(name.clone(), unit, target);
        let index = match self.vacant.pop() {
            Some(index) => {
                self.tables[index] = table;
                index
            }
            None => {
                self.tables.push(table);
                self.tables.len() - 1
            }
        };
        self.targets[target].tables.push(index);
        self.units.get_mut(&unit)?.tables.insert(name.clone(), index);
        Some(index)
    }

    fn target(&mut self, name: &Arc<str>) -> usize {
        if let Some(target) = self.by_target.get(name) {
            return *target;
        }
        let (name, target) = (Arc::clone(name), self.targets.len());
        self.by_target.insert(Arc::clone(&name), target);
        self.targets.push(Target {
            name,
            turns: Turns::new(),
            down: None,
            took: None,
            tables: Vec::new(),
            timer: None,
        });
        target
    }

    /// Sees whether the tenant's rows go elsewhere by now. For a table that is neither in line nor in flight.
    fn follow_target(&mut self, index: usize) {
        let name = self.sink.target(&self.tables[index].name.tenant);
        let before = self.tables[index].target;
        if self.targets[before].name == name {
            return;
        }
        let after = self.target(&name);
        self.targets[before].tables.retain(|table| *table != index);
        self.targets[after].tables.push(index);
        self.tables[index].target = after;
    }

    fn set_timer(&mut self, index: usize, at: Instant) {
        let timer = &mut self.tables[index].timer;
        if timer.is_none_or(|set| set > at) {
            *timer = Some(at);
            self.timers.push(Reverse((at, Timer::Table(index))));
        }
    }

    fn set_target_timer(&mut self, target: usize, at: Instant) {
        let timer = &mut self.targets[target].timer;
        if timer.is_none_or(|set| set > at) {
            *timer = Some(at);
            self.timers.push(Reverse((at, Timer::Target(target))));
        }
    }

    fn holds(&mut self, index: usize, load: Load) {
        self.held.add(load);
        if let Some(unit) = self.units.get_mut(&self.tables[index].unit) {
            unit.held.add(load);
        }
        self.show_held();
    }

    fn lets_go(&mut self, index: usize, held: &[Held]) {
        let mut unit = self.units.get_mut(&self.tables[index].unit);
        for block in held {
            self.held.take(block.load);
            if let Some(unit) = &mut unit {
                unit.held.take(block.load);
            }
        }
        self.show_held();
    }

    /// How far a table's rows may grow beside the others of its unit.
    fn share(&self, index: usize) -> Load {
        let unit = self.units.get(&self.tables[index].unit);
        unit.map_or(Load::default(), |unit| self.limits.share(unit.hand, unit.busy))
    }

    fn pause(&self, index: usize, until: Instant) {
        let table = &self.tables[index];
        if let Some(unit) = self.units.get(&table.unit) {
            unit.control.pause(&table.name, until);
        }
    }

    fn show_held(&self) {
        self.metrics.held_rows.set(i64::try_from(self.held.rows).unwrap_or(i64::MAX));
        self.metrics.held_bytes.set(i64::try_from(self.held.bytes).unwrap_or(i64::MAX));
    }

    /// Hears how a flush ended.
    pub(crate) fn reported(&mut self, report: Report, now: Instant) {
        outcome::reported(self, report, now);
    }
}
