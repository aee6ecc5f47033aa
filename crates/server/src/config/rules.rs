//! Rules that look at several keys together. Each is a named check; all are asked, and all that fail are told.

use super::finding::Finding;
use super::layers::{Layers, Value};
use super::resolve::subject;
use super::{Config, Mode, Queue, keys};

struct Case<'a> {
    config: &'a Config,
    layers: &'a Layers,
}

impl Case<'_> {
    fn given(&self, path: &str) -> bool {
        self.layers.contains_key(path)
    }

    fn subject(&self, path: &str) -> String {
        subject(path, self.layers)
    }
}

type Check = fn(&Case<'_>) -> Option<Finding>;

const RULES: &[Check] = &[
    operator_key_once,
    password_once,
    address_once,
    engine_or_server,
    certificate_with_key,
    headers_legal,
    connections_under_ceiling,
    batches_in_order,
    batch_fits_worker,
    metrics_port_apart,
    metrics_path_legal,
    dev_on_loopback,
];

/// Asks every rule.
pub(crate) fn check(config: &Config, layers: &Layers, findings: &mut Vec<Finding>) {
    let case = Case { config, layers };
    findings.extend(RULES.iter().filter_map(|rule| rule(&case)));
}

/// What is legal and yet worth a second look.
pub(crate) fn warnings(config: &Config, layers: &Layers) -> Vec<String> {
    let mut warnings = unused(config, layers);
    if config.mode == Mode::Serve && config.operator_key.is_none() {
        warnings.push(
            "auth.operator_key is not set: nobody can send or read rows, since every such route needs the key; set WH_AUTH_OPERATOR_KEY"
                .to_owned(),
        );
    }
    if config.clickhouse.tls.insecure {
        warnings.push("tenant.clickhouse.tls.insecure_skip_verify is on: anyone on the way to ClickHouse can read and change rows".to_owned());
    }
    if config.engine.is_some() && config.mode == Mode::Serve {
        warnings.push(
            "engine.embedded is on: rows live in this machine's data_dir alone, with no replica".to_owned(),
        );
    }
    warnings
}

/// What was set and is not read, since something else was chosen.
fn unused(config: &Config, layers: &Layers) -> Vec<String> {
    let given = |block: &str| {
        let mut there =
            layers.iter().filter(|(path, given)| path.starts_with(block) && !is_usual(path, &given.value));
        there.next().map(|(path, _)| *path)
    };
    let (shared, leases) = match &config.queue {
        Queue::Embedded => (false, false),
        Queue::Nats(nats) => (true, nats.topology.input().coord_on_nats),
    };
    let mut warnings = Vec::new();
    let mut warn = |path: Option<&str>, why: &str| {
        warnings.extend(path.map(|path| format!("{path} is set and has no effect: {why}")));
    };
    if !shared {
        warn(given("mq.nats."), "mq.backend is embedded");
    }
    if !leases {
        warn(given("coord.nats."), "coord.backend is local");
    }
    if shared {
        for path in ["tenant.mq.max_bytes_gb", "queue.disk_bytes_max"] {
            warn(given(path), "mq.backend is nats, where the sizes of the streams bound the queue");
        }
        if config.roles.sweeper && layers.contains_key("roles") {
            warn(Some("the role sweeper"), "mq.backend is nats, where the servers free what is written");
        }
    }
    warnings
}

/// Whether a value is the default, as `config print` writes it out.
fn is_usual(path: &str, value: &Value) -> bool {
    let Some(default) = keys::by_path(path).and_then(|key| key.default) else { return false };
    match value {
        Value::Text(text) => text == default,
        Value::Tree(tree) => tree.as_str().map_or_else(|| tree.to_string(), str::to_owned) == default,
    }
}

fn both(case: &Case<'_>, one: &str, other: &str) -> Option<Finding> {
    (case.given(one) && case.given(other)).then(|| {
        Finding::new(
            case.subject(other),
            format!("is set beside {one}"),
            "one of the two",
            format!("remove {one} or {other}"),
        )
    })
}

fn operator_key_once(case: &Case<'_>) -> Option<Finding> {
    both(case, "auth.operator_key", "auth.operator_key_file")
}

fn password_once(case: &Case<'_>) -> Option<Finding> {
    both(case, "clickhouse.password", "clickhouse.password_file")
}

fn address_once(case: &Case<'_>) -> Option<Finding> {
    ["tenant.clickhouse.addr", "tenant.clickhouse.http_port", "tenant.clickhouse.http_scheme"]
        .iter()
        .find_map(|part| both(case, part, "tenant.clickhouse.url"))
}

fn engine_or_server(case: &Case<'_>) -> Option<Finding> {
    if !case.given("engine.embedded") {
        return None;
    }
    case.config.engine.as_ref()?;
    ["tenant.clickhouse.url", "tenant.clickhouse.addr"]
        .iter()
        .find_map(|path| both(case, path, "engine.embedded"))
}

fn certificate_with_key(case: &Case<'_>) -> Option<Finding> {
    let (cert, key) = ("tenant.clickhouse.tls.cert_file", "tenant.clickhouse.tls.key_file");
    let (alone, missing) = match (case.given(cert), case.given(key)) {
        (true, false) => (cert, key),
        (false, true) => (key, cert),
        _ => return None,
    };
    Some(Finding::new(
        case.subject(alone),
        "stands alone",
        "certificate and key together",
        format!("set {missing} too"),
    ))
}

/// Headers that the client sets itself.
const OWN_HEADERS: [&str; 4] =
    ["x-clickhouse-user", "x-clickhouse-key", "x-clickhouse-database", "authorization"];

fn headers_legal(case: &Case<'_>) -> Option<Finding> {
    let headers = &case.config.clickhouse.headers;
    let mut seen = std::collections::BTreeSet::new();
    for (name, text) in headers {
        let folded = name.to_ascii_lowercase();
        let found = if OWN_HEADERS.contains(&folded.as_str()) {
            format!("sets {name}, which the gateway sets itself")
        } else if http::HeaderName::try_from(name.as_str()).is_err()
            || http::HeaderValue::try_from(text).is_err()
        {
            format!("has {name:?}, which HTTP does not allow")
        } else if !seen.insert(folded) {
            format!("has {name} twice")
        } else {
            continue;
        };
        let path = "tenant.clickhouse.headers";
        return Some(Finding::new(
            case.subject(path),
            found,
            "names and texts as HTTP has them, each once",
            format!("remove {name}"),
        ));
    }
    None
}

fn connections_under_ceiling(case: &Case<'_>) -> Option<Finding> {
    // Only a number that somebody wrote is held against the ceiling; the default follows it.
    let path = "tenant.clickhouse.max_open_conns";
    let wanted = super::values::whole(&case.layers.get(path)?.value, 1, u64::MAX).ok()?;
    let ceiling =
        super::values::whole(&case.layers.get("clickhouse.max_total_conns")?.value, 1, u64::MAX).ok()?;
    (wanted > ceiling).then(|| {
        let expected = format!("at most clickhouse.max_total_conns, which is {ceiling}");
        Finding::new(case.subject(path), format!("is {wanted}"), expected, "lower this or raise that")
    })
}

fn batches_in_order(case: &Case<'_>) -> Option<Finding> {
    let worker = &case.config.worker;
    (worker.batch_bytes > worker.batch_bytes_max).then(|| {
        Finding::new(
            case.subject("worker.batch_bytes"),
            format!("is {}", worker.batch_bytes),
            format!("at most worker.batch_bytes_max, which is {}", worker.batch_bytes_max),
            "lower this or raise that",
        )
    })
}

fn batch_fits_worker(case: &Case<'_>) -> Option<Finding> {
    let worker = &case.config.worker;
    let least = worker.batch_bytes_max.saturating_mul(2);
    (worker.held_bytes < least).then(|| {
        Finding::new(
            case.subject("worker.held_bytes"),
            format!("is {}", worker.held_bytes),
            format!("room for two batches of worker.batch_bytes_max, which are {least} bytes"),
            "raise this or lower that",
        )
    })
}

fn metrics_port_apart(case: &Case<'_>) -> Option<Finding> {
    let port = case.config.prometheus.as_ref()?.port?;
    (port == case.config.server.listen.port()).then(|| {
        let found = format!("is {port}, as server.port is");
        Finding::new(
            case.subject("prometheus.port"),
            found,
            "a port of its own",
            "set 0 to serve metrics on server.port",
        )
    })
}

const PROBE_PATHS: [&str; 5] = ["/livez", "/readyz", "/healthz", "/health", "/ready"];

fn metrics_path_legal(case: &Case<'_>) -> Option<Finding> {
    let prometheus = case.config.prometheus.as_ref()?;
    let path = prometheus.path.as_str();
    let taken = PROBE_PATHS.contains(&path) || path == "/version";
    let data = prometheus.port.is_none() && (path == "/v1" || path.starts_with("/v1/"));
    (!path.starts_with('/') || path.contains(['?', '#', ' ', '{', '}', '*']) || taken || data).then(|| {
        Finding::new(
            case.subject("prometheus.path"),
            format!("is {path:?}"),
            "a path that begins with / and is no route of the gateway",
            "write /metrics",
        )
    })
}

fn dev_on_loopback(case: &Case<'_>) -> Option<Finding> {
    let address = case.config.server.listen.ip();
    (case.config.mode == Mode::Dev && !address.is_loopback()).then(|| {
        Finding::new(
            case.subject("server.listen"),
            format!("is {address}"),
            "a loopback address, since the routes of `wavehouse dev` are open to whoever reaches them",
            "remove it, or run `wavehouse` with an operator's key instead",
        )
    })
}
