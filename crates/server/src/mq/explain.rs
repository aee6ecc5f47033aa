//! `wavehouse mq explain`: where the rows of a table go, worked out as every process does it.

use std::fmt::Write;

use clap::Args;
use serde::Serialize;
use wavehouse_core::{Scope, TableName, TableRef, TenantId, Topic};
use wavehouse_topology::{TopologyInput, TopologySpec};

use super::flags::{NameFlags, at_least_one};
use super::{Refusal, refusal};

#[derive(Debug, Args)]
#[command(args_override_self = true)]
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
    /// Partitions (mq.nats.partitions).
    #[arg(long, default_value = "1", value_name = "N", allow_negative_numbers = true, value_parser = at_least_one)]
    partitions: u32,
    /// Shards of each partition (mq.nats.shards).
    #[arg(long, default_value = "32", value_name = "V", allow_negative_numbers = true, value_parser = at_least_one)]
    shards: u32,
    #[command(flatten)]
    names: NameFlags,
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
}

impl ExplainArgs {
    pub(super) fn input(&self) -> TopologyInput {
        TopologyInput { partitions: self.partitions.into(), shards: self.shards.into(), ..self.names.input() }
    }
}

pub(super) fn run(args: &ExplainArgs, spec: &TopologySpec) -> Result<String, Refusal> {
    let table = TableRef::new(args.tenant.clone(), args.table.clone());
    let (placement, prefix) = (spec.placement(), spec.prefix());
    let unit = placement.unit_for(&table);
    let topic = Topic { table, scope: args.scope.clone() };
    let explanation = Explanation {
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
    };
    if args.json {
        let text = serde_json::to_string_pretty(&explanation).map_err(|error| refusal(error.to_string()))?;
        return Ok(text + "\n");
    }
    Ok(as_text(&explanation))
}

fn as_text(told: &Explanation) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing into a string cannot fail.
        let _written = writeln!(text, "{name:13} {value}");
    };
    line("tenant", told.tenant);
    line("table", told.table);
    if !told.scope.is_empty() {
        line("scope", told.scope);
    }
    line("partition", &format!("{} of {}", told.partition, told.partitions));
    line("shard", &format!("{} of {}", told.shard, told.shards));
    line("stream", &told.stream);
    line("durable", &told.durable);
    line("subject", &told.subject);
    line("read through", &told.filter);
    line("live streams", &told.history_subject);
    line("dead letters", &told.dead_letter_subject);
    text
}
