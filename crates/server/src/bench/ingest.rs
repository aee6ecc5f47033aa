//! `bench ingest`: posts rows to a server and measures what it takes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http::Uri;
use tokio::task::JoinSet;

use super::event::{Body, Format, ROW_BYTES_MIN, Shape, create_table};
use super::host;
use super::load::{self, Live, Plan, Tally};
use super::ops::Gateway;
use super::result::{Latency, RunResult};
use super::{GatewayArgs, OutputArgs};

/// Between two looks at a table that fills.
const DRAIN_LOOK: Duration = Duration::from_millis(200);
/// How long a table may stand still before the wait for it ends.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);

/// What is posted, and how hard.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct LoadArgs {
    /// Connections at once.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(super) connections: u32,
    /// Rows in each request.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub(super) rows_per_request: u32,
    /// Bytes of each row.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(ROW_BYTES_MIN as i64..=1_000_000))]
    pub(super) row_bytes: u32,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 10)]
    pub(super) seconds: u64,
    /// Seconds before measuring begins.
    #[arg(long, default_value_t = 1, value_name = "SECONDS")]
    pub(super) warmup: u64,
    /// Process whose CPU and memory are watched; may be repeated.
    #[arg(long = "pid", value_name = "PID")]
    pub(super) pids: Vec<u32>,
}

/// Arguments of `bench ingest`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct IngestArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Table that the rows go into; made if it is missing.
    #[arg(long, default_value = "bench_events")]
    table: String,
    /// Tables that the requests go to in turn: their names are that of --table and a number.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tables: u32,
    /// Do not make the table.
    #[arg(long)]
    no_create: bool,
    /// How rows stand in the body: auto is one object, or NDJSON for several.
    #[arg(long, value_enum, default_value = "auto")]
    format: Format,
    /// Requests a second over all connections, due at fixed instants (open loop).
    #[arg(long, value_name = "REQUESTS", conflicts_with = "pipeline")]
    rate: Option<u32>,
    /// Requests in flight on each connection.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pipeline: u16,
    /// Milliseconds that a connection waits after a refusal, as a polite client does.
    #[arg(long, default_value_t = 0)]
    refused_wait_ms: u64,
    /// Wait afterwards until ClickHouse holds the rows, so that the next run starts with an empty queue.
    #[arg(long)]
    drain: bool,
}

/// Measures and prints.
pub(super) async fn run(args: &IngestArgs, key: Option<&str>) -> anyhow::Result<()> {
    let gateway = args.gateway.gateway(key)?;
    let uri: Uri = args.gateway.url.parse().context("the address")?;
    let own_path = uri.path() != "/" || uri.query().is_some();
    let tables = tables(&args.table, args.tables);
    let paths = if own_path {
        vec![uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string)]
    } else {
        tables.iter().map(|table| gateway.ingest_path(table)).collect()
    };
    if !own_path && !args.no_create {
        for table in &tables {
            gateway.sql(&create_table(table)).await.context("cannot make the table")?;
        }
        gateway.refresh_schema().await?;
    }
    let plan = Plan {
        shape: Shape {
            paths,
            host: gateway.host.clone(),
            headers: gateway.headers.clone(),
            rows: args.load.rows_per_request as usize,
            row_bytes: args.load.row_bytes as usize,
            body: Body::Rows(args.format),
        },
        connections: args.load.connections as usize,
        pipeline: usize::from(args.pipeline),
        rate: args.rate.map(f64::from),
        warmup: Duration::from_secs(args.load.warmup),
        measure: Duration::from_secs(args.load.seconds),
        refused_wait: Duration::from_millis(args.refused_wait_ms),
        stamp_from: None,
    };
    let live: Arc<Live> = Arc::default();
    let there = if args.drain { count(&gateway, &tables).await? } else { 0 };
    let (tally, cost) = watched(&plan, &args.load.pids, &live, Some(&gateway)).await?;
    let loaded = Instant::now();
    if args.drain {
        drain(&gateway, &tables, there + live.rows.load(Ordering::Relaxed)).await?;
    }
    let mut result = describe(&plan, &tally, &args.output.label);
    if args.drain {
        result.more.insert("drain_s".to_owned(), loaded.elapsed().as_secs_f64());
    }
    result.cost = cost;
    result.derive(plan.shape.row_bytes);
    result.print(args.output.json)
}

/// The table, or as many as asked for.
fn tables(table: &str, count: u32) -> Vec<String> {
    if count == 1 { vec![table.to_owned()] } else { (0..count).map(|n| format!("{table}_{n:05}")).collect() }
}

/// Rows in all the tables.
async fn count(gateway: &Gateway, tables: &[String]) -> anyhow::Result<u64> {
    match tables {
        [one] => gateway.count(one).await,
        [first, ..] => gateway.count_all(first.trim_end_matches(|c: char| c.is_ascii_digit())).await,
        [] => Ok(0),
    }
}

/// Waits until the tables hold `rows`.
async fn drain(gateway: &Gateway, tables: &[String], rows: u64) -> anyhow::Result<()> {
    let (mut last, mut moved) = (0, Instant::now());
    loop {
        let there = count(gateway, tables).await?;
        if there >= rows {
            return Ok(());
        }
        if there != last {
            (last, moved) = (there, Instant::now());
        }
        if moved.elapsed() > DRAIN_PATIENCE {
            bail!("ClickHouse holds {there} of {rows} rows, and no further ones come");
        }
        tokio::time::sleep(DRAIN_LOOK).await;
    }
}

/// Runs the plan while the cost is watched.
pub(super) async fn watched(
    plan: &Plan,
    pids: &[u32],
    live: &Arc<Live>,
    gateway: Option<&Gateway>,
) -> anyhow::Result<(Tally, host::Cost)> {
    let fsyncs = async || host::fsyncs_in(&gateway?.metrics().await.ok()?);
    let mut watch = JoinSet::new();
    let (warmup, measure, watched_pids) = (plan.warmup, plan.measure, pids.to_vec());
    let fsyncs_before = fsyncs().await;
    watch.spawn(async move {
        tokio::time::sleep(warmup).await;
        let before = host::read(&watched_pids);
        let (begun, mut rss_bytes_max) = (tokio::time::Instant::now(), None);
        while begun.elapsed() < measure {
            rss_bytes_max = rss_bytes_max.max(host::rss_bytes(&watched_pids));
            tokio::time::sleep(host::MEMORY_EVERY.min(measure - begun.elapsed())).await;
        }
        host::Cost { rss_bytes_max, ..host::between(&before, &host::read(&watched_pids)) }
    });
    let tally = load::run(plan, live).await?;
    let mut cost = watch.join_next().await.context("nothing was watched")??;
    // The server's own count covers the warm-up as well; it is there to be compared with the requests made.
    cost.fsyncs = fsyncs().await.zip(fsyncs_before).map(|(after, before)| after.saturating_sub(before));
    Ok((tally, cost))
}

/// The figures of a tally.
pub(super) fn describe(plan: &Plan, tally: &Tally, label: &str) -> RunResult {
    let loop_kind = plan.rate.map_or_else(
        || format!("closed loop, {} in flight each", plan.pipeline),
        |rate| format!("open loop, {rate} requests/s, latency from when each was due"),
    );
    let mut result = RunResult {
        label: label.to_owned(),
        what: format!(
            "{}: {} rows of {} bytes a request, {} connections, {loop_kind}",
            plan.shape.target(),
            plan.shape.rows,
            plan.shape.row_bytes,
            plan.connections
        ),
        seconds: plan.measure.as_secs_f64(),
        rows: tally.rows,
        latency: Latency::of(&tally.taken),
        latency_refused: Latency::of(&tally.refused),
        statuses: tally.statuses.clone(),
        ..RunResult::default()
    };
    let odd = [
        ("rows_refused", tally.rows_refused),
        ("rows_duplicate", tally.rows_duplicate),
        ("connections_broken", tally.broken),
        ("requests_not_offered", tally.not_offered),
    ];
    #[expect(clippy::cast_precision_loss, reason = "counts for people")]
    result.more.extend(odd.iter().filter(|one| one.1 > 0).map(|one| (one.0.to_owned(), one.1 as f64)));
    result
}
