//! Random lives of a queue against a model of what it promised: rows that were accepted, acks that were made durable,
//! cuts that were recorded, through crashes that lose any part of what was not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use proptest::prelude::*;
use wavehouse_broker::{
    Broker, Cut, Delivery, HistoryEvent, HistoryFilter, HistoryStart, InsertToken, OpenUnit, Stored,
    Submitted,
};
use wavehouse_broker_embedded::{EmbeddedBroker, Metrics, Options};
use wavehouse_core::{Sequence, TableRef, Timestamp};

use crate::faulty::{Chance, Faulty};
use crate::kit::{next, numbered, numbers, open_unit, table, within};

const TABLES: [&str; 3] = ["a", "b", "stuck"];
/// Longer than any gap window.
const FAR: Timestamp = Timestamp(u64::MAX / 2);

#[derive(Debug, Clone)]
enum Op {
    Submit { table: usize, blocks: u64, padding: usize, wait: bool },
    Deliver(usize),
    Ack(prop::sample::Index),
    Retry(prop::sample::Index),
    Cut(prop::sample::Index),
    Sweep,
    Full(bool),
    Release,
    Restart,
    Kill,
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        8 => (0..3_usize, 1..6_u64, prop_oneof![Just(5_usize), Just(3_000), Just(20_000)], any::<bool>())
            .prop_map(|(table, blocks, padding, wait)| Op::Submit { table, blocks, padding, wait }),
        6 => (1..12_usize).prop_map(Op::Deliver),
        8 => index().prop_map(Op::Ack),
        2 => index().prop_map(Op::Retry),
        3 => index().prop_map(Op::Cut),
        2 => Just(Op::Sweep),
        1 => any::<bool>().prop_map(Op::Full),
        1 => Just(Op::Release),
        1 => Just(Op::Restart),
        1 => Just(Op::Kill),
        2 => Just(Op::Crash),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acked {
    No,
    /// Acked, and maybe forgotten at the next crash.
    Loose,
    /// Acked before a crash that may have forgotten it.
    Unknown,
    Durable,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    /// Whether it was accepted, and not only maybe.
    sure: bool,
    acked: Acked,
}

#[derive(Default)]
struct TableModel {
    rows: BTreeMap<u64, Row>,
    refused: BTreeSet<u64>,
    cut: Option<Cut>,
    /// Which rows each block has, as far as has been seen.
    blocks: BTreeMap<Sequence, Vec<u64>>,
}

impl TableModel {
    fn may_be_acked(&self, sequence: Sequence) -> bool {
        self.blocks.get(&sequence).is_some_and(|rows| {
            rows.iter().all(|number| self.rows.get(number).is_some_and(|row| row.acked != Acked::No))
        })
    }
}

fn open(options: &Options, files: &Faulty) -> (Arc<EmbeddedBroker>, Registry) {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let broker = EmbeddedBroker::open_on(options, metrics, Arc::new(files.clone())).unwrap();
    (broker, registry)
}

struct World {
    files: Faulty,
    options: Options,
    chance: Chance,
    broker: Arc<EmbeddedBroker>,
    metrics: Registry,
    unit: OpenUnit,
    held: Vec<Delivery>,
    pending: Vec<(TableRef, u64, Submitted)>,
    model: BTreeMap<TableRef, TableModel>,
    number: u64,
    full: bool,
}

impl World {
    async fn new(seed: u64) -> Self {
        let mut options = Options::new("/nowhere".into());
        options.file_bytes = Some(64 << 10);
        options.disk_bytes_max = Some(512 << 10);
        options.ack_wait = Duration::from_secs(3600);
        options.default_limits.gap_window = Duration::from_secs(1);
        let files = Faulty::default();
        let (broker, metrics) = open(&options, &files);
        let unit = open_unit(&broker).await;
        let model = TABLES.iter().map(|name| (table(name), TableModel::default())).collect();
        let (held, pending) = (Vec::new(), Vec::new());
        let chance = Chance::new(seed);
        Self { files, options, chance, broker, metrics, unit, held, pending, model, number: 0, full: false }
    }

    async fn apply(&mut self, op: &Op) {
        match op {
            Op::Submit { table: index, blocks, padding, wait } => {
                let table = table(TABLES[*index]);
                let first = self.number;
                self.number += blocks;
                let blocks = (first..self.number).map(|number| numbered(&table, number, *padding)).collect();
                self.pending.push((table, first, self.broker.submit(blocks)));
                if *wait {
                    self.resolve().await;
                }
            }
            Op::Deliver(count) => self.deliver(*count).await,
            Op::Ack(index) if !self.held.is_empty() => {
                let delivery = self.held.swap_remove(index.index(self.held.len()));
                let table = self.model.get_mut(delivery.table()).unwrap();
                for number in numbers(&delivery.stored().block) {
                    table.rows.get_mut(&number).unwrap().acked = Acked::Loose;
                }
                delivery.ack();
            }
            Op::Retry(index) if !self.held.is_empty() => {
                self.held.swap_remove(index.index(self.held.len())).retry(Duration::ZERO);
            }
            Op::Cut(index) if !self.held.is_empty() => self.cut(index.index(self.held.len())).await,
            Op::Ack(_) | Op::Retry(_) | Op::Cut(_) => {}
            Op::Sweep => drop(within(self.broker.sweep(FAR)).await),
            Op::Full(full) => {
                self.full = *full;
                let (files, used) = (self.files.clone(), self.files.used());
                files.set_capacity(full.then_some(used + (100 << 10)));
            }
            Op::Release => {
                self.resolve().await;
                self.held.clear();
                within(self.unit.control.release()).await;
                self.acks_are_durable();
                self.unit = open_unit(&self.broker).await;
                self.check_cuts();
            }
            Op::Restart => self.restart().await,
            Op::Kill => {
                let next = self.files.kill();
                self.reopen(next).await;
            }
            Op::Crash => {
                let next = self.files.crash(&mut self.chance);
                self.reopen(next).await;
            }
        }
    }

    /// Waits for what becomes of everything submitted.
    async fn resolve(&mut self) {
        for (table, first, submitted) in std::mem::take(&mut self.pending) {
            let model = self.model.get_mut(&table).unwrap();
            for (number, outcome) in (first..).zip(within(submitted).await) {
                let stored = outcome.map_or_else(|error| Some(error.stored()), |_| None);
                if stored == Some(Stored::No) {
                    model.refused.insert(number);
                    assert!(!model.rows.contains_key(&number), "a row that was refused was delivered");
                } else {
                    let sure = stored.is_none();
                    model.rows.entry(number).or_insert(Row { sure, acked: Acked::No }).sure |= sure;
                }
            }
        }
    }

    async fn deliver(&mut self, count: usize) {
        // What has been delivered is in the model then.
        self.resolve().await;
        for _ in 0..count {
            let held: usize = self.held.iter().map(|held| held.stored().block.rows() as usize).sum();
            let waiting: u64 = self.broker.depths().iter().map(|depth| depth.unwritten_rows).sum();
            if waiting == held as u64 {
                return;
            }
            let delivery = next(&mut self.unit).await;
            self.see(&delivery);
            self.held.push(delivery);
        }
    }

    fn see(&mut self, delivery: &Delivery) {
        let rows = numbers(&delivery.stored().block);
        let model = self.model.get_mut(delivery.table()).unwrap();
        for number in &rows {
            assert!(!model.refused.contains(number), "row {number} was refused as not stored");
            let row = model.rows.get_mut(number).expect("a row that was sent");
            assert_ne!(row.acked, Acked::Durable, "row {number} was acked for good");
            row.acked = Acked::No;
        }
        let before = model.blocks.insert(delivery.sequence(), rows.clone());
        assert!(before.is_none_or(|before| before == rows), "a block is what it was");
    }

    /// Records a cut over the held blocks of a table that stand in one row.
    async fn cut(&mut self, index: usize) {
        let table = self.held[index].table().clone();
        let of_table = self.held.iter().filter(|held| *held.table() == table);
        let sequences: BTreeSet<Sequence> = of_table.map(Delivery::sequence).collect();
        let first = *sequences.first().unwrap();
        let last = (0..).map(|n| Sequence(first.0 + n)).take_while(|s| sequences.contains(s)).last().unwrap();
        let token = InsertToken(u128::from(self.chance.below(u64::MAX)));
        let blocks = u32::try_from(last.0 - first.0 + 1).unwrap();
        let cut = Cut { table: table.clone(), first, last, blocks, splits: vec![1], done_rows: 0, token };
        match within(self.unit.control.record_cut(cut.clone())).await {
            Ok(()) => {
                self.model.get_mut(&table).unwrap().cut = Some(cut);
                self.acks_are_durable();
            }
            Err(error) => assert!(self.full, "a cut was not recorded: {error}"),
        }
    }

    fn acks_are_durable(&mut self) {
        if self.full {
            // A release on a full disk may leave settles behind, and says so in the log only.
            return;
        }
        for row in self.model.values_mut().flat_map(|table| table.rows.values_mut()) {
            if row.acked == Acked::Loose {
                row.acked = Acked::Durable;
            }
        }
    }

    async fn restart(&mut self) {
        self.resolve().await;
        self.held.clear();
        match within(self.broker.close()).await {
            Ok(()) => self.acks_are_durable(),
            Err(error) => assert!(self.full, "not closed: {error}"),
        }
        let next = self.files.kill();
        self.reopen(next).await;
    }

    /// The next life. The last one is over already.
    async fn reopen(&mut self, files: Faulty) {
        self.resolve().await;
        self.held.clear();
        for row in self.model.values_mut().flat_map(|table| table.rows.values_mut()) {
            if row.acked == Acked::Loose {
                row.acked = Acked::Unknown;
            }
        }
        files.set_capacity(None);
        self.full = false;
        self.check_damage();
        (self.broker, self.metrics) = open(&self.options, &files);
        self.files = files;
        self.unit = open_unit(&self.broker).await;
        self.check_cuts();
    }

    /// However a life ends, what the next finds is whole.
    fn check_damage(&self) {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.metrics).unwrap();
        assert!(text.contains("wavehouse_queue_damaged_records_total 0\n"), "{text}");
    }

    fn check_cuts(&mut self) {
        for (table, model) in &mut self.model {
            let found = self.unit.cuts.iter().find(|cut| cut.table == *table).cloned();
            let Some(expected) = model.cut.clone() else {
                assert_eq!(found, None, "a cut that was never recorded");
                continue;
            };
            let over = (expected.first.0..=expected.last.0).all(|s| model.may_be_acked(Sequence(s)));
            if found.is_none() && over {
                model.cut = None;
                continue;
            }
            assert_eq!(found, Some(expected), "the recorded cut comes back");
        }
    }

    /// Everything that is owed comes, once, in order, and is to be found in the history.
    async fn finish(mut self) {
        self.restart().await;
        let history = self.history().await;
        let waiting: u64 = self.broker.depths().iter().map(|depth| depth.unwritten_rows).sum();
        let mut got: BTreeMap<TableRef, Vec<u64>> = BTreeMap::new();
        while got.values().map(Vec::len).sum::<usize>() < usize::try_from(waiting).unwrap() {
            let delivery = next(&mut self.unit).await;
            self.see(&delivery);
            got.entry(delivery.table().clone()).or_default().extend(numbers(&delivery.stored().block));
            delivery.ack();
        }
        assert_eq!(self.broker.depths(), []);
        for (table, model) in &self.model {
            let got = got.remove(table).unwrap_or_default();
            assert!(got.is_sorted_by(|a, b| a < b), "{table} in order: {got:?}");
            let owed = |(number, row): (&u64, &Row)| (row.sure && row.acked == Acked::No).then_some(*number);
            let owed: BTreeSet<u64> = model.rows.iter().filter_map(owed).collect();
            let got: BTreeSet<u64> = got.into_iter().collect();
            assert!(owed.is_subset(&got), "{table}: owed {owed:?}, came {got:?}");
            let kept = history.get(table).cloned().unwrap_or_default();
            assert!(got.is_subset(&kept), "{table}: waiting {got:?}, in history {kept:?}");
        }
        within(self.broker.close()).await.unwrap();
        self.check_damage();
    }

    async fn history(&self) -> BTreeMap<TableRef, BTreeSet<u64>> {
        let start = HistoryStart::Since(Timestamp(0));
        let mut stream = self.broker.open_history(start, HistoryFilter::All).await.unwrap();
        let mut rows: BTreeMap<TableRef, BTreeSet<u64>> = BTreeMap::new();
        let mut lasts: BTreeMap<TableRef, Sequence> = BTreeMap::new();
        let mut holes = BTreeSet::new();
        loop {
            match within(stream.next()).await.unwrap() {
                HistoryEvent::CaughtUp => return rows,
                HistoryEvent::Hole { table, .. } => drop(holes.insert(table)),
                HistoryEvent::Block { stored, .. } => {
                    let table = stored.block.table.clone();
                    let last = lasts.insert(table.clone(), stored.sequence).unwrap_or(Sequence(0));
                    let told = holes.remove(&table);
                    assert!(stored.sequence == last.next() || told && stored.sequence > last, "{table}");
                    rows.entry(table).or_default().extend(numbers(&stored.block));
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn no_promise_is_broken(ops in prop::collection::vec(op(), 1..70), seed in any::<u64>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new(seed).await;
            for op in &ops {
                world.apply(op).await;
            }
            world.finish().await;
        });
    }
}
