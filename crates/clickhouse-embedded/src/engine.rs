//! Opens the engine on a directory and hands out connections to it.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::fault::Fault;
use crate::ffi::{Connection, Library};

/// How long to wait for another process to let go of the directory: a restarted supervisor meets its old child.
const LOCK_WAIT_MS_MAX: u64 = 10_000;
const LOCK_POLL_MS: u64 = 50;
/// The settings we give the engine, kept beside its data for all to read.
const CONFIG_FILE: &str = "wavehouse-clickhouse.xml";
/// Its user, and what that may take.
const USERS_FILE: &str = "wavehouse-clickhouse-users.xml";
/// As many times the machine's memory as no count reaches.
const WITHOUT_BOUND: u32 = 1000;
/// The engine locks this file and writes its process id into it.
const STATUS_FILE: &str = "status";

/// Why the engine did not open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("the data directory {0} cannot be used")]
    Directory(PathBuf, #[source] io::Error),
    #[error("Code: 76: the data directory {path} is in use{who}; stop that process or give another --path")]
    Locked {
        path: PathBuf,
        /// ` by process N`, when the engine's status file says so.
        who: String,
    },
    #[error(
        "the engine library {0} cannot be loaded; fetch it again with `make deps` or give --libchdb PATH"
    )]
    Library(PathBuf, #[source] libloading::Error),
    #[error("the engine refused to open {0}; its reason stands above")]
    Refused(PathBuf),
    #[error("the engine opened {0} but does not answer: {1}")]
    Mute(PathBuf, String),
}

/// An output format.
#[derive(Debug, Clone)]
pub(crate) struct Format {
    /// The engine's spelling.
    pub(crate) name: String,
    /// Its media type.
    pub(crate) content_type: String,
}

/// The open engine.
pub(crate) struct Engine {
    library: Arc<Library>,
    args: Vec<CString>,
    // One connection stays open so that the engine does not close its directory between requests.
    keeper: Mutex<Option<Connection>>,
    /// The engine's version, four numbers.
    pub(crate) version: String,
    /// Its time zone.
    pub(crate) timezone: String,
    /// The machine's name.
    pub(crate) host: String,
    formats: HashMap<String, Format>,
}

impl Engine {
    /// Opens `dir`, making it when it is not there. `memory_bytes_max` bounds what queries may take together.
    pub(crate) fn open(
        library_path: &Path,
        dir: &Path,
        memory_bytes_max: Option<u64>,
    ) -> Result<Self, OpenError> {
        let refused = |error| OpenError::Directory(dir.to_owned(), error);
        fs::create_dir_all(dir).map_err(refused)?;
        let dir = dir.canonicalize().map_err(refused)?;
        wait_for_lock(&dir)?;
        let config = dir.join(CONFIG_FILE);
        let users = dir.join(USERS_FILE);
        fs::write(&config, config_text(&users, memory_bytes_max)).map_err(refused)?;
        fs::write(&users, users_text(memory_bytes_max)).map_err(refused)?;
        let args: Vec<CString> = [
            "clickhouse".to_owned(),
            format!("--path={}", dir.display()),
            format!("--config-file={}", config.display()),
        ]
        .into_iter()
        .map(CString::new)
        .collect::<Result<_, _>>()
        .map_err(|_| refused(io::ErrorKind::InvalidFilename.into()))?;
        let library =
            Library::load(library_path).map_err(|error| OpenError::Library(library_path.into(), error))?;
        let keeper = Connection::open(&library, &args).ok_or_else(|| OpenError::Refused(dir.clone()))?;
        let ask = |sql: &str| table(&keeper, sql).map_err(|error| OpenError::Mute(dir.clone(), error));
        let about = ask("SELECT version(), timezone(), hostName()")?.concat();
        let formats = ask("SELECT name, content_type FROM system.formats WHERE is_output")?;
        let formats = formats
            .into_iter()
            .filter_map(|row| <[String; 2]>::try_from(row).ok())
            .map(|[name, content_type]| (name.to_lowercase(), Format { name, content_type }))
            .collect();
        let about = <[String; 3]>::try_from(about)
            .map_err(|row| OpenError::Mute(dir.clone(), format!("{} facts of 3", row.len())))?;
        let [version, timezone, host] = about;
        Ok(Self { library, args, keeper: Mutex::new(Some(keeper)), version, timezone, host, formats })
    }

    /// A new connection; cheap (0.2 ms), one a request.
    pub(crate) fn connect(&self) -> Result<Connection, Fault> {
        Connection::open(&self.library, &self.args)
            .ok_or_else(|| Fault::new(210, "The engine is closed. (NETWORK_ERROR)"))
    }

    /// The output format called `name`, in any case.
    pub(crate) fn format(&self, name: &str) -> Option<&Format> {
        self.formats.get(&name.to_lowercase())
    }

    /// Closes the last connection and asks the engine to stop; true when it did.
    pub(crate) fn close(&self) -> bool {
        drop(self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.library.shutdown()
    }
}

/// Rows of a small query, as text.
fn table(connection: &Connection, sql: &str) -> Result<Vec<Vec<String>>, String> {
    let answer = connection.run(sql.as_bytes(), "TSVRaw", &[]);
    match answer.error() {
        Some(error) => Err(error),
        None => Ok(String::from_utf8_lossy(answer.data())
            .lines()
            .map(|line| line.split('\t').map(str::to_owned).collect())
            .collect()),
    }
}

/// Inserts are fsynced because whoever sends them drops its own copy once they are acknowledged.
///
/// A limit on memory is one on what queries, merges and caches take, each by itself; that of queries is the user's. The
/// engine's own limit on everything is no use: it counts what is allocated, each table with a deduplication window
/// allocates buffers of 1 to 4 MiB that are hardly touched, and a directory with a thousand of them could not be opened
/// again under 2 GiB.
fn config_text(users: &Path, memory_bytes_max: Option<u64>) -> String {
    let memory = memory_bytes_max.map(|bytes| {
        let cache = bytes / 8;
        format!(
            "  <max_server_memory_usage_to_ram_ratio>{WITHOUT_BOUND}</max_server_memory_usage_to_ram_ratio>\n  \
             <memory_worker_dynamic_hard_limit>0</memory_worker_dynamic_hard_limit>\n  \
             <merges_mutations_memory_usage_soft_limit>{}</merges_mutations_memory_usage_soft_limit>\n  \
             <mark_cache_size>{cache}</mark_cache_size>\n  \
             <index_mark_cache_size>{cache}</index_mark_cache_size>\n",
            bytes / 2
        )
    });
    let users = users.display().to_string().replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<clickhouse>\n  <!-- Written by wavehouse-clickhouse at every start. -->\n  <merge_tree>\n    \
         <fsync_after_insert>1</fsync_after_insert>\n    <fsync_part_directory>1</fsync_part_directory>\n  \
         </merge_tree>\n  <users_config>{users}</users_config>\n{}</clickhouse>\n",
        memory.unwrap_or_default()
    )
}

/// The engine's own user, whose limit no statement can lift.
fn users_text(memory_bytes_max: Option<u64>) -> String {
    let memory = memory_bytes_max.map(|bytes| {
        format!(
            "<max_memory_usage_for_user>{bytes}</max_memory_usage_for_user>\n      <constraints>\
             <max_memory_usage_for_user><const/></max_memory_usage_for_user></constraints>"
        )
    });
    format!(
        "<clickhouse>\n  <!-- Written by wavehouse-clickhouse at every start. -->\n  <profiles>\n    <default>{}</default>\n  \
         </profiles>\n  <users>\n    <default>\n      <password></password>\n      <networks><ip>::/0</ip></networks>\n      \
         <profile>default</profile>\n      <quota>default</quota>\n    </default>\n  </users>\n  \
         <quotas><default></default></quotas>\n</clickhouse>\n",
        memory.unwrap_or_default()
    )
}

/// Waits until no other process holds the directory. The engine would refuse at once and leave only a line on
/// stderr, so its lock is tried first.
fn wait_for_lock(dir: &Path) -> Result<(), OpenError> {
    let path = dir.join(STATUS_FILE);
    let started = Instant::now();
    loop {
        let Ok(file) = File::open(&path) else { return Ok(()) };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(());
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let process = text.lines().find_map(|line| line.strip_prefix("PID: ")).map(str::trim);
        let who = process.map(|id| format!(" by process {id}")).unwrap_or_default();
        if started.elapsed() >= Duration::from_millis(LOCK_WAIT_MS_MAX) {
            return Err(OpenError::Locked { path: dir.to_owned(), who });
        }
        tracing::debug!(%who, "waiting for the data directory");
        std::thread::sleep(Duration::from_millis(LOCK_POLL_MS));
    }
}
