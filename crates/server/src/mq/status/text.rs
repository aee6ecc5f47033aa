//! The status for people.

use std::fmt::Write;
use std::time::Duration;

use wavehouse_topology::format_duration;

use super::{Partition, Shard, Status};
use crate::budget::human;
use crate::mq::members::Member;

/// Dead letters of so many tables are told; those with most.
const TABLES_TOLD_MAX: usize = 10;

/// The whole page.
pub(super) fn page(status: &Status) -> String {
    let mut lines = Vec::new();
    let cluster = status.server.cluster.as_ref().map_or_else(String::new, |name| format!(", cluster {name}"));
    lines.push(format!("server        {} {}{cluster}", status.server.name, status.server.version));
    lines.extend(status.missing.iter().map(|what| format!("missing       {what}")));
    lines.push(String::new());
    members(&status.members, &mut lines);
    lines.push(String::new());
    for partition in &status.partitions {
        self::partition(partition, &mut lines);
        lines.push(String::new());
    }
    if let Some(history) = &status.history {
        let back =
            history.reaches_back_s.map_or_else(|| "empty".to_owned(), |s| format!("goes back {}", span(s)));
        let (stream, messages) = (&history.stream, history.messages);
        let (bytes, behind) = (human(history.bytes), span(history.behind_s));
        lines.push(format!(
            "history       {stream}: {messages} messages, {bytes}, {back}, behind by {behind}"
        ));
    }
    letters(status, &mut lines);
    lines.join("\n") + "\n"
}

fn members(members: &[Member], lines: &mut Vec<String>) {
    if members.is_empty() {
        lines.push("members       none".to_owned());
    }
    for member in members {
        let version = member.version.as_deref().unwrap_or("unknown version");
        let view = member.partitions.zip(member.shards);
        let view = view.map_or_else(|| "unknown counts".to_owned(), |(n, v)| format!("{n}x{v}"));
        let Member { slot, instance_id, units, renewed_s, .. } = member;
        let renewed = span(*renewed_s);
        let had = if member.lapsed { ", lapsed" } else { "" };
        lines.push(format!(
            "member {slot:<6} {instance_id}: {units} units, {view}, {version}, renewed {renewed} ago{had}"
        ));
    }
}

fn partition(partition: &Partition, lines: &mut Vec<String>) {
    let number = partition.partition.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let extra = if partition.extra { ", left by an older count" } else { "" };
    let bound = partition.bytes_max.map_or_else(String::new, |max| format!(" of {}", human(max)));
    let oldest = partition.oldest_unwritten_s.map_or_else(String::new, |s| format!(", oldest {}", span(s)));
    let leader = partition.leader.as_ref().map_or_else(String::new, |name| format!(", led by {name}"));
    let Partition { stream, unwritten, bytes, .. } = partition;
    let bytes = human(*bytes);
    lines.push(format!(
        "partition {number:<3} {stream}{extra}: {unwritten} unwritten messages{oldest}, {bytes}{bound}{leader}"
    ));
    let width = partition.shards.iter().map(|shard| shard.durable.len()).max().unwrap_or(0);
    lines.extend(partition.shards.iter().map(|shard| format!("  {:width$}  {}", shard.durable, told(shard))));
}

/// A shard after its name.
pub(in crate::mq) fn told(shard: &Shard) -> String {
    let mut text = format!("{} pending, {} held", shard.pending, shard.held);
    // Writing into a string cannot fail.
    let mut more = |words: std::fmt::Arguments<'_>| {
        let _written = text.write_fmt(words);
    };
    if shard.redelivered > 0 {
        more(format_args!(" ({} delivered again)", shard.redelivered));
    }
    match (shard.pinned, shard.pinned_s) {
        (true, Some(since)) => more(format_args!(", pinned for {}", span(since))),
        (true, None) => more(format_args!(", pinned")),
        (false, _) => more(format_args!(", nobody pinned")),
    }
    match shard.owners.as_slice() {
        [] => more(format_args!(", nobody's")),
        owners => more(format_args!(", {}", owners.join(" and "))),
    }
    if shard.extra {
        more(format_args!(", left by an older count"));
    }
    text
}

fn letters(status: &Status, lines: &mut Vec<String>) {
    let Some(letters) = &status.dead_letters else { return };
    lines.push(format!("dead letters  {}: {}, {}", letters.stream, letters.letters, human(letters.bytes)));
    let mut tables: Vec<_> = letters.tables.iter().collect();
    tables.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    lines.extend(tables.iter().take(TABLES_TOLD_MAX).map(|(table, count)| format!("  {table}  {count}")));
    if let Some(rest) = tables.len().checked_sub(TABLES_TOLD_MAX).filter(|rest| *rest > 0) {
        lines.push(format!("  and {rest} more tables"));
    }
}

fn span(seconds: u64) -> String {
    if seconds == 0 { "0s".to_owned() } else { format_duration(Duration::from_secs(seconds)) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{History, Letters, Server};
    use super::*;

    fn shard(shard: u32, owners: &[&str], pending: u64) -> Shard {
        Shard {
            shard,
            durable: format!("wh-ingest-{shard}"),
            extra: false,
            owners: owners.iter().map(|name| (*name).to_owned()).collect(),
            pinned: !owners.is_empty(),
            pinned_s: (!owners.is_empty()).then_some(90),
            pending,
            held: pending / 2,
            redelivered: pending / 4,
            pulls: 1,
        }
    }

    #[test]
    fn a_page() {
        let partition = Partition {
            partition: Some(0),
            extra: false,
            stream: "WH_INGEST_0".to_owned(),
            leader: Some("n1".to_owned()),
            unwritten: 8,
            bytes: 4096,
            bytes_max: Some(1 << 30),
            oldest_unwritten_s: Some(3),
            shards: vec![shard(0, &["a-1"], 8), shard(1, &["a-1", "b-2"], 0), shard(2, &[], 0)],
        };
        let tables: BTreeMap<_, _> = (0..12).map(|n| (format!("0.t{n:02}"), n + 1)).collect();
        let status = Status {
            server: Server {
                name: "n0".to_owned(),
                version: "2.14.6".to_owned(),
                cluster: Some("c".to_owned()),
            },
            members: Vec::new(),
            partitions: vec![partition],
            history: Some(History {
                stream: "WH_HISTORY".to_owned(),
                messages: 100,
                bytes: 5000,
                behind_s: 0,
                reaches_back_s: Some(60),
            }),
            dead_letters: Some(Letters { stream: "WH_DLQ".to_owned(), letters: 78, bytes: 900, tables }),
            missing: vec!["consumer WH_INGEST_0/wh-ingest-3".to_owned()],
        };
        insta::assert_snapshot!(page(&status));
    }
}
