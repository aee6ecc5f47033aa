//! A real ClickHouse engine for one test: the program `wavehouse-clickhouse` on a directory of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::deps;
use crate::wait::wait_for;

/// The engine answers 0.2 s after its start; a loaded machine and a large directory take longer.
const START_MS_MAX: u64 = 60_000;
const STOP_MS_MAX: u64 = 60_000;

/// A running engine, ended on drop. Its user is `default`, with a password.
pub struct Engine {
    /// The user.
    pub user: String,
    /// The user's password.
    pub password: String,
    dir: TempDir,
    port: u16,
    child: Option<Child>,
    args: Vec<String>,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Engine {
    /// Starts an engine on an empty directory and a free port, and waits until it answers.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with further arguments for the program, such as `["--max-memory", "1000000000"]`.
    pub async fn start_with(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary directory: {error}"));
        let password = "engine secret".to_owned();
        write(&dir.path().join("password"), &password);
        let mut engine = Self {
            user: "default".to_owned(),
            password,
            dir,
            port: 0,
            child: None,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            client: Client::builder(TokioExecutor::new()).build_http(),
        };
        engine.restart().await;
        engine
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The port it listens on; the same after a restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its data lies.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What it logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The program's process id; panics when it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or_else(|| panic!("the engine does not run"), Child::id)
    }

    /// Runs one statement and gives back its result (TabSeparated unless it says otherwise); panics on an error.
    pub async fn query(&self, sql: &str) -> String {
        self.try_query(sql).await.unwrap_or_else(|(status, text)| panic!("{sql}: {status}: {text}"))
    }

    /// The same, with the HTTP status and text of a refusal; status 0 when there was no answer.
    pub async fn try_query(&self, sql: &str) -> Result<String, (u16, String)> {
        let refused = |error: &dyn std::fmt::Display| (0, error.to_string());
        let response = self.request("/", sql.to_owned()).await.map_err(|error| refused(&error))?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| refused(&error))?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        if status == StatusCode::OK { Ok(text) } else { Err((status.as_u16(), text)) }
    }

    /// Sends `body` with POST to `path_and_query` as the engine's user; the body of the answer is not read yet.
    pub async fn request(
        &self,
        path_and_query: &str,
        body: impl Into<Bytes>,
    ) -> Result<Response<hyper::body::Incoming>, hyper_util::client::legacy::Error> {
        let request = Request::post(format!("{}{path_and_query}", self.url()))
            .header("x-clickhouse-user", &self.user)
            .header("x-clickhouse-key", &self.password)
            .body(Full::new(body.into()))
            .unwrap_or_else(|error| panic!("{path_and_query}: {error}"));
        self.client.request(request).await
    }

    /// Freezes the process (SIGSTOP): connections stay open and nothing answers.
    pub fn stop_signal(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen process go on.
    pub fn cont(&self) {
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
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        let Some(mut child) = self.child.take() else { panic!("the engine does not run") };
        wait_for("the engine to stop", Duration::from_millis(STOP_MS_MAX), async || {
            child.try_wait().ok().flatten()
        })
        .await
    }

    /// Starts the process again on the same directory and port, ending it first when it runs.
    pub async fn restart(&mut self) {
        self.kill9();
        let out = self.dir.path().join("out");
        let program =
            deps::program("wavehouse-clickhouse", "wavehouse-clickhouse-embedded", "clickhouse-embedded");
        let log = File::options().create(true).append(true).open(self.dir.path().join("log"));
        let log = log.unwrap_or_else(|error| panic!("no log file: {error}"));
        write(&out, "");
        let mut command = Command::new(program);
        command.arg("--path").arg(self.data_dir());
        command.arg("--listen").arg(format!("127.0.0.1:{}", self.port));
        command.arg("--password-file").arg(self.dir.path().join("password"));
        command.arg("--libchdb").arg(deps::path("chdb/libchdb.so"));
        // Its standard input is a pipe of ours: it ends with this test, however that ends.
        command.args(["--exit-with-parent", "--print-port"]).args(&self.args).stdin(Stdio::piped());
        command.stdout(File::create(&out).unwrap_or_else(|error| panic!("no file: {error}"))).stderr(log);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("the engine does not start: {error}"));
        let port = wait_for("the engine to listen", Duration::from_millis(START_MS_MAX), async || {
            let line = fs::read_to_string(&out).unwrap_or_default();
            if let Some(url) = line.strip_suffix('\n') {
                return url.rsplit(':').next().and_then(|port| port.parse().ok());
            }
            if let Ok(Some(status)) = child.try_wait() {
                panic!("the engine ended with {status}:\n{}", self.log());
            }
            None
        })
        .await;
        self.port = port;
        self.child = Some(child);
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let sent = id.is_some_and(|id| kill_process(id, signal).is_ok());
        assert!(sent, "the engine's process is gone:\n{}", self.log());
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.kill9();
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
