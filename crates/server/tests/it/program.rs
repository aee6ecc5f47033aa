//! The program as a child process, in a folder and an environment of its own.
#![expect(clippy::unwrap_used, reason = "a harness has nothing to do about a machine that fails it")]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use wavehouse_testkit::{Engine, deps, free_port, wait_for};

use crate::http::Client;

pub(crate) const KEY: &str = "operator secret";
/// Longest wait for anything that should happen soon, on a loaded machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A gateway that may run; ended on drop.
pub(crate) struct Program {
    pub(crate) port: u16,
    pub(crate) dir: TempDir,
    args: Vec<String>,
    env: Vec<(String, String)>,
    child: Option<Child>,
}

impl Program {
    /// A gateway that is not started yet, with its data in a folder of its own.
    pub(crate) fn new(args: &[&str], env: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut all = vec![
            ("WH_SERVER_PORT".to_owned(), port.to_string()),
            ("WH_DATA_DIR".to_owned(), dir.path().join("data").display().to_string()),
            ("WH_MQ_MAX_BYTES_GB".to_owned(), "1".to_owned()),
        ];
        all.extend(env.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Self { port, dir, args, env: all, child: None }
    }

    /// A gateway in front of an engine, with an operator's key.
    pub(crate) fn serving(engine: &Engine, env: &[(&str, &str)]) -> Self {
        let url = engine.url();
        let mut all = vec![
            ("WH_SERVER_LISTEN", "127.0.0.1"),
            ("WH_CH_URL", url.as_str()),
            ("WH_CH_USERNAME", engine.user.as_str()),
            ("WH_CH_PASSWORD", engine.password.as_str()),
            ("WH_AUTH_OPERATOR_KEY", KEY),
            ("WH_WORKER_LINGER_MS", "50"),
        ];
        all.extend_from_slice(env);
        Self::new(&[], &all)
    }

    /// `wavehouse dev`, with the engine's library.
    pub(crate) fn dev(env: &[(&str, &str)]) -> Self {
        let _built =
            deps::program("wavehouse-clickhouse", "wavehouse-clickhouse-embedded", "clickhouse-embedded");
        let lib = deps::path("chdb/libchdb.so").display().to_string();
        // A test's engine must not take the port of somebody's own ClickHouse, nor another test's.
        let engine_port = free_port().to_string();
        let mut all = vec![
            ("WH_ENGINE_LIB", lib.as_str()),
            ("WH_ENGINE_PORT", &engine_port),
            ("WH_WORKER_LINGER_MS", "50"),
        ];
        all.extend_from_slice(env);
        Self::new(&["dev"], &all)
    }

    /// Starts the process; it need not be up when this returns.
    pub(crate) fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let out = File::options().create(true).append(true).open(self.dir.path().join("out")).unwrap();
        let child = command(self.dir.path(), &self.env).args(&self.args).stdout(out).stderr(log).spawn();
        self.child = Some(child.unwrap());
    }

    /// Starts the process and waits until it is alive, which means that it knows ClickHouse's tables.
    pub(crate) async fn up(&mut self) {
        self.start();
        self.wait_status("/livez", 200).await;
    }

    /// Waits until a probe answers with a status.
    pub(crate) async fn wait_status(&mut self, path: &str, status: u16) {
        let client = self.client();
        wait_for(&format!("{path} to answer {status}; log:\n{}", self.log()), SOON, async || {
            if let Some(code) = self.child.as_mut().and_then(|child| child.try_wait().unwrap()) {
                panic!("the gateway ended with {code}:\n{}", self.log());
            }
            client.status(path).await == status
        })
        .await;
    }

    /// A client that sends the operator's key.
    pub(crate) fn client(&self) -> Client {
        self.plain_client().with("x-operator-key", KEY)
    }

    /// A client that sends nothing of its own.
    pub(crate) fn plain_client(&self) -> Client {
        Client::new(&format!("http://127.0.0.1:{}", self.port))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send_signal(self.pid(), signal);
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.as_ref().unwrap().id().cast_signed()
    }

    /// Waits for the process to end and returns its exit code; none when a signal ended it.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let mut child = self.child.take().unwrap();
        let status = wait_for("the gateway to end", SOON, async || child.try_wait().unwrap()).await;
        status.code()
    }

    /// Ends the process as a crash would.
    pub(crate) fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// What it printed on standard output.
    pub(crate) fn out(&self) -> String {
        fs::read_to_string(self.dir.path().join("out")).unwrap_or_default()
    }

    /// The engine that it started, if it runs.
    pub(crate) fn engine_pid(&self) -> Option<i32> {
        let tasks = format!("/proc/{}/task", self.pid());
        let tasks = fs::read_dir(tasks).ok()?;
        tasks.flatten().find_map(|task| {
            let children = fs::read_to_string(task.path().join("children")).ok()?;
            children.split_whitespace().next()?.parse().ok()
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill9();
    }
}

pub(crate) fn send_signal(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).unwrap();
    kill_process(pid, signal).unwrap();
}

fn command(dir: &Path, env: &[(String, String)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wavehouse"));
    command.current_dir(dir).env_clear().envs(env.iter().cloned()).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub(crate) fn run(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let env: Vec<(String, String)> =
        env.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    command(dir, &env).args(args).output().unwrap()
}
