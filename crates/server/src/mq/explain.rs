//! `wavehouse mq explain`: where the rows of a table go, worked out as every process does it; and, where servers are named
//! or configured, who reads them there and how many wait.

use std::fmt::Write;

use clap::Args;
use serde::Serialize;
use wavehouse_core::{Scope, TableName, TableRef, TenantId, Topic, UnitId};
use wavehouse_nats::{CallError, found};
use wavehouse_topology::TopologySpec;

use super::asked::{Asked, LookFlags};
use super::members::{members, owners};
use super::servers::failed;
use super::status::{Shard, shard, told};
use super::{FINDINGS, Refusal, Said, Surroundings, check, refusal};

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The tenant; 0 when there is but one.
    #[arg(value_parser = TenantId::parse)]
    tenant: TenantId,
    /// The table, unescaped.
    #[arg(value_parser = TableName::parse)]
    table: TableName,
    /// A scope of the table; it has no part in the choice of the shard.
    #[arg(long, default_value = "", hide_default_value = true, value_parser = Scope::parse)]
    scope: Scope,
    #[command(flatten)]
    look: LookFlags,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// What there is to tell.
#[derive(Debug, Serialize)]
struct Explanation<'a> {
    tenant: &'a str,
    table: &'a str,
    scope: &'a str,
    partition: u16,
    partitions: u16,
    shard: u16,
    shards: u16,
    stream: String,
    durable: String,
    subject: String,
    filter: String,
    history_subject: String,
    dead_letter_subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<Now>,
}

/// How it is on the servers.
#[derive(Debug, Serialize)]
struct Now {
    /// Messages of this table, all scopes, that are not written yet.
    unwritten: u64,
    /// The durable; none where it is not there.
    shard: Option<Shard>,
}

pub(super) async fn run(args: ExplainArgs, around: &Surroundings<'_>) -> Result<Said, Refusal> {
    let table = TableRef::new(args.tenant.clone(), args.table.clone());
    let (explanation, missing) = match args.look.ask_if_any(around).await? {
        None => (explain(&args, &table, &check(args.look.input())?), false),
        Some(asked) => {
            let mut explanation = explain(&args, &table, &asked.spec);
            let looked = look(&asked, &table, &mut explanation).await;
            asked.connection.close().await;
            looked.map_err(|error| failed(&error))?;
            let missing = explanation.now.as_ref().is_none_or(|now| now.shard.is_none());
            (explanation, missing)
        }
    };
    let text = if args.json {
        serde_json::to_string_pretty(&explanation).map_err(|error| refusal(error.to_string()))? + "\n"
    } else {
        as_text(&explanation)
    };
    Ok(Said { text, code: if missing { FINDINGS } else { 0 } })
}

fn explain<'a>(args: &'a ExplainArgs, table: &TableRef, spec: &TopologySpec) -> Explanation<'a> {
    let (placement, prefix) = (spec.placement(), spec.prefix());
    let unit = placement.unit_for(table);
    let topic = Topic { table: table.clone(), scope: args.scope.clone() };
    Explanation {
        tenant: args.tenant.as_str(),
        table: args.table.as_str(),
        scope: args.scope.as_str(),
        partition: unit.partition.0,
        partitions: placement.partitions(),
        shard: unit.shard.0,
        shards: placement.shards(),
        stream: spec.partition_stream(unit.partition),
        durable: spec.durable(unit.shard),
        subject: prefix.ingest(unit, &topic),
        filter: prefix.unit_filter(unit),
        history_subject: prefix.history(&topic),
        dead_letter_subject: prefix.dead_letter(&topic),
        now: None,
    }
}

/// Finds the stream by its subject, since it may have any name, and asks for the table's messages and the durable.
async fn look(asked: &Asked, table: &TableRef, told: &mut Explanation<'_>) -> Result<(), CallError> {
    let (jetstream, spec) = (asked.connection.jetstream(), &asked.spec);
    let unit = spec.placement().unit_for(table);
    let members = members(&jetstream, spec).await?;
    let owners = owners(&members).remove(&unit).unwrap_or_default();
    let probe = spec.prefix().partition_probe(unit.partition);
    let Some(stream) = jetstream.stream_names(Some(&probe)).await?.into_iter().next() else {
        told.now = Some(Now { unwritten: 0, shard: None });
        return Ok(());
    };
    let unwritten = of_table(asked, &stream, unit, table).await?;
    let owners = owners.into_iter().map(str::to_owned).collect();
    let info = found(jetstream.consumer_info(&stream, &told.durable).await)?;
    let shard = info.map(|info| shard(&info, unit.shard.0.into(), false, owners));
    told.stream = stream;
    told.now = Some(Now { unwritten, shard });
    Ok(())
}

/// Messages of a table in a stream, with and without a scope.
async fn of_table(asked: &Asked, stream: &str, unit: UnitId, table: &TableRef) -> Result<u64, CallError> {
    let jetstream = asked.connection.jetstream();
    let subject = asked.spec.prefix().ingest(unit, &Topic { table: table.clone(), scope: Scope::default() });
    let mut messages = 0;
    for filter in [format!("{subject}.>"), subject] {
        let info = jetstream.stream_subjects(stream, &filter).await?;
        messages += info.state.subjects.unwrap_or_default().values().sum::<u64>();
    }
    Ok(messages)
}

fn as_text(explained: &Explanation<'_>) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing into a string cannot fail.
        let _written = writeln!(text, "{name:13} {value}");
    };
    line("tenant", explained.tenant);
    line("table", explained.table);
    if !explained.scope.is_empty() {
        line("scope", explained.scope);
    }
    line("partition", &format!("{} of {}", explained.partition, explained.partitions));
    line("shard", &format!("{} of {}", explained.shard, explained.shards));
    line("stream", &explained.stream);
    line("durable", &explained.durable);
    line("subject", &explained.subject);
    line("read through", &explained.filter);
    line("live streams", &explained.history_subject);
    line("dead letters", &explained.dead_letter_subject);
    if let Some(now) = &explained.now {
        line("unwritten", &format!("{} messages of the table", now.unwritten));
        line("its shard", &now.shard.as_ref().map_or_else(|| "missing".to_owned(), told));
    }
    text
}
