//! `wavehouse bench`: a load generator for any HTTP server, the yardsticks to hold its figures against, and the
//! table that sets them side by side.
//!
//! `ingest`, `end-to-end`, `stream` and `query` drive a server; `parse-only-server`, the `naive-…` servers, `fsync`,
//! `nats-publish` and `nats-pull` are yardsticks that run on the same machine in the same minutes; `compare` reads the
//! results of many rounds and prints medians and ratios. `scripts/bench` and its siblings run them.

mod compare;
mod disk;
mod end_to_end;
mod event;
mod host;
mod ingest;
mod load;
mod message_servers;
mod message_unit;
mod ops;
mod pacer;
mod query;
mod result;
mod start;
mod stream;
mod visible;
mod watchers;
mod wire;
mod yardstick;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

/// Measure how fast a server takes rows.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
    /// The operator key from the environment, put here by the program's start.
    #[arg(skip)]
    pub(crate) operator_key: Option<String>,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum BenchCommand {
    /// Post rows to a server and measure throughput and latency
    Ingest(ingest::IngestArgs),
    /// Post rows, at full speed or a given rate, and wait until ClickHouse holds them all
    EndToEnd(end_to_end::EndToEndArgs),
    /// Watch a table on many connections while rows are posted to it
    Stream(stream::StreamArgs),
    /// Ask one statement again and again
    Query(query::QueryArgs),
    /// Start a program and time it until it answers
    Start(start::StartArgs),
    /// Append rows to files with one fdatasync each
    Fsync(disk::FsyncArgs),
    /// Serve a route that parses rows and drops them: what HTTP and JSON alone cost
    ParseOnlyServer(yardstick::ParseOnlyArgs),
    /// Serve a route that appends each row to a file with one fdatasync: a first version's way
    NaiveServer(yardstick::NaiveArgs),
    /// Serve a route that passes what is posted on to all who watch, and stores nothing
    NaiveStreamServer(yardstick::NaiveStreamArgs),
    /// Serve a route that publishes each row to a stream on message servers and waits for its answer
    NaiveNatsServer(message_servers::NaiveNatsArgs),
    /// Publish rows to a stream on message servers, without a gateway
    NatsPublish(message_servers::NatsPublishArgs),
    /// Read such rows and ack each message
    NatsPull(message_servers::NatsPullArgs),
    /// Read one unit of the queue on message servers, without inserting anything
    NatsUnit(message_unit::NatsUnitArgs),
    /// Read results written with --json and print medians and ratios
    Compare(compare::CompareArgs),
}

/// Options of every run.
#[derive(clap::Args, Clone, Debug)]
struct OutputArgs {
    /// Print one line of JSON instead of a page.
    #[arg(long)]
    json: bool,
    /// Name of this run in a comparison.
    #[arg(long, default_value = "run", value_name = "NAME")]
    label: String,
}

/// How to reach the gateway.
#[derive(clap::Args, Clone, Debug)]
struct GatewayArgs {
    /// Address; for `ingest`, a path other than / is used as it is.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// File that holds the operator key; without it WH_AUTH_OPERATOR_KEY counts.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// A further header line; may be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
}

impl GatewayArgs {
    fn gateway(&self, env_key: Option<&str>) -> anyhow::Result<ops::Gateway> {
        let mut headers = self.headers.clone();
        let key = match &self.key_file {
            Some(path) => Some(
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?,
            ),
            None => env_key.map(ToOwned::to_owned),
        };
        if let Some(key) = key {
            headers.push(format!("X-Operator-Key: {}", key.trim_end()));
        }
        ops::Gateway::new(&self.url, headers)
    }
}

/// Runs one command.
pub(crate) async fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    let key = args.operator_key.as_deref();
    match args.command {
        BenchCommand::Ingest(args) => ingest::run(&args, key).await?,
        BenchCommand::EndToEnd(args) => end_to_end::run(&args, key).await?,
        BenchCommand::Stream(args) => stream::run(&args, key).await?,
        BenchCommand::Query(args) => query::run(&args, key).await?,
        BenchCommand::Start(args) => start::run(&args).await?,
        BenchCommand::Fsync(args) => disk::run(&args)?,
        BenchCommand::ParseOnlyServer(args) => yardstick::parse_only(&args).await?,
        BenchCommand::NaiveServer(args) => yardstick::naive(&args).await?,
        BenchCommand::NaiveStreamServer(args) => yardstick::naive_stream(&args).await?,
        BenchCommand::NaiveNatsServer(args) => message_servers::naive(&args).await?,
        BenchCommand::NatsPublish(args) => message_servers::publish(&args).await?,
        BenchCommand::NatsPull(args) => message_servers::pull(&args).await?,
        BenchCommand::NatsUnit(args) => message_unit::run(&args).await?,
        BenchCommand::Compare(args) => compare::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}
