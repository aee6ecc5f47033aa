//! `bench fsync`: what the disk itself allows when every row is synced alone.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;

use super::OutputArgs;
use super::host;
use super::load::{empty_histogram, record};
use super::result::{Latency, RunResult};

/// Length of a file that is laid out beforehand, in bytes; written from its start again when it is full.
const PREPARED_BYTES: usize = 16 * 1024 * 1024;

/// Arguments of `bench fsync`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct FsyncArgs {
    /// Folder on the disk to measure; files are made in it and removed.
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    dir: PathBuf,
    /// Threads, each with a file of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    threads: u16,
    /// Bytes of each row.
    #[arg(long, default_value_t = 256)]
    row_bytes: usize,
    /// Write into files that were laid out and synced before, so that a sync carries the row and no change of the
    /// file's length: what a log that prepares its files pays.
    #[arg(long)]
    prepared: bool,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// Measures and prints.
pub(super) fn run(args: &FsyncArgs) -> anyhow::Result<()> {
    let before = host::read(&[]);
    let duration = Duration::from_secs(args.seconds);
    let results: Vec<anyhow::Result<Histogram<u64>>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..args.threads).map(|number| scope.spawn(move || append(args, number, duration))).collect();
        let died = |_panic| anyhow::anyhow!("a thread died");
        threads.into_iter().map(|thread| thread.join().map_err(died)?).collect()
    });
    let mut latency = empty_histogram();
    for result in results {
        latency.add(&result?)?;
    }
    let mut result = RunResult {
        label: args.output.label.clone(),
        what: format!(
            "one fdatasync for each row of {} bytes, {} threads, {}",
            args.row_bytes,
            args.threads,
            if args.prepared { "prepared files" } else { "growing files" }
        ),
        seconds: duration.as_secs_f64(),
        rows: latency.len(),
        latency: Latency::of(&latency),
        cost: host::between(&before, &host::read(&[])),
        ..RunResult::default()
    };
    result.derive(args.row_bytes);
    result.print(args.output.json)
}

fn append(args: &FsyncArgs, number: u16, duration: Duration) -> anyhow::Result<Histogram<u64>> {
    let path = args.dir.join(format!(".wavehouse-bench-fsync-{}-{number}", std::process::id()));
    let mut file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    let measured = measure(&mut file, args, duration);
    std::fs::remove_file(&path)?;
    Ok(measured?)
}

fn measure(file: &mut File, args: &FsyncArgs, duration: Duration) -> std::io::Result<Histogram<u64>> {
    let row = vec![b'x'; args.row_bytes];
    if args.prepared {
        file.write_all(&vec![0; PREPARED_BYTES])?;
        file.sync_all()?;
        file.rewind()?;
    }
    let mut left = PREPARED_BYTES;
    let (begun, mut latency) = (Instant::now(), empty_histogram());
    while begun.elapsed() < duration {
        if args.prepared && left < row.len() {
            file.rewind()?;
            left = PREPARED_BYTES;
        }
        left = left.saturating_sub(row.len());
        let started = Instant::now();
        file.write_all(&row)?;
        file.sync_data()?;
        record(&mut latency, started.elapsed());
    }
    Ok(latency)
}
