//! Opening a queue: take the directory, read what is there, start the threads.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::sync::{Notify, watch};
use wavehouse_broker::BrokerHealth;
use wavehouse_core::LogId;

use crate::commit::{ActiveFile, Commit};
use crate::files::{Files, Layout, LockGuard};
use crate::format;
use crate::intake::Intake;
use crate::keeper::Keeper;
use crate::metrics::Metrics;
use crate::mover::Mover;
use crate::options::{OpenError, Options, Sizes};
use crate::recover::{Recovered, Recovery};
use crate::shared::{QUEUE_DIR, Shared, file_number};
use crate::spare::{SPARES, Spare, SpareDesk};
use crate::state::{FileState, State};
use crate::tenant::Tenants;
use crate::writer::Writer;

/// An open queue, its threads running.
pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mover: Arc<Mover>,
    pub(crate) running: Running,
}

/// What ends with the queue.
pub(crate) struct Running {
    threads: [JoinHandle<()>; 3],
    _lock: LockGuard,
}

impl Running {
    /// Waits for the threads; false when one panicked.
    pub(crate) fn join(self) -> bool {
        self.threads.map(|thread| thread.join().is_ok()) == [true; 3]
    }
}

/// Opens the queue in a data directory, or begins one.
pub(crate) fn open(options: &Options, metrics: Metrics, files: Arc<dyn Files>) -> Result<Opened, OpenError> {
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
    let found = files.list(QUEUE_DIR).map_err(disk("cannot be listed"))?;
    let used = found.iter().filter(|f| file_number(&f.name).is_some()).map(|f| f.bytes).sum();
    let free = files.free_bytes().map_err(disk("cannot tell its free space"))?;
    let sizes = Sizes::decide(options, free, used);
    let mut shared = Shared {
        log,
        files,
        sizes,
        ack_wait: options.ack_wait,
        fsync_delay: options.fsync_delay,
        metrics,
        tenants,
        taken_bytes: AtomicU64::new(used),
        intake: Intake::default(),
        herald: Arc::default(),
        spare: SpareDesk::new(sizes.file_bytes),
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
    let mover = Arc::new(Mover::new(Arc::clone(&shared), Arc::clone(&keeper)));
    offer_spares(&shared, spares);
    let writer =
        writer(&shared, &keeper, active).map_err(|bytes| OpenError::NoRoom { dir: dir.clone(), bytes })?;
    shared.count_disk();
    let thread = disk("cannot start a thread");
    let threads = [
        spawn("wavehouse-log", &shared, move || writer.run()).map_err(&thread)?,
        spawn("wavehouse-keeper", &shared, move || keeper.run()).map_err(&thread)?,
        {
            let mover = Arc::clone(&mover);
            spawn("wavehouse-mover", &shared, move || mover.run()).map_err(&thread)?
        },
    ];
    let running = Running { threads, _lock: guard };
    Ok(Opened { shared, mover, running })
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
        if spare.bytes == shared.sizes.file_bytes && shared.spare.held() < SPARES {
            shared.spare.put(spare);
        } else {
            shared.remove_file(spare.number, spare.bytes);
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
                None => keeper.make(bytes, Layout::Zeroed).map_err(|why| {
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
