//! The gateway as a process: started with variables alone, killed, started again on the same directory and port.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tempfile::TempDir;
use wavehouse_testkit::{Engine, deps, free_port, wait_for};

/// The operator's key of every gateway here.
pub(super) const KEY: &str = "soak operator";
/// A start, with an engine beside it on a loaded machine.
const READY: Duration = Duration::from_secs(90);

/// A client as the writers use it.
pub(super) type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// A running gateway, ended on drop.
pub(super) struct Gateway {
    dir: TempDir,
    port: u16,
    variables: Vec<(String, String)>,
    arguments: Vec<String>,
    tmpfs: Option<String>,
    child: Option<Child>,
    client: HttpClient,
}

impl Gateway {
    /// Serves rows into an engine that runs apart from it.
    pub(super) fn serve(engine: &Engine, more: &[(&str, &str)]) -> Self {
        let mut variables = vec![
            ("WH_CH_URL", engine.url()),
            ("WH_CH_USERNAME", engine.user.clone()),
            ("WH_CH_PASSWORD", engine.password.clone()),
            ("WH_PROMETHEUS_ENABLED", "true".to_owned()),
        ];
        variables.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        Self::new(&[], &variables)
    }

    /// `wavehouse dev`: the engine is its child.
    pub(super) fn dev() -> Self {
        let engine =
            deps::program("wavehouse-clickhouse", "wavehouse-clickhouse-embedded", "clickhouse-embedded");
        let variables = [
            ("WH_ENGINE_BIN", engine.display().to_string()),
            ("WH_ENGINE_LIB", deps::path("chdb/libchdb.so").display().to_string()),
            ("WH_ENGINE_PORT", free_port().to_string()),
        ];
        Self::new(&["dev"], &variables)
    }

    fn new(arguments: &[&str], more: &[(&str, String)]) -> Self {
        let port = free_port();
        let mut variables = vec![
            ("WH_SERVER_LISTEN".to_owned(), "127.0.0.1".to_owned()),
            ("WH_SERVER_PORT".to_owned(), port.to_string()),
            ("WH_AUTH_OPERATOR_KEY".to_owned(), KEY.to_owned()),
        ];
        variables.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
            port,
            variables,
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            tmpfs: None,
            child: None,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Puts the data directory on a file system in memory of this size, such as `64m`, that only the gateway sees.
    /// It lasts as long as the process does.
    pub(super) fn on_tmpfs(mut self, size: &str) -> Self {
        self.tmpfs = Some(size.to_owned());
        self
    }

    /// Starts the process; it is not ready yet.
    pub(super) fn spawn(&mut self) {
        let program = env!("CARGO_BIN_EXE_wavehouse");
        let data = self.dir.path().join("data");
        fs::create_dir_all(&data).expect("a data directory");
        let mut command = match &self.tmpfs {
            None => Command::new(program),
            Some(size) => {
                let mount = format!("mount -t tmpfs -o size={size} tmpfs \"$1\" && shift && exec \"$@\"");
                let mut command = Command::new("unshare");
                command.args(["-rm", "sh", "-c", &mount, "sh"]).arg(&data).arg(program);
                command
            }
        };
        let log = File::options().create(true).append(true).open(self.log_path()).expect("a log file");
        command.args(&self.arguments).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).env("WH_DATA_DIR", &data);
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        self.child = Some(command.spawn().expect("the gateway starts"));
    }

    /// Starts the process and waits until it is ready.
    pub(super) async fn start(&mut self) {
        self.spawn();
        self.ready().await;
    }

    /// Waits until `/readyz` says yes.
    pub(super) async fn ready(&mut self) {
        wait_for("the gateway to be ready", READY, async || {
            if let Ok(Some(status)) = self.child.as_mut().expect("it was started").try_wait() {
                panic!("the gateway ended with {status}:\n{}", self.log());
            }
            self.get("/readyz").await.is_ok_and(|(status, _)| status == 200)
        })
        .await;
    }

    /// Ends the process at once (SIGKILL).
    pub(super) fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("the gateway can be killed");
            child.wait().expect("the gateway ends");
        }
    }

    /// Whether the process still runs.
    pub(super) fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.as_ref().expect("the gateway runs").id()
    }

    /// The process id of the engine that is this process's child.
    pub(super) fn engine_pid(&self) -> Option<u32> {
        let parent = self.pid().to_string();
        fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (head, rest) = stat.rsplit_once(") ")?;
            let mut fields = rest.split(' ');
            let (state, of) = (fields.next()?, fields.next()?);
            let ours = head.contains("(wavehouse-click") && of == parent && state != "Z";
            ours.then(|| entry.file_name().to_string_lossy().parse().ok())?
        })
    }

    /// Memory of the process now, in MiB.
    pub(super) fn rss_mib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the gateway runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("memory is told");
        let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().expect("a number");
        kib / 1024
    }

    /// The data directory as the gateway sees it, also where that is a file system of its own.
    pub(super) fn data_dir(&self) -> PathBuf {
        let data = self.dir.path().join("data");
        let inside = data.strip_prefix("/").unwrap_or(&data).to_owned();
        Path::new("/proc").join(self.pid().to_string()).join("root").join(inside)
    }

    /// The folder with the data directory and the log, as this test sees it.
    pub(super) fn home(&self) -> &Path {
        self.dir.path()
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// What it logged so far.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// `http://127.0.0.1:PORT`.
    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Runs a statement; its rows.
    pub(super) async fn sql(&self, statement: &str) -> Vec<Value> {
        let body = serde_json::json!({ "sql": statement }).to_string();
        let request = Request::post(format!("{}/v1/ops/query", self.url()))
            .header("content-type", "application/json")
            .header("x-operator-key", KEY)
            .body(Full::from(body))
            .expect("a request");
        let (status, text) = self.ask(request).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
        assert_eq!(status, 200, "{statement}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{statement}: {error}: {text}"))
    }

    /// Whether ClickHouse answers the gateway.
    pub(super) async fn engine_answers(&self) -> bool {
        let request = Request::post(format!("{}/v1/ops/query", self.url()))
            .header("x-operator-key", KEY)
            .body(Full::from(r#"{"sql":"SELECT 1"}"#))
            .expect("a request");
        self.ask(request).await.is_ok_and(|(status, _)| status == 200)
    }

    /// Makes a table known to the gateway.
    pub(super) async fn refresh_schema(&self) {
        let request = Request::post(format!("{}/v1/ops/schema/refresh", self.url()))
            .header("x-operator-key", KEY)
            .body(Full::default())
            .expect("a request");
        let (status, text) = self.ask(request).await.expect("an answer");
        assert_eq!(status, 200, "schema refresh: {text}");
    }

    /// Posts rows; status, `Retry-After` in seconds, and body.
    pub(super) async fn post(&self, table: &str, rows: String) -> Result<(u16, Option<u64>, String), String> {
        post(&self.client, &self.url(), table, rows).await.map_err(|error| error.to_string())
    }

    /// The sum of all samples of a metric; 0 when there is none.
    pub(super) async fn metric(&self, name: &str) -> f64 {
        let (status, page) = self.get("/metrics").await.expect("metrics");
        assert_eq!(status, 200, "metrics: {page}");
        let of = |line: &str| {
            let (sample, value) = line.rsplit_once(' ')?;
            (sample.split('{').next() == Some(name)).then(|| value.parse::<f64>().ok())?
        };
        page.lines().filter_map(of).sum()
    }

    async fn get(&self, path: &str) -> Result<(u16, String), String> {
        let request = Request::get(format!("{}{path}", self.url())).body(Full::default()).expect("a request");
        self.ask(request).await
    }

    async fn ask(&self, request: Request<Full<Bytes>>) -> Result<(u16, String), String> {
        let response = self.client.request(request).await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

/// Why a post has no answer.
#[derive(Debug)]
pub(super) struct NoAnswer {
    /// Whether the server may have taken the rows.
    pub(super) may_be_stored: bool,
    text: String,
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Posts rows as NDJSON.
pub(super) async fn post(
    client: &HttpClient,
    url: &str,
    table: &str,
    rows: String,
) -> Result<(u16, Option<u64>, String), NoAnswer> {
    let request = Request::post(format!("{url}/v1/ingest?table={table}"))
        .header("content-type", "application/x-ndjson")
        .header("x-operator-key", KEY)
        .body(Full::from(rows))
        .expect("a request");
    let response = client
        .request(request)
        .await
        .map_err(|error| NoAnswer { may_be_stored: !error.is_connect(), text: error.to_string() })?;
    let status = response.status().as_u16();
    let retry_after = response.headers().get("retry-after");
    let retry_after_s = retry_after.map(|value| value.to_str().expect("ascii").parse().expect("seconds"));
    let body = response.into_body().collect().await;
    let body = body.map_err(|error| NoAnswer { may_be_stored: true, text: error.to_string() })?.to_bytes();
    Ok((status, retry_after_s, String::from_utf8_lossy(&body).into_owned()))
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(8_000);
            println!("--- the gateway's last words\n{}", log.get(from..).unwrap_or(&log));
        }
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
