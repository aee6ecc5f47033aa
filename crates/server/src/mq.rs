//! `wavehouse mq`: what must exist on message servers, what the connecting user may do there, and where a table's rows go.
//!
//! Its exit codes are its own: 0 done, 1 refused (settings that cannot work, or servers that do not answer), 2 wrong
//! usage, 3 something on the servers is not as it should be.

mod asked;
mod explain;
mod flags;
mod members;
mod plan;
mod provision;
pub(crate) mod servers;
mod status;
mod verify;

use clap::{Args, Parser, Subcommand};
use serde_json::json;
use wavehouse_topology::{Permissions, SpecFinding, TopologyInput, TopologySpec, manifests, permissions};

use explain::ExplainArgs;
use flags::{ManifestsArgs, PermissionsArgs};
use provision::ProvisionArgs;
use status::StatusArgs;
use verify::VerifyArgs;

use crate::config::Config;

/// The settings cannot work, or the servers do not answer.
const FAILED: u8 = 1;
/// Wrong usage, as tools of message servers answer it.
const USAGE: u8 = 2;
/// Something on the servers is not as it should be.
const FINDINGS: u8 = 3;

/// The words after `mq`, kept as they are: they have a parser of their own, for the sake of the exit codes.
#[derive(Debug, Args)]
pub(crate) struct MqArgs {
    /// A command and its flags; `wavehouse mq help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    words: Vec<String>,
}

/// What must exist on message servers, and what is there.
#[derive(Debug, Parser)]
#[command(name = "wavehouse mq", max_term_width = 100, args_override_self = true, after_help = AFTER)]
struct MqCli {
    #[command(subcommand)]
    command: MqCommand,
}

const AFTER: &str = "Exit codes: 0 done, 1 settings that cannot work or servers that do not answer, 2 wrong usage, \
                     3 something on the servers is not as it should be.";

#[derive(Debug, Subcommand)]
enum MqCommand {
    /// Prints the streams, durables and the lease bucket as resources of nack, JetStream's Kubernetes controller.
    Manifests(ManifestsArgs),
    /// Prints what the user that WaveHouse connects as may do, for the servers' configuration.
    Permissions(PermissionsArgs),
    /// Makes on the servers what must exist there, as the operator. Deletes nothing, and changes little of what is there.
    #[command(args_override_self = true)]
    Provision(Box<ProvisionArgs>),
    /// Checks what is on the servers, as a start does, and tells everything that is amiss.
    #[command(args_override_self = true)]
    Verify(Box<VerifyArgs>),
    /// Tells how full the queue is, who reads what of it, and what lags behind.
    #[command(args_override_self = true)]
    Status(Box<StatusArgs>),
    /// Tells where a table's rows go; with --server, or where a server is configured, also who reads them and how many wait.
    #[command(args_override_self = true)]
    Explain(Box<ExplainArgs>),
}

/// Why nothing is printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What to tell.
    pub(crate) text: String,
    /// What to exit with.
    pub(crate) code: u8,
}

/// What a command prints, and what the program exits with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// What is printed.
    pub(crate) text: String,
    /// The exit code.
    pub(crate) code: u8,
}

/// What the commands may learn from where they run, if they ask.
pub(crate) struct Surroundings<'a> {
    /// The configuration that a server would have here, or what is wrong with it.
    pub(crate) config: &'a dyn Fn() -> Result<Config, String>,
}

/// Runs a command and gives what it prints.
///
/// # Errors
/// [`Refusal`] on wrong usage, when the settings cannot work, and when the servers do not answer.
pub(crate) async fn run(args: &MqArgs, around: &Surroundings<'_>) -> Result<Said, Refusal> {
    let words = std::iter::once("wavehouse mq").chain(args.words.iter().map(String::as_str));
    let cli = match MqCli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return Err(usage(&error)),
        Err(help) => return Ok(plainly(help.to_string())),
    };
    match cli.command {
        MqCommand::Manifests(args) => {
            let spec = check(args.input())?;
            let text = manifests(&spec).map_err(|error| refusal(format!("mq manifests: {error}")))?;
            Ok(plainly(text))
        }
        MqCommand::Permissions(args) => {
            let spec = check(args.input())?;
            let permissions = permissions(&spec);
            Ok(plainly(if args.json { as_json(&permissions) } else { permissions.to_yaml(&spec) }))
        }
        MqCommand::Provision(args) => provision::run(*args, around).await,
        MqCommand::Verify(args) => verify::run(*args, around).await,
        MqCommand::Status(args) => status::run(*args, around).await,
        MqCommand::Explain(args) => explain::run(*args, around).await,
    }
}

/// As servers take it in their own configuration.
fn as_json(permissions: &Permissions) -> String {
    let Permissions { publish_allow, publish_deny, subscribe_allow } = permissions;
    let value = json!({
        "publish": {"allow": publish_allow, "deny": publish_deny},
        "subscribe": {"allow": subscribe_allow},
    });
    format!("{value:#}\n")
}

fn plainly(text: String) -> Said {
    Said { text, code: 0 }
}

fn usage(error: &clap::Error) -> Refusal {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned();
    Refusal { text, code: USAGE }
}

fn refusal(text: String) -> Refusal {
    Refusal { text, code: FAILED }
}

fn check(input: TopologyInput) -> Result<TopologySpec, Refusal> {
    let told = |finding: &SpecFinding| format!("\n  --{finding}");
    input.check().map_err(|findings| {
        let told: String = findings.iter().map(told).collect();
        refusal(format!("mq: these settings cannot work:{told}"))
    })
}
