//! The suite is no formality: brokers that break one promise each fail its case, and pass where it does not matter.
//!
//! A broken broker is the one in memory behind a thin cover that spoils one thing.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use wavehouse_broker::conformance::{BrokerFixture, MemoryFixture, Promise, run};
use wavehouse_broker::{
    Broker, BrokerHealth, CloseError, DeadLetter, Deliveries, Delivery, HistoryError, HistoryEvent,
    HistoryFilter, HistoryStart, HistoryStream, LetterCounts, LetterCursor, LetterError, LetterFilter,
    LetterPage, OpenUnit, OpenUnitError, RowBudget, Settle, Settlement, SharedBroker, Submitted, SweepReport,
    TableDepth, TenantLimits, Ticket, UnitLost,
};
use wavehouse_core::{Position, RowBlock, TableRef, TenantId, Timestamp, UnitId};

/// Nothing is spoiled; shows that the cover itself keeps the promises.
const NOTHING: u8 = 0;
/// Blocks are stored when the result is asked for.
const LAZY_SUBMIT: u8 = 1;
/// Results come in the reverse order of the blocks.
const RESULTS_REVERSED: u8 = 2;
/// A delivery that is not acked is acked all the same.
const RETRY_ACKS: u8 = 3;
/// Recorded cuts are forgotten.
const CUTS_FORGOTTEN: u8 = 4;
/// History tells no holes.
const HOLES_HIDDEN: u8 = 5;
/// History shows every block twice.
const HISTORY_TWINS: u8 = 6;
/// The budget of a reader is ignored.
const NO_BUDGET: u8 = 7;
/// Letters of all tenants are one's own.
const LETTERS_MIXED: u8 = 8;
/// A crash takes away what was accepted.
const FORGETS_IN_CRASH: u8 = 9;

#[test]
fn the_cover_itself_keeps_every_promise_that_it_can_break() {
    for promise in [
        Promise::OrderFixedAtTheCall,
        Promise::OneResultABlock,
        Promise::DropIsRetry,
        Promise::AckWait,
        Promise::CutOverRelease,
        Promise::HistoryHoleAfterSweep,
        Promise::HistoryEachRowOnce,
        Promise::DeliveryBudgetOfRows,
        Promise::LetterTenantsApart,
        Promise::DurableOverCrash,
    ] {
        run::<BrokenFixture<NOTHING>>(promise);
    }
}

/// The case must fail on this broken broker, and on no account time out: that would prove less.
fn fails<const FAULT: u8>(promise: Promise) {
    let outcome = catch_unwind(AssertUnwindSafe(|| run::<BrokenFixture<FAULT>>(promise)));
    let panic = outcome.expect_err("the case must fail");
    let said = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert!(!said.starts_with("waited"), "{promise} should see the fault, and not wait: {said}");
}

#[test]
fn a_lazy_submit_is_found() {
    fails::<LAZY_SUBMIT>(Promise::OrderFixedAtTheCall);
}

#[test]
fn reversed_results_are_found() {
    fails::<RESULTS_REVERSED>(Promise::OneResultABlock);
    fails::<RESULTS_REVERSED>(Promise::RefusedBlockAlone);
}

#[test]
fn a_retry_that_acks_is_found() {
    fails::<RETRY_ACKS>(Promise::OrderRetriedBeforeLater);
}

#[test]
fn forgotten_cuts_are_found() {
    fails::<CUTS_FORGOTTEN>(Promise::CutOverRelease);
    fails::<CUTS_FORGOTTEN>(Promise::CutOverCrash);
    fails::<CUTS_FORGOTTEN>(Promise::CutKeepsEarlierAcks);
}

#[test]
fn hidden_holes_are_found() {
    fails::<HOLES_HIDDEN>(Promise::HistoryHoleAfterSweep);
    fails::<HOLES_HIDDEN>(Promise::HistoryHoleForStrangePosition);
    fails::<HOLES_HIDDEN>(Promise::HistorySweepUnderAReader);
}

#[test]
fn twins_in_history_are_found() {
    fails::<HISTORY_TWINS>(Promise::HistoryEachRowOnce);
    fails::<HISTORY_TWINS>(Promise::HistoryLive);
}

#[test]
fn an_ignored_budget_is_found() {
    fails::<NO_BUDGET>(Promise::DeliveryBudgetOfRows);
    fails::<NO_BUDGET>(Promise::DeliveryBudgetOfBytes);
    fails::<NO_BUDGET>(Promise::DeliveryAtLeastOneBlock);
    fails::<NO_BUDGET>(Promise::DeliveryBudgetSpansTables);
}

#[test]
fn mixed_letters_are_found() {
    fails::<LETTERS_MIXED>(Promise::LetterTenantsApart);
}

#[test]
fn a_crash_that_forgets_is_found() {
    fails::<FORGETS_IN_CRASH>(Promise::SequencesWithoutGaps);
    fails::<FORGETS_IN_CRASH>(Promise::BudgetOverRestart);
    fails::<FORGETS_IN_CRASH>(Promise::LetterDurable);
}

struct BrokenFixture<const FAULT: u8>(MemoryFixture);

#[async_trait]
impl<const FAULT: u8> BrokerFixture for BrokenFixture<FAULT> {
    async fn start() -> Self {
        Self(MemoryFixture::start().await)
    }

    fn broker(&self) -> SharedBroker {
        Arc::new(Broken { inner: self.0.broker(), fault: FAULT })
    }

    async fn restart(&mut self) {
        self.0.restart().await;
    }

    async fn crash(&mut self) {
        if FAULT == FORGETS_IN_CRASH {
            self.0 = MemoryFixture::start().await;
        } else {
            self.0.crash().await;
        }
    }

    async fn set_ack_wait(&mut self, ack_wait: Duration) {
        self.0.set_ack_wait(ack_wait).await;
    }

    async fn fill(&mut self, tenant: &TenantId) {
        self.0.fill(tenant).await;
    }

    async fn end_delivery(&mut self) {
        self.0.end_delivery().await;
    }

    fn lacks() -> &'static [(Promise, &'static str)] {
        &[]
    }
}

struct Broken {
    inner: SharedBroker,
    fault: u8,
}

#[async_trait]
impl Broker for Broken {
    fn units(&self) -> Vec<UnitId> {
        self.inner.units()
    }

    fn block_bytes_max(&self) -> usize {
        self.inner.block_bytes_max()
    }

    fn submit(&self, blocks: Vec<RowBlock>) -> Submitted {
        let inner = Arc::clone(&self.inner);
        match self.fault {
            LAZY_SUBMIT => Box::pin(async move { inner.submit(blocks).await }),
            RESULTS_REVERSED => Box::pin(async move {
                let mut results = inner.submit(blocks).await;
                results.reverse();
                results
            }),
            _ => inner.submit(blocks),
        }
    }

    async fn open_unit(&self, unit: UnitId, budget: RowBudget) -> Result<OpenUnit, OpenUnitError> {
        let ample = RowBudget { rows: 1 << 40, bytes: 1 << 40 };
        let budget = if self.fault == NO_BUDGET { ample } else { budget };
        let mut open = self.inner.open_unit(unit, budget).await?;
        if self.fault == CUTS_FORGOTTEN {
            open.cuts.clear();
        }
        let held = Arc::new(Held { deliveries: Mutex::new(HashMap::new()), acks: self.fault == RETRY_ACKS });
        open.deliveries = Box::new(Covered { inner: open.deliveries, held, count: 0 });
        Ok(open)
    }

    async fn open_history(
        &self,
        start: HistoryStart,
        filter: HistoryFilter,
    ) -> Result<Box<dyn HistoryStream>, HistoryError> {
        let inner = self.inner.open_history(start, filter).await?;
        Ok(Box::new(CoveredHistory { inner, fault: self.fault, again: None }))
    }

    async fn bury(&self, letters: Vec<DeadLetter>) -> Result<(), LetterError> {
        self.inner.bury(letters).await
    }

    async fn letter_counts(&self, tenant: &TenantId) -> Result<LetterCounts, LetterError> {
        self.inner.letter_counts(tenant).await
    }

    async fn letters(
        &self,
        filter: &LetterFilter,
        after: Option<&LetterCursor>,
        limit: usize,
    ) -> Result<LetterPage, LetterError> {
        let tenant = if self.fault == LETTERS_MIXED { TenantId::default() } else { filter.tenant.clone() };
        self.inner.letters(&LetterFilter { tenant, ..filter.clone() }, after, limit).await
    }

    async fn drop_letters(&self, table: &TableRef, positions: &[Position]) -> Result<u64, LetterError> {
        self.inner.drop_letters(table, positions).await
    }

    fn set_limits(&self, tenant: &TenantId, limits: TenantLimits) {
        self.inner.set_limits(tenant, limits);
    }

    fn limits(&self, tenant: &TenantId) -> TenantLimits {
        self.inner.limits(tenant)
    }

    async fn sweep(&self, now: Timestamp) -> SweepReport {
        self.inner.sweep(now).await
    }

    fn depths(&self) -> Vec<TableDepth> {
        self.inner.depths()
    }

    fn health(&self) -> watch::Receiver<BrokerHealth> {
        self.inner.health()
    }

    async fn close(&self) -> Result<(), CloseError> {
        self.inner.close().await
    }
}

/// Deliveries that have been handed out under a number of the cover's own.
struct Held {
    deliveries: Mutex<HashMap<u32, Delivery>>,
    /// Whether a retry is passed on as an ack.
    acks: bool,
}

impl Settle for Held {
    fn settle(&self, ticket: Ticket, how: Settlement) {
        let Some(inner) = self.deliveries.lock().unwrap().remove(&ticket.table) else { return };
        match how {
            Settlement::Retry { after } if !self.acks => inner.retry(after),
            _ => inner.ack(),
        }
    }
}

struct Covered {
    inner: Box<dyn Deliveries>,
    held: Arc<Held>,
    count: u32,
}

#[async_trait]
impl Deliveries for Covered {
    async fn next(&mut self) -> Result<Option<Delivery>, UnitLost> {
        let Some(inner) = self.inner.next().await? else { return Ok(None) };
        self.count += 1;
        let ticket = Ticket { table: self.count, sequence: inner.sequence(), attempt: inner.attempt() };
        let stored = inner.stored().clone();
        self.held.deliveries.lock().unwrap().insert(self.count, inner);
        let settle: Arc<dyn Settle> = Arc::<Held>::clone(&self.held);
        Ok(Some(Delivery::new(stored, ticket, settle)))
    }
}

struct CoveredHistory {
    inner: Box<dyn HistoryStream>,
    fault: u8,
    again: Option<HistoryEvent>,
}

#[async_trait]
impl HistoryStream for CoveredHistory {
    async fn next(&mut self) -> Result<HistoryEvent, HistoryError> {
        if let Some(event) = self.again.take() {
            return Ok(event);
        }
        loop {
            let event = self.inner.next().await?;
            match &event {
                HistoryEvent::Hole { .. } if self.fault == HOLES_HIDDEN => continue,
                HistoryEvent::Block { .. } if self.fault == HISTORY_TWINS => self.again = Some(event.clone()),
                _ => {}
            }
            return Ok(event);
        }
    }
}
