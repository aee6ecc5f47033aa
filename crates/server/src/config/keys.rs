//! Every key of the configuration: its name in the file, its variable, what it may hold, its default, what it does.
//!
//! This table is the single source: loading, checking, `config print`, and the reference page all read it.

use super::inert::INERT;

/// What a key may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text that is not blank.
    Text,
    /// Text that may be blank.
    AnyText,
    /// A text that is never printed.
    Secret,
    /// A path on this machine.
    Path,
    /// `true` or `false`.
    Switch,
    /// A whole number within bounds.
    Whole {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// A number of bytes, plain or with KiB, MiB, GiB.
    Bytes {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// A length of time above zero, such as `250ms` or `1m30s`.
    Span,
    /// A list of texts; in a variable, separated by commas.
    List,
    /// Names with texts; in a variable, `Name=text` separated by commas.
    Map,
    /// One of a few words. The second list holds words that other versions know and this one refuses.
    Word(&'static [&'static str], &'static [&'static str]),
    /// An IP address to listen on.
    Address,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    /// Its dotted path in the file.
    pub(crate) path: &'static str,
    /// Its variable.
    pub(crate) env: &'static str,
    /// What it may hold.
    pub(crate) kind: Kind,
    /// Its value when nobody sets it, written as in a variable; none when unset means something of its own.
    pub(crate) default: Option<&'static str>,
    /// Its value under `wavehouse dev`, where that differs.
    pub(crate) dev: Option<&'static str>,
    /// One sentence or two for the reference page.
    pub(crate) doc: &'static str,
}

const fn key(
    path: &'static str,
    env: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    doc: &'static str,
) -> Key {
    Key { path, env, kind, default, dev: None, doc }
}

impl Key {
    const fn in_dev(mut self, value: &'static str) -> Self {
        self.dev = Some(value);
        self
    }
}

const PORT: Kind = Kind::Whole { min: 1, max: 65_535 };
const PORT_OR_NONE: Kind = Kind::Whole { min: 0, max: 65_535 };
const ONE_MIB: u64 = 1 << 20;
// `as` alone widens in a constant.
const PARTITIONS_MAX: u64 = wavehouse_core::PARTITIONS_MAX as u64;
const SHARDS_MAX: u64 = wavehouse_core::SHARDS_MAX as u64;

/// The keys, in the order in which the reference page shows them.
pub(crate) const KEYS: &[Key] = &[
    key("data_dir", "WH_DATA_DIR", Kind::Path, Some("./data"),
        "Where the queue lives. It must be a disk that survives a restart: rows that got a `200` and are not yet in ClickHouse are here."),
    key("roles", "WH_ROLES", Kind::List, Some("api,ingest,sweeper"),
        "Which parts this process runs: `api` takes rows and serves streams, `ingest` writes rows to ClickHouse, `sweeper` frees disk of the embedded queue. The embedded queue needs all three; with `mq.backend: nats` they may be processes of their own."),
    key("instance_id", "WH_INSTANCE_ID", Kind::AnyText, Some(""),
        "The name of this process in logs and in the leases that it holds. Blank: the host name and eight random digits, new at every start."),
    key("server.listen", "WH_SERVER_LISTEN", Kind::Address, Some("0.0.0.0"),
        "The address to listen on. `wavehouse dev` listens on loopback only, since its routes are open.").in_dev("127.0.0.1"),
    key("server.port", "WH_SERVER_PORT", PORT, Some("8080"), "The port to listen on."),
    key("server.shutdown_timeout", "WH_SERVER_SHUTDOWN_TIMEOUT", Kind::Whole { min: 0, max: 3600 }, Some("10"),
        "Seconds that a stop gives requests and batches in flight. Closing the queue and the engine may take 8 s more: a supervisor's grace period must be longer than both."),
    key("server.drain_delay", "WH_SERVER_DRAIN_DELAY", Kind::Whole { min: 0, max: 3600 }, Some("0"),
        "Seconds that a stop waits, with `/readyz` at 503 and everything else as before, for load balancers to look elsewhere. They come before `server.shutdown_timeout`."),
    key("auth.operator_key", "WH_AUTH_OPERATOR_KEY", Kind::Secret, Some(""),
        "The operator's key, sent as `Authorization: Operator <key>` or `X-Operator-Key`. Outside `wavehouse dev` every route but health, version and metrics needs it."),
    key("auth.operator_key_file", "WH_AUTH_OPERATOR_KEY_FILE", Kind::Path, None,
        "A file that holds the operator's key, in place of `auth.operator_key`."),
    key("clickhouse.password", "WH_CH_PASSWORD", Kind::Secret, Some(""), "The password of the ClickHouse user."),
    key("clickhouse.password_file", "WH_CH_PASSWORD_FILE", Kind::Path, None,
        "A file that holds the password, in place of `clickhouse.password`."),
    key("clickhouse.max_total_conns", "WH_CH_MAX_TOTAL_CONNS", Kind::Whole { min: 0, max: 100_000 }, Some("0"),
        "Most connections to ClickHouse of this process, all tenants together; 0 sets no ceiling."),
    key("tenant.clickhouse.url", "WH_CH_URL", Kind::Text, None,
        "Where ClickHouse answers HTTP: `http://host:8123` or `https://host:8443`. In place of `addr`, `http_port` and `http_scheme`."),
    key("tenant.clickhouse.addr", "WH_CH_ADDR", Kind::Text, Some("localhost:9000"),
        "The host of ClickHouse, written `host:port` with its native port as other settings have it; rows and queries go to `http_port` of that host."),
    key("tenant.clickhouse.http_port", "WH_CH_HTTP_PORT", PORT, Some("8123"), "The HTTP port of ClickHouse."),
    key("tenant.clickhouse.http_scheme", "WH_CH_HTTP_SCHEME", Kind::Word(&["http", "https"], &[]), Some("http"),
        "Whether ClickHouse is spoken to in plain text or over TLS."),
    key("tenant.clickhouse.database", "WH_CH_DATABASE", Kind::Text, Some("default"), "The database with the tables."),
    key("tenant.clickhouse.username", "WH_CH_USERNAME", Kind::Text, Some("default"), "The ClickHouse user."),
    key("tenant.clickhouse.query_timeout", "WH_CH_QUERY_TIMEOUT", Kind::Whole { min: 1, max: 86_400 }, Some("30"),
        "Seconds after which a query is given up."),
    key("tenant.clickhouse.max_open_conns", "WH_CH_MAX_OPEN_CONNS", Kind::Whole { min: 1, max: 10_000 }, Some("10"),
        "Most connections to ClickHouse of this tenant."),
    key("tenant.clickhouse.headers", "WH_CH_HEADERS", Kind::Map, Some(""),
        "HTTP headers that every request to ClickHouse carries, for a proxy in between."),
    key("tenant.clickhouse.tls.ca_file", "WH_CH_TLS_CA_FILE", Kind::Path, None,
        "PEM certificates to trust in place of the system's."),
    key("tenant.clickhouse.tls.cert_file", "WH_CH_TLS_CERT_FILE", Kind::Path, None,
        "PEM certificate shown to ClickHouse; with `key_file`."),
    key("tenant.clickhouse.tls.key_file", "WH_CH_TLS_KEY_FILE", Kind::Path, None, "PEM key of `cert_file`."),
    key("tenant.clickhouse.tls.server_name", "WH_CH_TLS_SERVER_NAME", Kind::Text, None,
        "The name that ClickHouse's certificate must hold, where it is not the host's."),
    key("tenant.clickhouse.tls.insecure_skip_verify", "WH_CH_TLS_INSECURE_SKIP_VERIFY", Kind::Switch, Some("false"),
        "Takes any certificate. Anyone on the way can then read and change rows."),
    key("tenant.schema.refresh_interval", "WH_SCHEMA_REFRESH_INTERVAL", Kind::Whole { min: 1, max: 86_400 }, Some("60"),
        "Seconds between two looks at ClickHouse's tables, after which a new table is known; `POST /v1/ops/schema/refresh` looks at once."),
    key("tenant.stream.gap_window_minutes", "WH_STREAM_GAP_WINDOW_MINUTES", Kind::Whole { min: 0, max: 525_600 }, Some("15"),
        "Minutes for which rows that ClickHouse has are kept for live streams to resume from, as long as there is room."),
    key("tenant.stream.keepalive_interval", "WH_STREAM_KEEPALIVE_INTERVAL", Kind::Whole { min: 1, max: 86_400 }, Some("30"),
        "Seconds that a live stream is quiet before it gets a sign of life; at most, each stream waits a little less."),
    key("tenant.mq.max_bytes_gb", "WH_MQ_MAX_BYTES_GB", Kind::Whole { min: 1, max: 1_048_576 }, None,
        "Most GiB of rows that wait for ClickHouse; beyond it, ingest answers 503. Unset: the smaller of 50 and a quarter of the free space."),
    key("tenant.cors.allowed_origins", "WH_CORS_ALLOWED_ORIGINS", Kind::List, Some("*"),
        "Origins whose pages may call the data routes; `*` allows all, an empty list none. `wavehouse dev` sends no CORS headers."),
    key("mq.backend", "WH_MQ_BACKEND", Kind::Word(&["embedded", "nats"], &[]), Some("embedded"),
        "Which queue keeps the rows: one of our own in `data_dir`, or streams on message servers that many processes share."),
    key("mq.nats.urls", "WH_MQ_NATS_URLS", Kind::List, None,
        "The message servers: `nats://host:4222` or `tls://host:4222`, without a user in them. Needed with `mq.backend: nats`; without it the whole block is not read."),
    key("mq.nats.name", "WH_MQ_NATS_NAME", Kind::AnyText, Some(""),
        "What the servers call this process in their lists. Blank: `wavehouse-` and the host name."),
    key("mq.nats.creds_file", "WH_MQ_NATS_CREDS_FILE", Kind::Path, None,
        "A file with a JWT and its seed. Of this, `nkey_seed_file` and `user` at most one."),
    key("mq.nats.nkey_seed_file", "WH_MQ_NATS_NKEY_SEED_FILE", Kind::Path, None, "A file with the seed of an nkey."),
    key("mq.nats.user", "WH_MQ_NATS_USER", Kind::Text, None, "A user; with `password_file`."),
    key("mq.nats.password_file", "WH_MQ_NATS_PASSWORD_FILE", Kind::Path, None,
        "A file with the user's password; line ends after it do not count."),
    key("mq.nats.tls.ca_file", "WH_MQ_NATS_TLS_CA_FILE", Kind::Path, None,
        "PEM certificates to trust in place of the system's."),
    key("mq.nats.tls.cert_file", "WH_MQ_NATS_TLS_CERT_FILE", Kind::Path, None,
        "PEM certificate shown to the servers; with `key_file`."),
    key("mq.nats.tls.key_file", "WH_MQ_NATS_TLS_KEY_FILE", Kind::Path, None, "PEM key of `cert_file`."),
    key("mq.nats.tls.server_name", "WH_MQ_NATS_TLS_SERVER_NAME", Kind::Text, None,
        "The name that the servers' certificates must hold, where it is not the host's."),
    key("mq.nats.tls.handshake_first", "WH_MQ_NATS_TLS_HANDSHAKE_FIRST", Kind::Switch, Some("false"),
        "Encrypts from the first byte, which the servers must be set up for."),
    key("mq.nats.js_domain", "WH_MQ_NATS_JS_DOMAIN", Kind::Text, None,
        "The JetStream domain that requests go to. Unset: the one that the connection is in."),
    key("mq.nats.subject_prefix", "WH_MQ_NATS_SUBJECT_PREFIX", Kind::Text, Some("wh"),
        "First token of every subject, and the root of the names: lower-case letters, digits, `_` and `-`."),
    key("mq.nats.partitions", "WH_MQ_NATS_PARTITIONS", Kind::Whole { min: 1, max: PARTITIONS_MAX }, Some("1"),
        "Partitions: the streams that rows are spread over. Must be what the servers have."),
    key("mq.nats.shards", "WH_MQ_NATS_SHARDS", Kind::Whole { min: 1, max: SHARDS_MAX }, Some("32"),
        "Shards of each partition; each is read by one process at a time. Must be what the servers have."),
    key("mq.nats.ingest_consumer", "WH_MQ_NATS_INGEST_CONSUMER", Kind::Text, Some("wh-ingest"),
        "Durables are called this, a dash, and the shard."),
    key("mq.nats.history_stream", "WH_MQ_NATS_HISTORY_STREAM", Kind::Text, None,
        "The stream that live streams read. Unset: `<PREFIX>_HISTORY`."),
    key("mq.nats.dlq_stream", "WH_MQ_NATS_DLQ_STREAM", Kind::Text, None,
        "The stream of dead letters. Unset: `<PREFIX>_DLQ`."),
    key("mq.nats.connect_timeout", "WH_MQ_NATS_CONNECT_TIMEOUT", Kind::Span, Some("5s"),
        "Longest wait for one server to take the connection."),
    key("mq.nats.publish_timeout", "WH_MQ_NATS_PUBLISH_TIMEOUT", Kind::Span, Some("5s"),
        "Longest wait for a partition to say that it has stored rows; a publish is tried three times at most."),
    key("mq.nats.message_bytes", "WH_MQ_NATS_MESSAGE_BYTES", Kind::Bytes { min: 1, max: ONE_MIB }, Some("128KiB"),
        "Rows of a table that wait at the same time travel in one message up to so many bytes. More rows in one request than that are several messages in any case."),
    key("mq.nats.topology_wait", "WH_MQ_NATS_TOPOLOGY_WAIT", Kind::Span, Some("60s"),
        "How long a start waits for the servers to hold what they must; then it fails and tells all that is missing."),
    key("coord.backend", "WH_COORD_BACKEND", Kind::Word(&["local", "nats"], &[]), Some("local"),
        "How processes agree who does what: alone, or through leases on the message servers, which ingest with `mq.backend: nats` needs."),
    key("coord.nats.bucket", "WH_COORD_NATS_BUCKET", Kind::Text, None,
        "The bucket of the leases. Unset: `<prefix>_coord`."),
    key("cache.backend", "WH_CACHE_BACKEND", Kind::Word(&["off"], &["local", "redis"]), Some("off"), "Where answers to queries are kept. This version keeps none."),
    key("dedupe.backend", "WH_DEDUPE_BACKEND", Kind::Word(&["off"], &["pebble", "dynamodb"]), Some("off"), "Where ids of rows are kept, so that a row sent twice is stored once."),
    key("queue.disk_bytes_max", "WH_QUEUE_DISK_BYTES_MAX", Kind::Bytes { min: 8 * ONE_MIB, max: u64::MAX }, None,
        "Most bytes of disk that the queue takes, rows kept for live streams included. Unset: as much as the disk has."),
    key("ingest.body_bytes_in_flight_max", "WH_INGEST_BODY_BYTES_IN_FLIGHT_MAX", Kind::Bytes { min: 32 * ONE_MIB, max: u64::MAX }, Some("256MiB"),
        "Most bytes of request bodies held in memory at once, all requests together; beyond it, ingest answers 503."),
    key("worker.linger_ms", "WH_WORKER_LINGER_MS", Kind::Whole { min: 0, max: 600_000 }, Some("1000"),
        "Milliseconds that a row may wait for others before it is inserted."),
    key("worker.batch_rows", "WH_WORKER_BATCH_ROWS", Kind::Whole { min: 1, max: 500_000 }, Some("10000"), "Rows after which a batch does not wait any longer."),
    key("worker.batch_bytes", "WH_WORKER_BATCH_BYTES", Kind::Bytes { min: 1, max: 64 * ONE_MIB }, Some("8MiB"), "Bytes after which a batch does not wait any longer."),
    key("worker.batch_bytes_max", "WH_WORKER_BATCH_BYTES_MAX", Kind::Bytes { min: 1, max: 64 * ONE_MIB }, Some("64MiB"),
        "Most bytes of one insert. Batches grow up to it while an earlier insert of the table is under way."),
    key("worker.inserts_max", "WH_WORKER_INSERTS_MAX", Kind::Whole { min: 1, max: 1024 }, Some("4"), "Most inserts under way at once, one a table."),
    key("worker.held_rows", "WH_WORKER_HELD_ROWS", Kind::Whole { min: 1_000_000, max: 1_000_000_000 }, Some("2000000"), "Most rows that the worker holds in memory, or a little more while batches of an earlier run are rebuilt. With `mq.backend: nats`, 200000 unless it is set."),
    key("worker.held_bytes", "WH_WORKER_HELD_BYTES", Kind::Bytes { min: 2 * ONE_MIB, max: u64::MAX }, Some("256MiB"), "Most bytes that the worker holds in memory: at least two of `batch_bytes_max`."),
    key("prometheus.enabled", "WH_PROMETHEUS_ENABLED", Kind::Switch, Some("false"), "Whether metrics can be read over HTTP, by anyone who reaches the port.").in_dev("true"),
    key("prometheus.path", "WH_PROMETHEUS_PATH", Kind::Text, Some("/metrics"), "The path of the metrics."),
    key("prometheus.port", "WH_PROMETHEUS_PORT", PORT_OR_NONE, Some("0"), "A port of their own for the metrics; 0 serves them on `server.port`."),
    key("engine.embedded", "WH_ENGINE_EMBEDDED", Kind::Switch, Some("false"),
        "Whether to run a ClickHouse engine of our own beside the gateway, for development and small installations. `wavehouse dev` does so unless a ClickHouse is named.").in_dev("true"),
    key("engine.bin", "WH_ENGINE_BIN", Kind::Path, None, "The program `wavehouse-clickhouse`. Unset: beside this program."),
    key("engine.lib", "WH_ENGINE_LIB", Kind::Path, None,
        "The library `libchdb.so`. Unset: `.deps/chdb/` here or in a folder above, where `make run` puts it."),
    key("engine.port", "WH_ENGINE_PORT", PORT_OR_NONE, Some("0"),
        "The loopback port where the engine speaks ClickHouse's HTTP protocol; 0 takes 8123 if it is free, else any."),
    key("engine.memory_bytes_max", "WH_ENGINE_MEMORY_BYTES_MAX", Kind::Bytes { min: 256 * ONE_MIB, max: u64::MAX }, Some("2GiB"), "Most memory that the engine takes for queries and inserts."),
];

/// Variables that have no key in the file.
pub(crate) const LONE_VARIABLES: &[(&str, &str)] = &[
    (
        "WH_CONFIG",
        "Path of the configuration file. Unset: `./config.yaml` if there is one. A file that is named must exist.",
    ),
    ("WH_LOG_LEVEL", "`debug`, `info`, `warn` or `error`. Default `info`."),
];

/// The key of a dotted path.
pub(crate) fn by_path(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The key of a variable.
pub(crate) fn by_env(env: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.env == env)
}

/// Whether keys lie below a path, so that it names a block.
pub(crate) fn is_block(path: &str) -> bool {
    let below = |known: &str| known.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    KEYS.iter().any(|key| below(key.path)) || INERT.iter().any(|inert| below(inert.path))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_documented() {
        let mut paths = BTreeSet::new();
        let mut variables = BTreeSet::new();
        for key in KEYS {
            assert!(paths.insert(key.path), "{} twice", key.path);
            assert!(variables.insert(key.env), "{} twice", key.env);
            assert!(key.env.starts_with("WH_"), "{}", key.env);
            assert!(key.doc.ends_with('.'), "{} has no sentence", key.path);
            assert!(!is_block(key.path), "{} is a key and a block", key.path);
        }
    }
}
