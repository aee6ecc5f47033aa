//! `wavehouse mq status`: how full the queue on message servers is, who reads what of it, and what lags behind.

mod look;
mod text;

use clap::Args;
use serde::Serialize;

use super::asked::LookFlags;
use super::members::Member;
use super::servers::failed;
use super::{FINDINGS, Refusal, Said, Surroundings, refusal};

pub(super) use look::{Shard, shard};
pub(super) use text::told;

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    look: LookFlags,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// How the queue is.
#[derive(Debug, Serialize)]
struct Status {
    /// The server that answered.
    server: Server,
    /// Who shares the units.
    members: Vec<Member>,
    /// The partitions, extras last.
    partitions: Vec<Partition>,
    /// None where there is no such stream.
    history: Option<History>,
    /// None where there is no such stream.
    dead_letters: Option<Letters>,
    /// What must be there and is not.
    missing: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Server {
    name: String,
    version: String,
    cluster: Option<String>,
}

#[derive(Debug, Serialize)]
struct Partition {
    /// None for a stream beside the configured partitions whose number cannot be told.
    partition: Option<u16>,
    /// Whether an older, larger count left it.
    extra: bool,
    stream: String,
    leader: Option<String>,
    /// Messages that are not written yet; one is a block of rows.
    unwritten: u64,
    bytes: u64,
    /// None where it has no bound.
    bytes_max: Option<u64>,
    /// Seconds since the oldest of them was stored.
    oldest_unwritten_s: Option<u64>,
    shards: Vec<Shard>,
}

#[derive(Debug, Serialize)]
struct History {
    stream: String,
    messages: u64,
    bytes: u64,
    /// By how many seconds its newest copy is older than the newest row of any partition.
    behind_s: u64,
    /// How many seconds it goes back.
    reaches_back_s: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Letters {
    stream: String,
    letters: u64,
    bytes: u64,
    /// By tenant and table, escaped as in subjects.
    tables: std::collections::BTreeMap<String, u64>,
}

pub(super) async fn run(args: StatusArgs, around: &Surroundings<'_>) -> Result<Said, Refusal> {
    let asked = args.look.ask(around).await?;
    let status = look::look(&asked.connection, &asked.spec).await;
    asked.connection.close().await;
    let status = status.map_err(|error| failed(&error))?;
    let text = if args.json {
        serde_json::to_string_pretty(&status).map_err(|error| refusal(error.to_string()))? + "\n"
    } else {
        text::page(&status)
    };
    Ok(Said { text, code: if status.missing.is_empty() { 0 } else { FINDINGS } })
}
