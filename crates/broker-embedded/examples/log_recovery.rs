//! How long the log takes to open after its process was ended with much unwritten, against reading all of it once.
//!
//! `cargo run --release -p wavehouse-broker-embedded --example log_recovery [directory [MiB]]`

#![expect(clippy::print_stdout, reason = "a measurement prints its result")]

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use wavehouse_broker::Broker;
use wavehouse_broker_embedded::{EmbeddedBroker, Metrics, Options};
use wavehouse_core::{RowBlock, Scope, TableName, TableRef, TenantId, Timestamp};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(|| PathBuf::from("log-recovery.tmp"), PathBuf::from);
    let mib: u64 = args.next().map_or(Ok(1024), |text| text.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    println!("rows/block   blocks     MiB  read once ms  open and store ms   ratio");
    for rows_a_block in [1, 100, 1000] {
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        // One-row blocks that stay apart are the most there is to index; a part of the bytes shows it.
        let bytes = (mib << 20) / if rows_a_block == 1 { 8 } else { 1 };
        runtime.block_on(measure(&dir, rows_a_block, bytes))?;
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

fn options(dir: &Path) -> Options {
    let mut options = Options::new(dir.to_owned());
    options.disk_bytes_max = Some(8 << 30);
    options
}

fn block(table: &TableRef, rows: u32) -> RowBlock {
    let line = format!("{{\"text\":\"{}\"}}\n", "x".repeat(244));
    RowBlock::new(table.clone(), Timestamp(1), Scope::default(), rows, line.repeat(rows as usize).into())
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
async fn measure(dir: &Path, rows_a_block: u32, bytes: u64) -> Result<(), Failure> {
    let tables: Vec<TableRef> = (0..50)
        .map(|n| Ok(TableRef::new(TenantId::default(), TableName::parse(&format!("table{n}"))?)))
        .collect::<Result<_, Failure>>()?;
    let broker = EmbeddedBroker::open(&options(dir), Metrics::default())?;
    let (mut sent, mut blocks) = (0, 0);
    while sent < bytes {
        // A block of each table: blocks of different tables are not merged.
        let batch: Vec<_> = tables.iter().map(|table| block(table, rows_a_block)).collect();
        sent += batch.iter().map(|block| block.encoded_len() as u64).sum::<u64>();
        blocks += batch.len();
        for result in broker.submit(batch).await {
            result?;
        }
    }
    drop(broker);
    let start = Instant::now();
    let mut buffer = vec![0; 1 << 20];
    for entry in std::fs::read_dir(dir.join("queue"))? {
        let mut file = File::open(entry?.path())?;
        while file.read(&mut buffer)? > 0 {}
    }
    let read_once = start.elapsed().as_secs_f64() * 1e3;
    let start = Instant::now();
    let broker = EmbeddedBroker::open(&options(dir), Metrics::default())?;
    let first = tables.first().ok_or("no table")?;
    for result in broker.submit(vec![block(first, 1)]).await {
        result?;
    }
    let opened = start.elapsed().as_secs_f64() * 1e3;
    let mib = sent as f64 / 1024.0 / 1024.0;
    let ratio = opened / read_once;
    println!("{rows_a_block:>10}  {blocks:>7}  {mib:>6.0}  {read_once:>12.1}  {opened:>17.1}  {ratio:>6.2}");
    broker.close().await?;
    Ok(())
}
