//! A real message server for one test: the program `nats-server` on a directory and a port of its own.

mod cluster;

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::deps;
use crate::wait::{free_port, wait_for};

pub use cluster::NatsCluster;

/// The version that the product runs on.
pub const NATS_VERSION: &str = "2.14.6";
/// It listens after 0.1 s; a loaded machine and a store with many objects take longer.
const START_MS_MAX: u64 = 30_000;
const STOP_MS_MAX: u64 = 30_000;
/// Another program may take a free port first; a start is tried this often, each on another port.
const PORTS_MAX: u32 = 5;

/// A running `nats-server`, ended on drop. It listens on the loopback.
pub struct NatsServer {
    dir: TempDir,
    version: String,
    config: String,
    port: u16,
    child: Option<Child>,
}

impl NatsServer {
    /// Starts a server of [`NATS_VERSION`] with JetStream, on an empty store, without users.
    pub async fn jetstream() -> Self {
        Self::start(&Self::jetstream_config("")).await
    }

    /// A configuration with JetStream, followed by `more`, such as accounts.
    #[must_use]
    pub fn jetstream_config(more: &str) -> String {
        format!("jetstream {{ max_mem: 64MB, max_file: 2GB }}\n{more}\n")
    }

    /// Starts a server of [`NATS_VERSION`] with this configuration, and waits until it listens.
    ///
    /// Port and store directory are added. `$DIR` stands for a directory of this server, for files beside its store.
    pub async fn start(config: &str) -> Self {
        Self::start_version(NATS_VERSION, config).await
    }

    /// The same for another version, one of those under `.deps/nats/`.
    pub async fn start_version(version: &str, config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary directory: {error}"));
        Self::start_in(dir, version, config).await
    }

    /// The same with a directory that was filled before, with certificates for instance.
    pub async fn start_in(dir: TempDir, version: &str, config: &str) -> Self {
        let config = config.replace("$DIR", &dir.path().display().to_string());
        let mut server = Self { dir, version: version.to_owned(), config, port: 0, child: None };
        for _ in 0..PORTS_MAX {
            server.port = free_port();
            if server.try_start().await {
                return server;
            }
        }
        panic!("nats-server found no free port:\n{}", server.log());
    }

    /// `nats://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The port it listens on; the same after a restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory that `$DIR` stands for.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What it logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The program's process id; panics when it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or_else(|| panic!("nats-server does not run"), Child::id)
    }

    /// Freezes the process (SIGSTOP) and waits until all of it stands: connections stay open and nothing answers.
    pub async fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = PathBuf::from(format!("/proc/{}/task", self.pid()));
        wait_for("nats-server to stand", Duration::from_millis(STOP_MS_MAX), async || stands(&tasks)).await;
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends the process at once (SIGKILL), as a crash would.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Asks the process to stop (SIGTERM) and waits until it has.
    pub async fn stop(&mut self) {
        self.signal(Signal::TERM);
        let Some(mut child) = self.child.take() else { return };
        wait_for("nats-server to stop", Duration::from_millis(STOP_MS_MAX), async || {
            child.try_wait().ok().flatten()
        })
        .await;
    }

    /// Starts the process again on the same port and store, ending it first when it runs.
    pub async fn restart(&mut self) {
        self.kill9();
        assert!(self.try_start().await, "nats-server lost its port {}:\n{}", self.port, self.log());
    }

    /// The same with another configuration.
    pub async fn restart_with(&mut self, config: &str) {
        self.config = config.replace("$DIR", &self.dir.path().display().to_string());
        self.restart().await;
    }

    /// Lets the running process read another configuration, of users for instance (SIGHUP), and waits until it has.
    pub async fn reload(&mut self, config: &str) {
        let log = self.dir.path().join("log");
        let reloads =
            || fs::read_to_string(&log).unwrap_or_default().matches("Reloaded server configuration").count();
        let before = reloads();
        self.config = config.replace("$DIR", &self.dir.path().display().to_string());
        self.write_config();
        self.signal(Signal::HUP);
        wait_for("nats-server to reload", Duration::from_millis(START_MS_MAX), async || reloads() > before)
            .await;
    }

    /// Starts the process and waits until it listens; false when its port was taken.
    async fn try_start(&mut self) -> bool {
        let program = program(&self.version);
        self.write_config();
        let log = File::options().create(true).append(true).open(self.dir.path().join("log"));
        let log = log.unwrap_or_else(|error| panic!("no log file: {error}"));
        let earlier = self.log().len();
        let mut command = Command::new(&program);
        command.arg("--config").arg(self.dir.path().join("nats.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let listens = wait_for("nats-server to listen", Duration::from_millis(START_MS_MAX), async || {
            let log = self.log();
            let own = log.get(earlier..).unwrap_or_default();
            if let Ok(Some(status)) = child.try_wait() {
                assert!(own.contains("address already in use"), "nats-server ended with {status}:\n{own}");
                return Some(false);
            }
            (own.contains("Server is ready") && TcpStream::connect(("127.0.0.1", self.port)).is_ok())
                .then_some(true)
        })
        .await;
        self.child = Some(child);
        if !listens {
            self.kill9();
        }
        listens
    }

    fn write_config(&self) {
        let store = self.dir.path().join("store");
        // Without a store of its own, JetStream would use one below the system's temporary directory.
        let head = format!("listen: \"127.0.0.1:{}\"\n", self.port);
        let text = self.config.replacen(
            "jetstream {",
            &format!("jetstream {{ store_dir: \"{}\",", store.display()),
            1,
        );
        let path = self.dir.path().join("nats.conf");
        fs::write(&path, head + &text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let sent = id.is_some_and(|id| kill_process(id, signal).is_ok());
        assert!(sent, "nats-server's process is gone:\n{}", self.log());
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Whether every thread of a process is stopped.
fn stands(tasks: &Path) -> bool {
    let mut entries = fs::read_dir(tasks).into_iter().flatten().flatten();
    entries.all(|task| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:") && line.contains("T (stopped)"))
    })
}

/// The program of one version; panics with what to run when it is not there.
fn program(version: &str) -> PathBuf {
    let path = deps::root().join(".deps/nats").join(version).join("nats-server");
    assert!(path.is_file(), ".deps/nats/{version}/nats-server is not there: run `scripts/deps nats`");
    path
}
