//! The configuration: defaults, then the file, then `WH_*` variables, then flags; read once, checked whole, and told all
//! at once when something is wrong. Only [`Config`] leaves this module: everything in it is already true.
//!
//! ```text
//! file ─┐
//! env ──┼─ layers (who gave what) ─ resolve (types, bounds) ─ rules (keys together) ─ Config
//! flags ┘
//! ```

mod finding;
mod inert;
mod keys;
mod layers;
mod links;
mod nats;
#[cfg(test)]
mod nats_tests;
mod print;
mod probe;
mod reference;
mod resolve;
mod roles;
mod rules;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use finding::{Finding, report};
pub(crate) use nats::{Nats, Queue, inbox_prefix};
pub(crate) use print::print;
pub(crate) use probe::probe_data_dir;
pub(crate) use reference::page as reference_page;
pub(crate) use roles::Roles;

/// How the program was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// For others to use: routes need the operator's key.
    Serve,
    /// For one person at this machine: everything embedded, loopback only, routes open.
    Dev,
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that sends or compares it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Everything the program needs to know before it starts.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// How the program was started.
    pub(crate) mode: Mode,
    /// The parts that this process runs.
    pub(crate) roles: Roles,
    /// Which queue keeps the rows.
    pub(crate) queue: Queue,
    /// Where the embedded queue, and the engine's files if there is one, live.
    pub(crate) data_dir: PathBuf,
    /// The name of this process in logs and leases.
    pub(crate) instance_id: String,
    /// The listener and its stop.
    pub(crate) server: Server,
    /// The operator's key; none when nobody is let in by key.
    pub(crate) operator_key: Option<Secret>,
    /// The ClickHouse of tenant 0.
    pub(crate) clickhouse: ClickHouse,
    /// What tenant 0 may use of the queue.
    pub(crate) tenant: Tenant,
    /// Most bytes of disk of the queue; none for as much as there is.
    pub(crate) queue_disk_bytes_max: Option<u64>,
    /// Most bytes of request bodies in memory at once.
    pub(crate) body_bytes_in_flight_max: u64,
    /// Batches.
    pub(crate) worker: Worker,
    /// Where metrics are read; none when they are not.
    pub(crate) prometheus: Option<Prometheus>,
    /// The engine beside us; none when ClickHouse is somebody else's.
    pub(crate) engine: Option<Engine>,
    /// Least severity that is logged.
    pub(crate) log_level: tracing::Level,
    /// What is legal and yet worth a second look; logged at start.
    pub(crate) warnings: Vec<String>,
}

impl Config {
    /// Whether this process keeps anything in its data directory.
    pub(crate) fn keeps_files(&self) -> bool {
        matches!(self.queue, Queue::Embedded) || self.engine.is_some()
    }
}

/// The listener and its stop.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// Address and port.
    pub(crate) listen: SocketAddr,
    /// How long a stop goes on as before, but for readiness.
    pub(crate) drain_delay: Duration,
    /// What a stop gives to requests and batches in flight.
    pub(crate) shutdown_timeout: Duration,
}

/// Where rows go and queries are asked.
#[derive(Debug, Clone)]
pub(crate) struct ClickHouse {
    /// `http://host:port` or `https://host:port`, nothing after it.
    pub(crate) url: String,
    /// The database with the tables.
    pub(crate) database: String,
    /// Who we are there.
    pub(crate) username: String,
    /// And how we prove it.
    pub(crate) password: Secret,
    /// After which a query is given up.
    pub(crate) query_timeout: Duration,
    /// Most connections.
    pub(crate) connections_max: u32,
    /// Sent with every request.
    pub(crate) headers: BTreeMap<String, String>,
    /// For `https`.
    pub(crate) tls: Tls,
    /// Between two looks at the tables.
    pub(crate) schema_refresh: Duration,
}

/// How ClickHouse is trusted and how it trusts us.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tls {
    /// Trusted in place of the system's certificates.
    pub(crate) ca_file: Option<PathBuf>,
    /// Our certificate and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    /// The name in ClickHouse's certificate, where it is not the host's.
    pub(crate) server_name: Option<String>,
    /// Takes any certificate.
    pub(crate) insecure: bool,
}

/// What a tenant may use.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    /// Most bytes of rows that wait for ClickHouse; none for a share of the free space at start.
    pub(crate) unwritten_bytes_max: Option<u64>,
    /// How long rows that ClickHouse has are kept.
    pub(crate) gap_window: Duration,
    /// How long a live stream is quiet before it gets a sign of life.
    pub(crate) keepalive: Duration,
    /// Whose pages may call.
    pub(crate) allowed_origins: Vec<String>,
}

/// When a batch goes out, and how much the worker holds.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    /// How long a row may wait for others.
    pub(crate) linger: Duration,
    /// Rows that end the wait.
    pub(crate) batch_rows: u64,
    /// Bytes that end the wait.
    pub(crate) batch_bytes: u64,
    /// Most bytes of one insert.
    pub(crate) batch_bytes_max: u64,
    /// Most inserts under way.
    pub(crate) inserts_max: u64,
    /// Most rows in memory.
    pub(crate) held_rows: u64,
    /// Most bytes in memory.
    pub(crate) held_bytes: u64,
}

/// Where metrics are read.
#[derive(Debug, Clone)]
pub(crate) struct Prometheus {
    /// The path.
    pub(crate) path: String,
    /// A port of its own; none for the gateway's.
    pub(crate) port: Option<u16>,
}

/// The engine beside us.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    /// Its program; none for the one beside ours.
    pub(crate) bin: Option<PathBuf>,
    /// Its library; none for the one that is found.
    pub(crate) lib: Option<PathBuf>,
    /// Its port; none for 8123 or a free one.
    pub(crate) port: Option<u16>,
    /// Most memory.
    pub(crate) memory_bytes_max: u64,
}

/// What the configuration is made of, gathered by the program's entry.
pub(crate) struct Sources<'a> {
    /// How the program was started.
    pub(crate) mode: Mode,
    /// The process environment.
    pub(crate) env: &'a BTreeMap<String, String>,
    /// `--config`, which wins over `WH_CONFIG`.
    pub(crate) file: Option<&'a Path>,
    /// `--set KEY=VALUE`, in order.
    pub(crate) flags: &'a [String],
    /// The host name and a random number, for an instance id.
    pub(crate) host: (&'a str, u32),
    /// Reads a file whole.
    pub(crate) read: &'a dyn Fn(&Path) -> std::io::Result<String>,
}

/// The configuration and, for `config print`, who gave what.
pub(crate) struct Loaded {
    /// The configuration.
    pub(crate) config: Config,
    /// Who gave what.
    pub(crate) layers: layers::Layers,
}

/// Reads and checks the whole configuration.
///
/// # Errors
/// Every finding, not just the first.
pub(crate) fn load(sources: &Sources<'_>) -> Result<Loaded, Vec<Finding>> {
    let mut findings = Vec::new();
    let tree = read_file(sources, &mut findings);
    let layers = layers::collect(tree.as_ref(), sources.env, sources.flags, &mut findings);
    let mut config = resolve::resolve(sources, &layers, &mut findings);
    rules::check(&config, &layers, &mut findings);
    config.warnings = rules::warnings(&config, &layers);
    if findings.is_empty() { Ok(Loaded { config, layers }) } else { Err(findings) }
}

/// Where a file is looked for when nobody names one.
const DEFAULT_FILE: &str = "config.yaml";

fn read_file(sources: &Sources<'_>, findings: &mut Vec<Finding>) -> Option<serde_json::Value> {
    let variable = sources.env.get("WH_CONFIG").map(Path::new);
    let named = sources.file.or(variable);
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    let subject = match (sources.file, variable) {
        (Some(_), _) => "--config",
        (None, Some(_)) => "WH_CONFIG",
        (None, None) => DEFAULT_FILE,
    };
    let text = match (sources.read)(path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            findings.push(Finding::new(
                subject,
                format!("{} cannot be read: {error}", path.display()),
                "a readable file",
                "name a file that is there, or unset it to do without one",
            ));
            return None;
        }
    };
    match parse_yaml(&text) {
        Ok(tree) => Some(tree),
        Err(reason) => {
            findings.push(Finding::new(
                subject,
                format!("{} is not YAML: {reason}", path.display()),
                "YAML with each key once",
                "mend it at the place named",
            ));
            None
        }
    }
}

fn parse_yaml(text: &str) -> Result<serde_json::Value, String> {
    if text.lines().all(|line| line.trim_start().starts_with('#') || line.trim().is_empty()) {
        return Ok(serde_json::Value::Null);
    }
    let options = serde_saphyr::options! { leading_zero_numbers_as_strings: true, strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}
