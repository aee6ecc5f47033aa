//! One batch into ClickHouse: record the cut, insert part by part, split what is refused, bury what is refused alone.
//!
//! This is the only place that waits for the queue or for ClickHouse with a batch in hand. It ends when every row is
//! stored or buried, or when something must wait; then it tells how far it came, and the same call goes on from there.

use std::ops::Range;
use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{
    Broker, Cut, CutError, DeadLetter, InsertToken, LetterError, REASON_BYTES_MAX, UnitControl,
};
use wavehouse_clickhouse::{Class, ClickHouseError, RowBatch, RowSink, WriteError};
use wavehouse_core::{Sequence, TableRef, Timestamp};

use crate::cut::{part_token, token};
use crate::metrics::WorkerMetrics;
use crate::rows::BatchRows;
use crate::splits::{Parts, Remedy, remedy};

/// After so many rows in a row were refused with none accepted in between, a table is tried only now and then.
pub(crate) const REFUSALS_IN_A_ROW_MAX: u32 = 1000;

/// A batch to be written.
#[derive(Debug)]
pub(crate) struct Job {
    /// The worker's number of the table.
    pub(crate) index: usize,
    /// The opening of the unit that delivered it.
    pub(crate) unit: usize,
    pub(crate) table: TableRef,
    pub(crate) rows: BatchRows,
    /// Where the batch stands.
    pub(crate) parts: Parts,
    /// The token on record, if the batch was cut before.
    pub(crate) token: Option<InsertToken>,
    /// Rows refused in a row so far.
    pub(crate) streak: u32,
    /// Once this is cancelled the unit may be another process's, and no part is begun.
    pub(crate) fenced: CancellationToken,
}

/// What a flush works with.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) sink: Arc<dyn RowSink>,
    pub(crate) metrics: WorkerMetrics,
    pub(crate) now: fn() -> Timestamp,
}

/// How a flush ended.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) index: usize,
    pub(crate) unit: usize,
    pub(crate) parts: Parts,
    pub(crate) token: InsertToken,
    pub(crate) streak: u32,
    /// Whether ClickHouse took a part.
    pub(crate) accepted: bool,
    pub(crate) end: End,
    pub(crate) began: Instant,
}

/// Why a flush ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Every row is stored or buried.
    Stored,
    /// ClickHouse must be tried again later.
    Failed(WriteError),
    /// Row after row is refused: a row was buried, the next one waits.
    Slow,
    /// The queue could not record the cut.
    Cut(CutError),
    /// The queue could not keep a dead letter.
    Letter(LetterError),
    /// The unit may be another process's by now.
    Fenced,
}

/// Works on a batch until it is stored or must wait.
pub(crate) async fn flush(job: Job, control: Arc<dyn UnitControl>, tools: Tools) -> Report {
    let began = Instant::now();
    let token = token(&job.table, job.rows.blocks());
    let mut flush = Flush { job, control, tools, token, accepted: false, told: false };
    if let Some(recorded) = flush.job.token.filter(|recorded| *recorded != token) {
        // Never under the old name: ClickHouse would take other rows of that name for stored.
        tracing::error!(table = %flush.job.table, %recorded, %token, "batch came back with other rows, cut anew");
        flush.job.parts = Parts::new(flush.job.rows.total());
    }
    let end = flush.run().await;
    let Flush { job, accepted, .. } = flush;
    Report {
        index: job.index,
        unit: job.unit,
        parts: job.parts,
        token,
        streak: job.streak,
        accepted,
        end,
        began,
    }
}

struct Flush {
    job: Job,
    control: Arc<dyn UnitControl>,
    tools: Tools,
    token: InsertToken,
    accepted: bool,
    /// Whether this flush has told that it buries rows.
    told: bool,
}

impl Flush {
    async fn run(&mut self) -> End {
        while let Some(part) = self.job.parts.next() {
            if !self.job.parts.recorded() {
                if let Err(error) = self.control.record_cut(self.cut()).await {
                    return End::Cut(error);
                }
                self.job.parts.set_recorded();
            }
            if self.job.fenced.is_cancelled() {
                return End::Fenced;
            }
            let batch = self.batch(&part);
            let Err(error) = self.tools.sink.write(&batch).await else {
                self.tools.metrics.stored(&self.job.table, batch.rows);
                self.job.parts.finish_part();
                self.job.streak = 0;
                self.accepted = true;
                continue;
            };
            if error.clickhouse().is_some_and(ClickHouseError::may_be_stored) {
                self.job.parts.doubt();
            }
            match remedy(&error, batch.rows) {
                Remedy::Wait => return End::Failed(error),
                Remedy::HalveForSize => {
                    if !self.job.parts.halve_for_size() {
                        return End::Failed(error);
                    }
                }
                Remedy::SplitAround(row) => {
                    self.refused(&error);
                    self.job.parts.split_around(row);
                }
                Remedy::Halve => {
                    self.refused(&error);
                    self.job.parts.halve();
                }
                Remedy::Bury => {
                    if let Err(error) = self.bury(part.start, &error).await {
                        return End::Letter(error);
                    }
                    self.job.parts.finish_part();
                    self.job.streak = self.job.streak.saturating_add(1);
                    if self.job.streak >= REFUSALS_IN_A_ROW_MAX && self.job.parts.next().is_some() {
                        return End::Slow;
                    }
                }
            }
        }
        End::Stored
    }

    fn cut(&self) -> Cut {
        let ends =
            |found: Option<&wavehouse_broker::StoredBlock>| found.map_or(Sequence(0), |block| block.sequence);
        let blocks = self.job.rows.blocks();
        Cut {
            table: self.job.table.clone(),
            first: ends(blocks.first()),
            last: ends(blocks.last()),
            blocks: u32::try_from(blocks.len()).unwrap_or(u32::MAX),
            splits: self.job.parts.splits().to_vec(),
            done_rows: self.job.parts.done_rows(),
            token: self.token,
        }
    }

    fn batch(&self, part: &Range<u32>) -> RowBatch {
        let lines = self.job.rows.lines(part);
        let bytes = lines.iter().map(|piece| piece.len() as u64).sum();
        let (table, rows) = (self.job.table.clone(), part.end - part.start);
        RowBatch { table, lines, rows, bytes, token: part_token(self.token, part) }
    }

    fn refused(&self, error: &WriteError) {
        if error.class() == Class::Rejected {
            self.tools.metrics.refused(&self.job.table);
        }
    }

    async fn bury(&mut self, row: u32, error: &WriteError) -> Result<(), LetterError> {
        self.refused(error);
        let Some((line, position, received_at)) = self.job.rows.row(row) else { return Ok(()) };
        let clickhouse = error.clickhouse();
        let (code, mut reason) = clickhouse.map_or_else(
            || (None, wavehouse_core::chain(error)),
            |error| (error.code, error.message.clone()),
        );
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
        let table = self.job.table.clone();
        if std::mem::replace(&mut self.told, true) {
            tracing::debug!(%table, %position, code, "row refused for good, buried");
        } else {
            tracing::warn!(
                %table, %position, code, %reason,
                "rows are refused for good and become dead letters: `wavehouse dlq ls` shows them"
            );
        }
        let buried_at = (self.tools.now)();
        let letter = DeadLetter { table, position, received_at, buried_at, code, reason, line };
        self.tools.broker.bury(vec![letter]).await?;
        self.tools.metrics.buried(&self.job.table);
        Ok(())
    }
}
