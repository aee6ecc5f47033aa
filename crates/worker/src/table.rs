//! What is in hand of one table, and what is owed to it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wavehouse_broker::{Cut, Delivery};
use wavehouse_core::TableRef;

use crate::backoff::Backoff;
use crate::batch::Batch;
use crate::options::Options;
use crate::ready::{Pending, ready_at};
use crate::rebuild::{Rebuild, judge};

/// One table of a unit.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) table: TableRef,
    /// The ClickHouse that its rows go to.
    pub(crate) target: Arc<str>,
    pending: BTreeMap<u64, (Instant, Delivery)>,
    rows: u64,
    bytes: u64,
    /// A recorded cut whose batch must be dealt with before anything newer.
    pub(crate) owed: Option<Cut>,
    /// The sequences of the batch that is being inserted.
    in_flight: Option<RangeInclusive<u64>>,
    /// Deliveries that came again while their batch was being inserted.
    again: Vec<Delivery>,
    /// Everything up to here is settled, by this process.
    done_through: u64,
    last_insert: Option<Instant>,
    pub(crate) backoff: Backoff,
    pub(crate) refusals_in_a_row: u32,
    /// Nothing of the table is taken before this; it has been handed back.
    pub(crate) resting_until: Option<Instant>,
    /// Whether it holds one of the places of tables that have a cut owed.
    pub(crate) admitted: bool,
    /// When its trouble was last told in the log.
    pub(crate) told_at: Option<Instant>,
}

impl Table {
    pub(crate) fn new(table: TableRef, target: Arc<str>) -> Self {
        Self {
            table,
            target,
            pending: BTreeMap::new(),
            rows: 0,
            bytes: 0,
            owed: None,
            in_flight: None,
            again: Vec::new(),
            done_through: 0,
            last_insert: None,
            backoff: Backoff::default(),
            refusals_in_a_row: 0,
            resting_until: None,
            admitted: false,
            told_at: None,
        }
    }

    /// Takes a delivery in. One that came again takes the place of its earlier attempt and is never a second row.
    pub(crate) fn take_in(&mut self, delivery: Delivery, now: Instant) {
        let sequence = delivery.sequence().0;
        if sequence <= self.done_through {
            delivery.ack();
            return;
        }
        if self.in_flight.as_ref().is_some_and(|flight| flight.contains(&sequence)) {
            self.again.push(delivery);
            return;
        }
        if let Some(until) = self.resting_until.filter(|until| *until > now) {
            delivery.retry(until - now);
            return;
        }
        let block = &delivery.stored().block;
        let (rows, bytes) = (u64::from(block.rows()), block.lines.len() as u64);
        if self.pending.insert(sequence, (now, delivery)).is_none() {
            self.rows += rows;
            self.bytes += bytes;
        }
    }

    /// Looks at the owed cut, and acks what has come back of it if it is dealt with. True if it was.
    pub(crate) fn settle_owed(&mut self) -> bool {
        let Some(cut) = &self.owed else { return false };
        if judge(cut, self.pending.keys().copied()) != Rebuild::Done {
            return false;
        }
        let last = cut.last.0;
        for delivery in self.take_through(last) {
            delivery.ack();
        }
        self.done_through = self.done_through.max(last);
        self.owed = None;
        true
    }

    /// When the table's next batch may go; none while there is nothing, an insert is in flight, or blocks are awaited.
    pub(crate) fn ready_at(&self, options: &Options) -> Option<Instant> {
        let (since, _) = self.pending.first_key_value()?.1;
        if self.in_flight.is_some() {
            return None;
        }
        if let Some(cut) = &self.owed {
            let all_here = judge(cut, self.pending.keys().copied()) == Rebuild::Again;
            return all_here.then_some(*since);
        }
        let last_insert = self.last_insert;
        Some(ready_at(&Pending { rows: self.rows, bytes: self.bytes, since: *since, last_insert }, options))
    }

    /// Takes the next batch out: the owed one, or as much from the front as has no gap and keeps to the limits.
    pub(crate) fn take_batch(&mut self, options: &Options, now: Instant) -> Option<Batch> {
        let owed = self.owed.clone();
        let last = match &owed {
            Some(cut) => cut.last.0,
            None => self.last_of_batch(options)?,
        };
        let batch = Batch::new(self.take_through(last), owed)?;
        self.in_flight = Some(batch.cut.first.0..=batch.cut.last.0);
        self.last_insert = Some(now);
        Some(batch)
    }

    fn last_of_batch(&self, options: &Options) -> Option<u64> {
        let (mut last, mut rows, mut bytes) = (None::<u64>, 0, 0);
        for (sequence, (_, delivery)) in &self.pending {
            let block = &delivery.stored().block;
            rows += u64::from(block.rows());
            bytes += block.lines.len() as u64;
            let fits = rows <= options.batch_rows_max && bytes <= options.batch_bytes_max;
            match last {
                None => {}
                Some(before) if fits && *sequence == before + 1 => {}
                Some(_) => break,
            }
            last = Some(*sequence);
        }
        last
    }

    fn take_through(&mut self, last: u64) -> Vec<Delivery> {
        let rest = self.pending.split_off(&(last + 1));
        let taken = std::mem::replace(&mut self.pending, rest);
        let deliveries: Vec<Delivery> = taken.into_values().map(|(_, delivery)| delivery).collect();
        for delivery in &deliveries {
            self.rows -= u64::from(delivery.stored().block.rows());
            self.bytes -= delivery.stored().block.lines.len() as u64;
        }
        deliveries
    }

    /// The batch in flight is dealt with: everything of it is acked.
    pub(crate) fn finish(&mut self, batch: Batch) {
        self.done_through = self.done_through.max(batch.cut.last.0);
        for delivery in batch.deliveries.into_iter().chain(self.again.drain(..)) {
            delivery.ack();
        }
        self.in_flight = None;
        self.owed = None;
        self.backoff.succeed();
    }

    /// The batch in flight has to wait: its cut is owed from now on if the queue has it, and everything in hand goes
    /// back.
    pub(crate) fn put_back(&mut self, batch: Batch, after: Duration) {
        self.in_flight = None;
        if batch.recorded {
            self.owed = Some(batch.cut);
        }
        for delivery in batch.deliveries.into_iter().chain(self.again.drain(..)) {
            delivery.retry(after);
        }
        self.hand_back(after);
    }

    /// Everything in hand that is not in flight goes back to the queue.
    pub(crate) fn hand_back(&mut self, after: Duration) {
        for delivery in self.take_through(u64::MAX - 1) {
            delivery.retry(after);
        }
    }

    /// Rows and bytes in hand that are not in flight.
    pub(crate) fn in_hand(&self) -> (u64, u64) {
        (self.rows, self.bytes)
    }

    /// Whether an insert of the table is in flight.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }
}
