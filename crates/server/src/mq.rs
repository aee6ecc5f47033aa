//! `wavehouse mq`: what must exist on message servers, what the connecting user may do there, and where a table's rows go.
//! It connects to nothing.
//!
//! Its exit codes are its own: 0 done, 1 refused (settings that cannot work), 2 wrong usage.

mod explain;
mod flags;

use clap::{Args, Parser, Subcommand};
use wavehouse_topology::{SpecFinding, TopologyInput, TopologySpec, manifests, permissions};

use explain::ExplainArgs;
use flags::{ManifestsArgs, PermissionsArgs};

/// The settings cannot work.
const REFUSED: u8 = 1;
/// Wrong usage, as tools of message servers answer it.
const USAGE: u8 = 2;

/// The words after `mq`, kept as they are: they have a parser of their own, for the sake of the exit codes.
#[derive(Debug, Args)]
pub(crate) struct MqArgs {
    /// A command and its flags; `wavehouse mq help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    words: Vec<String>,
}

/// What must exist on message servers. Connects to nothing.
#[derive(Debug, Parser)]
#[command(name = "wavehouse mq", max_term_width = 100, args_override_self = true, after_help = AFTER)]
struct MqCli {
    #[command(subcommand)]
    command: MqCommand,
}

const AFTER: &str = "Exit codes: 0 done, 1 settings that cannot work, 2 wrong usage.";

#[derive(Debug, Subcommand)]
enum MqCommand {
    /// Prints the streams, durables and the lease bucket as resources of nack, JetStream's Kubernetes controller.
    Manifests(ManifestsArgs),
    /// Prints what the user that WaveHouse connects as may do, for the servers' configuration.
    Permissions(PermissionsArgs),
    /// Tells where a table's rows go.
    Explain(ExplainArgs),
}

/// Why nothing is printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What to tell.
    pub(crate) text: String,
    /// What to exit with.
    pub(crate) code: u8,
}

/// Runs a command and gives what it prints.
///
/// # Errors
/// [`Refusal`] on wrong usage, and when the settings cannot work.
pub(crate) fn run(args: &MqArgs) -> Result<String, Refusal> {
    let words = std::iter::once("wavehouse mq").chain(args.words.iter().map(String::as_str));
    let cli = match MqCli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return Err(usage(&error)),
        Err(help) => return Ok(help.to_string()),
    };
    match cli.command {
        MqCommand::Manifests(args) => {
            let spec = check(args.input())?;
            manifests(&spec).map_err(|error| refusal(format!("mq manifests: {error}")))
        }
        MqCommand::Permissions(args) => {
            let spec = check(args.input())?;
            Ok(permissions(&spec).to_yaml(&spec))
        }
        MqCommand::Explain(args) => explain::run(&args, &check(args.input())?),
    }
}

fn usage(error: &clap::Error) -> Refusal {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned();
    Refusal { text, code: USAGE }
}

fn refusal(text: String) -> Refusal {
    Refusal { text, code: REFUSED }
}

fn check(input: TopologyInput) -> Result<TopologySpec, Refusal> {
    let told = |finding: &SpecFinding| format!("\n  --{finding}");
    input.check().map_err(|findings| {
        let told: String = findings.iter().map(told).collect();
        refusal(format!("mq: these settings cannot work:{told}"))
    })
}
