//! The task of one unit: deliveries in, batches out, a table at a time and few at once.
//!
//! Everything that waits is on a schedule, by moment: tables whose batch becomes ready, by target ([`Target`]), and
//! tables that rest with a cut owed. A table that must wait hands everything back to the queue, so that what waits
//! holds no budget; the queue delivers it again, in order, when the pause is over.

mod drain;
mod target;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{Deliveries, Delivery, OpenUnit};
use wavehouse_core::TableRef;

use crate::backoff::Jitter;
use crate::flush::{FlushContext, Flushed, Outcome, WaitFor, flush};
use crate::options::Options;
use crate::table::Table;
use crate::unit::target::Target;
use crate::worker::WorkerFault;

/// A pause without an end of its own: the table is let go by us.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often trouble that goes on is told again.
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// Number of a table in [`Unit::tables`].
type TableIndex = usize;

/// An open unit and all that is in hand of it.
pub(crate) struct Unit {
    options: Options,
    context: FlushContext,
    deliveries: Box<dyn Deliveries>,
    tables: Vec<Table>,
    by_name: HashMap<TableRef, TableIndex>,
    targets: HashMap<Arc<str>, Target>,
    /// Tables with an owed cut that rest until a moment, and then need a place.
    resting: BTreeSet<(Instant, TableIndex)>,
    /// Tables with an owed cut that may come back at the same time; few, so that each can be in hand whole.
    admitted: usize,
    flushes: JoinSet<(TableIndex, Flushed)>,
    jitter: Jitter,
}

enum Event {
    Stop,
    Flushed(TableIndex, Box<Flushed>),
    Delivered(Delivery),
    Ended,
    Time,
}

impl Unit {
    pub(crate) fn new(options: Options, context: FlushContext, opened: OpenUnit) -> Self {
        let jitter = Jitter::new(options.jitter_seed);
        let mut unit = Self {
            options,
            context,
            deliveries: opened.deliveries,
            tables: Vec::new(),
            by_name: HashMap::new(),
            targets: HashMap::new(),
            resting: BTreeSet::new(),
            admitted: 0,
            flushes: JoinSet::new(),
            jitter,
        };
        let now = Instant::now();
        for cut in opened.cuts {
            let index = unit.index_of(&cut.table);
            if let Some(table) = unit.tables.get_mut(index) {
                table.owed = Some(cut);
                unit.rest_owed(index, now, now);
            }
        }
        unit.admit(now);
        unit
    }

    /// Works until `stop`, then writes what is in hand and gives the unit up.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), WorkerFault> {
        loop {
            let now = Instant::now();
            self.admit(now);
            self.start_ready(now);
            match self.next_event(&stop).await? {
                Event::Stop => return self.drain().await,
                Event::Flushed(index, flushed) => self.flushed(index, *flushed)?,
                Event::Delivered(delivery) => self.delivered(delivery),
                Event::Ended => return Ok(()),
                Event::Time => {}
            }
        }
    }

    async fn next_event(&mut self, stop: &CancellationToken) -> Result<Event, WorkerFault> {
        let wake = self.next_wake();
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(Event::Stop),
            Some(joined) = self.flushes.join_next() => {
                let (index, flushed) = joined.map_err(|error| WorkerFault::Died(error.to_string()))?;
                Ok(Event::Flushed(index, Box::new(flushed)))
            }
            () = sleep_until(wake) => Ok(Event::Time),
            delivery = self.deliveries.next() => match delivery {
                Ok(Some(delivery)) => Ok(Event::Delivered(delivery)),
                Ok(None) => Ok(Event::Ended),
                Err(lost) => Err(WorkerFault::Lost(lost)),
            },
        }
    }

    /// The next moment at which something can start that cannot start now.
    fn next_wake(&self) -> Option<Instant> {
        let ready =
            self.targets.values().filter_map(|target| target.next_wake(self.options.inserts_max)).min();
        let rested = self.resting.first().map(|(until, _)| *until);
        let rested = rested.filter(|_| self.admitted < self.options.inserts_max);
        ready.into_iter().chain(rested).min()
    }

    fn index_of(&mut self, name: &TableRef) -> TableIndex {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        let index = self.tables.len();
        let target = self.context.sink.target(&name.tenant);
        self.targets.entry(Arc::clone(&target)).or_default();
        self.tables.push(Table::new(name.clone(), target));
        self.by_name.insert(name.clone(), index);
        index
    }

    fn delivered(&mut self, delivery: Delivery) {
        let now = Instant::now();
        let index = self.index_of(delivery.table());
        let Some(table) = self.tables.get_mut(index) else { return };
        let outage = self.targets.get(&table.target).and_then(|target| target.away_until(now));
        if let Some(until) = outage
            && !table.is_in_flight()
        {
            // A table that is first heard of during an outage waits as the others do.
            table.resting_until = Some(until);
            self.context.control.pause(&table.table, until);
        }
        table.take_in(delivery, now);
        if table.settle_owed() {
            self.leave(index);
        }
        self.reschedule(index);
    }

    /// Puts the table on its target's schedule, or takes it off.
    fn reschedule(&mut self, index: TableIndex) {
        let Some(table) = self.tables.get(index) else { return };
        let ready = table.ready_at(&self.options);
        if let Some(target) = self.targets.get_mut(&table.target) {
            target.schedule(index, ready);
        }
    }

    /// Starts every batch that is ready and has a free place, the one that waited longest first.
    fn start_ready(&mut self, now: Instant) {
        for target in self.targets.values_mut() {
            while let Some((ready, index)) = target.take_ready(now, self.options.inserts_max) {
                let Some(table) = self.tables.get_mut(index) else { continue };
                let was_recorded = table.owed.is_some();
                let Some(batch) = table.take_batch(&self.options, now) else { continue };
                if was_recorded {
                    self.context.metrics.rebuilt.inc();
                }
                let waited = i64::try_from((now - ready).as_millis()).unwrap_or(i64::MAX);
                self.context.metrics.ready_wait_ms.set(waited);
                target.begin();
                let (context, refusals) = (self.context.clone(), table.refusals_in_a_row);
                self.flushes.spawn(async move { (index, flush(context, batch, refusals).await) });
            }
        }
        self.context.metrics.inserts_in_flight.set(i64::try_from(self.flushes.len()).unwrap_or(i64::MAX));
    }

    fn flushed(&mut self, index: TableIndex, flushed: Flushed) -> Result<(), WorkerFault> {
        let now = Instant::now();
        self.show_held();
        let Some(table) = self.tables.get_mut(index) else { return Ok(()) };
        table.refusals_in_a_row = flushed.refusals_in_a_row;
        let Some(target) = self.targets.get_mut(&table.target) else { return Ok(()) };
        target.end();
        match flushed.outcome {
            Outcome::Done => {
                self.context.metrics.batches.inc();
                self.context.metrics.batch_rows.observe(f64::from(flushed.batch.rows));
                self.context.metrics.batch_bytes.observe(bytes_as_f64(flushed.batch.bytes));
                if table.backoff.is_failing() {
                    tracing::info!(table = %table.table, "table takes rows again");
                }
                table.finish(flushed.batch);
                if target.succeeded() {
                    tracing::info!(target = %table.target, "clickhouse takes rows again");
                    self.context.metrics.outage(&table.target, false);
                }
                self.leave(index);
                self.reschedule(index);
            }
            Outcome::Wait { scope, reason, message } => {
                self.context.metrics.retry(&table.table, reason);
                let until = match scope {
                    WaitFor::Table => self.table_waits(index, now, reason, &message),
                    WaitFor::Target => self.target_waits(index, now, reason, &message),
                };
                if let Some(table) = self.tables.get_mut(index) {
                    table.put_back(flushed.batch, until - now);
                }
                self.rest(index, now, until);
            }
            Outcome::Lost(error) => return Err(WorkerFault::Cut(error)),
        }
        Ok(())
    }

    /// One table's trouble: how long it rests.
    fn table_waits(&mut self, index: TableIndex, now: Instant, reason: &str, message: &str) -> Instant {
        let random = self.jitter.next();
        let Some(table) = self.tables.get_mut(index) else { return now };
        let wait = table.backoff.fail(random);
        if table.told_at.is_none_or(|told| now - told >= TOLD_EVERY) {
            table.told_at = Some(now);
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(
                table = %table.table, reason, wait_ms, error = message,
                "rows of the table wait and are tried again; other tables go on"
            );
        }
        if let Some(target) = self.targets.get_mut(&table.target) {
            // ClickHouse itself answered.
            if target.succeeded() {
                self.context.metrics.outage(&table.target, false);
            }
        }
        now + wait
    }

    /// A ClickHouse that is away: until when everything for it rests. All that is in hand for it goes back.
    fn target_waits(&mut self, index: TableIndex, now: Instant, reason: &str, message: &str) -> Instant {
        let random = self.jitter.next();
        let Some(name) = self.tables.get(index).map(|table| Arc::clone(&table.target)) else { return now };
        let Some(target) = self.targets.get_mut(&name) else { return now };
        let until = target.failed(now, random);
        if target.is_due_to_tell(now, TOLD_EVERY) {
            let wait_ms = u64::try_from((until - now).as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(
                target = %name, reason, wait_ms, error = message,
                "clickhouse does not take rows; they wait in the queue and are tried again"
            );
        }
        self.context.metrics.outage(&name, true);
        for index in target.take_all() {
            if let Some(table) = self.tables.get_mut(index) {
                table.hand_back(until - now);
            }
            self.rest(index, now, until);
        }
        until
    }

    /// Lets a table rest: by itself if a cut is owed, in the queue if not.
    fn rest(&mut self, index: TableIndex, now: Instant, until: Instant) {
        self.reschedule(index);
        let Some(table) = self.tables.get_mut(index) else { return };
        table.resting_until = Some(until);
        if table.owed.is_some() {
            self.leave(index);
            self.rest_owed(index, now, until);
        } else {
            self.context.control.pause(&table.table, until);
        }
    }

    fn rest_owed(&mut self, index: TableIndex, now: Instant, until: Instant) {
        if let Some(table) = self.tables.get(index) {
            self.context.control.pause(&table.table, now + FAR);
            self.resting.insert((until, index));
        }
    }

    /// Lets rested tables with an owed cut come back, as many as there are places.
    fn admit(&mut self, now: Instant) {
        while self.admitted < self.options.inserts_max
            && let Some((until, index)) = self.resting.first().copied()
            && until <= now
        {
            self.resting.remove(&(until, index));
            if let Some(table) = self.tables.get_mut(index) {
                table.resting_until = None;
                table.admitted = true;
                self.admitted += 1;
                self.context.control.pause(&table.table, now);
            }
        }
    }

    /// Gives back the table's place, if it holds one.
    fn leave(&mut self, index: TableIndex) {
        if let Some(table) = self.tables.get_mut(index)
            && std::mem::take(&mut table.admitted)
        {
            self.admitted = self.admitted.saturating_sub(1);
        }
    }

    fn show_held(&self) {
        let (rows, bytes) = self
            .tables
            .iter()
            .map(Table::in_hand)
            .fold((0, 0), |(r, b), (rows, bytes)| (r + rows, b + bytes));
        self.context.metrics.held_rows.set(i64::try_from(rows).unwrap_or(i64::MAX));
        self.context.metrics.held_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

/// Metrics count in `f64`; past 2^53 bytes precision is lost, which no batch reaches.
#[expect(clippy::cast_precision_loss, reason = "a batch has at most tens of megabytes")]
fn bytes_as_f64(bytes: u64) -> f64 {
    bytes as f64
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
