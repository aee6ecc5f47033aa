//! The broker itself: opening, publishing, and where each call goes.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use async_trait::async_trait;
use tokio::sync::{Notify, oneshot, watch};
use wavehouse_broker::{
    Broker, BrokerHealth, CloseError, DeadLetter, HistoryError, HistoryFilter, HistoryStart, HistoryStream,
    LetterCounts, LetterCursor, LetterError, LetterFilter, LetterPage, OpenUnit, OpenUnitError, PublishError,
    RowBudget, Submitted, SweepReport, TableDepth, TenantLimits,
};
use wavehouse_core::{LogId, Position, RowBlock, TableRef, TenantId, Timestamp, UnitId};

use crate::commit::{ActiveFile, Commit};
use crate::depths::depths;
use crate::files::{Files, LockGuard, RealFiles};
use crate::intake::{Intake, Item, Submission, Waiting, WriteFault, lock};
use crate::keeper::Keeper;
use crate::metrics::Metrics;
use crate::options::{BLOCK_BYTES_MAX, OpenError, Options, Sizes};
use crate::recover::{Recovered, Recovery};
use crate::shared::{QUEUE_DIR, Shared, file_number};
use crate::spare::{SPARES, Spare, SpareDesk};
use crate::state::{FileState, State};
use crate::tenant::Tenants;
use crate::writer::Writer;
use crate::{format, unit};

/// The queue of one process, on local disk.
pub struct EmbeddedBroker {
    shared: Arc<Shared>,
    keeper: Arc<Keeper>,
    running: Mutex<Option<Running>>,
}

/// What ends with the queue.
struct Running {
    writer: JoinHandle<()>,
    keeper: JoinHandle<()>,
    _lock: LockGuard,
}

impl Running {
    /// Waits for both threads; false when one panicked.
    fn join(self) -> bool {
        let (writer, keeper) = (self.writer.join(), self.keeper.join());
        writer.is_ok() && keeper.is_ok()
    }
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
        let dir = options.dir.join(QUEUE_DIR);
        let disk = |what| {
            let dir = dir.clone();
            move |source| OpenError::Disk { dir: dir.clone(), what, source }
        };
        files.create_dir(QUEUE_DIR).map_err(disk("cannot be made"))?;
        let guard = files.lock(&format!("{QUEUE_DIR}/lock")).map_err(disk("cannot be locked"))?;
        let guard = guard.map_err(|holder| OpenError::Locked {
            dir: dir.clone(),
            holder: holder.pid.map_or("another process".to_owned(), |pid| format!("process {pid}")),
        })?;
        let tenants = Tenants::new(options.default_limits);
        let (log, recovered) = recover(&*files, &options.dir, &tenants, &metrics)?;
        let used = files.list(QUEUE_DIR).map_err(disk("cannot be listed"))?.iter().map(|f| f.bytes).sum();
        let free = files.free_bytes().map_err(disk("cannot tell its free space"))?;
        let mut shared = Shared {
            log,
            files,
            sizes: Sizes::decide(options, free, used),
            ack_wait: options.ack_wait,
            fsync_delay: options.fsync_delay,
            metrics,
            tenants,
            intake: Intake::default(),
            spare: SpareDesk::default(),
            state: Mutex::default(),
            unit_wake: Notify::new(),
            stored: watch::Sender::new(0),
            health: watch::Sender::new(BrokerHealth::Good),
        };
        tracing::info!(
            dir = %dir.display(),
            %log,
            disk_bytes_max = shared.sizes.disk_bytes_max,
            file_bytes = shared.sizes.file_bytes,
            "queue open"
        );
        let Recovered { state, active, spares, next_number } = recovered;
        shared.state = Mutex::new(state);
        let shared = Arc::new(shared);
        let keeper = Arc::new(Keeper::new(Arc::clone(&shared), next_number));
        offer_spares(&shared, spares);
        let writer = writer(&shared, &keeper, active)
            .map_err(|bytes| OpenError::NoRoom { dir: dir.clone(), bytes })?;
        shared.count_disk();
        let running = Running {
            writer: spawn("wavehouse-log", &shared, move || writer.run())
                .map_err(disk("cannot start a thread"))?,
            keeper: {
                let keeper = Arc::clone(&keeper);
                spawn("wavehouse-keeper", &shared, move || keeper.run())
                    .map_err(disk("cannot start a thread"))?
            },
            _lock: guard,
        };
        Ok(Arc::new(Self { shared, keeper, running: Mutex::new(Some(running)) }))
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

/// Reads what is there, or begins anew.
fn recover(
    files: &dyn Files,
    dir: &Path,
    tenants: &Tenants,
    metrics: &Metrics,
) -> Result<(LogId, Recovered), OpenError> {
    let disk = |what| move |source| OpenError::Disk { dir: dir.join(QUEUE_DIR), what, source };
    if let Some(log) = format::read(files, dir)? {
        let recovery = Recovery { files, dir, tenants, log, damage: metrics.damaged_records.clone() };
        if let Some(recovered) = recovery.run()? {
            return Ok((log, recovered));
        }
    }
    // Nothing was ever stored here. Sequences begin anew, and so does the id.
    let random = getrandom::u64()
        .map_err(|error| disk("cannot get a random id")(std::io::Error::other(error.to_string())))?;
    let log = LogId(random);
    for found in files.list(QUEUE_DIR).map_err(disk("cannot be listed"))? {
        if let Some(number) = file_number(&found.name) {
            files.remove(&Shared::path(number)).map_err(disk("cannot be cleared"))?;
        }
    }
    format::create(files, log).map_err(disk("cannot be begun"))?;
    let state = State { damage: metrics.damaged_records.clone(), ..State::default() };
    Ok((log, Recovered { state, active: None, spares: Vec::new(), next_number: 1 }))
}

/// Files that were ready when the process ended are ready again, if they are of the size that is wanted now.
fn offer_spares(shared: &Shared, spares: Vec<Spare>) {
    for spare in spares {
        if spare.bytes == shared.sizes.file_bytes && shared.spare.held().1 < SPARES {
            shared.spare.put(spare);
        } else if let Err(error) = shared.files.remove(&Shared::path(spare.number)) {
            tracing::warn!(%error, number = spare.number, "cannot remove a spare log file");
        }
    }
}

/// The writer, with a file to go on in. Fails with the size of the file that could not be had.
fn writer(shared: &Arc<Shared>, keeper: &Keeper, active: Option<ActiveFile>) -> Result<Writer, u64> {
    let run = getrandom::u32().unwrap_or(0);
    let is_new = active.is_none();
    let active = match active {
        Some(active) => active,
        None => {
            let head = crate::checkpoint::checkpoint_bytes(&shared.state().tables) as u64;
            let bytes = shared.sizes.file_bytes.max(head.saturating_mul(2));
            let ready = if shared.spare.any() { shared.spare.take(bytes, 0).ok() } else { None };
            let spare = match ready {
                Some(spare) => spare,
                None => keeper.make(bytes).map_err(|why| {
                    tracing::error!(why, bytes, "cannot lay out a log file");
                    bytes
                })?,
            };
            ActiveFile::new(spare)
        }
    };
    let mut state = shared.state();
    let mut writer = Writer {
        shared: Arc::clone(shared),
        active,
        run,
        run_is_new: !is_new,
        ids: state.by_name.clone(),
        ends: state.tables.iter().map(|table| table.end).collect(),
        buffer: Vec::new(),
        commit: Commit::default(),
        failed: None,
    };
    if is_new {
        let (number, file) = (writer.active.number, Arc::clone(&writer.active.file));
        state.active = number;
        state.files.insert(number, FileState::new(file, writer.active.bytes));
        writer.put_head(&state.tables);
    }
    drop(state);
    Ok(writer)
}

fn spawn(
    name: &str,
    shared: &Arc<Shared>,
    work: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let end = EndOfThread { shared: Arc::clone(shared), name: name.to_owned() };
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _end = end;
        work();
    })
}

/// Nobody waits for a thread that has ended.
struct EndOfThread {
    shared: Arc<Shared>,
    name: String,
}

impl Drop for EndOfThread {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.has_failed(&format!("thread {} panicked", self.name));
            self.shared.intake.shut();
            self.shared.spare.stop();
        }
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
            answer.await.unwrap_or_else(|_| {
                let lost = || PublishError::Unknown { reason: "the queue's writer has ended".to_owned() };
                (0..count).map(|_| Err(lost())).collect()
            })
        })
    }

    async fn open_unit(&self, unit: UnitId, budget: RowBudget) -> Result<OpenUnit, OpenUnitError> {
        unit::open_unit(&self.shared, unit, budget)
    }

    async fn open_history(
        &self,
        _start: HistoryStart,
        _filter: HistoryFilter,
    ) -> Result<Box<dyn HistoryStream>, HistoryError> {
        Err(HistoryError::Unreadable { reason: "this queue keeps no history yet".to_owned() })
    }

    async fn bury(&self, _letters: Vec<DeadLetter>) -> Result<(), LetterError> {
        Err(LetterError::Unavailable { reason: "this queue keeps no letters yet".to_owned() })
    }

    async fn letter_counts(&self, _tenant: &TenantId) -> Result<LetterCounts, LetterError> {
        Ok(LetterCounts::default())
    }

    async fn letters(
        &self,
        _filter: &LetterFilter,
        _after: Option<&LetterCursor>,
        _limit: usize,
    ) -> Result<LetterPage, LetterError> {
        Ok(LetterPage::default())
    }

    async fn drop_letters(&self, _table: &TableRef, _positions: &[Position]) -> Result<u64, LetterError> {
        Ok(0)
    }

    fn set_limits(&self, tenant: &TenantId, limits: TenantLimits) {
        self.shared.tenants.set_limits(tenant, limits);
    }

    fn limits(&self, tenant: &TenantId) -> TenantLimits {
        self.shared.tenants.limits(tenant)
    }

    async fn sweep(&self, now: Timestamp) -> SweepReport {
        let keeper = Arc::clone(&self.keeper);
        let swept = tokio::task::spawn_blocking(move || keeper.sweep(now)).await;
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
