//! `wavehouse send`: loads a file of rows into a table, over HTTP, as any client could.
//!
//! The file is a JSON array, lines of JSON, or objects one after another, as it is or gzipped; it is read as a
//! stream. Rows go in batches, one request at a time unless `--parallel` says otherwise, so that their order is
//! kept. What the server refuses is written beside the file with the reason. What was acknowledged is kept in
//! `FILE.wavehouse-send` until the load is complete, so that the same command goes on after an interrupt.

mod deliver;
mod feed;
mod post;
mod progress;
mod refused;
mod scan;
mod state;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc;

use deliver::{Books, Pace, deliver};
use feed::{BATCHES_AHEAD, Mark, Source, feed};
use post::Target;
pub(crate) use post::percent_encode;
use progress::Progress;
use refused::RefusedFile;
use state::{Counts, Fingerprint, StateFile};

/// Most requests in flight that may be asked for.
const PARALLEL_MAX: u16 = 64;
/// Exit code of wrong usage.
const USAGE: u8 = 64;

/// Load a file of rows into a table.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SendArgs {
    /// Table that the rows go into.
    #[arg(long)]
    table: String,
    /// Address of the server; a path prefix is kept.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// File that holds the operator key; without it WH_AUTH_OPERATOR_KEY counts.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Tenant that the table belongs to.
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// Requests in flight at once. More than 1 is faster and gives up the order of the rows.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(PARALLEL_MAX)))]
    parallel: u16,
    /// Where refused records are written [default: FILE.refused.ndjson].
    #[arg(long, value_name = "FILE")]
    refused: Option<PathBuf>,
    /// Start at the beginning even if an earlier load of this file was interrupted.
    #[arg(long)]
    restart: bool,
    /// Give up when nothing was taken for this many seconds.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    patience: u64,
    /// JSON array, NDJSON or objects one after another, gzipped or not; `-` is standard input.
    #[arg(value_name = "FILE|-")]
    file: String,
    /// The operator key from the environment, put here by the program's start.
    #[arg(skip)]
    pub(crate) operator_key: Option<String>,
}

/// Loads the file. 0: every record was accepted; 1: some were refused, or the load stopped early; 64: wrong usage.
pub(crate) async fn run(args: SendArgs) -> anyhow::Result<ExitCode> {
    let source = Source::parse(&args.file);
    let target = match Target::new(&args.url, &args.table, key_of(&args)?.as_deref(), args.tenant.as_deref())
    {
        Ok(target) => target,
        Err(error) => {
            writeln!(io::stderr(), "send: {:#}", anyhow::Error::new(error))?;
            return Ok(ExitCode::from(USAGE));
        }
    };
    let mut state = open_state(&args, &source)?;
    let total_bytes = source.path().and_then(|path| Some(Fingerprint::of(path).ok()?.len_bytes()));
    let (mark, counts) =
        state.as_ref().map_or((Mark::default(), Counts::default()), |s| (s.state().mark, s.state().counts));
    if mark != Mark::default() {
        let records = mark.records;
        writeln!(io::stderr(), "send: going on after {records} records that were answered before")?;
    }

    let read_bytes = Arc::new(AtomicU64::new(0));
    let progress = Arc::new(Progress::new(total_bytes, Arc::clone(&read_bytes)));
    let mut refused = RefusedFile::new(refused_path(&args, &source), mark != Mark::default());
    let mut books =
        Books { counts, state: state.as_mut(), refused: &mut refused, progress: Arc::clone(&progress) };
    let pace = Pace { parallel: usize::from(args.parallel), patience: Duration::from_secs(args.patience) };

    let (sender, mut batches) = mpsc::channel(BATCHES_AHEAD);
    let reading = source.clone();
    let reader = std::thread::Builder::new()
        .name("send-reader".to_owned())
        .spawn(move || feed(&reading, mark, read_bytes, &sender))
        .context("cannot start the reader")?;
    let sent = deliver(&target, &mut batches, pace, &mut books, interrupt()).await;
    let counts_after = books.counts;
    progress.finish();
    summary(&counts, &counts_after, &progress, &refused)?;
    if let Err(error) = sent {
        // The reader is left behind: standard input may never end, and the program ends now.
        stopped(error, state.is_some())?;
        return Ok(ExitCode::FAILURE);
    }
    if let Err(error) = reader.join().map_err(|_panic| anyhow::anyhow!("the reader died"))? {
        stopped(error, state.is_some())?;
        return Ok(ExitCode::FAILURE);
    }
    if let Some(state) = state {
        state.remove()?;
    }
    Ok(if counts_after.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn interrupt() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await; // no signals here: the load just runs
    }
}

fn key_of(args: &SendArgs) -> anyhow::Result<Option<String>> {
    let Some(path) = &args.key_file else { return Ok(args.operator_key.clone()) };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(text.trim_end().to_owned()))
}

fn open_state(args: &SendArgs, source: &Source) -> anyhow::Result<Option<StateFile>> {
    let Some(path) = source.path() else { return Ok(None) };
    let print = Fingerprint::of(path).with_context(|| format!("cannot read {}", path.display()))?;
    let tenant = args.tenant.as_deref().unwrap_or("0");
    let target = format!("{} tenant {tenant} table {}", args.url, args.table);
    Ok(Some(StateFile::open(path, print, &target, args.restart)?))
}

fn refused_path(args: &SendArgs, source: &Source) -> PathBuf {
    args.refused.clone().unwrap_or_else(|| {
        let mut name = source.path().map_or_else(|| "stdin".into(), |path| path.as_os_str().to_owned());
        name.push(".refused.ndjson");
        PathBuf::from(name)
    })
}

#[expect(clippy::cast_precision_loss, reason = "a rate for a person")]
fn summary(before: &Counts, after: &Counts, progress: &Progress, refused: &RefusedFile) -> io::Result<()> {
    let seconds = progress.elapsed().as_secs_f64();
    let now = after.records() - before.records();
    let mut out = io::stdout().lock();
    writeln!(out, "rows        {}", after.records())?;
    writeln!(out, "accepted    {}", after.accepted)?;
    writeln!(out, "refused     {}", after.refused)?;
    writeln!(out, "duplicates  {}", after.duplicates)?;
    writeln!(out, "rows/s      {:.0} ({now} rows in {seconds:.1} s)", now as f64 / seconds.max(0.001))?;
    if after.refused > 0 {
        writeln!(out, "refused rows and the reasons: {}", refused.path().display())?;
        if let Some(first) = refused.first() {
            writeln!(out, "the first: {first}")?;
        }
    }
    if after.sent_twice > 0 {
        writeln!(
            out,
            "up to {} rows may be stored twice: their answers were lost, and they were sent again",
            after.sent_twice
        )?;
    }
    Ok(())
}

fn stopped(error: impl Into<anyhow::Error>, resumes: bool) -> io::Result<()> {
    let mut err = io::stderr().lock();
    writeln!(err, "send: {:#}", error.into())?;
    if resumes {
        writeln!(err, "send: run the same command again to go on; one batch at most is then sent twice")?;
    }
    Ok(())
}
