//! `bench query`: asks one statement again and again.

use std::sync::Arc;
use std::time::Duration;

use super::event::{Body, Shape};
use super::ingest::{describe, watched};
use super::load::{Live, Plan};
use super::{GatewayArgs, OutputArgs};

/// Arguments of `bench query`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct QueryArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// The statement.
    #[arg(long)]
    sql: String,
    /// Connections at once.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    connections: u32,
    /// Statements a second over all connections, due at fixed instants (open loop).
    #[arg(long, value_name = "STATEMENTS")]
    rate: Option<f64>,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Seconds before measuring begins.
    #[arg(long, default_value_t = 1, value_name = "SECONDS")]
    warmup: u64,
    /// Process whose CPU and memory are watched; may be repeated.
    #[arg(long = "pid", value_name = "PID")]
    pids: Vec<u32>,
}

/// Measures and prints. What results call a row is an answer here.
pub(super) async fn run(args: &QueryArgs, key: Option<&str>) -> anyhow::Result<()> {
    let gateway = args.gateway.gateway(key)?;
    // One answer to begin with: a statement that is wrong is told as such, not counted.
    gateway.sql(&args.sql).await?;
    let text = serde_json::to_vec(&serde_json::json!({ "sql": args.sql }))?;
    let plan = Plan {
        shape: Shape {
            paths: vec![gateway.query_path()],
            host: gateway.host.clone(),
            headers: gateway.headers.clone(),
            rows: 1,
            row_bytes: text.len(),
            body: Body::Text(text),
        },
        connections: args.connections as usize,
        pipeline: 1,
        rate: args.rate,
        warmup: Duration::from_secs(args.warmup),
        measure: Duration::from_secs(args.seconds),
        refused_wait: Duration::ZERO,
        stamp_from: None,
    };
    let (tally, cost) = watched(&plan, &args.pids, &Arc::<Live>::default(), Some(&gateway)).await?;
    let mut result = describe(&plan, &tally, &args.output.label);
    result.what = format!("{}, each answer a row: {}", result.what, args.sql);
    result.cost = cost;
    result.derive(plan.shape.row_bytes);
    result.print(args.output.json)
}
