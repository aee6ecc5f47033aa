//! What an opener of a unit holds: the blocks as they come, and the steering.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::{Instant, sleep_until};
use wavehouse_broker::{
    Cut, CutError, Deliveries, Delivery, RowBudget, Settle, Settlement, Ticket, UnitControl, UnitLost,
};
use wavehouse_core::{Sequence, TableRef};

use super::shelf::Picked;
use super::{FLUSH_WAIT, Unit};
use crate::record::RecordError;
use crate::shared::lock;

pub(super) struct Reader {
    pub(super) unit: Arc<Unit>,
    /// Whether the loss has been told.
    pub(super) told: bool,
}

enum Step {
    Hand(Box<Delivery>),
    Wait(Option<Instant>),
    Over,
    Lost(String),
}

impl Reader {
    fn step(&self) -> Step {
        let mut inner = lock(&self.unit.inner);
        if inner.halted {
            return Step::Over;
        }
        if let Some(reason) = &inner.lost {
            return Step::Lost(reason.clone());
        }
        match inner.shelf.pick(Instant::now()) {
            Picked::Hand(stored, ticket) => {
                let settle: Arc<dyn Settle> = Arc::<Unit>::clone(&self.unit);
                Step::Hand(Box::new(Delivery::new(stored, ticket, settle)))
            }
            Picked::Wait(until) => Step::Wait(until),
        }
    }
}

#[async_trait]
impl Deliveries for Reader {
    async fn next(&mut self) -> Result<Option<Delivery>, UnitLost> {
        loop {
            match self.step() {
                Step::Hand(delivery) => return Ok(Some(*delivery)),
                Step::Over => return Ok(None),
                Step::Lost(_) if self.told => return Ok(None),
                Step::Lost(reason) => {
                    self.told = true;
                    return Err(UnitLost { unit: self.unit.id, reason });
                }
                Step::Wait(until) => {
                    let changed = self.unit.changed.notified();
                    match until {
                        Some(until) => tokio::select! {
                            () = changed => {}
                            () = sleep_until(until) => {}
                        },
                        None => changed.await,
                    }
                }
            }
        }
    }
}

impl Settle for Unit {
    fn settle(&self, ticket: Ticket, how: Settlement) {
        let mut inner = lock(&self.inner);
        let is_over = inner.released || (inner.disowned && how != Settlement::Ack);
        if is_over {
            return;
        }
        let before = inner.shelf.kept().1;
        let is_acked = inner.shelf.settle(ticket, how, Instant::now());
        if is_acked {
            inner.acks.push(ticket.sequence.0);
            let after = inner.shelf.kept().1;
            self.shared.pool.let_go(before.rows - after.rows, before.bytes - after.bytes);
        }
        drop(inner);
        if is_acked {
            self.acked.notify_one();
            self.room.notify_one();
        }
        self.changed.notify_one();
    }
}

/// The steering of an open unit.
pub(super) struct Control {
    pub(super) unit: Arc<Unit>,
}

#[async_trait]
impl UnitControl for Control {
    fn set_budget(&self, budget: RowBudget) {
        lock(&self.unit.inner).shelf.set_budget(budget);
        self.unit.changed.notify_one();
        self.unit.room.notify_one();
    }

    fn pause(&self, table: &TableRef, until: Instant) {
        lock(&self.unit.inner).shelf.pause(table, until);
        self.unit.changed.notify_one();
    }

    async fn record_cut(&self, cut: Cut) -> Result<(), CutError> {
        let table = cut.table.clone();
        if self.unit.is_over() {
            return Err(CutError::Lost { table });
        }
        if !self.unit.flush_acks(FLUSH_WAIT).await {
            let reason = "acks given before are not confirmed".to_owned();
            return Err(CutError::Unavailable { table, reason });
        }
        self.unit.forget_done_cuts();
        let recorded = self.unit.record.record(cut).await;
        if recorded == Err(RecordError::Lost) {
            self.unit.lose(&RecordError::Lost.to_string());
        }
        if self.unit.is_over() {
            return Err(CutError::Lost { table });
        }
        recorded.map_err(|error| error.of_cut(table))
    }

    fn damaged(&self, table: &TableRef, first: Sequence, last: Sequence) -> bool {
        lock(&self.unit.inner).shelf.is_damaged(table, first.0, last.0)
    }

    async fn passed(&self, table: &TableRef, last: Sequence) -> Option<bool> {
        if !self.unit.has_come_to(last.0).await {
            return Some(false);
        }
        Some(lock(&self.unit.inner).shelf.handed_up_to(table, last.0))
    }

    fn halt(&self) {
        self.unit.halt();
    }

    fn disown(&self) {
        lock(&self.unit.inner).disowned = true;
        self.unit.halt();
    }

    async fn release(&self) {
        self.unit.release().await;
    }
}
