//! Puts the parts together, in the order in which they need each other, and hands them to the supervisor.
//!
//! ```text
//! listener ─ engine? ─ ClickHouse (not dialled) ─ queue ─ worker? ─ api or probes ─ timers
//! ```
//!
//! The listener is bound first, so that a taken port is told before anything is opened. ClickHouse need not be there:
//! the gateway then starts degraded, takes no rows of tables that it has never seen, and recovers by itself. A queue on
//! message servers must be there, and be what it should.

mod parts;
mod queue;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wavehouse_api::{Api, ApiParts};
use wavehouse_broker::SharedBroker;
use wavehouse_clickhouse::{ClickHouseMetrics, ClickHouseSink, Connection, Targets};
use wavehouse_core::TenantId;
use wavehouse_worker::{ClaimOptions, Worker, WorkerMetrics};

use crate::background::{count_letters, sweep};
use crate::config::{Config, Finding, Mode, Queue};
use crate::metrics::{Depths, LetterGauges, Parts, Process};
use crate::ops::{self, Ops};
use crate::supervisor::{OnExit, Outcome, Phase, StopBudget, Supervisor, listen};
use crate::{dev, engine, metrics};

/// Finds the engine's files if one is to run beside us.
///
/// # Errors
/// What is missing.
pub(crate) fn find_engine(config: &Config) -> Result<Option<engine::Files>, Vec<Finding>> {
    let Some(engine) = &config.engine else { return Ok(None) };
    let own = std::env::current_exe().unwrap_or_default();
    let here = std::env::current_dir().unwrap_or_default();
    engine::find(engine, &own, &here).map(Some)
}

/// Starts everything, runs until something ends it, stops everything.
///
/// # Errors
/// What could not be started.
pub(crate) async fn run(config: Config, engine_files: Option<engine::Files>) -> anyhow::Result<Outcome> {
    let mut catching = JoinSet::new();
    let signals = listen(config.mode == Mode::Dev, &mut catching).context("cannot catch signals")?;
    let listener = bind(config.server.listen).await?;
    let metrics_listener = match config.prometheus.as_ref().and_then(|prometheus| prometheus.port) {
        Some(port) => Some(bind((config.server.listen.ip(), port).into()).await?),
        None => None,
    };
    for warning in &config.warnings {
        warn!("{warning}");
    }
    let mut supervisor = Supervisor::new(StopBudget {
        delay: config.server.drain_delay,
        drain: config.server.shutdown_timeout,
    });
    let (listeners, mut signals) = (Listeners { face: listener, metrics: metrics_listener }, signals);
    // Message servers may be waited for; whoever asks the process to stop is not kept waiting.
    tokio::select! {
        biased;
        Some(signal) = signals.recv() => return Ok(Outcome::before_start(signal)),
        assembled = assemble(&config, engine_files, listeners, &mut supervisor) => assembled?,
    }
    info!(
        instance = config.instance_id,
        version = env!("CARGO_PKG_VERSION"),
        address = %config.server.listen,
        roles = config.roles.to_string(),
        "wavehouse is up"
    );
    Ok(supervisor.run(signals).await)
}

/// What was bound before anything was opened.
struct Listeners {
    face: TcpListener,
    metrics: Option<TcpListener>,
}

async fn bind(address: std::net::SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| {
        format!("cannot listen on {address}; stop what is there, or set another port (WH_SERVER_PORT, WH_PROMETHEUS_PORT)")
    })
}

/// Makes every part, then starts them; nothing runs before everything is made.
async fn assemble(
    config: &Config,
    engine_files: Option<engine::Files>,
    listeners: Listeners,
    supervisor: &mut Supervisor,
) -> anyhow::Result<()> {
    if config.keeps_files() {
        std::fs::create_dir_all(&config.data_dir)
            .with_context(|| format!("cannot make {}", config.data_dir.display()))?;
    }
    let beside = match (&config.engine, engine_files) {
        (Some(wanted), Some(files)) => Some(engine::prepare(config, wanted, files)?),
        _ => None,
    };
    let mut registry = Registry::default();
    let clickhouse_metrics = ClickHouseMetrics::register(&mut registry);
    let target = parts::target(config, beside.as_ref());
    let connection = Connection::new(target, parts::catalog_options(config), &clickhouse_metrics)
        .context("tenant.clickhouse is not usable")?;
    let connection = Arc::new(connection);
    let broker = queue::open(config, &mut registry).await?;
    registry.register_collector(Box::new(Depths(Arc::clone(&broker))));
    registry.register_collector(Box::new(Parts(connection.catalog.clone())));
    registry.register_collector(Box::new(Process));
    let letter_gauges = LetterGauges::register(&mut registry);
    let seed = getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()));
    let worker = config.roles.ingest.then(|| {
        let targets = Targets::one(TenantId::default(), Arc::clone(&connection));
        let sink = Arc::new(ClickHouseSink::new(targets, clickhouse_metrics));
        let metrics = WorkerMetrics::register(&mut registry);
        let worker = Worker::new(parts::worker_options(config, seed), Arc::clone(&broker), sink, metrics);
        worker.with_claims(ClaimOptions::new(config.instance_id.clone()))
    });
    let api_metrics = config.roles.api.then(|| wavehouse_api::Metrics::register(&mut registry));
    let registry = Arc::new(registry);

    let (ready, engine_ready) = watch::channel(beside.is_none());
    if let Some((program, _password)) = beside.clone() {
        supervisor
            .spawn("engine", Phase::Release, OnExit::StopProcess, |stop| engine::run(program, ready, stop));
    }
    start_queue(config, Arc::clone(&broker), letter_gauges, supervisor);
    if let Some(worker) = worker {
        supervisor.spawn("worker", Phase::Worker, OnExit::StopProcess, |stop| async move {
            Ok(worker.run(stop).await?)
        });
    }
    discover(&connection, engine_ready.clone(), supervisor);
    let face = Face { connection: &connection, broker, registry: &registry, seed };
    face.start(config, listeners.face, api_metrics, supervisor);
    if let (Some(listener), Some(prometheus)) = (listeners.metrics, &config.prometheus) {
        let path = prometheus.path.clone();
        supervisor.spawn("metrics", Phase::Background, OnExit::Log, |stop| {
            metrics::serve(listener, path, registry, stop)
        });
    }
    if config.mode == Mode::Dev {
        let password_file = beside.as_ref().map(|(program, _)| program.password_file.as_path());
        greet(config, &connection, engine_ready, password_file, supervisor);
    }
    Ok(())
}

/// Keeps ClickHouse's tables known, from when the engine beside us answers.
fn discover(connection: &Connection, mut startable: watch::Receiver<bool>, supervisor: &mut Supervisor) {
    let catalog = connection.catalog.clone();
    supervisor.spawn("tables", Phase::Background, OnExit::StopProcess, |stop| async move {
        until_ready(&mut startable, &stop).await;
        catalog.run(stop.clone()).await;
        anyhow::ensure!(stop.is_cancelled(), "schema discovery ended");
        Ok(())
    });
}

/// What is answered on the process's port: the gateway's face, or the probes of a process without it.
struct Face<'a> {
    connection: &'a Arc<Connection>,
    broker: SharedBroker,
    registry: &'a Arc<Registry>,
    seed: u64,
}

impl Face<'_> {
    fn start(
        self,
        config: &Config,
        listener: TcpListener,
        api_metrics: Option<wavehouse_api::Metrics>,
        supervisor: &mut Supervisor,
    ) {
        let delay = config.server.drain_delay;
        let options = parts::api_options(config);
        let (connection, registry) = (Arc::clone(self.connection), Arc::clone(self.registry));
        let Some(metrics) = api_metrics else {
            let (metrics_path, version) = (options.metrics_path, options.version);
            let ops = Ops { broker: self.broker, connection, registry, metrics_path, version };
            supervisor.spawn("probes", Phase::Api, OnExit::StopProcess, |stop| {
                serve_ops(ops, listener, delay, stop)
            });
            return;
        };
        let parts = ApiParts { broker: self.broker, connection, registry, metrics, process_id: self.seed };
        let api = Api::new(options, parts);
        supervisor.spawn("api", Phase::Api, OnExit::StopProcess, |stop| serve(api, listener, delay, stop));
    }
}

/// Answers probes until `stop` and for `delay` after it, not ready any more.
async fn serve_ops(
    ops: Ops,
    listener: TcpListener,
    delay: Duration,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let close = CancellationToken::new();
    let closing = async {
        stop.cancelled().await;
        tokio::time::sleep(delay).await;
        close.cancel();
    };
    tokio::join!(ops::serve(ops, listener, stop.clone(), close.clone()), closing).0
}

/// Serves until `stop`. Then those who balance load are told, and for `delay` everything goes on, since they need a moment
/// to hear it; after that no more rows are taken and what is in flight is finished.
async fn serve(
    api: Api,
    listener: TcpListener,
    delay: Duration,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let handle = api.handle();
    let close = CancellationToken::new();
    let closing = async {
        stop.cancelled().await;
        handle.set_unready();
        tokio::time::sleep(delay).await;
        handle.refuse_ingest();
        close.cancel();
    };
    tokio::join!(api.serve(listener, close.clone()), closing);
    Ok(())
}

fn start_queue(config: &Config, broker: SharedBroker, letters: LetterGauges, supervisor: &mut Supervisor) {
    if config.roles.api {
        let counting = Arc::clone(&broker);
        supervisor
            .spawn("letters", Phase::Background, OnExit::Log, |stop| count_letters(counting, letters, stop));
    }
    if config.roles.sweeper && matches!(config.queue, Queue::Embedded) {
        let sweeping = Arc::clone(&broker);
        supervisor.spawn("sweeper", Phase::Background, OnExit::StopProcess, |stop| sweep(sweeping, stop));
    }
    supervisor.spawn("queue", Phase::Release, OnExit::StopProcess, |stop| queue::keep(broker, stop));
}

/// In development: once ClickHouse is there, makes the sample table and prints the page.
fn greet(
    config: &Config,
    connection: &Arc<Connection>,
    mut engine_ready: watch::Receiver<bool>,
    password_file: Option<&Path>,
    supervisor: &mut Supervisor,
) {
    let connection = Arc::clone(connection);
    let page = dev::page(&dev::Page {
        address: config.server.listen,
        clickhouse: connection.client.target(),
        password_file,
        data_dir: &config.data_dir,
    });
    supervisor.spawn("greeter", Phase::Background, OnExit::Log, |stop| async move {
        until_ready(&mut engine_ready, &stop).await;
        dev::sample_table(&connection.client, &connection.catalog, &stop).await;
        if !stop.is_cancelled() {
            show(&page);
        }
        Ok(())
    });
}

/// Waits for the engine beside us to answer for the first time; at once where there is none.
async fn until_ready(engine_ready: &mut watch::Receiver<bool>, stop: &CancellationToken) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        // The engine's task holds the other end; if it is gone the process is going too.
        _ready = engine_ready.wait_for(|ready| *ready) => {}
    }
}

fn show(page: &str) {
    let mut out = std::io::stdout();
    // A page that nobody can see is no reason to fail.
    let _written = out.write_all(page.as_bytes()).and_then(|()| out.flush());
    if !out.is_terminal() {
        info!("ready");
    }
}
