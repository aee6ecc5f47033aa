//! From the configuration to what each part is made with. Pure.

use wavehouse_api::{Access, ApiOptions, Cors, VersionInfo};
use wavehouse_clickhouse::{CatalogOptions, Secret, Target, Tls};
use wavehouse_worker::Options as WorkerOptions;

use crate::config::{self, Config, Mode, Queue};
use crate::engine::Program;

/// Of the time that a stop gives, what the worker writes in; the rest is for letting go.
const FLUSH_SHARE: f64 = 0.75;

/// The ClickHouse of tenant 0: the engine beside us, or the one that was configured.
pub(crate) fn target(config: &Config, beside: Option<&(Program, config::Secret)>) -> Target {
    let clickhouse = &config.clickhouse;
    let (url, password) = match beside {
        Some((program, password)) => (format!("http://{}", program.listen), password),
        None => (clickhouse.url.clone(), &clickhouse.password),
    };
    let (cert_file, key_file) = clickhouse.tls.identity.clone().unzip();
    Target {
        url,
        user: clickhouse.username.clone(),
        password: Secret::new(password.reveal()),
        database: clickhouse.database.clone(),
        headers: clickhouse.headers.clone(),
        tls: Tls {
            ca_file: clickhouse.tls.ca_file.clone(),
            cert_file,
            key_file,
            insecure_skip_verify: clickhouse.tls.insecure,
            server_name: clickhouse.tls.server_name.clone(),
        },
        query_timeout: clickhouse.query_timeout,
        max_open_conns: usize::try_from(clickhouse.connections_max).unwrap_or(usize::MAX),
    }
}

/// How the tables are kept known.
pub(crate) fn catalog_options(config: &Config) -> CatalogOptions {
    CatalogOptions { refresh_interval: config.clickhouse.schema_refresh }
}

/// How batches are made.
pub(crate) fn worker_options(config: &Config, seed: u64) -> WorkerOptions {
    let worker = &config.worker;
    WorkerOptions {
        linger: worker.linger,
        batch_rows: u32::try_from(worker.batch_rows).unwrap_or(u32::MAX),
        batch_bytes: worker.batch_bytes,
        batch_bytes_max: worker.batch_bytes_max,
        inserts_max: usize::try_from(worker.inserts_max).unwrap_or(usize::MAX),
        held_rows: worker.held_rows,
        held_bytes: worker.held_bytes,
        stop_budget: config.server.shutdown_timeout.mul_f64(FLUSH_SHARE),
        seed,
        ..WorkerOptions::default()
    }
}

/// How the HTTP face behaves.
pub(crate) fn api_options(config: &Config) -> ApiOptions {
    let dev = config.mode == Mode::Dev;
    let key = config.operator_key.as_ref().map(|key| key.reveal().to_owned());
    let metrics = config.prometheus.as_ref().filter(|prometheus| prometheus.port.is_none());
    ApiOptions {
        access: if dev { Access::Open } else { Access::Key(key) },
        cors: if dev { Cors::Off } else { Cors::Allow(config.tenant.allowed_origins.clone()) },
        loopback_port: dev.then(|| config.server.listen.port()),
        metrics_path: metrics.map(|prometheus| prometheus.path.clone()),
        bodies_in_flight_bytes_max: usize::try_from(config.body_bytes_in_flight_max).unwrap_or(usize::MAX),
        keepalive: config.tenant.keepalive,
        ready_with_queue: matches!(config.queue, Queue::Nats(_)),
        version: VersionInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            git_commit: option_env!("WAVEHOUSE_GIT_COMMIT").unwrap_or_default().to_owned(),
            build_time: option_env!("WAVEHOUSE_BUILD_TIME").unwrap_or_default().to_owned(),
            rust_version: env!("CARGO_PKG_RUST_VERSION").to_owned(),
        },
    }
}
