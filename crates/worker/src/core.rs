//! The worker's mind: what is in hand, who may insert, who must rest. It reads no clock and waits for nothing; settling
//! and pausing, which do not wait either, are all that it does by itself. What takes time it hands out as [`Job`]s and
//! hears back as [`Report`]s.

mod doors;
mod intake;
mod outcome;
mod probe;
mod ready;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;
use wavehouse_broker::{Broker, Cut, UnitControl};
use wavehouse_clickhouse::RowSink;
use wavehouse_core::TableRef;

use crate::backoff::Jitter;
use crate::batcher::{Limits, Load};
use crate::flush::{Job, Report};
use crate::metrics::WorkerMetrics;
use crate::options::Options;
use crate::outage::Outage;
use crate::table::{Held, Pending, Table};
use crate::turns::Turns;
use crate::worker::WorkerFault;

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

/// All tables of all units. Tables and targets that were seen stay known; their number is bounded by what the tenants'
/// databases hold, and each costs a few hundred bytes.
pub(crate) struct Core {
    limits: Limits,
    inserts_max: usize,
    rebuilds_max: usize,
    broker: Arc<dyn Broker>,
    sink: Arc<dyn RowSink>,
    metrics: WorkerMetrics,
    jitter: Jitter,
    units: Vec<Arc<dyn UnitControl>>,
    tables: Vec<Table>,
    by_table: HashMap<TableRef, usize>,
    targets: Vec<Target>,
    by_target: HashMap<Arc<str>, usize>,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    /// Tables that wait for their turn to bring a batch back.
    rebuilders: VecDeque<usize>,
    rebuilding: usize,
    held: Load,
    /// How many tables hold rows that are in no batch.
    busy: usize,
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
            units: Vec::new(),
            tables: Vec::new(),
            by_table: HashMap::new(),
            targets: Vec::new(),
            by_target: HashMap::new(),
            timers: BinaryHeap::new(),
            rebuilders: VecDeque::new(),
            rebuilding: 0,
            held: Load::default(),
            busy: 0,
            jobs: Vec::new(),
            stopping: false,
            fault: None,
        }
    }

    /// Takes a unit on, before anything of it is delivered. Returns the worker's number of it.
    pub(crate) fn add_unit(&mut self, control: Arc<dyn UnitControl>, cuts: Vec<Cut>, now: Instant) -> usize {
        let unit = self.units.len();
        self.units.push(control);
        let mut cut_tables = Vec::new();
        for cut in cuts {
            let index = self.table(&cut.table, unit);
            self.tables[index].pending = Some(Pending::new(cut, None, now));
            self.shut(index, now);
            cut_tables.push(index);
        }
        for index in cut_tables {
            self.wake(index, now);
        }
        unit
    }

    /// What must be flushed now.
    pub(crate) fn take_jobs(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.jobs)
    }

    /// How to steer the unit of a table.
    pub(crate) fn control(&self, index: usize) -> Arc<dyn UnitControl> {
        Arc::clone(&self.units[self.tables[index].unit])
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
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
        for unit in &self.units {
            unit.halt();
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

    /// The worker's number of a table; a table that is new goes where its tenant's rows go.
    fn table(&mut self, name: &TableRef, unit: usize) -> usize {
        if let Some(index) = self.by_table.get(name) {
            return *index;
        }
        let index = self.tables.len();
        let target = self.target(&self.sink.target(&name.tenant));
        self.targets[target].tables.push(index);
        self.tables.push(Table::new(name.clone(), unit, target));
        self.by_table.insert(name.clone(), index);
        index
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

    fn holds(&mut self, load: Load) {
        self.held.add(load);
        self.show_held();
    }

    fn lets_go(&mut self, held: &[Held]) {
        for block in held {
            self.held.take(block.load);
        }
        self.show_held();
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
