//! The broker itself: publishing, and where each call goes.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use wavehouse_broker::{
    Broker, BrokerHealth, CloseError, DeadLetter, HistoryError, HistoryFilter, HistoryStart, HistoryStream,
    LetterCounts, LetterCursor, LetterError, LetterFilter, LetterPage, OpenUnit, OpenUnitError, PublishError,
    RowBudget, Submitted, SweepReport, TableDepth, TenantLimits,
};
use wavehouse_core::{LogId, Position, RowBlock, TableRef, TenantId, Timestamp, UnitId};

use crate::depths::depths;
use crate::files::{Files, RealFiles};
use crate::history::open_history;
use crate::intake::{Answered, Item, Submission, Waiting, WriteFault, lock};
use crate::letters::Letters;
use crate::metrics::Metrics;
use crate::mover::Mover;
use crate::opening::{Opened, Running, open};
use crate::options::{BLOCK_BYTES_MAX, OpenError, Options};
use crate::shared::Shared;
use crate::unit::open_unit;

/// The queue of one process, on local disk.
pub struct EmbeddedBroker {
    shared: Arc<Shared>,
    mover: Arc<Mover>,
    letters: Arc<Letters>,
    running: Mutex<Option<Running>>,
    /// The herald; it goes with the broker.
    _herald: JoinSet<()>,
}

impl EmbeddedBroker {
    /// Opens the queue in a data directory, or begins one. Blocks; may read as much as a whole log file.
    ///
    /// # Errors
    /// [`OpenError`] says what is in the way and what helps.
    pub fn open(options: &Options, metrics: Metrics) -> Result<Arc<Self>, OpenError> {
        let files = Arc::new(RealFiles::new(&options.dir));
        Self::open_on(options, metrics, files)
    }

    /// As [`open`](Self::open), on any file system.
    ///
    /// # Errors
    /// [`OpenError`], as [`open`](Self::open).
    pub fn open_on(
        options: &Options,
        metrics: Metrics,
        files: Arc<dyn Files>,
    ) -> Result<Arc<Self>, OpenError> {
        let Opened { shared, mover, running } = open(options, metrics, files)?;
        let letters = Letters::new(Arc::clone(&shared)).map_err(|source| OpenError::Disk {
            dir: options.dir.clone(),
            what: "cannot make the directory of dead letters",
            source,
        })?;
        let (letters, running) = (Arc::new(letters), Mutex::new(Some(running)));
        let herald = shared.herald.start();
        Ok(Arc::new(Self { shared, mover, letters, running, _herald: herald }))
    }

    /// The id of the log: new with each queue directory.
    #[must_use]
    pub fn log(&self) -> LogId {
        self.shared.log
    }

    /// Most bytes of disk that the log takes.
    #[must_use]
    pub fn disk_bytes_max(&self) -> u64 {
        self.shared.sizes.disk_bytes_max
    }

    /// How often the log has been synced to disk since it was opened.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.shared.metrics.fsyncs.get()
    }

    /// What can be said of a block without asking the writer.
    fn admit(&self, index: usize, block: RowBlock) -> Result<Waiting, PublishError> {
        let bytes = block.encoded_len() as u64;
        if bytes > BLOCK_BYTES_MAX as u64 {
            return Err(PublishError::TooLarge { bytes, bytes_max: BLOCK_BYTES_MAX as u64 });
        }
        let tenant =
            self.shared.tenants.enter(&block.table.tenant).ok_or_else(|| PublishError::Unavailable {
                reason: "there are too many tenants".to_owned(),
            })?;
        if !tenant.reserve(bytes) {
            let budget_bytes = tenant.unwritten_max();
            return Err(PublishError::TenantFull { tenant: block.table.tenant, budget_bytes });
        }
        Ok(Waiting { index, block, bytes, tenant })
    }

    /// Letters block on the disk.
    async fn with_letters<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Letters) -> Result<T, LetterError> + Send + 'static,
    ) -> Result<T, LetterError> {
        let letters = Arc::clone(&self.letters);
        let called = tokio::task::spawn_blocking(move || call(&letters)).await;
        called.unwrap_or_else(|error| Err(LetterError::Unavailable { reason: error.to_string() }))
    }
}

impl Drop for EmbeddedBroker {
    fn drop(&mut self) {
        let Some(running) = lock(&self.running).take() else { return };
        let (done, _nobody_waits) = oneshot::channel();
        if self.shared.intake.push(Item::Close(done)).is_err() {
            tracing::debug!("the queue's writer has ended already");
        }
        self.shared.spare.stop();
        running.join();
    }
}

#[async_trait]
impl Broker for EmbeddedBroker {
    fn units(&self) -> Vec<UnitId> {
        vec![UnitId::WHOLE]
    }

    fn block_bytes_max(&self) -> usize {
        BLOCK_BYTES_MAX
    }

    fn submit(&self, blocks: Vec<RowBlock>) -> Submitted {
        let count = blocks.len();
        let (done, answer) = oneshot::channel();
        let mut submission =
            Submission { blocks: Vec::with_capacity(count), outcomes: vec![None; count], done };
        for (index, block) in blocks.into_iter().enumerate() {
            match self.admit(index, block) {
                Ok(waiting) => submission.blocks.push(waiting),
                Err(error) => submission.refuse(index, error),
            }
        }
        if let Some(all_refused) = self.shared.intake.push_blocks(submission) {
            all_refused.send(&self.shared);
        }
        Box::pin(async move {
            answer.await.map(Answered::into_outcomes).unwrap_or_else(|_| {
                let lost = || PublishError::Unknown { reason: "the queue's writer has ended".to_owned() };
                (0..count).map(|_| Err(lost())).collect()
            })
        })
    }

    async fn open_unit(&self, unit: UnitId, budget: RowBudget) -> Result<OpenUnit, OpenUnitError> {
        open_unit(&self.shared, unit, budget)
    }

    async fn open_history(
        &self,
        start: HistoryStart,
        filter: HistoryFilter,
    ) -> Result<Box<dyn HistoryStream>, HistoryError> {
        open_history(&self.shared, start, filter)
    }

    async fn bury(&self, letters: Vec<DeadLetter>) -> Result<(), LetterError> {
        self.with_letters(move |kept| kept.bury(letters)).await
    }

    async fn letter_counts(&self, tenant: &TenantId) -> Result<LetterCounts, LetterError> {
        let tenant = tenant.clone();
        self.with_letters(move |kept| kept.counts(&tenant)).await
    }

    async fn letters(
        &self,
        filter: &LetterFilter,
        after: Option<&LetterCursor>,
        limit: usize,
    ) -> Result<LetterPage, LetterError> {
        let (filter, after) = (filter.clone(), after.cloned());
        self.with_letters(move |kept| kept.page(&filter, after.as_ref(), limit)).await
    }

    async fn drop_letters(&self, table: &TableRef, positions: &[Position]) -> Result<u64, LetterError> {
        let (table, positions) = (table.clone(), positions.to_vec());
        self.with_letters(move |kept| kept.drop_letters(&table, &positions)).await
    }

    fn set_limits(&self, tenant: &TenantId, limits: TenantLimits) {
        self.shared.tenants.set_limits(tenant, limits);
    }

    fn limits(&self, tenant: &TenantId) -> TenantLimits {
        self.shared.tenants.limits(tenant)
    }

    async fn sweep(&self, now: Timestamp) -> SweepReport {
        let mover = Arc::clone(&self.mover);
        let swept = tokio::task::spawn_blocking(move || mover.sweep(now)).await;
        swept.unwrap_or_else(|error| {
            tracing::error!(%error, "the sweep did not end");
            SweepReport::default()
        })
    }

    fn depths(&self) -> Vec<TableDepth> {
        depths(&self.shared)
    }

    fn health(&self) -> watch::Receiver<BrokerHealth> {
        self.shared.health.subscribe()
    }

    async fn close(&self) -> Result<(), CloseError> {
        self.letters.close();
        let Some(running) = lock(&self.running).take() else { return Ok(()) };
        let (done, answer) = oneshot::channel();
        let saved = match self.shared.intake.push(Item::Close(done)) {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(WriteFault::Ended("its writer ended".to_owned()))),
            Err(_) => Err(WriteFault::Ended("its writer ended".to_owned())),
        };
        self.shared.spare.stop();
        let joined = tokio::task::spawn_blocking(move || running.join()).await.unwrap_or(false);
        match saved {
            Ok(()) if joined => Ok(()),
            Ok(()) => Err(CloseError { reason: "one of its threads panicked".to_owned() }),
            Err(WriteFault::Full) => Err(CloseError { reason: "no room is left for its settles".to_owned() }),
            Err(WriteFault::Ended(reason)) => Err(CloseError { reason }),
        }
    }
}
