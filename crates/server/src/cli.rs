//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::bench::BenchArgs;
use crate::dlq::DlqArgs;
use crate::mq::MqArgs;
use crate::send::SendArgs;

/// The event gateway: rows in over HTTP, durable at 200, in ClickHouse a moment later.
///
/// Without a command it serves, configured by ./config.yaml and WH_* variables.
#[derive(Debug, Parser)]
#[command(name = "wavehouse", version, max_term_width = 100, after_help = AFTER)]
pub(crate) struct Cli {
    /// The configuration file, in place of WH_CONFIG and ./config.yaml.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Sets one key, over file and variables; may be repeated.
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const AFTER: &str = "Exit codes: 0 done or cleanly stopped, 1 failed, 64 wrong usage or configuration.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serves with everything embedded under ./data: loopback only, open routes, a sample table.
    Dev,
    /// Loads a file of rows into a table.
    Send(SendArgs),
    /// Lists dead letters, sends them on again, or removes them.
    Dlq(DlqArgs),
    /// Measures a server with a load of its own making.
    Bench(BenchArgs),
    /// Message servers: manifests, permissions, provisioning, and where a table's rows go.
    #[command(disable_help_flag = true)]
    Mq(MqArgs),
    /// Asks the gateway on this machine whether it lives.
    Health,
    /// Lists every metric with its kind, its labels and what it tells.
    Metrics,
    /// Prints the version.
    Version,
    /// Checks or prints the configuration; starts nothing.
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Tells everything that is wrong with the configuration.
    Check(ConfigArgs),
    /// Prints the configuration in effect and who set what; secrets are masked.
    Print(ConfigArgs),
    /// Prints every key: its variable, what it holds, its default, what it does.
    Keys,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// As `wavehouse dev` would use it.
    #[arg(long)]
    pub(crate) dev: bool,
}
