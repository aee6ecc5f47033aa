//! The queue on message servers: what is read, what is refused, and that the embedded queue knows nothing of it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::*;

const ON_NATS: [(&str, &str); 3] =
    [("WH_MQ_BACKEND", "nats"), ("WH_MQ_NATS_URLS", "nats://mq:4222"), ("WH_COORD_BACKEND", "nats")];

fn load_env(env: &[(&str, &str)]) -> Result<Config, Vec<Finding>> {
    let env: BTreeMap<String, String> =
        env.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let read = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
    load(&Sources { mode: Mode::Serve, env: &env, file: None, flags: &[], host: ("host", 7), read: &read })
        .map(|loaded| loaded.config)
}

/// The same over a shared queue.
fn load_shared(env: &[(&str, &str)]) -> Result<Config, Vec<Finding>> {
    load_env(&[&ON_NATS[..], env].concat())
}

fn nats(config: &Config) -> &Nats {
    match &config.queue {
        Queue::Nats(nats) => nats,
        Queue::Embedded => panic!("the queue is embedded"),
    }
}

#[test]
fn the_embedded_queue_is_unchanged_when_none_of_it_is_set() {
    let config = load_env(&[]).unwrap();
    assert!(matches!(config.queue, Queue::Embedded));
    assert_eq!(config.roles, Roles::ALL);
    assert_eq!(config.worker.held_rows, 2_000_000);
    assert_eq!(config.warnings.len(), 1, "only the missing operator's key: {:?}", config.warnings);
}

#[test]
fn what_is_not_chosen_is_not_read_and_told() {
    let env =
        [("WH_MQ_NATS_URLS", "nats://u:p@h"), ("WH_MQ_NATS_SHARDS", "none"), ("WH_COORD_NATS_BUCKET", "a.b")];
    let config = load_env(&env).unwrap_or_else(|found| panic!("{}", report(&found)));
    let told = config.warnings.join("\n");
    for path in ["mq.nats.", "coord.nats.bucket"] {
        assert!(told.contains(path), "{told}");
    }
    let config = load_shared(&[
        ("WH_ROLES", "api,ingest,sweeper"),
        ("WH_MQ_MAX_BYTES_GB", "1"),
        ("WH_QUEUE_DISK_BYTES_MAX", "1GiB"),
    ]);
    let told = config.unwrap().warnings.join("\n");
    for what in ["the role sweeper", "tenant.mq.max_bytes_gb", "queue.disk_bytes_max"] {
        assert!(told.contains(what), "{told}");
    }
}

#[test]
fn defaults() {
    let config = load_shared(&[]).unwrap_or_else(|found| panic!("{}", report(&found)));
    let nats = nats(&config);
    assert_eq!(nats.connect.name, "wavehouse-host");
    assert_eq!(nats.connect.inbox_prefix, "_INBOX_wh");
    assert_eq!(nats.connect.connect_timeout, Duration::from_secs(5));
    assert_eq!(nats.topology_wait, Duration::from_secs(60));
    assert_eq!(config.worker.held_rows, 200_000);
    // What a deployment asks for when it says nothing is the same here and in the operator's commands.
    let usual = wavehouse_topology::TopologyInput {
        dedupe_lease: Duration::ZERO,
        ..wavehouse_topology::TopologyInput::default()
    };
    assert_eq!(nats.topology.input(), &usual);
    let config =
        load_env(&[("WH_MQ_BACKEND", "nats"), ("WH_MQ_NATS_URLS", "mq"), ("WH_ROLES", "api")]).unwrap();
    assert!(!self::nats(&config).topology.input().coord_on_nats, "nobody here holds a lease");
}

#[test]
fn everything_that_is_set_arrives() {
    let config = load_shared(&[
        ("WH_MQ_NATS_URLS", "nats://a:1, tls://b:2"),
        ("WH_MQ_NATS_NAME", "me"),
        ("WH_MQ_NATS_TLS_HANDSHAKE_FIRST", "true"),
        ("WH_MQ_NATS_TLS_SERVER_NAME", "mq.example"),
        ("WH_MQ_NATS_JS_DOMAIN", "hub"),
        ("WH_MQ_NATS_SUBJECT_PREFIX", "x"),
        ("WH_MQ_NATS_PARTITIONS", "4"),
        ("WH_MQ_NATS_SHARDS", "8"),
        ("WH_MQ_NATS_INGEST_CONSUMER", "c"),
        ("WH_MQ_NATS_HISTORY_STREAM", "H"),
        ("WH_MQ_NATS_DLQ_STREAM", "D"),
        ("WH_MQ_NATS_CONNECT_TIMEOUT", "1s"),
        ("WH_MQ_NATS_PUBLISH_TIMEOUT", "2s"),
        ("WH_MQ_NATS_TOPOLOGY_WAIT", "500ms"),
        ("WH_COORD_NATS_BUCKET", "b"),
    ]);
    let config = config.unwrap_or_else(|found| panic!("{}", report(&found)));
    insta::assert_debug_snapshot!("nats_all_set", nats(&config));
}

#[test]
fn every_rule_is_told_at_once() {
    let found = load_env(&[
        ("WH_MQ_BACKEND", "nats"),
        ("WH_MQ_NATS_URLS", "nats://u:hunter2@h, ftp://x"),
        ("WH_MQ_NATS_CREDS_FILE", "/nowhere/creds"),
        ("WH_MQ_NATS_USER", "u"),
        ("WH_MQ_NATS_TLS_CERT_FILE", "/nowhere/cert"),
        ("WH_MQ_NATS_TLS_CA_FILE", "/nowhere/ca"),
        ("WH_MQ_NATS_JS_DOMAIN", "two.tokens"),
        ("WH_MQ_NATS_SUBJECT_PREFIX", "Wh"),
        ("WH_MQ_NATS_PARTITIONS", "0"),
        ("WH_MQ_NATS_SHARDS", "257"),
        ("WH_MQ_NATS_INGEST_CONSUMER", "a.b"),
        ("WH_MQ_NATS_HISTORY_STREAM", "a*"),
        ("WH_MQ_NATS_DLQ_STREAM", "a b"),
        ("WH_MQ_NATS_TOPOLOGY_WAIT", "0s"),
        ("WH_ROLES", "ingest"),
        ("WH_CACHE_BACKEND", "redis"),
        ("WH_MQ_NATS_PASSWORD", "hunter2"),
    ]);
    let text = report(&found.err().unwrap());
    assert!(!text.contains("hunter2"), "{text}");
    insta::assert_snapshot!("nats_findings", text);
}

#[test]
fn names_are_one_token_and_apart() {
    for (variable, text, path) in [
        ("WH_COORD_NATS_BUCKET", "a.b", "coord.nats.bucket"),
        ("WH_MQ_NATS_DLQ_STREAM", "WH_HISTORY", "mq.nats.dlq_stream"),
        ("WH_MQ_NATS_HISTORY_STREAM", "WH_INGEST_0", "mq.nats.history_stream"),
        ("WH_MQ_NATS_SUBJECT_PREFIX", "a.b", "mq.nats.subject_prefix"),
        ("WH_MQ_NATS_URLS", "", "mq.nats.urls"),
        ("WH_MQ_NATS_PASSWORD_FILE", "/nowhere", "mq.nats.user"),
    ] {
        let found =
            load_shared(&[(variable, text)]).err().unwrap_or_else(|| panic!("{variable}={text} is taken"));
        let told = found.iter().any(|finding| finding.subject.contains(path) || finding.fix.contains(path));
        assert!(told, "{variable}={text}: {}", report(&found));
    }
}

#[test]
fn one_way_to_say_who_we_are_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let password = file("password", "secret\n");
    let user = [("WH_MQ_NATS_USER", "u"), ("WH_MQ_NATS_PASSWORD_FILE", password.as_str())];
    let config = load_shared(&user).unwrap_or_else(|found| panic!("{}", report(&found)));
    assert_eq!(nats(&config).connect.user.as_deref(), Some("u"));

    let creds = file("creds", "none");
    let several = load_shared(&[&user[..], &[("WH_MQ_NATS_CREDS_FILE", &creds)]].concat());
    assert!(report(&several.err().unwrap()).contains("one way to say who we are"));
    let broken = load_shared(&[("WH_MQ_NATS_CREDS_FILE", &creds)]).err().unwrap();
    assert!(broken[0].subject.contains("mq.nats.creds_file"), "{}", report(&broken));
}
