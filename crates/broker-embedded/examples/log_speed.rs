//! How fast the log takes rows: rows a second and the time to a durable answer, by rows a block, by senders at once, and
//! by how much longer a sync takes than on this disk.
//!
//! `cargo run --release -p wavehouse-broker-embedded --example log_speed [directory [seconds [senders]]]`: with a number of
//! senders, only one-row blocks by so many.

#![expect(clippy::print_stdout, reason = "a measurement prints its table")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use wavehouse_broker::{Broker, RowBudget};
use wavehouse_broker_embedded::{EmbeddedBroker, Metrics, Options};
use wavehouse_core::{RowBlock, Scope, TableName, TableRef, TenantId, Timestamp, UnitId};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// One measurement.
struct Case {
    rows_a_block: u32,
    senders: usize,
    delay: Duration,
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(|| PathBuf::from("log-speed.tmp"), PathBuf::from);
    let seconds: f64 = args.next().map_or(Ok(3.0), |text| text.parse())?;
    let only: Option<usize> = args.next().map(|text| text.parse()).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    println!("one bare fdatasync of 256 bytes on this disk: p50 {:.0} us", bare_sync_us(&dir)?);
    println!("rows/block  senders  +sync ms     rows/s    MB/s   p50 us   p99 us   max ms  blocks/sync");
    for delay_ms in [0, 1, 5] {
        for rows_a_block in [1, 100, 1000] {
            for senders in [1, 8, 32, 128, 512] {
                let left_out = only.is_some_and(|only| senders != only || rows_a_block > 1);
                if left_out || rows_a_block > 1 && senders > 32 {
                    continue;
                }
                let case = Case { rows_a_block, senders, delay: Duration::from_millis(delay_ms) };
                runtime.block_on(measure(&dir, &case, Duration::from_secs_f64(seconds)))?;
            }
        }
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

fn bare_sync_us(dir: &PathBuf) -> Result<f64, Failure> {
    use std::os::unix::fs::FileExt;
    std::fs::create_dir_all(dir)?;
    let path = dir.join("bare");
    let file = std::fs::File::create(&path)?;
    file.write_all_at(&vec![0; 4 << 20], 0)?;
    file.sync_all()?;
    let mut times: Vec<f64> = Vec::new();
    for n in 0..2000 {
        let start = Instant::now();
        file.write_all_at(&[7; 256], n * 256)?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(path)?;
    times.sort_by(f64::total_cmp);
    Ok(times.get(1000).copied().unwrap_or_default())
}

fn block(table: &TableRef, rows: u32) -> RowBlock {
    let line = format!("{{\"text\":\"{}\"}}\n", "x".repeat(244));
    RowBlock::new(table.clone(), Timestamp(1), Scope::default(), rows, line.repeat(rows as usize).into())
}

async fn measure(dir: &PathBuf, case: &Case, time: Duration) -> Result<(), Failure> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    let mut options = Options::new(dir.clone());
    options.fsync_delay = case.delay;
    options.disk_bytes_max = Some(4 << 30);
    let metrics = Metrics::default();
    let broker = EmbeddedBroker::open(&options, metrics.clone())?;
    let consumer = consume(Arc::clone(&broker)).await?;
    // What is laid out in the background shall be there before the clock starts.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let table = TableRef::new(TenantId::default(), TableName::parse("events")?);
    let (syncs, start) = (broker.syncs(), Instant::now());
    let mut senders = JoinSet::new();
    for _ in 0..case.senders {
        let (broker, block) = (Arc::clone(&broker), block(&table, case.rows_a_block));
        senders.spawn(async move {
            let mut times = Vec::new();
            while start.elapsed() < time {
                let sent = Instant::now();
                for result in broker.submit(vec![block.clone()]).await {
                    result?;
                }
                times.push(sent.elapsed());
            }
            Ok::<_, Failure>(times)
        });
    }
    let mut times = Vec::new();
    while let Some(joined) = senders.join_next().await {
        times.extend(joined??);
    }
    let took = start.elapsed().as_secs_f64();
    let syncs = broker.syncs() - syncs;
    report(case, &mut times, took, syncs);
    drop(consumer);
    broker.close().await?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn report(case: &Case, times: &mut [Duration], took: f64, syncs: u64) {
    times.sort();
    let at = |part: usize| times.get((times.len() * part / 1000).min(times.len().saturating_sub(1)));
    let us = |part| at(part).map_or(0.0, |time| time.as_secs_f64() * 1e6);
    let rows = times.len() as f64 * f64::from(case.rows_a_block) / took;
    println!(
        "{:>10}  {:>7}  {:>8}  {:>9.0}  {:>6.1}  {:>7.0}  {:>7.0}  {:>7.1}  {:>11.1}",
        case.rows_a_block,
        case.senders,
        case.delay.as_millis(),
        rows,
        rows * 256.0 / 1e6,
        us(500),
        us(990),
        us(1000) / 1e3,
        times.len() as f64 / syncs.max(1) as f64,
    );
}

/// Reads and acks everything, as the worker does.
async fn consume(broker: Arc<EmbeddedBroker>) -> Result<JoinSet<u64>, Failure> {
    let budget = RowBudget { rows: 1 << 20, bytes: 64 << 20 };
    let mut unit = broker.open_unit(UnitId::WHOLE, budget).await?;
    let acked = AtomicU64::new(0);
    let mut task = JoinSet::new();
    task.spawn(async move {
        while let Ok(Some(delivery)) = unit.deliveries.next().await {
            acked.fetch_add(1, Ordering::Relaxed);
            delivery.ack();
        }
        acked.into_inner()
    });
    Ok(task)
}
