//! `mq.*` and `coord.*`: which queue keeps the rows, and how to reach it where it is on message servers. The block of a
//! backend that was not chosen is not read.

use std::time::Duration;

use wavehouse_nats::{ConnectOptions, Finding as ConnectFinding, TlsOptions};
use wavehouse_topology::{SpecFinding, TopologyInput, TopologySpec};

use super::Finding;
use super::layers::Layers;
use super::resolve::{Reader, subject};
use super::roles::{self, Backends, Roles};

/// Which queue keeps the rows.
#[derive(Debug, Clone)]
pub(crate) enum Queue {
    /// One of our own, in the data directory.
    Embedded,
    /// Streams on message servers.
    Nats(Box<Nats>),
}

/// The queue on message servers.
#[derive(Debug, Clone)]
pub(crate) struct Nats {
    /// How to reach them, and as whom.
    pub(crate) connect: ConnectOptions,
    /// What must be there.
    pub(crate) topology: TopologySpec,
    /// How long a start waits for it.
    pub(crate) topology_wait: Duration,
    /// Rows that wait travel in messages of so many bytes.
    pub(crate) message_bytes: u64,
}

/// Reads what was chosen and checks it. With a finding, what comes back is of no use.
pub(super) fn queue(reader: &mut Reader<'_>, roles: Roles, host: &str) -> Queue {
    let backends = Backends {
        shared_queue: reader.word("mq.backend") == "nats",
        shared_leases: reader.word("coord.backend") == "nats",
    };
    let found = roles::check(roles, backends, reader.layers);
    reader.findings.extend(found);
    if !backends.shared_queue {
        return Queue::Embedded;
    }
    let topology = topology(reader, backends.shared_leases);
    let connect = connect(reader, host);
    if let Err(invalid) = connect.check() {
        let found = invalid.0.iter().filter_map(|finding| connect_finding(finding, reader.layers));
        reader.findings.extend(found);
    }
    let topology_wait = reader.span("mq.nats.topology_wait");
    let message_bytes = reader.bytes("mq.nats.message_bytes").unwrap_or_default();
    match topology {
        Ok(topology) => Queue::Nats(Box::new(Nats { connect, topology, topology_wait, message_bytes })),
        Err(found) => {
            let found = found.iter().map(|finding| spec_finding(finding, reader.layers));
            reader.findings.extend(found);
            Queue::Embedded
        }
    }
}

fn topology(reader: &mut Reader<'_>, coord_on_nats: bool) -> Result<TopologySpec, Vec<SpecFinding>> {
    TopologyInput {
        prefix: reader.text("mq.nats.subject_prefix").unwrap_or_default(),
        partitions: reader.count("mq.nats.partitions"),
        shards: reader.count("mq.nats.shards"),
        ingest_consumer: reader.text("mq.nats.ingest_consumer").unwrap_or_default(),
        history_stream: reader.text("mq.nats.history_stream"),
        dlq_stream: reader.text("mq.nats.dlq_stream"),
        coord_bucket: coord_on_nats.then(|| reader.text("coord.nats.bucket")).flatten(),
        coord_on_nats,
        js_domain: reader.text("mq.nats.js_domain"),
        publish_timeout: reader.span("mq.nats.publish_timeout"),
        // Row ids are not claimed in this version.
        dedupe_lease: Duration::ZERO,
        ..TopologyInput::default()
    }
    .check()
}

fn connect(reader: &mut Reader<'_>, host: &str) -> ConnectOptions {
    let name = reader.any_text("mq.nats.name");
    let host = if host.is_empty() { "wavehouse" } else { host };
    let prefix = reader.text("mq.nats.subject_prefix").unwrap_or_default();
    ConnectOptions {
        urls: reader.list("mq.nats.urls"),
        name: if name.is_empty() { format!("wavehouse-{host}") } else { name },
        creds_file: reader.path("mq.nats.creds_file"),
        nkey_seed_file: reader.path("mq.nats.nkey_seed_file"),
        user: reader.text("mq.nats.user"),
        password_file: reader.path("mq.nats.password_file"),
        tls: TlsOptions {
            ca_file: reader.path("mq.nats.tls.ca_file"),
            cert_file: reader.path("mq.nats.tls.cert_file"),
            key_file: reader.path("mq.nats.tls.key_file"),
            server_name: reader.text("mq.nats.tls.server_name"),
            handshake_first: reader.switch("mq.nats.tls.handshake_first"),
        },
        js_domain: reader.text("mq.nats.js_domain"),
        inbox_prefix: inbox_prefix(&prefix),
        connect_timeout: reader.span("mq.nats.connect_timeout"),
        record_refusals_of: Vec::new(),
    }
}

/// Where answers come back; the permissions allow no other place.
pub(crate) fn inbox_prefix(prefix: &str) -> String {
    format!("_INBOX_{prefix}")
}

/// What is wrong with how the servers are reached. Names are judged with the topology.
fn connect_finding(finding: &ConnectFinding, layers: &Layers) -> Option<Finding> {
    let of = |key: &str| subject(&format!("mq.nats.{key}"), layers);
    Some(match finding {
        ConnectFinding::NoUrl => Finding::new(
            of("urls"),
            "names no server",
            "at least one",
            "set WH_MQ_NATS_URLS=nats://host:4222",
        ),
        ConnectFinding::EmptyUrl(at) => {
            let found = format!("has a blank entry, number {}", at + 1);
            Finding::new(of("urls"), found, "an address in each entry", "remove the blank one")
        }
        ConnectFinding::UserInUrl(at) => Finding::new(
            of("urls"),
            format!("holds an `@` in entry {}", at + 1),
            "addresses without a user, since addresses are logged",
            "use mq.nats.creds_file, mq.nats.nkey_seed_file, or mq.nats.user with mq.nats.password_file",
        ),
        ConnectFinding::BadUrl { url, why } => Finding::new(
            of("urls"),
            format!("has {url:?}: {why}"),
            "nats://host:port or tls://host:port",
            "write nats://host:4222",
        ),
        ConnectFinding::SeveralCredentials(keys) => {
            let keys: Vec<String> = keys.iter().map(|key| format!("mq.nats.{key}")).collect();
            let (first, others) = keys.split_first()?;
            let found = format!("is set beside {}", others.join(" and "));
            Finding::new(subject(first, layers), found, "one way to say who we are", "keep one of them")
        }
        ConnectFinding::Needs { key, needs } => {
            let expected = format!("{key} and {needs} together");
            Finding::new(of(key), "stands alone", expected, format!("set mq.nats.{needs} too"))
        }
        ConnectFinding::Unreadable { key, path, why } => Finding::new(
            of(key),
            format!("{} cannot be read: {why}", path.display()),
            "a readable file",
            "mount the file, or let this user read it",
        ),
        ConnectFinding::Unusable { key: "inbox_prefix" | "js_domain" | "connect_timeout", .. } => {
            return None;
        }
        ConnectFinding::Unusable { key, what } => {
            Finding::new(of(key), what.clone(), "a file or a name that can be used", "give another one")
        }
    })
}

/// What is wrong with names and counts.
fn spec_finding(finding: &SpecFinding, layers: &Layers) -> Finding {
    let path = match finding.setting {
        "prefix" => "mq.nats.subject_prefix",
        "ingest-consumer" => "mq.nats.ingest_consumer",
        "history-stream" => "mq.nats.history_stream",
        "dlq-stream" => "mq.nats.dlq_stream",
        "coord-bucket" => "coord.nats.bucket",
        "js-domain" => "mq.nats.js_domain",
        "partitions" => "mq.nats.partitions",
        "shards" => "mq.nats.shards",
        "publish-timeout" => "mq.nats.publish_timeout",
        other => other,
    };
    let (expected, fix) = ("one that the servers can have", "write another, or remove it for the default");
    Finding::new(subject(path, layers), finding.problem.clone(), expected, fix)
}
