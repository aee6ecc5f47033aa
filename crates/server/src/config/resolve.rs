//! From what was given to what it means: each key's value in its own type. A value that cannot be read becomes a
//! finding and its default stands in, so that the rest is checked too.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::finding::Finding;
use super::keys::{self, Key, Kind};
use super::layers::{Given, Layers, Origin, Value};
use super::values::{self, Expected};
use super::{
    ClickHouse, Config, Engine, Mode, Prometheus, Queue, Roles, Secret, Server, Sources, Tenant, Tls, Worker,
};
use super::{nats, roles};

const GIB: u64 = 1 << 30;
/// Most rows that a worker holds of a queue that other processes read too, unless told otherwise: what it holds when it dies
/// is delivered to others once more.
const SHARED_HELD_ROWS: u64 = 200_000;

/// Reads every key.
pub(crate) fn resolve(sources: &Sources<'_>, layers: &Layers, findings: &mut Vec<Finding>) -> Config {
    let mut reader = Reader { mode: sources.mode, layers, read: sources.read, findings };
    for selector in ["cache.backend", "dedupe.backend"] {
        reader.word(selector);
    }
    let roles = reader.roles();
    let queue = nats::queue(&mut reader, roles, sources.host.0);
    let shared = matches!(queue, Queue::Nats(_));
    let listen = reader.address("server.listen");
    let key = reader.secret("auth.operator_key", "auth.operator_key_file");
    Config {
        mode: sources.mode,
        roles,
        queue,
        data_dir: reader.path("data_dir").unwrap_or_else(|| PathBuf::from("data")),
        instance_id: instance_id(&reader.any_text("instance_id"), sources.host),
        server: Server {
            listen: SocketAddr::new(listen, reader.port("server.port")),
            drain_delay: reader.seconds("server.drain_delay"),
            shutdown_timeout: reader.seconds("server.shutdown_timeout"),
        },
        operator_key: Some(key).filter(|key| !key.is_empty()),
        clickhouse: reader.clickhouse(),
        tenant: Tenant {
            unwritten_bytes_max: reader.number("tenant.mq.max_bytes_gb").map(|count| count * GIB),
            gap_window: reader.seconds("tenant.stream.gap_window_minutes") * 60,
            keepalive: reader.seconds("tenant.stream.keepalive_interval"),
            allowed_origins: reader.list("tenant.cors.allowed_origins"),
        },
        queue_disk_bytes_max: reader.bytes("queue.disk_bytes_max"),
        body_bytes_in_flight_max: reader.bytes("ingest.body_bytes_in_flight_max").unwrap_or_default(),
        worker: reader.worker(shared),
        prometheus: reader.prometheus(),
        engine: reader.engine(),
        log_level: log_level(sources.env, findings),
        warnings: Vec::new(),
    }
}

fn instance_id(given: &str, (host, nonce): (&str, u32)) -> String {
    let host = if host.is_empty() { "wavehouse" } else { host };
    if given.is_empty() { format!("{host}-{nonce:08x}") } else { given.to_owned() }
}

fn log_level(env: &BTreeMap<String, String>, findings: &mut Vec<Finding>) -> tracing::Level {
    let Some(text) = env.get("WH_LOG_LEVEL") else { return tracing::Level::INFO };
    let known = ["debug", "info", "warn", "error"].iter().any(|word| text.eq_ignore_ascii_case(word));
    match text.parse() {
        Ok(level) if known => level,
        _ => {
            let fix = "set one of them, or unset it for info";
            findings.push(Finding::new(
                "WH_LOG_LEVEL",
                format!("is {text:?}"),
                "debug, info, warn or error",
                fix,
            ));
            tracing::Level::INFO
        }
    }
}

pub(super) struct Reader<'a> {
    mode: Mode,
    pub(super) layers: &'a Layers,
    read: &'a dyn Fn(&Path) -> std::io::Result<String>,
    pub(super) findings: &'a mut Vec<Finding>,
}

impl Reader<'_> {
    /// The value that was given, or else the default, in its type; none when there is neither.
    fn value<T>(&mut self, path: &str, parse: impl Fn(&Value) -> Result<T, Expected>) -> Option<T> {
        let key = keys::by_path(path)?;
        if let Some(given) = self.layers.get(path) {
            match parse(&given.value) {
                Ok(value) => return Some(value),
                Err(expected) => self.findings.push(wrong(key, given, expected)),
            }
        }
        default_of(key, self.mode).and_then(|text| parse(&Value::Text(text.to_owned())).ok())
    }

    pub(super) fn given(&self, path: &str) -> bool {
        self.layers.contains_key(path)
    }

    fn number(&mut self, path: &str) -> Option<u64> {
        let Some(Kind::Whole { min, max }) = keys::by_path(path).map(|key| key.kind) else { return None };
        self.value(path, |value| values::whole(value, min, max))
    }

    pub(super) fn count(&mut self, path: &str) -> u64 {
        self.number(path).unwrap_or_default()
    }

    fn port(&mut self, path: &str) -> u16 {
        self.number(path).and_then(|number| u16::try_from(number).ok()).unwrap_or_default()
    }

    fn seconds(&mut self, path: &str) -> Duration {
        Duration::from_secs(self.count(path))
    }

    pub(super) fn bytes(&mut self, path: &str) -> Option<u64> {
        let Some(Kind::Bytes { min, max }) = keys::by_path(path).map(|key| key.kind) else { return None };
        self.value(path, |value| values::bytes(value, min, max))
    }

    pub(super) fn switch(&mut self, path: &str) -> bool {
        self.value(path, values::switch).unwrap_or_default()
    }

    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        self.value(path, values::full_text)
    }

    pub(super) fn any_text(&mut self, path: &str) -> String {
        self.value(path, values::text).unwrap_or_default().trim().to_owned()
    }

    pub(super) fn path(&mut self, path: &str) -> Option<PathBuf> {
        self.text(path).map(PathBuf::from)
    }

    pub(super) fn list(&mut self, path: &str) -> Vec<String> {
        self.value(path, values::list).unwrap_or_default()
    }

    pub(super) fn span(&mut self, path: &str) -> Duration {
        self.value(path, values::span).unwrap_or_default()
    }

    fn address(&mut self, path: &str) -> IpAddr {
        let parse = |value: &Value| {
            let text = values::full_text(value)?;
            text.parse().map_err(|_| "an IP address such as 0.0.0.0, 127.0.0.1 or ::".to_owned())
        };
        self.value(path, parse).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    pub(super) fn word(&mut self, path: &str) -> String {
        let Some(Kind::Word(words, elsewhere)) = keys::by_path(path).map(|key| key.kind) else {
            return String::new();
        };
        let parse = |value: &Value| {
            let text = values::text(value)?;
            if words.contains(&text.as_str()) {
                return Ok(text);
            }
            let legal = words.join(" or ");
            let hint = format!("; {text} is known, but this version has it not");
            let hint = if elsewhere.contains(&text.as_str()) { hint } else { String::new() };
            Err(format!("{legal}{hint}"))
        };
        self.value(path, parse).unwrap_or_default()
    }

    fn roles(&mut self) -> Roles {
        self.value("roles", |value| roles::parse(&values::list(value)?)).unwrap_or(Roles::ALL)
    }

    /// A secret given as itself or as a file; a file's last newline is not part of it.
    fn secret(&mut self, path: &str, file_key: &str) -> Secret {
        let text = self.any_text(path);
        let Some(file) = self.path(file_key) else { return Secret::new(text) };
        match (self.read)(&file) {
            Ok(content) => Secret::new(content.trim_end_matches(['\r', '\n'])),
            Err(error) => {
                self.findings.push(Finding::new(
                    subject(file_key, self.layers),
                    format!("{} cannot be read: {error}", file.display()),
                    "a readable file",
                    "mount the file, or let this user read it",
                ));
                Secret::default()
            }
        }
    }

    fn clickhouse(&mut self) -> ClickHouse {
        let identity =
            self.path("tenant.clickhouse.tls.cert_file").zip(self.path("tenant.clickhouse.tls.key_file"));
        let ceiling = u32::try_from(self.count("clickhouse.max_total_conns")).unwrap_or(u32::MAX);
        let connections = u32::try_from(self.count("tenant.clickhouse.max_open_conns")).unwrap_or(u32::MAX);
        ClickHouse {
            url: self.clickhouse_url(),
            database: self.text("tenant.clickhouse.database").unwrap_or_default(),
            username: self.text("tenant.clickhouse.username").unwrap_or_default(),
            password: self.secret("clickhouse.password", "clickhouse.password_file"),
            query_timeout: self.seconds("tenant.clickhouse.query_timeout"),
            connections_max: if ceiling == 0 { connections } else { connections.min(ceiling) },
            headers: self.value("tenant.clickhouse.headers", values::map).unwrap_or_default(),
            tls: Tls {
                ca_file: self.path("tenant.clickhouse.tls.ca_file"),
                identity,
                server_name: self.text("tenant.clickhouse.tls.server_name"),
                insecure: self.switch("tenant.clickhouse.tls.insecure_skip_verify"),
            },
            schema_refresh: self.seconds("tenant.schema.refresh_interval"),
        }
    }

    fn clickhouse_url(&mut self) -> String {
        let scheme = self.word("tenant.clickhouse.http_scheme");
        let port = self.port("tenant.clickhouse.http_port");
        let host = self.value("tenant.clickhouse.addr", addr_host).unwrap_or_default();
        let url = self.value("tenant.clickhouse.url", clean_url);
        url.unwrap_or_else(|| format!("{scheme}://{host}:{port}"))
    }

    fn worker(&mut self, shared: bool) -> Worker {
        let held_rows = self.count("worker.held_rows");
        let usual = shared && !self.layers.contains_key("worker.held_rows");
        Worker {
            linger: Duration::from_millis(self.count("worker.linger_ms")),
            batch_rows: self.count("worker.batch_rows"),
            batch_bytes: self.bytes("worker.batch_bytes").unwrap_or_default(),
            batch_bytes_max: self.bytes("worker.batch_bytes_max").unwrap_or_default(),
            inserts_max: self.count("worker.inserts_max"),
            held_rows: if usual { SHARED_HELD_ROWS } else { held_rows },
            held_bytes: self.bytes("worker.held_bytes").unwrap_or_default(),
        }
    }

    fn prometheus(&mut self) -> Option<Prometheus> {
        let on = self.switch("prometheus.enabled");
        let path = self.text("prometheus.path").unwrap_or_default();
        let port = Some(self.port("prometheus.port")).filter(|port| *port != 0);
        on.then_some(Prometheus { path, port })
    }

    fn engine(&mut self) -> Option<Engine> {
        let elsewhere = self.given("tenant.clickhouse.url") || self.given("tenant.clickhouse.addr");
        let on = self.switch("engine.embedded") && (self.given("engine.embedded") || !elsewhere);
        let engine = Engine {
            bin: self.path("engine.bin"),
            lib: self.path("engine.lib"),
            port: Some(self.port("engine.port")).filter(|port| *port != 0),
            memory_bytes_max: self.bytes("engine.memory_bytes_max").unwrap_or_default(),
        };
        on.then_some(engine)
    }
}

/// The default of a key under a mode.
pub(crate) fn default_of(key: &Key, mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::Dev => key.dev.or(key.default),
        Mode::Serve => key.default,
    }
}

/// A key as findings name it: with where its value came from.
pub(crate) fn subject(path: &str, layers: &Layers) -> String {
    match layers.get(path).map(|given| &given.origin) {
        None | Some(Origin::Default) => path.to_owned(),
        Some(origin) => format!("{path} ({origin})"),
    }
}

fn wrong(key: &Key, given: &Given, expected: Expected) -> Finding {
    let found = match (key.kind, &given.value) {
        (Kind::Secret, _) => "is not a text".to_owned(),
        (_, Value::Tree(serde_json::Value::Null)) => "is left blank".to_owned(),
        // What looks like an address with credentials is not repeated.
        (_, value) if values::quote(value).contains('@') => "holds an `@`".to_owned(),
        (_, value) => format!("is {}", values::quote(value)),
    };
    let fix = match (key.default, &given.origin) {
        (Some(default), origin) if !default.is_empty() => match origin {
            Origin::Env(name) => format!("set {name}={default}, the default, or another legal value"),
            _ => format!("write {default}, the default, or another legal value"),
        },
        _ => "give it a legal value, or remove it".to_owned(),
    };
    Finding::new(format!("{} ({})", key.path, given.origin), found, expected, fix)
}

/// The host of a native address.
fn addr_host(value: &Value) -> Result<String, Expected> {
    let expected = || "host:port, such as clickhouse:9000".to_owned();
    let text = values::full_text(value)?;
    let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let legal = !bare.is_empty()
        && !bare.contains(['/', '@', ' ', '?'])
        && port.parse::<u16>().is_ok_and(|port| port > 0);
    if legal && (bare == host) != host.contains(':') { Ok(host.to_owned()) } else { Err(expected()) }
}

/// An address of ClickHouse's HTTP side: scheme, host and port, nothing else.
fn clean_url(value: &Value) -> Result<String, Expected> {
    let expected = || {
        "http://host:8123 or https://host:8443, without a path; user and password have keys of their own"
            .to_owned()
    };
    let text = values::full_text(value)?;
    let (scheme, rest) = text.split_once("://").ok_or_else(expected)?;
    let default_port = match scheme {
        "http" => 8123,
        "https" => 8443,
        _ => return Err(expected()),
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let addr = if has_port { authority.to_owned() } else { format!("{authority}:{default_port}") };
    let host = addr_host(&Value::Text(addr.clone())).map_err(|_| expected())?;
    let port = addr.rsplit_once(':').map_or("", |(_, port)| port);
    Ok(format!("{scheme}://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (text, url) in [
            ("http://db", Some("http://db:8123")),
            ("https://db/", Some("https://db:8443")),
            ("http://db:1", Some("http://db:1")),
            ("http://[::1]", Some("http://[::1]:8123")),
            ("http://[::1]:9", Some("http://[::1]:9")),
            ("db:8123", None),
            ("ftp://db", None),
            ("http://", None),
            ("http://a@db", None),
            ("http://db:0", None),
            ("http://db/path", None),
            ("http://::1", None),
        ] {
            assert_eq!(clean_url(&Value::Text(text.to_owned())).ok().as_deref(), url, "{text}");
        }
    }
}
