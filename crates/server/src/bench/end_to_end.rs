//! `bench end-to-end`: posts rows, as fast as they are taken or at a given rate, and waits until ClickHouse holds every one of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::event::{Body, Format, Shape, create_table};
use super::ingest::{LoadArgs, describe, watched};
use super::load::{Live, Plan};
use super::ops::Gateway;
use super::result::Latency;
use super::visible::{Point, lag};
use super::{GatewayArgs, OutputArgs, host};

/// How often the accepted rows are read.
const ACCEPTED_EVERY: Duration = Duration::from_millis(5);
/// How often ClickHouse is asked: half of it is the error of a lag.
const VISIBLE_EVERY: Duration = Duration::from_millis(50);

/// Arguments of `bench end-to-end`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct EndToEndArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Table that is made for the run and dropped after it.
    #[arg(long, default_value = "bench_end_to_end")]
    table: String,
    /// Requests a second over all connections, due at fixed instants (open loop), in place of full speed.
    #[arg(long, value_name = "REQUESTS")]
    rate: Option<u32>,
    /// Leave the table with its rows.
    #[arg(long)]
    keep: bool,
    /// Give up when ClickHouse shows no further row for this many seconds.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    patience: u64,
    /// Milliseconds that a connection waits after a refusal.
    #[arg(long, default_value_t = 100)]
    refused_wait_ms: u64,
}

/// Measures and prints; an error when rows are missing or there are too many.
pub(super) async fn run(args: &EndToEndArgs, key: Option<&str>) -> anyhow::Result<()> {
    let gateway = args.gateway.gateway(key)?;
    let table = args.table.as_str();
    gateway.sql(&format!("DROP TABLE IF EXISTS `{table}` SYNC")).await?;
    gateway.sql(&create_table(table)).await.context("cannot make the table")?;
    gateway.refresh_schema().await?;
    let plan = Plan {
        shape: Shape {
            paths: vec![gateway.ingest_path(table)],
            host: gateway.host.clone(),
            headers: gateway.headers.clone(),
            rows: args.load.rows_per_request as usize,
            row_bytes: args.load.row_bytes as usize,
            body: Body::Rows(Format::Auto),
        },
        connections: args.load.connections as usize,
        pipeline: 1,
        rate: args.rate.map(f64::from),
        warmup: Duration::ZERO, // every row counts here
        measure: Duration::from_secs(args.load.seconds),
        refused_wait: Duration::from_millis(args.refused_wait_ms),
        stamp_from: None,
    };
    let live: Arc<Live> = Arc::default();
    let inserts = async || host::inserts_in(&gateway.metrics().await.ok()?);
    let inserts_before = inserts().await.unwrap_or(0);
    let begun = Instant::now();
    let loading = CancellationToken::new();
    let mut accepted = JoinSet::new();
    accepted.spawn(watch_accepted(Arc::clone(&live), begun, loading.clone()));
    let mut visible = JoinSet::new();
    let patience = Duration::from_secs(args.patience);
    visible.spawn(watch_visible(
        gateway.clone(),
        table.to_owned(),
        (begun, patience),
        Arc::clone(&live),
        loading.clone(),
    ));

    let (tally, cost) = watched(&plan, &args.load.pids, &live, Some(&gateway)).await?;
    loading.cancel();
    let accepted = accepted.join_next().await.context("nobody counted")??;
    let shown = visible.join_next().await.context("nobody looked")???;
    let total = live.rows.load(Ordering::Relaxed);
    let stored = gateway.count(table).await?;
    let inserts = inserts().await.map(|after| after.saturating_sub(inserts_before)).filter(|made| *made > 0);
    if !args.keep {
        gateway.sql(&format!("DROP TABLE `{table}` SYNC")).await?;
    }

    let mut result = describe(&plan, &tally, &args.output.label);
    result.cost = cost;
    result.derive(plan.shape.row_bytes);
    let all_there = shown.last().map_or(begun.elapsed(), |point| point.at);
    result.more.extend(in_clickhouse(stored, inserts, all_there, result.seconds));
    if let Some(lag) = Latency::of(&lag(&accepted, &shown)) {
        result.more.insert("lag_p50_ms".into(), lag.p50_us / 1_000.0);
        result.more.insert("lag_p99_ms".into(), lag.p99_us / 1_000.0);
    }
    result.print(args.output.json)?;
    if stored != total {
        bail!("{total} rows were accepted and ClickHouse holds {stored}");
    }
    Ok(())
}

/// What ClickHouse got: so many rows by so many inserts, all visible after this time, of which the load took some seconds.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn in_clickhouse(
    stored: u64,
    inserts: Option<u64>,
    all_there: Duration,
    loaded_s: f64,
) -> Vec<(String, f64)> {
    let all_there_s = all_there.as_secs_f64();
    let mut figures = vec![
        ("stored_rows_per_s", stored as f64 / all_there_s),
        ("drain_s", (all_there_s - loaded_s).max(0.0)),
        ("rows_stored", stored as f64),
    ];
    if let Some(inserts) = inserts {
        figures.push(("rows_per_insert", stored as f64 / inserts as f64));
        figures.push(("inserts_per_s", inserts as f64 / all_there_s));
    }
    figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

async fn watch_accepted(live: Arc<Live>, begun: Instant, ended: CancellationToken) -> Vec<Point> {
    let mut points = Vec::new();
    loop {
        let last = ended.is_cancelled();
        points.push(Point { at: begun.elapsed(), rows: live.rows.load(Ordering::Relaxed) });
        if last {
            return points;
        }
        tokio::time::sleep(ACCEPTED_EVERY).await;
    }
}

/// Asks for the count until the run has ended and everything accepted is there, or nothing more comes.
async fn watch_visible(
    gateway: Gateway,
    table: String,
    (begun, patience): (Instant, Duration),
    live: Arc<Live>,
    ended: CancellationToken,
) -> anyhow::Result<Vec<Point>> {
    let mut points: Vec<Point> = Vec::new();
    let (mut moved, mut failures) = (Instant::now(), 0_u32);
    loop {
        let last = ended.is_cancelled();
        match gateway.count(&table).await {
            Ok(rows) => {
                failures = 0;
                let stands = points.last().is_some_and(|point| point.rows == rows);
                if !stands {
                    moved = Instant::now();
                    points.push(Point { at: begun.elapsed(), rows });
                }
                if last && (rows >= live.rows.load(Ordering::Relaxed) || moved.elapsed() > patience) {
                    return Ok(points);
                }
            }
            // A server at its limit may refuse a question; only a run of refusals ends the measure.
            Err(error) => {
                failures += 1;
                if failures > 100 {
                    return Err(error.context("ClickHouse cannot be asked"));
                }
            }
        }
        tokio::time::sleep(VISIBLE_EVERY).await;
    }
}
