//! One batch into ClickHouse: record the cut, insert, split what is refused, bury what is alone, until every row is
//! dealt with or something must be waited for.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use wavehouse_broker::{Broker, Cut, CutError, DeadLetter, REASON_BYTES_MAX, SPLITS_MAX, UnitControl};
use wavehouse_clickhouse::{Class, ClickHouseError, RowBatch, RowSink, Scope, WriteError, refusal};
use wavehouse_core::{FaultKind, Timestamp, chain};

use crate::batch::Batch;
use crate::metrics::Metrics;
use crate::splits::Parts;
use crate::token;

/// What a flush works with.
#[derive(Clone)]
pub(crate) struct FlushContext {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) sink: Arc<dyn RowSink>,
    pub(crate) control: Arc<dyn UnitControl>,
    pub(crate) metrics: Metrics,
    pub(crate) refusals_in_a_row_max: u32,
}

/// Whom a wait concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// Only this table; others go on.
    Table,
    /// Everything that goes to the same ClickHouse.
    Target,
}

/// How a flush ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Every row is stored or buried.
    Done,
    /// Not all rows are dealt with; the cut says how far it got.
    Wait { scope: WaitFor, reason: &'static str, message: String },
    /// The unit is no longer ours.
    Lost(CutError),
}

/// A flush that ended, with its batch.
#[derive(Debug)]
pub(crate) struct Flushed {
    pub(crate) batch: Batch,
    pub(crate) outcome: Outcome,
    /// Refusals since the last accepted insert of the table.
    pub(crate) refusals_in_a_row: u32,
}

/// Writes a batch. `refusals_in_a_row` is the table's count so far.
pub(crate) async fn flush(context: FlushContext, batch: Batch, refusals_in_a_row: u32) -> Flushed {
    let mut flush = Flush { context, batch, refusals_in_a_row };
    let outcome = flush.run().await.err().unwrap_or(Outcome::Done);
    Flushed { batch: flush.batch, outcome, refusals_in_a_row: flush.refusals_in_a_row }
}

struct Flush {
    context: FlushContext,
    batch: Batch,
    refusals_in_a_row: u32,
}

/// What to do about a part that was not stored.
enum Step {
    /// Split the part, at this row of it if it is known.
    Split(Option<u64>),
    /// Bury its only row.
    Bury(ClickHouseError),
    /// Stop here.
    Wait(WaitFor, &'static str),
}

impl Flush {
    async fn run(&mut self) -> Result<(), Outcome> {
        if !self.batch.recorded {
            self.record().await?;
        }
        let mut parts = Parts::new(self.batch.rows, self.batch.cut.done_rows, &self.batch.cut.splits);
        while let Some(part) = parts.next() {
            let lines = self.batch.lines(&part);
            let write = RowBatch {
                table: self.batch.cut.table.clone(),
                rows: part.end - part.start,
                bytes: lines.iter().map(|piece| piece.len() as u64).sum(),
                lines,
                token: token::of_part(self.batch.cut.token, part.start, part.end),
            };
            let error = match self.context.sink.write(&write).await {
                Ok(()) => {
                    self.refusals_in_a_row = 0;
                    self.finish(&mut parts);
                    continue;
                }
                Err(error) => error,
            };
            match step(&error, write.rows) {
                Step::Split(row) => self.split(&mut parts, row).await?,
                Step::Bury(refused) => {
                    self.bury(part.start, &refused).await?;
                    self.finish(&mut parts);
                }
                Step::Wait(scope, reason) => return Err(wait(scope, reason, &error)),
            }
            self.count_refusal(&error)?;
        }
        Ok(())
    }

    fn finish(&mut self, parts: &mut Parts) {
        parts.finish_next();
        self.batch.cut.done_rows = parts.done();
        self.batch.cut.splits = parts.splits().to_vec();
    }

    async fn split(&mut self, parts: &mut Parts, row: Option<u64>) -> Result<(), Outcome> {
        // Each split adds at most two points and each finished part removes one, so the limit is not met in practice;
        // if it is, the parts at hand are finished before more are made.
        if parts.splits().len() + 2 > SPLITS_MAX || !parts.split_next(row) {
            let message = "batch cannot be split further".to_owned();
            return Err(Outcome::Wait { scope: WaitFor::Table, reason: "splits", message });
        }
        self.batch.cut.done_rows = parts.done();
        self.batch.cut.splits = parts.splits().to_vec();
        self.record().await
    }

    /// Stores the cut as it is now. Nothing is inserted under a cut that the queue does not have.
    async fn record(&mut self) -> Result<(), Outcome> {
        let cut: Cut = self.batch.cut.clone();
        match self.context.control.record_cut(cut).await {
            Ok(()) => {
                self.batch.recorded = true;
                Ok(())
            }
            Err(error) if error.fault() == FaultKind::Stop => Err(Outcome::Lost(error)),
            Err(error) => Err(Outcome::Wait { scope: WaitFor::Table, reason: "cut", message: chain(&error) }),
        }
    }

    async fn bury(&mut self, row: u32, error: &ClickHouseError) -> Result<(), Outcome> {
        let table = &self.batch.cut.table;
        let Some(found) = self.batch.row(row) else { return Ok(()) };
        tracing::warn!(
            %table, position = %found.position, code = error.code, reason = %error.message,
            "row is refused for good and becomes a dead letter"
        );
        let mut reason = error.message.clone();
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
        let letter = DeadLetter {
            table: table.clone(),
            position: found.position,
            received_at: found.received_at,
            buried_at: now(),
            code: error.code,
            reason,
            line: found.line,
        };
        self.context.broker.bury(vec![letter]).await.map_err(|error| Outcome::Wait {
            scope: WaitFor::Table,
            reason: "bury",
            message: chain(&error),
        })?;
        self.context.metrics.buried(table);
        Ok(())
    }

    /// After too many refusals in a row each further one ends the turn, so that a table of which every row is refused
    /// is probed and not hammered.
    fn count_refusal(&mut self, error: &WriteError) -> Result<(), Outcome> {
        if error.class() != Class::Rejected {
            return Ok(());
        }
        self.context.metrics.refusal(&self.batch.cut.table);
        self.refusals_in_a_row = self.refusals_in_a_row.saturating_add(1);
        if self.refusals_in_a_row < self.context.refusals_in_a_row_max {
            return Ok(());
        }
        Err(wait(WaitFor::Table, "refusals", error))
    }
}

fn wait(scope: WaitFor, reason: &'static str, error: &WriteError) -> Outcome {
    Outcome::Wait { scope, reason, message: chain(error) }
}

/// Decides what a failed insert of `rows` rows calls for. Pure.
fn step(error: &WriteError, rows: u32) -> Step {
    let Some(clickhouse) = error.clickhouse() else { return Step::Wait(WaitFor::Target, "no_target") };
    if clickhouse.size_related() {
        return if rows > 1 { Step::Split(None) } else { Step::Wait(WaitFor::Table, "size") };
    }
    match clickhouse.class {
        Class::Rejected => match refusal(clickhouse.code, clickhouse.bad_row()) {
            Scope::Table => Step::Wait(WaitFor::Table, "refused"),
            Scope::Row if rows > 1 => Step::Split(clickhouse.bad_row().and_then(|row| row.checked_sub(1))),
            Scope::Row => Step::Bury(clickhouse.clone()),
        },
        _ if clickhouse.table_scoped() => Step::Wait(WaitFor::Table, clickhouse.class.as_str()),
        class => Step::Wait(WaitFor::Target, class.as_str()),
    }
}

fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
}
