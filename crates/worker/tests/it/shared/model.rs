//! Whatever processes come, go, freeze, die and are cut off from the bucket, in whatever order, and however many units each
//! was told of: every row lands once and in order; no two processes read a unit unless one of them stood still a term ago;
//! no insert begins after its unit is fenced off; and soon after the last trouble every unit is read by one process that
//! knows it, and the load is even.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use wavehouse_core::{Placement, TableRef, UnitId};

use super::running::{Running, until};
use super::world::World;
use crate::kit::{Scripted, table};

#[derive(Debug, Clone)]
enum Step {
    Join(bool),
    Stop(u8),
    Kill(u8),
    Freeze(u8),
    Thaw,
    CutOff(u8),
    Restore,
    Publish(u8, u8),
    Sleep(u16),
}

const PROCESSES_MAX: usize = 5;

/// How long after the last trouble every unit is read again: the lapse of a lease; the patience with a unit that is still
/// read; a handover, which waits for inserts.
const SETTLES: Duration = Duration::from_secs(15 + 30 + 60);

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::bool::weighted(0.2).prop_map(Step::Join),
        1 => any::<u8>().prop_map(Step::Stop),
        1 => any::<u8>().prop_map(Step::Kill),
        2 => any::<u8>().prop_map(Step::Freeze),
        2 => Just(Step::Thaw),
        1 => any::<u8>().prop_map(Step::CutOff),
        1 => Just(Step::Restore),
        8 => (0..6_u8, 1..9_u8).prop_map(|(table, rows)| Step::Publish(table, rows)),
        6 => (1..9000_u16).prop_map(Step::Sleep),
    ]
}

struct Model {
    world: Arc<World>,
    sink: Arc<Scripted>,
    /// What most are told, and the publishers.
    placement: Placement,
    /// What some are told.
    other: Placement,
    running: Vec<Running>,
    started: usize,
    tables: Vec<TableRef>,
    sent: BTreeMap<TableRef, Vec<String>>,
    rows: u32,
}

impl Model {
    fn new((placement, other): (Placement, Placement), askable: bool, takes: u16) -> Self {
        let sink = Scripted::shared(Duration::from_millis(u64::from(takes)));
        Self {
            world: World::new(askable),
            sink,
            placement,
            other,
            running: Vec::new(),
            started: 0,
            tables: (0..6).map(|number| table(&format!("t{number}"))).collect(),
            sent: BTreeMap::new(),
            rows: 0,
        }
    }

    fn join(&mut self, other: bool) {
        if self.running.len() < PROCESSES_MAX {
            self.started += 1;
            let placement = if other { self.other } else { self.placement };
            self.running.push(Running::start(&self.world, self.started, placement, &self.sink));
        }
    }

    fn pick(&self, which: u8) -> Option<usize> {
        usize::from(which).checked_rem(self.running.len())
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Join(other) => self.join(other),
            Step::Stop(which) => {
                if let Some(at) = self.pick(which) {
                    let process = self.running.swap_remove(at);
                    process.thaw();
                    process.stop().await.unwrap();
                }
            }
            Step::Kill(which) => {
                if let Some(at) = self.pick(which) {
                    self.running.swap_remove(at).kill().await;
                }
            }
            Step::Freeze(which) => {
                if let Some(at) = self.pick(which) {
                    self.running[at].freeze();
                }
            }
            Step::Thaw => self.running.iter().for_each(Running::thaw),
            Step::CutOff(which) => {
                if let Some(at) = self.pick(which) {
                    self.running[at].bucket.set_reachable(false);
                }
            }
            Step::Restore => self.running.iter().for_each(|process| process.bucket.set_reachable(true)),
            Step::Publish(to, rows) => {
                let table = self.tables[usize::from(to)].clone();
                let lines: Vec<String> =
                    (0..u32::from(rows)).map(|row| format!("{{\"n\":{}}}", self.rows + row)).collect();
                self.rows += u32::from(rows);
                self.sent.entry(table.clone()).or_default().extend(lines.clone());
                self.world.publish(self.placement, &table, lines).await;
            }
            Step::Sleep(ms) => tokio::time::sleep(Duration::from_millis(u64::from(ms))).await,
        }
    }

    /// Whether every unit that anybody was told of is read, by one who knows it, and nobody has more than his share. Units
    /// that only some know, and units that are left of earlier counts, are shared out apart.
    fn settled(&self) -> bool {
        let owners = self.world.owners();
        let process = |number: usize| self.running.iter().find(|process| process.number == number);
        let told = |unit: UnitId| self.running.iter().any(|process| process.placement.contains(unit));
        let known = |(unit, owner): (&UnitId, &usize)| {
            process(*owner).is_some_and(|process| process.placement.contains(*unit) || !told(*unit))
        };
        let all = self
            .running
            .iter()
            .all(|process| process.placement.units().all(|unit| owners.contains_key(&unit)));
        all && owners.iter().all(known) && (self.mixed() || self.even(&owners, &told))
    }

    fn mixed(&self) -> bool {
        self.running.iter().any(|process| process.placement != self.running[0].placement)
    }

    fn even(&self, owners: &BTreeMap<UnitId, usize>, told: &dyn Fn(UnitId) -> bool) -> bool {
        [true, false].into_iter().all(|configured| {
            let such: Vec<usize> = owners
                .iter()
                .filter(|(unit, _)| told(**unit) == configured)
                .map(|(_, owner)| *owner)
                .collect();
            let cap = such.len().div_ceil(self.running.len());
            let load = |process: &Running| such.iter().filter(|owner| **owner == process.number).count();
            self.running.iter().all(|process| load(process) <= cap)
        })
    }

    async fn settle(mut self) {
        self.step(Step::Thaw).await;
        self.step(Step::Restore).await;
        self.join(false);
        until(SETTLES, "every unit is read and the load is even", || self.settled()).await;
        until(Duration::from_secs(300), "every row is written", || self.world.unwritten() == 0).await;
        for (table, lines) in &self.sent {
            assert_eq!(self.sink.rows(table), *lines, "{table}");
        }
        for process in self.running {
            process.stop().await.unwrap();
        }
        assert!(self.world.owners().is_empty());
    }
}

async fn live(steps: Vec<Step>, mut model: Model) {
    model.join(false);
    for step in steps {
        model.step(step).await;
    }
    model.settle().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn every_row_lands_once_and_in_order_whoever_comes_and_goes(
        steps in prop::collection::vec(step(), 1..40),
        counts in prop_oneof![
            Just(((1_u64, 4_u64), (2_u64, 4_u64))),
            Just(((2, 3), (2, 5))),
            Just(((2, 5), (1, 3))),
            Just(((1, 1), (1, 2)))
        ],
        askable in any::<bool>(),
        takes in prop_oneof![Just(0_u16), 1..6000_u16],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let placement = |(partitions, shards)| Placement::new(partitions, shards).unwrap();
        let placements = (placement(counts.0), placement(counts.1));
        runtime.block_on(live(steps, Model::new(placements, askable, takes)));
    }
}
