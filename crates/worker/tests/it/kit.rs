//! A ClickHouse that does as it is told, and what every test needs.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::conformance::{MemoryBroker, MemoryOptions, MemoryStore};
use wavehouse_broker::{Broker, DeadLetter, LetterFilter};
use wavehouse_clickhouse::{Cause, Class, ClickHouseError, RowBatch, RowSink, WriteError};
use wavehouse_core::{RowBlock, Scope, TableName, TableRef, TenantId, Timestamp};
use wavehouse_worker::{Options, Worker, WorkerFault, WorkerMetrics};

/// What the ClickHouse does with one batch.
#[derive(Clone)]
pub(crate) enum Answer {
    Store,
    /// Stores it and loses the answer.
    StoreAndFail(ClickHouseError),
    Fail(ClickHouseError),
}

type Rule = Box<dyn FnMut(&RowBatch, Instant) -> Answer + Send>;

#[derive(Default)]
struct Stored {
    rows: BTreeMap<TableRef, Vec<String>>,
    tokens: HashMap<String, Vec<u8>>,
    calls: Vec<(Instant, TableRef, u32)>,
    in_flight: BTreeMap<TableRef, u32>,
    most_in_flight: u32,
}

/// The scripted ClickHouse. It remembers every token, as a table with a wide window does.
pub(crate) struct Scripted {
    rule: Mutex<Rule>,
    stored: Mutex<Stored>,
    pub(crate) takes: Duration,
    /// Whether a former owner of a unit may still be inserting beside its successor.
    many: bool,
}

impl Scripted {
    pub(crate) fn new(rule: impl FnMut(&RowBatch, Instant) -> Answer + Send + 'static) -> Arc<Self> {
        Self::slow(Duration::ZERO, rule)
    }

    pub(crate) fn slow(
        takes: Duration,
        rule: impl FnMut(&RowBatch, Instant) -> Answer + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { rule: Mutex::new(Box::new(rule)), stored: Mutex::default(), takes, many: false })
    }

    /// One that stores everything, for processes of which one may still insert what another has taken over.
    pub(crate) fn shared(takes: Duration) -> Arc<Self> {
        let rule: Rule = Box::new(|_, _| Answer::Store);
        Arc::new(Self { rule: Mutex::new(rule), stored: Mutex::default(), takes, many: true })
    }

    /// One that stores everything.
    pub(crate) fn good() -> Arc<Self> {
        Self::new(|_, _| Answer::Store)
    }

    pub(crate) fn set(&self, rule: impl FnMut(&RowBatch, Instant) -> Answer + Send + 'static) {
        *self.rule.lock().unwrap() = Box::new(rule);
    }

    pub(crate) fn rows(&self, table: &TableRef) -> Vec<String> {
        self.stored.lock().unwrap().rows.get(table).cloned().unwrap_or_default()
    }

    /// When, whereto and how many rows: every insert that was asked for.
    pub(crate) fn calls(&self) -> Vec<(Instant, TableRef, u32)> {
        self.stored.lock().unwrap().calls.clone()
    }

    pub(crate) fn most_in_flight(&self) -> u32 {
        self.stored.lock().unwrap().most_in_flight
    }

    fn began(&self, batch: &RowBatch) {
        let mut stored = self.stored.lock().unwrap();
        stored.calls.push((Instant::now(), batch.table.clone(), batch.rows));
        let of_table = stored.in_flight.entry(batch.table.clone()).or_default();
        *of_table += 1;
        assert!(self.many || *of_table == 1, "two inserts of {} at a time", batch.table);
        let all = stored.in_flight.values().sum();
        stored.most_in_flight = stored.most_in_flight.max(all);
    }

    fn ended(&self, batch: &RowBatch) {
        *self.stored.lock().unwrap().in_flight.get_mut(&batch.table).unwrap() -= 1;
    }

    fn store(&self, batch: &RowBatch) {
        let lines = batch.lines.concat();
        assert_eq!(batch.bytes, lines.len() as u64);
        let text = String::from_utf8(lines.clone()).unwrap();
        assert_eq!(text.lines().count(), batch.rows as usize);
        let mut stored = self.stored.lock().unwrap();
        if let Some(before) = stored.tokens.insert(batch.token.clone(), lines.clone()) {
            assert_eq!(before, lines, "other rows under the token {}", batch.token);
            return;
        }
        stored.rows.entry(batch.table.clone()).or_default().extend(text.lines().map(str::to_owned));
    }
}

/// Ends the insert also when it is given up.
struct Flight<'a>(&'a Scripted, &'a RowBatch);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.ended(self.1);
    }
}

#[async_trait]
impl RowSink for Scripted {
    async fn write(&self, batch: &RowBatch) -> Result<(), WriteError> {
        self.began(batch);
        let _flight = Flight(self, batch);
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        let answer = (self.rule.lock().unwrap())(batch, Instant::now());
        let fail =
            |source| Err(WriteError::ClickHouse { table: batch.table.clone(), remembers: true, source });
        match answer {
            Answer::Store => {
                self.store(batch);
                Ok(())
            }
            Answer::StoreAndFail(error) => {
                self.store(batch);
                fail(error)
            }
            Answer::Fail(error) => fail(error),
        }
    }

    fn target(&self, tenant: &TenantId) -> Arc<str> {
        format!("clickhouse of {tenant}").into()
    }
}

pub(crate) fn refused(code: u32, message: &str) -> ClickHouseError {
    let (class, cause) = (Class::Rejected, Cause::Answered);
    ClickHouseError { class, cause, code: Some(code), status: Some(400), message: message.to_owned() }
}

pub(crate) fn unavailable(code: Option<u32>) -> ClickHouseError {
    let cause = if code.is_some() { Cause::Answered } else { Cause::Connect };
    ClickHouseError { class: Class::Unavailable, cause, code, status: None, message: "not now".to_owned() }
}

/// The answer was lost.
pub(crate) fn lost() -> ClickHouseError {
    let (class, cause) = (Class::Unavailable, Cause::Broken);
    ClickHouseError { class, cause, code: None, status: None, message: "connection reset".to_owned() }
}

/// Refuses a batch for its first row that has `bad` in it; names the row if `naming`.
pub(crate) fn constraint(batch: &RowBatch, naming: bool) -> Answer {
    let text = String::from_utf8(batch.lines.concat()).unwrap();
    match text.lines().position(|line| line.contains("bad")) {
        None => Answer::Store,
        Some(row) if naming => Answer::Fail(refused(
            469,
            &format!("Constraint `good` is violated at row {}. Expression: x", row + 1),
        )),
        Some(_) => Answer::Fail(refused(469, "Constraint `good` is violated")),
    }
}

pub(crate) fn table(name: &str) -> TableRef {
    TableRef::new(TenantId::default(), TableName::parse(name).unwrap())
}

pub(crate) fn block(table: &TableRef, lines: impl IntoIterator<Item = String>) -> RowBlock {
    let lines: Vec<String> = lines.into_iter().collect();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let rows = u32::try_from(lines.len()).unwrap();
    RowBlock::new(table.clone(), Timestamp::from_millis(1), Scope::default(), rows, text.into())
}

/// A queue, a ClickHouse, and a worker between them that can be stopped, killed and started anew.
pub(crate) struct House {
    pub(crate) store: MemoryStore,
    pub(crate) broker: Arc<MemoryBroker>,
    pub(crate) sink: Arc<Scripted>,
    pub(crate) options: Options,
    workers: JoinSet<Result<(), WorkerFault>>,
    stop: CancellationToken,
}

/// Blocks stay as they are published, so that tests know where the cuts are.
pub(crate) fn memory() -> MemoryOptions {
    MemoryOptions { merge_bytes: 0, ..MemoryOptions::default() }
}

impl House {
    /// Everything but a worker.
    pub(crate) fn new(sink: Arc<Scripted>) -> Self {
        let store = MemoryStore::default();
        let broker = Arc::new(MemoryBroker::open(&store, memory()));
        let options = Options { seed: 1, ..Options::default() };
        Self { store, broker, sink, options, workers: JoinSet::new(), stop: CancellationToken::new() }
    }

    pub(crate) fn start(&mut self) {
        self.stop = CancellationToken::new();
        let broker: Arc<dyn Broker> = Arc::clone(&self.broker) as Arc<dyn Broker>;
        let sink: Arc<dyn RowSink> = Arc::clone(&self.sink) as Arc<dyn RowSink>;
        let worker = Worker::new(self.options.clone(), broker, sink, WorkerMetrics::default());
        self.workers.spawn(worker.run(self.stop.clone()));
    }

    /// Stops the worker as a signal does.
    pub(crate) async fn stop(&mut self) -> Result<(), WorkerFault> {
        self.stop.cancel();
        self.workers.join_next().await.unwrap().unwrap()
    }

    /// Ends the worker and the queue's process at this instant; the queue's directory stays.
    pub(crate) async fn crash(&mut self) {
        self.store.crash();
        self.workers.shutdown().await;
        self.broker = Arc::new(MemoryBroker::open(&self.store, memory()));
    }

    pub(crate) async fn publish(&self, blocks: Vec<RowBlock>) {
        for result in self.broker.submit(blocks).await {
            result.unwrap();
        }
    }

    pub(crate) fn unwritten(&self) -> u64 {
        self.broker.depths().iter().map(|depth| depth.unwritten_rows).sum()
    }

    /// Waits until everything is written or buried; the clock runs by itself while nothing else can happen.
    pub(crate) async fn drained(&self, within: Duration) {
        let end = Instant::now() + within;
        while self.unwritten() > 0 {
            assert!(Instant::now() < end, "{:?} still unwritten", self.broker.depths());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn letters(&self) -> Vec<DeadLetter> {
        let tenant = TenantId::default();
        let filter = LetterFilter { tenant, table: None, code: None, from: None, until: None };
        self.broker.letters(&filter, None, 100_000).await.unwrap().letters
    }
}

pub(crate) fn lines(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| format!("{{\"n\":{number}}}")).collect()
}
