//! `bench start`: from a process's start to its first 2xx answer, and the memory it holds when nobody asks it anything.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http::Uri;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::OutputArgs;
use super::event::{Body, Format, Shape, Template};
use super::host;
use super::ops::Gateway;
use super::result::RunResult;
use super::wire::{Wire, WireError};

/// Between two questions.
const ASK_EVERY: Duration = Duration::from_micros(500);
/// How long one question may take.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How long the process may take to end once it is told to.
const END_WAIT: Duration = Duration::from_secs(20);

/// Arguments of `bench start`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct StartArgs {
    #[command(flatten)]
    output: OutputArgs,
    /// What is asked until it answers 2xx.
    #[arg(long, default_value = "http://127.0.0.1:8080/readyz")]
    url: String,
    /// Post a row there instead of asking.
    #[arg(long)]
    post_row: bool,
    /// A further header line; may be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Seconds that it is left alone before its memory is read.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    idle: u64,
    /// Give up after this many seconds.
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    patience: u64,
    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Starts, measures, ends it and prints.
pub(super) async fn run(args: &StartArgs) -> anyhow::Result<()> {
    let uri: Uri = args.url.parse().context("the address")?;
    let path = uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    let host = Gateway::new(&args.url, Vec::new())?.host;
    let mut question = question(args, &path, &host);
    let Some((program, rest)) = args.command.split_first() else { bail!("no program") };
    let begun = Instant::now();
    let mut child = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let (mut next_id, patience) = (1, Duration::from_secs(args.patience));
    while !answers(&host, question.fresh(&mut next_id)).await {
        if let Some(code) = child.try_wait()? {
            bail!("{program} ended with {code}");
        }
        if begun.elapsed() > patience {
            bail!("{program} did not answer 2xx within {} s", args.patience);
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    let took = begun.elapsed();
    tokio::time::sleep(Duration::from_secs(args.idle)).await;
    let rss_bytes_max = child.id().and_then(|pid| host::rss_bytes(&[pid]));
    end(&mut child).await?;
    let mut result = RunResult {
        label: args.output.label.clone(),
        what: format!("{} until {path} answers 2xx", args.command.join(" ")),
        seconds: took.as_secs_f64(),
        ..RunResult::default()
    };
    result.cost.rss_bytes_max = rss_bytes_max;
    result.more.insert("start_ms".to_owned(), took.as_secs_f64() * 1_000.0);
    result.print(args.output.json)
}

fn question(args: &StartArgs, path: &str, host: &str) -> Template {
    let shape = Shape {
        paths: vec![path.to_owned()],
        host: host.to_owned(),
        headers: args.headers.clone(),
        rows: 1,
        row_bytes: 256,
        body: if args.post_row { Body::Rows(Format::Auto) } else { Body::None },
    };
    Template::new(&shape, path, 1)
}

async fn answers(host: &str, question: &[u8]) -> bool {
    let asked = async {
        let mut wire = Wire::open(host).await?;
        wire.send(question).await?;
        Ok::<u16, WireError>(wire.answer().await?.status)
    };
    let status = tokio::time::timeout(ANSWER_WAIT, asked).await;
    matches!(status, Ok(Ok(200..=299)))
}

/// Asks the process to end; one that does not is killed.
async fn end(child: &mut Child) -> anyhow::Result<()> {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        kill_process(pid, Signal::TERM)?;
    }
    if tokio::time::timeout(END_WAIT, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}
