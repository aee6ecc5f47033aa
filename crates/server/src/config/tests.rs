//! The whole of loading: every key by file and by variable, all findings at once, defaults, precedence, the page.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::keys::{KEYS, Kind};
use super::layers::Origin;
use super::*;

struct Given<'a> {
    mode: Mode,
    yaml: Option<&'a str>,
    env: Vec<(&'a str, &'a str)>,
    flags: Vec<String>,
}

impl Default for Given<'_> {
    fn default() -> Self {
        Self { mode: Mode::Serve, yaml: None, env: Vec::new(), flags: Vec::new() }
    }
}

fn load_given(given: &Given<'_>) -> Result<Loaded, Vec<Finding>> {
    let env: BTreeMap<String, String> =
        given.env.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let read = |path: &Path| match (path.to_str(), given.yaml) {
        (Some("config.yaml"), Some(yaml)) => Ok(yaml.to_owned()),
        (Some("/run/secret"), _) => Ok("from-a-file\n".to_owned()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    load(&Sources {
        mode: given.mode,
        env: &env,
        file: None,
        flags: &given.flags,
        host: ("host", 7),
        read: &read,
    })
}

fn from_env(env: &[(&'static str, &'static str)]) -> Result<Loaded, Vec<Finding>> {
    load_given(&Given { env: env.to_vec(), ..Given::default() })
}

fn from_yaml(yaml: &str) -> Result<Loaded, Vec<Finding>> {
    load_given(&Given { yaml: Some(yaml), ..Given::default() })
}

/// For each key: two legal values that differ from the default, and one that is not legal.
fn samples(kind: Kind, path: &str) -> (String, String, &'static str) {
    let texts = |a: &str, b: &str, bad| (a.to_owned(), b.to_owned(), bad);
    match (path, kind) {
        ("tenant.clickhouse.url", _) => texts("http://a:1", "https://b", "b:8123"),
        ("tenant.clickhouse.addr", _) => texts("a:1", "b:2", "no-port"),
        ("prometheus.path", _) => texts("/a", "/b", " "),
        ("roles", _) => texts("sweeper,ingest,api", "ingest,api,sweeper", "api"),
        (_, Kind::Text | Kind::Path) => texts("one", "two", " "),
        (_, Kind::AnyText | Kind::Secret) => texts("one", "two", "\u{0}none"),
        (_, Kind::Switch) => texts("true", "false", "yes"),
        ("mq.backend", _) => texts("embedded", "embedded", "kafka"),
        ("coord.backend", _) => texts("local", "local", "zookeeper"),
        ("mq.nats.urls", _) => texts("nats://a:4222", "tls://a:4222,b:1", "nats://u:p@a"),
        (_, Kind::Span) => texts("250ms", "1m30s", "0s"),
        (_, Kind::Whole { min, max }) => (min.to_string(), max.to_string(), "-1"),
        (_, Kind::Bytes { min, max }) => (min.to_string(), max.min(1 << 40).to_string(), "1kb"),
        (_, Kind::List) => texts("x", "x,y", "x,,y"),
        (_, Kind::Map) => texts("X-A=1", "X-A=2", "X-A"),
        (_, Kind::Word(words, _)) => texts(words.first().unwrap(), words.last().unwrap(), "quantum"),
        (_, Kind::Address) => texts("127.0.0.1", "::1", "localhost"),
    }
}

fn yaml_of(path: &str, value: &str) -> String {
    let mut text = String::new();
    let parts: Vec<&str> = path.split('.').collect();
    for (depth, part) in parts.iter().enumerate() {
        text.push_str(&format!("{}{part}:", "  ".repeat(depth)));
        text.push_str(if depth + 1 == parts.len() { " " } else { "\n" });
    }
    text + value
}

/// What keeps a key from being set alone.
fn company(path: &str) -> Vec<(&'static str, &'static str)> {
    match path {
        "mq.nats.urls" => ON_NATS.iter().copied().filter(|(name, _)| *name != "WH_MQ_NATS_URLS").collect(),
        _ if path.starts_with("mq.nats.") || path.starts_with("coord.nats.") => ON_NATS.to_vec(),
        "tenant.clickhouse.tls.cert_file" => vec![("WH_CH_TLS_KEY_FILE", "k")],
        "tenant.clickhouse.tls.key_file" => vec![("WH_CH_TLS_CERT_FILE", "c")],
        "worker.batch_bytes_max" => vec![("WH_WORKER_BATCH_BYTES", "1")],
        "worker.held_bytes" => vec![("WH_WORKER_BATCH_BYTES", "1"), ("WH_WORKER_BATCH_BYTES_MAX", "1")],
        _ => vec![],
    }
}

/// A queue on message servers, shared through leases.
const ON_NATS: [(&str, &str); 3] =
    [("WH_MQ_BACKEND", "nats"), ("WH_MQ_NATS_URLS", "nats://mq:4222"), ("WH_COORD_BACKEND", "nats")];

/// Keys that name files which must be there; they have tests of their own. So has the user, who needs one.
fn needs_a_file(path: &str) -> bool {
    let shared = path.starts_with("mq.nats.tls.") || path == "mq.nats.user";
    path != "mq.nats.tls.handshake_first"
        && (shared || (path.ends_with("_file") && !path.starts_with("tenant.clickhouse.tls.")))
}

#[test]
fn every_key_by_file_by_variable_and_by_both() {
    for key in KEYS.iter().filter(|key| !needs_a_file(key.path)) {
        let (one, two, bad) = samples(key.kind, key.path);
        let in_file = match key.kind {
            Kind::List => format!("[{two}]"),
            Kind::Map => "{X-A: '2'}".to_owned(),
            Kind::Text | Kind::AnyText | Kind::Secret | Kind::Path | Kind::Address | Kind::Span => {
                format!("{two:?}")
            }
            _ => two.clone(),
        };
        let yaml = yaml_of(key.path, &in_file);
        let mut env = company(key.path);

        let file = load_given(&Given { yaml: Some(&yaml), env: env.clone(), ..Given::default() });
        let file = file.unwrap_or_else(|findings| panic!("{yaml}\n{}", report(&findings)));
        assert_eq!(file.layers[key.path].origin, Origin::File, "{}", key.path);

        env.push((key.env, &one));
        let both = load_given(&Given { yaml: Some(&yaml), env: env.clone(), ..Given::default() });
        let both = both.unwrap_or_else(|findings| panic!("{}\n{}", key.path, report(&findings)));
        assert_eq!(both.layers[key.path].origin, Origin::Env(key.env));
        let alone = load_given(&Given { env, ..Given::default() });
        let alone = alone.unwrap_or_else(|findings| panic!("{}\n{}", key.path, report(&findings)));
        assert_eq!(
            format!("{:?}", alone.config),
            format!("{:?}", both.config),
            "{}: the variable wins",
            key.path
        );

        if !matches!(key.kind, Kind::AnyText | Kind::Secret) {
            let mut env = company(key.path);
            env.push((key.env, bad));
            let findings = load_given(&Given { env, ..Given::default() }).err().unwrap();
            assert!(
                findings.iter().any(|f| f.subject.contains(key.path)),
                "{}: {}",
                key.path,
                report(&findings)
            );
        }
        let null = yaml_of(key.path, "");
        let blank = load_given(&Given { yaml: Some(&null), env: company(key.path), ..Given::default() });
        let findings = blank.err().unwrap_or_else(|| panic!("{} left blank is taken", key.path));
        assert!(findings.iter().all(|f| f.subject.contains(key.path)), "{}", report(&findings));
    }
}

#[test]
fn every_value_that_is_set_changes_the_configuration() {
    let plain = from_env(&[]).unwrap().config;
    // Selectors and roles have one legal value; the parts of a switched-off block show only with their switch.
    let unseen =
        |path: &str| path.ends_with(".backend") || path == "roles" || path == "clickhouse.max_total_conns";
    let unseen = |path: &str| unseen(path) || path.ends_with("_file") || needs_a_file(path);
    for key in KEYS.iter().filter(|key| !unseen(key.path)) {
        let (one, two, _) = samples(key.kind, key.path);
        let mut env = company(key.path);
        match key.path.split_once('.') {
            Some(("prometheus", part)) if part != "enabled" => env.push(("WH_PROMETHEUS_ENABLED", "true")),
            Some(("engine", part)) if part != "embedded" => env.push(("WH_ENGINE_EMBEDDED", "true")),
            _ => {}
        }
        let load = |text: &str| {
            let mut env = env.clone();
            env.push((key.env, text));
            format!("{:?}", load_given(&Given { env, ..Given::default() }).map(|l| l.config).unwrap())
        };
        let differs = load(&one) != load(&two) || load(&two) != format!("{plain:?}");
        let secret = matches!(key.kind, Kind::Secret);
        assert!(differs || secret, "{} has no effect", key.path);
    }
}

#[test]
fn defaults_are_legal_in_both_modes() {
    for mode in [Mode::Serve, Mode::Dev] {
        let loaded = load_given(&Given { mode, ..Given::default() });
        let config = loaded.unwrap_or_else(|findings| panic!("{}", report(&findings))).config;
        assert_eq!(config.engine.is_some(), mode == Mode::Dev);
        assert_eq!(config.server.listen.ip().is_loopback(), mode == Mode::Dev);
        assert_eq!(config.clickhouse.url, "http://localhost:8123");
        assert_eq!(config.worker.batch_bytes_max, 64 << 20);
        assert_eq!(config.instance_id, "host-00000007");
    }
}

#[test]
fn an_explicit_zero_is_not_the_default() {
    let config = from_yaml("server: {shutdown_timeout: 0}\ntenant: {stream: {gap_window_minutes: 0}, cors: {allowed_origins: []}}")
        .unwrap()
        .config;
    assert_eq!(config.server.shutdown_timeout, Duration::ZERO);
    assert_eq!(config.tenant.gap_window, Duration::ZERO);
    assert!(config.tenant.allowed_origins.is_empty());
    let config = load_given(&Given {
        mode: Mode::Dev,
        env: vec![("WH_PROMETHEUS_ENABLED", "false")],
        ..Given::default()
    });
    assert!(config.unwrap().config.prometheus.is_none());
}

#[test]
fn an_empty_variable_is_set() {
    let findings = from_env(&[("WH_DATA_DIR", "")]).err().unwrap();
    assert!(findings[0].subject.contains("data_dir (WH_DATA_DIR)"), "{findings:?}");
    assert!(from_env(&[("WH_AUTH_OPERATOR_KEY", "")]).unwrap().config.operator_key.is_none());
}

#[test]
fn flags_win_over_variables() {
    let loaded = load_given(&Given {
        env: vec![("WH_SERVER_PORT", "1")],
        flags: vec!["server.port=2".to_owned()],
        ..Given::default()
    });
    assert_eq!(loaded.unwrap().config.server.listen.port(), 2);
}

#[test]
fn secrets_come_from_files_and_are_never_printed() {
    let loaded =
        from_env(&[("WH_AUTH_OPERATOR_KEY_FILE", "/run/secret"), ("WH_CH_PASSWORD", "hunter2")]).unwrap();
    assert_eq!(loaded.config.operator_key.as_ref().map(Secret::reveal), Some("from-a-file"));
    let all = format!("{:?}{}", loaded.config, print(&loaded.layers, Mode::Serve));
    assert!(!all.contains("hunter2") && !all.contains("from-a-file"), "{all}");
    assert!(all.contains("password: \"***\""));
    assert!(from_env(&[("WH_AUTH_OPERATOR_KEY_FILE", "/run/none")]).is_err());
    assert!(from_env(&[("WH_CH_PASSWORD", "a"), ("WH_CH_PASSWORD_FILE", "/run/secret")]).is_err());
}

#[test]
fn what_is_printed_can_be_loaded_again() {
    let first =
        from_env(&[("WH_SERVER_PORT", "81"), ("WH_CORS_ALLOWED_ORIGINS", "http://a,http://b")]).unwrap();
    let text = print(&first.layers, Mode::Serve);
    let text: String = text
        .lines()
        .filter(|line| !line.contains(".addr") && !line.trim_start().starts_with('#'))
        .map(|l| format!("{l}\n"))
        .collect();
    let second = from_yaml(&text).unwrap_or_else(|findings| panic!("{text}\n{}", report(&findings)));
    assert_eq!(format!("{:?}", first.config), format!("{:?}", second.config));
}

#[test]
fn a_named_file_must_exist() {
    let findings = from_env(&[("WH_CONFIG", "/nowhere.yaml")]).err().unwrap();
    assert!(findings[0].found.contains("/nowhere.yaml"), "{findings:?}");
}

#[test]
fn kubernetes_service_links_are_passed_over() {
    assert!(
        from_env(&[
            ("WH_SERVICE_HOST", "10.0.0.1"),
            ("WH_PORT", "tcp://10.0.0.1:80"),
            ("WH_A_PORT_80_TCP_ADDR", "10.0.0.1")
        ])
        .is_ok()
    );
    assert!(from_env(&[("WH_SERVER_PORT", "tcp://10.0.0.1:80")]).is_err());
}

#[test]
fn dev_uses_a_clickhouse_that_is_named() {
    let config = load_given(&Given {
        mode: Mode::Dev,
        env: vec![("WH_CH_URL", "http://db:8123")],
        ..Given::default()
    });
    assert!(config.unwrap().config.engine.is_none());
}

#[test]
fn all_findings_at_once() {
    let yaml = "\
server: {prot: 8080, port: 0}
data_dir:
settings: {dir: ./settings}
cache: {backend: redis, redis: {addrs: [a:1]}}
mq: {backend: nats, nats: {urls: [\"nats://u:hunter2@h\"]}}
roles: [api]
tenant:
  clickhouse: {url: \"http://u:hunter2@db\", http_port: 1, max_idle_conns: 5, tls: {cert_file: c, enabled: true}, headers: {Authorization: x}}
  dedupe: {enabled: false}
  database: x
worker: {batch_bytes: 8MiB, batch_bytes_max: 4MiB, held_bytes: 7MiB, held_rows: 5}
prometheus: {enabled: true, path: /v1/metrics, port: 8080}
otel: {enabled: true}
nonsense: {deep: {er: 1}, blank: {}}
";
    let given = Given {
        yaml: Some(yaml),
        env: vec![
            ("WH_AUTH_JWT_SECRET", "hunter2"),
            ("WH_SERVR_PORT", "8080"),
            ("WH_LOG_LEVEL", "loud"),
            ("WH_CH_MAX_TOTAL_CONNS", "4"),
            ("WH_CH_MAX_OPEN_CONNS", "5"),
            ("WH_CH_QUERY_TIMEOUT", "30s"),
        ],
        flags: vec!["server.listen".to_owned(), "serverport=1".to_owned()],
        ..Given::default()
    };
    let text = report(&load_given(&given).err().unwrap());
    assert!(!text.contains("hunter2"), "{text}");
    insta::assert_snapshot!("all_findings", text);
}

#[test]
fn a_broken_file_is_one_finding_and_the_rest_is_still_checked() {
    let given = Given { yaml: Some("a: [1\nb: 2"), env: vec![("WH_SERVER_PORT", "x")], ..Given::default() };
    let findings = load_given(&given).err().unwrap();
    assert_eq!(findings.len(), 2, "{}", report(&findings));
    assert!(from_yaml("server: {port: 1}\nserver: {port: 2}").is_err(), "a key given twice");
    assert!(from_yaml("").is_ok());
    assert!(from_yaml("# only a comment\n").is_ok());
    assert!(from_yaml("just text").is_err());
}

#[test]
fn the_reference_page_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/config.md");
    let page = reference_page();
    #[expect(clippy::disallowed_methods, reason = "asks whoever runs the tests whether to write the page")]
    if std::env::var("UPDATE_DOCS").is_ok() {
        std::fs::create_dir_all(Path::new(path).parent().unwrap()).unwrap();
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == page, "docs/reference/config.md is old: UPDATE_DOCS=1 cargo test -p wavehouse-server");
}
