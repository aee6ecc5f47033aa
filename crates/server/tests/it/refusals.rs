//! What the whole program refuses before it serves from message servers, each with its own words and all at once; and how
//! it says who it is to them.
#![expect(clippy::unwrap_used, reason = "a harness has nothing to do about a machine that fails it")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::Signal;
use serde_json::Value;
use wavehouse_testkit::{Engine, NATS_VERSION, NatsServer, free_port, wait_for};

use crate::boot::TABLE;
use crate::nats::Servers;
use crate::program::{Program, SOON, run};

/// Wrong usage or configuration.
const USAGE: i32 = 64;
/// Something failed.
const FAILED: i32 = 1;

/// Runs the program until it refuses; its exit code and its words.
fn refused(env: &[(&str, &str)]) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port().to_string();
    let env = [&[("WH_SERVER_LISTEN", "127.0.0.1"), ("WH_SERVER_PORT", port.as_str())], env].concat();
    let output = run(dir.path(), &[], &env);
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The variables of a process that serves from there, some of them replaced.
fn env(servers: &Servers, replaced: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut env = servers.env();
    env.retain(|(name, _)| !replaced.iter().any(|(other, _)| other == name));
    env.extend(replaced.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
    env
}

fn borrowed(env: &[(String, String)]) -> Vec<(&str, &str)> {
    env.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect()
}

fn refused_on(servers: &Servers, replaced: &[(&str, &str)]) -> (i32, String) {
    refused(&borrowed(&env(servers, replaced)))
}

/// A queue on servers that are not there: whoever dialled them would wait for a minute.
const ON_NATS: [(&str, &str); 3] =
    [("WH_MQ_BACKEND", "nats"), ("WH_MQ_NATS_URLS", "nats://127.0.0.1:9"), ("WH_COORD_BACKEND", "nats")];

#[test]
fn case_116_what_cannot_work_together_is_refused_before_anything_is_dialled() {
    let embedded: &[(&str, &str)] = &[];
    for (base, more, told) in [
        (embedded, &[("WH_MQ_BACKEND", "kafka")][..], "embedded"),
        (embedded, &[("WH_COORD_BACKEND", "etcd")], "local"),
        (embedded, &[("WH_CACHE_BACKEND", "disk")], "WH_CACHE_BACKEND"),
        (embedded, &[("WH_ROLES", "api,worker")], "\"worker\" is none of them"),
        (embedded, &[("WH_ROLES", "api,api")], "api is there twice"),
        (embedded, &[("WH_ROLES", "api")], "no other process can reach the embedded queue"),
        (embedded, &[("WH_COORD_BACKEND", "nats")], "leases ride on the connection of the queue"),
        (&ON_NATS[..2], &[], "ingest processes share the shards through leases"),
        (&ON_NATS, &[("WH_ROLES", "sweeper")], "nothing would run"),
        (&ON_NATS, &[("WH_CACHE_BACKEND", "local")], "WH_CACHE_BACKEND"),
        (&ON_NATS, &[("WH_CACHE_BACKEND", "redis")], "WH_CACHE_BACKEND"),
        (&ON_NATS, &[("WH_MQ_NATS_URLS", "")], "names no server"),
        (&ON_NATS, &[("WH_MQ_NATS_URLS", "nats://u:p@h")], "addresses without a user"),
        (&ON_NATS, &[("WH_MQ_NATS_SUBJECT_PREFIX", "W.h")], "WH_MQ_NATS_SUBJECT_PREFIX"),
        (&ON_NATS, &[("WH_MQ_NATS_SHARDS", "257")], "256"),
        (&ON_NATS, &[("WH_MQ_NATS_PARTITIONS", "0")], "WH_MQ_NATS_PARTITIONS"),
        (&ON_NATS, &[("WH_COORD_NATS_BUCKET", "a.b")], "WH_COORD_NATS_BUCKET"),
        (&ON_NATS, &[("WH_MQ_NATS_PASSWORD", "inline")], "WH_MQ_NATS_PASSWORD"),
    ] {
        let started = Instant::now();
        let (code, text) = refused(&[base, more].concat());
        assert_eq!(code, USAGE, "{more:?}: {text}");
        assert!(text.contains(told), "{more:?}: {told} is not in\n{text}");
        assert!(started.elapsed() < Duration::from_secs(20), "{more:?} took {:?}", started.elapsed());
    }
}

#[test]
fn case_116_everything_is_told_at_once() {
    let (code, text) = refused(&[
        ("WH_MQ_BACKEND", "nats"),
        ("WH_MQ_NATS_URLS", "nats://u:hunter2@h"),
        ("WH_MQ_NATS_CREDS_FILE", "/nowhere/creds"),
        ("WH_MQ_NATS_USER", "u"),
        ("WH_MQ_NATS_TLS_CERT_FILE", "/nowhere/cert"),
        ("WH_MQ_NATS_SHARDS", "0"),
        ("WH_CACHE_BACKEND", "redis"),
        ("WH_NONSENSE", "1"),
    ]);
    assert_eq!(code, USAGE, "{text}");
    for told in [
        "WH_MQ_NATS_URLS",
        "WH_MQ_NATS_CREDS_FILE",
        "WH_MQ_NATS_TLS_CERT_FILE",
        "WH_MQ_NATS_SHARDS",
        "WH_CACHE_BACKEND",
        "WH_NONSENSE",
        "coord.backend",
    ] {
        assert!(text.contains(told), "{told} is not in\n{text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn case_53_credentials_that_cannot_be_read_are_refused_before_anything_is_dialled() {
    for (more, told) in [
        (&[("WH_MQ_NATS_USER", "u")][..], "WH_MQ_NATS_USER"),
        (&[("WH_MQ_NATS_USER", "u"), ("WH_MQ_NATS_PASSWORD_FILE", "/nowhere/p")], "cannot be read"),
        (&[("WH_MQ_NATS_NKEY_SEED_FILE", "/nowhere/seed")], "cannot be read"),
        (
            &[("WH_MQ_NATS_CREDS_FILE", "/a"), ("WH_MQ_NATS_NKEY_SEED_FILE", "/b")],
            "one way to say who we are",
        ),
        (&[("WH_MQ_NATS_TLS_KEY_FILE", "/nowhere/key")], "WH_MQ_NATS_TLS_KEY_FILE"),
        (&[("WH_MQ_NATS_TLS_CA_FILE", "/nowhere/ca")], "cannot be read"),
    ] {
        let (code, text) = refused(&[&ON_NATS[..], more].concat());
        assert_eq!(code, USAGE, "{more:?}: {text}");
        assert!(text.contains(told), "{more:?}: {told} is not in\n{text}");
    }
}

#[tokio::test]
async fn case_114_a_missing_bucket_is_named_where_leases_are_kept_in_it() {
    let servers = Servers::provisioned(1, 2).await;
    let remove = servers.operator().await;
    remove.call::<Value>("STREAM.DELETE.KV_wh_coord", Bytes::new()).await.unwrap();
    let wait = [("WH_MQ_NATS_TOPOLOGY_WAIT", "300ms")];
    let (code, text) = refused_on(&servers, &wait);
    assert_eq!(code, FAILED, "{text}");
    assert!(text.contains("kv bucket wh_coord: bucket: "), "{text}");
    assert!(text.contains("wavehouse mq manifests --partitions 1 --shards 2"), "{text}");
}

#[tokio::test]
async fn case_24_everything_that_is_amiss_on_the_servers_is_told_at_once() {
    let servers = Servers::provisioned(2, 2).await;
    let operator = servers.operator().await;
    for object in
        ["STREAM.DELETE.WH_HISTORY", "STREAM.DELETE.WH_DLQ", "CONSUMER.DELETE.WH_INGEST_1.wh-ingest-0"]
    {
        operator.call::<Value>(object, Bytes::new()).await.unwrap();
    }
    // Counts that are not the servers' are found by what the streams say of themselves.
    let wrong = [("WH_MQ_NATS_TOPOLOGY_WAIT", "300ms"), ("WH_MQ_NATS_SHARDS", "1")];
    let (code, text) = refused_on(&servers, &wrong);
    assert_eq!(code, FAILED, "{text}");
    for told in [
        "stream WH_HISTORY: name: ",
        "dead-letter stream: subjects: ",
        "consumer WH_INGEST_1/wh-ingest-0: durable_name: ",
        "stream WH_INGEST_0: metadata: ",
        "recommended: stream WH_INGEST_1: num_replicas: ",
    ] {
        assert!(text.contains(told), "{told} is not in\n{text}");
    }
}

#[tokio::test]
async fn case_37_a_user_with_permissions_for_fewer_shards_is_told_what_to_give_it() {
    let servers = Servers::provisioned(1, 2).await;
    let (code, out, err) = servers.mq(&format!(
        "provision {} --partitions 1 --shards 3 {}",
        servers.flags("operator"),
        crate::nats::SMALL
    ));
    assert_eq!(code, 0, "{out}{err}");
    let more = [("WH_MQ_NATS_TOPOLOGY_WAIT", "300ms"), ("WH_MQ_NATS_SHARDS", "3")];
    let (code, text) = refused_on(&servers, &more);
    assert_eq!(code, FAILED, "{text}");
    assert!(text.contains("consumer WH_INGEST_0/wh-ingest-2: permissions: "), "{text}");
    assert!(text.contains("wavehouse mq permissions --shards 3"), "{text}");
}

// Case 117.
#[tokio::test]
async fn case_54_servers_that_are_not_there_or_refuse_us_are_named() {
    let mut servers = Servers::provisioned(1, 1).await;
    let wait = [("WH_MQ_NATS_TOPOLOGY_WAIT", "500ms")];
    let file = servers.server.dir().join("wrong");
    fs::write(&file, "wrong").unwrap();
    let wrong = [wait[0], ("WH_MQ_NATS_PASSWORD_FILE", file.to_str().unwrap())];
    let (code, text) = refused_on(&servers, &wrong);
    assert_eq!(code, FAILED, "{text}");
    assert!(text.contains("authorization") && text.contains(&servers.server.url()), "{text}");

    servers.server.kill9();
    let started = Instant::now();
    let (code, text) = refused_on(&servers, &wait);
    assert_eq!(code, FAILED, "{text}");
    assert!(text.contains(&servers.server.url()), "{text}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test]
async fn case_23_a_process_waits_for_the_operator() {
    let engine = Engine::start().await;
    engine.query(TABLE).await;
    let mut servers = Servers::start(1, 2).await;
    let env = env(&servers, &[("WH_ROLES", "api"), ("WH_STREAM_GAP_WINDOW_MINUTES", "60")]);
    let mut api = Program::serving(&engine, &borrowed(&env));
    api.start();
    wait_for("the process to look for its queue", SOON, async || api.log().contains("looking for the queue"))
        .await;
    assert_eq!(servers.provision("").0, 0);
    api.wait_status("/readyz", 200).await;

    // The history goes back for 15 minutes.
    wait_for("a word on the gap window", SOON, async || api.log().contains("raise its max_age")).await;

    // Rows are kept by the servers, for whoever writes them.
    let answer = api.client().post("/v1/ingest?table=rows", r#"{"id":1,"text":"a"}"#).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let stream = servers.operator().await.stream_info("WH_INGEST_0").await.unwrap();
    assert_eq!(stream.state.messages, 1);
    assert!(!api.dir.path().join("data").exists(), "nothing is kept on this machine");

    // A process that does not reach the queue is no use to those who balance load.
    servers.server.kill9();
    api.wait_status("/readyz", 503).await;
    let told = api.client().get("/readyz").await.text;
    assert!(told.contains("no message server is connected"), "{told}");
    servers.server.restart().await;
    api.wait_status("/readyz", 200).await;
}

// Case 25.
#[tokio::test]
async fn a_stop_does_not_wait_for_the_operator() {
    let engine = Engine::start().await;
    let servers = Servers::start(1, 1).await;
    let env = env(&servers, &[]);
    let mut gateway = Program::serving(&engine, &borrowed(&env));
    gateway.start();
    wait_for("the process to look", SOON, async || gateway.log().contains("looking for the queue")).await;
    let asked = Instant::now();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended().await, Some(0), "{}", gateway.log());
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

/// Writes an authority, a certificate for this machine, and one for a client, all as PEM.
fn certificates(dir: &Path) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    fs::write(dir.join("ca.pem"), authority.pem()).unwrap();
    for (name, host) in [("server", "mq.test"), ("client", "client.test")] {
        let key = KeyPair::generate().unwrap();
        let cert =
            CertificateParams::new(vec![host.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        fs::write(dir.join(format!("{name}.pem")), cert.pem()).unwrap();
        fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

#[tokio::test]
async fn keys_and_certificates_say_who_we_are() {
    let pair = nkeys::KeyPair::new_user();
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    fs::write(dir.path().join("seed"), pair.seed().unwrap()).unwrap();
    let config = NatsServer::jetstream_config(&format!(
        "tls {{ cert_file: \"$DIR/server.pem\", key_file: \"$DIR/server.key\", ca_file: \"$DIR/ca.pem\", verify: true }}
         accounts {{ WH {{ jetstream: enabled, users: [ {{ nkey: {} }} ] }} }}",
        pair.public_key()
    ));
    let server = NatsServer::start_in(dir, NATS_VERSION, &config).await;
    let file = |name: &str| server.dir().join(name).display().to_string();
    let url = server.url();
    let (ca, cert, key, seed) = (file("ca.pem"), file("client.pem"), file("client.key"), file("seed"));
    let whole = [
        ("WH_MQ_BACKEND", "nats"),
        ("WH_COORD_BACKEND", "nats"),
        ("WH_MQ_NATS_URLS", url.as_str()),
        ("WH_MQ_NATS_NKEY_SEED_FILE", &seed),
        ("WH_MQ_NATS_TLS_CA_FILE", &ca),
        ("WH_MQ_NATS_TLS_CERT_FILE", &cert),
        ("WH_MQ_NATS_TLS_KEY_FILE", &key),
        ("WH_MQ_NATS_TLS_SERVER_NAME", "mq.test"),
        ("WH_MQ_NATS_TOPOLOGY_WAIT", "2s"),
    ];
    let (code, text) = refused(&whole);
    assert_eq!(code, FAILED, "{text}");
    assert!(text.contains("ingest partition 0"), "it connects and finds nothing there: {text}");
    for without in ["WH_MQ_NATS_NKEY_SEED_FILE", "WH_MQ_NATS_TLS_CA_FILE", "WH_MQ_NATS_TLS_SERVER_NAME"] {
        let env: Vec<_> = whole.iter().copied().filter(|(name, _)| *name != without).collect();
        let (code, text) = refused(&env);
        assert_eq!(code, FAILED, "{text}");
        assert!(text.contains("no message server is connected"), "{without}: {text}");
    }
}
