//! `bench nats-unit`: what reading one unit of the queue on message servers costs by itself. Blocks are stored first; then
//! they are pulled, decoded, counted and acked, and nothing is inserted.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use wavehouse_broker::{Broker, RowBudget};
use wavehouse_broker_nats::{NatsBroker, Options};
use wavehouse_core::{RowBlock, Scope, TableName, TableRef, TenantId, Timestamp};
use wavehouse_topology::TopologyInput;

use super::OutputArgs;
use super::event::lines;
use super::message_servers::report;
use crate::mq::servers::ServerFlags;

/// Blocks that wait to be stored while the unit is filled.
const FILLING: usize = 256;
/// How long the servers may say nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Arguments of `bench nats-unit`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct NatsUnitArgs {
    /// They hold everything that `mq provision` makes.
    #[command(flatten)]
    servers: ServerFlags,
    /// Partitions that the servers have.
    #[arg(long, default_value_t = 1)]
    partitions: u64,
    /// Shards that each has.
    #[arg(long, default_value_t = 32)]
    shards: u64,
    /// Table whose unit is read; it must hold nothing else.
    #[arg(long, default_value = "bench_unit")]
    table: String,
    /// Blocks that are stored first, and then read.
    #[arg(long, default_value_t = 20_000)]
    blocks: usize,
    /// Rows in each.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    rows_per_block: u32,
    /// Bytes of each row.
    #[arg(long, default_value_t = 256)]
    row_bytes: usize,
    #[command(flatten)]
    output: OutputArgs,
}

/// Stores, reads, prints.
pub(super) async fn run(args: &NatsUnitArgs) -> anyhow::Result<()> {
    let input = TopologyInput {
        partitions: args.partitions,
        shards: args.shards,
        replicas: 1,
        ..TopologyInput::default()
    };
    let spec = input.check().map_err(|found| anyhow::anyhow!("{found:?}"))?;
    // The queue decides itself where its answers come back.
    let connect = args.servers.options(None, String::new());
    let table = TableRef::new(TenantId::default(), TableName::parse(&args.table)?);
    let unit = spec.placement().unit_for(&table);
    let mut options = Options::new(spec, connect);
    // Each block is a message, as the raw measure has it.
    options.message_bytes_target = 1;
    let broker = NatsBroker::open(options).await?;
    fill(&broker, args, &table).await?;
    let begun = Instant::now();
    let budget = RowBudget { rows: 1_000_000, bytes: 512 << 20 };
    let mut opened = broker.open_unit(unit, budget).await?;
    let (mut blocks, mut rows) = (0, 0_u64);
    while blocks < args.blocks {
        let next =
            tokio::time::timeout(PATIENCE, opened.deliveries.next()).await.context("nothing came")??;
        let Some(delivery) = next else { bail!("the unit was given up") };
        rows += delivery.stored().block.lines().filter(|line| line.starts_with(b"{")).count() as u64;
        delivery.ack();
        blocks += 1;
    }
    // As for bare pulls, until the last ack is handed over; the release waits until the servers have them all.
    let took = begun.elapsed();
    opened.control.release().await;
    broker.close().await?;
    let what = format!("one unit: pulled, decoded, acked; {} rows a message", args.rows_per_block);
    report(&args.output, what, rows, took, args.row_bytes)
}

async fn fill(broker: &NatsBroker, args: &NatsUnitArgs, table: &TableRef) -> anyhow::Result<()> {
    let rows = Bytes::from(lines(args.rows_per_block, args.row_bytes));
    let block =
        || RowBlock::new(table.clone(), Timestamp(1), Scope::default(), args.rows_per_block, rows.clone());
    let mut left = args.blocks;
    while left > 0 {
        let some = left.min(FILLING);
        for result in broker.submit((0..some).map(|_| block()).collect()).await {
            result.context("a block was not stored")?;
        }
        left -= some;
    }
    Ok(())
}
