//! The queue as one process reaches it: opening, delivery, and the fence.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;
use wavehouse_broker::{
    Broker, BrokerHealth, CloseError, Cut, CutError, DeadLetter, Deliveries, Delivery, HistoryError,
    HistoryFilter, HistoryStart, HistoryStream, LetterCounts, LetterCursor, LetterError, LetterFilter,
    LetterPage, OpenUnit, OpenUnitError, RowBudget, Submitted, SweepReport, TableDepth, TenantLimits,
    UnitControl, UnitLost, UnitSharing,
};
use wavehouse_core::{Position, RowBlock, Sequence, TableRef, TenantId, Timestamp, UnitId};

use super::world::{Process, Seen, pass};
use crate::kit::memory;

/// One opening of one unit by one process.
struct Opening {
    process: Process,
    unit: UnitId,
    number: u64,
    inner: Arc<dyn UnitControl>,
}

#[async_trait]
impl UnitControl for Opening {
    fn set_budget(&self, budget: RowBudget) {
        self.inner.set_budget(budget);
    }

    fn pause(&self, table: &TableRef, until: Instant) {
        self.inner.pause(table, until);
    }

    async fn record_cut(&self, cut: Cut) -> Result<(), CutError> {
        pass(&self.process.gate).await;
        let lost = CutError::Lost { table: cut.table.clone() };
        if self.process.owned(self.unit, self.number, |_| ()).is_none() {
            return Err(lost);
        }
        let token = cut.token;
        self.inner.record_cut(cut).await?;
        self.process.world.inner.lock().unwrap().recorded.insert(token, self.unit);
        Ok(())
    }

    fn damaged(&self, table: &TableRef, first: Sequence, last: Sequence) -> bool {
        self.inner.damaged(table, first, last)
    }

    fn halt(&self) {
        self.process.world.note(self.process.number, self.unit, Seen::Halted);
        self.inner.halt();
    }

    fn disown(&self) {
        self.process.world.note(self.process.number, self.unit, Seen::Disowned);
        self.inner.halt();
    }

    async fn release(&self) {
        pass(&self.process.gate).await;
        self.inner.release().await;
        self.process.open.lock().unwrap().remove(&self.unit);
        self.process.owned(self.unit, self.number, |unit| unit.owner = None);
        self.process.world.note(self.process.number, self.unit, Seen::Released);
    }
}

struct Fed {
    process: Process,
    unit: UnitId,
    number: u64,
    inner: Box<dyn Deliveries>,
}

#[async_trait]
impl Deliveries for Fed {
    async fn next(&mut self) -> Result<Option<Delivery>, UnitLost> {
        loop {
            pass(&self.process.gate).await;
            self.process.owned(self.unit, self.number, |_| ());
            // An owner asks again and again, also while there is nothing.
            let next = tokio::time::timeout(Duration::from_secs(1), self.inner.next()).await;
            if let Ok(next) = next {
                pass(&self.process.gate).await;
                return next;
            }
        }
    }
}

#[async_trait]
impl Broker for Process {
    fn units(&self) -> Vec<UnitId> {
        self.placement.units().collect()
    }

    fn sharing(&self) -> Option<Arc<dyn UnitSharing>> {
        Some(Arc::new(self.clone()))
    }

    fn block_bytes_max(&self) -> usize {
        1 << 20
    }

    fn submit(&self, _blocks: Vec<RowBlock>) -> Submitted {
        panic!("the world publishes")
    }

    async fn open_unit(&self, unit: UnitId, budget: RowBudget) -> Result<OpenUnit, OpenUnitError> {
        pass(&self.gate).await;
        let queue = self.world.queue(unit);
        let number = {
            let mut inner = self.world.inner.lock().unwrap();
            if inner.gone.contains(&unit) {
                return Err(OpenUnitError::Unknown(unit));
            }
            self.open.lock().unwrap().insert(unit);
            inner.openings += 1;
            let number = inner.openings;
            let there = inner.units.get_mut(&unit).unwrap();
            if there.owner.is_some() {
                // Whoever opens a unit takes its record.
                there.store.end_delivery();
            }
            there.owner = Some((self.number, number));
            there.active = Instant::now();
            inner.begins_to_read(self.number, unit);
            inner.log.push((Instant::now(), self.number, unit, Seen::Opened));
            number
        };
        let opened = queue.open_unit(UnitId::WHOLE, budget).await?;
        let process = self.clone();
        let control = Opening { process: process.clone(), unit, number, inner: opened.control };
        let deliveries = Fed { process, unit, number, inner: opened.deliveries };
        Ok(OpenUnit { deliveries: Box::new(deliveries), control: Arc::new(control), cuts: opened.cuts })
    }

    async fn open_history(
        &self,
        _start: HistoryStart,
        _filter: HistoryFilter,
    ) -> Result<Box<dyn HistoryStream>, HistoryError> {
        Err(HistoryError::Closed)
    }

    async fn bury(&self, _letters: Vec<DeadLetter>) -> Result<(), LetterError> {
        Err(LetterError::Closed)
    }

    async fn letter_counts(&self, _tenant: &TenantId) -> Result<LetterCounts, LetterError> {
        Err(LetterError::Closed)
    }

    async fn letters(
        &self,
        _filter: &LetterFilter,
        _after: Option<&LetterCursor>,
        _limit: usize,
    ) -> Result<LetterPage, LetterError> {
        Err(LetterError::Closed)
    }

    async fn drop_letters(&self, _table: &TableRef, _positions: &[Position]) -> Result<u64, LetterError> {
        Err(LetterError::Closed)
    }

    fn set_limits(&self, _tenant: &TenantId, _limits: TenantLimits) {}

    fn limits(&self, _tenant: &TenantId) -> TenantLimits {
        memory().limits
    }

    async fn sweep(&self, _now: Timestamp) -> SweepReport {
        SweepReport::default()
    }

    fn depths(&self) -> Vec<TableDepth> {
        let inner = self.world.inner.lock().unwrap();
        inner.units.values().flat_map(|unit| unit.queue.depths()).collect()
    }

    fn health(&self) -> watch::Receiver<BrokerHealth> {
        watch::Sender::new(BrokerHealth::Good).subscribe()
    }

    async fn close(&self) -> Result<(), CloseError> {
        Ok(())
    }
}
