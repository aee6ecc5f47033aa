//! `bench stream`: many watch while one publishes. Counts deliveries, their latency, and what a watcher costs in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use http::Uri;
use tokio::task::JoinSet;

use super::event::{Body, Format, Shape, create_table};
use super::host::{self, Cost};
use super::load::{self, Live, Plan};
use super::ops::Gateway;
use super::result::{Latency, RunResult};
use super::watchers::{Seen, Target, Watchers};
use super::{GatewayArgs, OutputArgs};

/// How long memory settles before it is read.
const SETTLE: Duration = Duration::from_secs(3);

/// Arguments of `bench stream`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct StreamArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Where rows are posted, when --url names another server's stream.
    #[arg(long, value_name = "URL")]
    publish_url: Option<String>,
    /// Table that is watched; made if it is missing.
    #[arg(long, default_value = "bench_events")]
    table: String,
    /// Connections that watch.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    connections: u32,
    /// Requests a second, due at fixed instants; without it the publisher goes as fast as it is answered.
    #[arg(long, value_name = "REQUESTS")]
    rate: Option<f64>,
    /// Connections that publish.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    publishers: u32,
    /// Rows in each request.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    rows_per_request: u32,
    /// How rows stand in the body: auto is one object, or NDJSON for several.
    #[arg(long, value_enum, default_value = "auto")]
    format: Format,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Seconds before measuring begins.
    #[arg(long, default_value_t = 1, value_name = "SECONDS")]
    warmup: u64,
    /// Process whose CPU and memory are watched; may be repeated.
    #[arg(long = "pid", value_name = "PID")]
    pids: Vec<u32>,
    /// Publish nothing: read the server's memory before, with, and some time after the connections.
    #[arg(long, requires = "pids", conflicts_with_all = ["rate", "stalled"])]
    idle: bool,
    /// With --idle: seconds from the last connection's end to the last reading of memory.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    idle_after: u64,
    /// Measure twice: without, and then with, this many further connections that never read.
    #[arg(long, default_value_t = 0, value_name = "CONNECTIONS")]
    stalled: u32,
}

/// Measures and prints.
pub(super) async fn run(args: &StreamArgs, key: Option<&str>) -> anyhow::Result<()> {
    let gateway = args.gateway.gateway(key)?;
    let (target, shape) = addresses(args, &gateway)?;
    if shape.paths == [gateway.ingest_path(&args.table)] {
        gateway.sql(&create_table(&args.table)).await.context("cannot make the table")?;
        gateway.refresh_schema().await?;
    }
    let result = if args.idle { idle(args, &target).await? } else { flowing(args, &target, shape).await? };
    result.print(args.output.json)
}

/// What is watched and what is posted.
fn addresses(args: &StreamArgs, gateway: &Gateway) -> anyhow::Result<(Target, Shape)> {
    let uri: Uri = args.gateway.url.parse().context("the address")?;
    let own_path = uri.path() != "/" || uri.query().is_some();
    let watched = if own_path {
        uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string)
    } else {
        gateway.stream_path(&args.table)
    };
    let (host, path) = match &args.publish_url {
        Some(url) => {
            let uri: Uri = url.parse().context("the address to publish to")?;
            let path = uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
            (Gateway::new(url, Vec::new())?.host, path)
        }
        None => (gateway.host.clone(), gateway.ingest_path(&args.table)),
    };
    let target = Target { host: gateway.host.clone(), path: watched, headers: gateway.headers.clone() };
    let shape = Shape {
        paths: vec![path],
        host,
        headers: gateway.headers.clone(),
        rows: args.rows_per_request as usize,
        row_bytes: 256,
        body: Body::Rows(args.format),
    };
    Ok((target, shape))
}

/// Memory before the connections came, with them, and after they left.
async fn idle(args: &StreamArgs, target: &Target) -> anyhow::Result<RunResult> {
    let rss = || host::rss_bytes(&args.pids).context("the process cannot be looked at");
    let before = rss()?;
    let begun = Instant::now();
    let watchers = Watchers::open(target, args.connections as usize, Instant::now()).await?;
    let opened = begun.elapsed();
    tokio::time::sleep(SETTLE).await;
    let with = rss()?;
    watchers.close().await;
    tokio::time::sleep(Duration::from_secs(args.idle_after)).await;
    let after = rss()?;
    let mut result = RunResult {
        label: args.output.label.clone(),
        what: format!("{}: {} connections that wait", target.path, args.connections),
        seconds: begun.elapsed().as_secs_f64(),
        ..RunResult::default()
    };
    result.cost.rss_bytes_max = Some(with);
    #[expect(clippy::cast_precision_loss, reason = "bytes for people")]
    {
        let (before, with, after) = (before as f64, with as f64, after as f64);
        result.more.extend([
            ("rss_before_mb".to_owned(), before / 1e6),
            ("rss_after_mb".to_owned(), after / 1e6),
            ("rss_after_ratio".to_owned(), after / before),
            ("bytes_per_connection".to_owned(), (with - before).max(0.0) / f64::from(args.connections)),
            ("opened_per_s".to_owned(), f64::from(args.connections) / opened.as_secs_f64()),
        ]);
    }
    Ok(result)
}

async fn flowing(args: &StreamArgs, target: &Target, shape: Shape) -> anyhow::Result<RunResult> {
    let epoch = Instant::now();
    let mut watchers = Watchers::open(target, args.connections as usize, epoch).await?;
    let plan = Plan {
        shape,
        connections: args.publishers as usize,
        pipeline: 1,
        rate: args.rate,
        warmup: Duration::from_secs(args.warmup),
        measure: Duration::from_secs(args.seconds),
        refused_wait: Duration::ZERO,
        stamp_from: Some(epoch),
    };
    let without = measure(args, &plan, &watchers).await?;
    if args.stalled == 0 {
        watchers.close().await;
        return Ok(describe(args, &plan, &without));
    }
    watchers.stall(target, args.stalled as usize).await?;
    let with = measure(args, &plan, &watchers).await?;
    watchers.close().await;
    let mut result = describe(args, &plan, &with);
    let p99 = |one: &Measured| Latency::of(&one.seen.taken).map(|latency| latency.p99_us);
    if let (Some(with), Some(without)) = (p99(&with), p99(&without)) {
        result.more.insert("p99_without_us".to_owned(), without);
        result.more.insert("stalled_p99_ratio".to_owned(), with / without);
    }
    #[expect(clippy::cast_precision_loss, reason = "bytes for people")]
    if let (Some(with), Some(without)) = (with.cost.rss_bytes_max, without.cost.rss_bytes_max) {
        result.more.insert("stalled_rss_kb".to_owned(), with.saturating_sub(without) as f64 / 1024.0);
    }
    Ok(result)
}

struct Measured {
    published_rows: u64,
    seen: Seen,
    cost: Cost,
}

async fn measure(args: &StreamArgs, plan: &Plan, watchers: &Watchers) -> anyhow::Result<Measured> {
    let live: Arc<Live> = Arc::default();
    let mut window = JoinSet::new();
    let (books, pids) = (Arc::clone(&watchers.books), args.pids.clone());
    let (warmup, length) = (plan.warmup, plan.measure);
    window.spawn(async move {
        tokio::time::sleep(warmup).await;
        let before = host::read(&pids);
        books.begin();
        let (begun, mut rss_bytes_max) = (tokio::time::Instant::now(), None);
        while begun.elapsed() < length {
            rss_bytes_max = rss_bytes_max.max(host::rss_bytes(&pids));
            tokio::time::sleep(host::MEMORY_EVERY.min(length - begun.elapsed())).await;
        }
        let seen = books.close();
        (seen, Cost { rss_bytes_max, ..host::between(&before, &host::read(&pids)) })
    });
    let tally = load::run(plan, &live).await?;
    let (seen, cost) = window.join_next().await.context("nothing was watched")??;
    Ok(Measured { published_rows: tally.rows, seen, cost })
}

fn describe(args: &StreamArgs, plan: &Plan, measured: &Measured) -> RunResult {
    let rate = args
        .rate
        .map_or_else(|| "as fast as answered".to_owned(), |rate| format!("{rate} requests/s, from when due"));
    let mut result = RunResult {
        label: args.output.label.clone(),
        what: format!(
            "{}: deliveries to {} connections, {} rows a request, {rate}",
            plan.shape.target(),
            args.connections,
            plan.shape.rows
        ),
        seconds: plan.measure.as_secs_f64(),
        rows: measured.seen.rows,
        latency: Latency::of(&measured.seen.taken),
        cost: measured.cost,
        ..RunResult::default()
    };
    result.derive(plan.shape.row_bytes);
    #[expect(clippy::cast_precision_loss, reason = "counts for people")]
    {
        let published = measured.published_rows as f64;
        result.more.insert("published_rows_per_s".to_owned(), published / result.seconds);
        if published > 0.0 {
            let all = published * f64::from(args.connections);
            result.more.insert("delivered_share".to_owned(), measured.seen.rows as f64 / all);
        }
        if measured.seen.broken > 0 {
            result.more.insert("connections_broken".to_owned(), measured.seen.broken as f64);
        }
    }
    result
}
