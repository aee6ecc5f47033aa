//! Asks the servers for everything that the status tells. Nothing is delivered or changed.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::Value;
use wavehouse_broker_nats::history_behind;
use wavehouse_core::{PARTITIONS_MAX, PartitionId, ShardId, Timestamp, UnitId};
use wavehouse_nats::{CallError, Connection, ConsumerInfo, JetStream, StreamInfo, found};
use wavehouse_topology::TopologySpec;

use super::{History, Letters, Partition, Server, Status};
use crate::mq::members::{members, owners};

/// Requests on their way at once.
const AT_ONCE: usize = 32;

/// A durable, and who reads it.
#[derive(Debug, Clone, Serialize)]
pub(in crate::mq) struct Shard {
    pub(in crate::mq) shard: u32,
    pub(in crate::mq) durable: String,
    /// Whether an older, larger count left it.
    pub(in crate::mq) extra: bool,
    /// Instance ids of those who say that they have it; two while it changes hands.
    pub(in crate::mq) owners: Vec<String>,
    /// Whether a reader is pinned.
    pub(in crate::mq) pinned: bool,
    /// Seconds since it was pinned.
    pub(in crate::mq) pinned_s: Option<u64>,
    /// Messages not delivered yet.
    pub(in crate::mq) pending: u64,
    /// Messages delivered and not settled.
    pub(in crate::mq) held: u64,
    /// Of those, delivered more than once.
    pub(in crate::mq) redelivered: u64,
    /// Pulls that wait.
    pub(in crate::mq) pulls: u64,
}

/// Reads a durable's answer.
pub(in crate::mq) fn shard(info: &ConsumerInfo, number: u32, extra: bool, owners: Vec<String>) -> Shard {
    let pin = info.priority_groups.iter().find(|group| !group.pinned_client_id.is_empty());
    let since = pin.and_then(|pin| pin.pinned_ts.as_deref());
    Shard {
        shard: number,
        durable: info.name.clone(),
        extra,
        owners,
        pinned: pin.is_some(),
        pinned_s: since.and_then(|since| age_s(since, &info.ts)),
        pending: info.num_pending,
        held: info.num_ack_pending,
        redelivered: info.num_redelivered,
        pulls: info.num_waiting,
    }
}

/// Seconds from one moment to the other.
fn age_s(then: &str, now: &str) -> Option<u64> {
    let (then, now) = (Timestamp::parse_rfc3339(then).ok()?, Timestamp::parse_rfc3339(now).ok()?);
    Some(now.since(then).as_secs())
}

/// Everything.
pub(super) async fn look(connection: &Connection, spec: &TopologySpec) -> Result<Status, CallError> {
    let jetstream = connection.jetstream();
    let server = connection
        .server()
        .ok_or_else(|| CallError::NotConnected { subject: jetstream.subject("STREAM.NAMES") })?;
    let server = Server { name: server.name, version: server.version, cluster: server.cluster };
    let members = members(&jetstream, spec).await?;
    let owners: BTreeMap<UnitId, Vec<String>> = owners(&members)
        .into_iter()
        .map(|(unit, names)| (unit, names.into_iter().map(str::to_owned).collect()))
        .collect();
    let mut status = Status {
        server,
        members,
        partitions: Vec::new(),
        history: None,
        dead_letters: None,
        missing: Vec::new(),
    };
    let look = Look { jetstream, spec, owners };
    let streams = look.partitions(&mut status).await?;
    look.history(&streams, &mut status).await?;
    look.letters(&mut status).await?;
    Ok(status)
}

struct Look<'a> {
    jetstream: JetStream,
    spec: &'a TopologySpec,
    owners: BTreeMap<UnitId, Vec<String>>,
}

impl Look<'_> {
    async fn partitions(&self, status: &mut Status) -> Result<Vec<StreamInfo>, CallError> {
        let names = self.jetstream.stream_names(Some(&self.spec.prefix().ingest_filter())).await?;
        let asked = names.iter().map(async |name| found(self.jetstream.stream_info(name).await));
        let infos: Vec<Option<StreamInfo>> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
        let infos: Vec<StreamInfo> = infos.into_iter().flatten().collect();
        for info in &infos {
            let partition = self.partition(info, status).await?;
            status.partitions.push(partition);
        }
        status.partitions.sort_by_key(|one| (one.extra, one.partition, one.stream.clone()));
        for partition in 0..self.spec.placement().partitions() {
            if !status.partitions.iter().any(|one| one.partition == Some(partition)) {
                status.missing.push(format!("ingest partition {partition}"));
            }
        }
        Ok(infos)
    }

    async fn partition(&self, info: &StreamInfo, status: &mut Status) -> Result<Partition, CallError> {
        let stream = name(&info.config);
        let partition = self.number(&info.config);
        let placement = self.spec.placement();
        let extra = partition.is_none_or(|partition| partition >= placement.partitions());
        let shards = self.shards(&stream, partition, extra).await?;
        for shard in (0..placement.shards()).filter(|_| !extra) {
            if !shards.iter().any(|one| one.shard == u32::from(shard)) {
                status.missing.push(format!("consumer {stream}/{}", self.spec.durable(ShardId(shard))));
            }
        }
        let leader = info.cluster.as_ref().and_then(|cluster| cluster.get("leader")?.as_str());
        Ok(Partition {
            partition,
            extra,
            leader: leader.map(str::to_owned),
            unwritten: info.state.messages,
            bytes: info.state.bytes,
            bytes_max: info.config.get("max_bytes").and_then(Value::as_u64).filter(|bytes| *bytes > 0),
            oldest_unwritten_s: oldest_s(info),
            shards,
            stream,
        })
    }

    /// Which partition a stream holds.
    fn number(&self, config: &Value) -> Option<u16> {
        let subjects = config.get("subjects")?.as_array()?;
        let holds = |partition: &u16| {
            let filter = self.spec.prefix().partition_filter(PartitionId(*partition));
            subjects.iter().any(|subject| subject.as_str() == Some(&filter))
        };
        (0..PARTITIONS_MAX).find(holds)
    }

    async fn shards(
        &self,
        stream: &str,
        partition: Option<u16>,
        extra: bool,
    ) -> Result<Vec<Shard>, CallError> {
        let names = found(self.jetstream.consumer_names(stream).await)?.unwrap_or_default();
        let ours = names.into_iter().filter_map(|name| Some((self.spec.shard_of(&name)?, name)));
        let asked = ours.map(async |(number, name)| {
            let info = found(self.jetstream.consumer_info(stream, &name).await)?;
            Ok::<_, CallError>(info.map(|info| (number, info)))
        });
        let infos: Vec<Option<(u32, ConsumerInfo)>> =
            stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
        let mut shards: Vec<Shard> = infos
            .into_iter()
            .flatten()
            .map(|(number, info)| {
                let extra = extra || number >= u32::from(self.spec.placement().shards());
                shard(&info, number, extra, self.owners_of(partition, number))
            })
            .collect();
        shards.sort_by_key(|shard| shard.shard);
        Ok(shards)
    }

    fn owners_of(&self, partition: Option<u16>, shard: u32) -> Vec<String> {
        let unit = partition
            .zip(u16::try_from(shard).ok())
            .map(|(partition, shard)| UnitId { partition: PartitionId(partition), shard: ShardId(shard) });
        unit.and_then(|unit| self.owners.get(&unit)).cloned().unwrap_or_default()
    }

    async fn history(&self, partitions: &[StreamInfo], status: &mut Status) -> Result<(), CallError> {
        let stream = self.spec.history_stream();
        match found(self.jetstream.stream_info(&stream).await)? {
            None => status.missing.push(format!("stream {stream}")),
            Some(info) => {
                status.history = Some(History {
                    messages: info.state.messages,
                    bytes: info.state.bytes,
                    behind_s: history_behind(partitions, &info).as_secs(),
                    reaches_back_s: oldest_s(&info),
                    stream,
                });
            }
        }
        Ok(())
    }

    async fn letters(&self, status: &mut Status) -> Result<(), CallError> {
        let (stream, filter) = (self.spec.dlq_stream(), self.spec.prefix().dead_letter_filter());
        let Some(info) = found(self.jetstream.stream_subjects(&stream, &filter).await)? else {
            status.missing.push(format!("stream {stream}"));
            return Ok(());
        };
        let mut tables = BTreeMap::new();
        let root = filter.trim_end_matches('>');
        for (subject, count) in info.state.subjects.unwrap_or_default() {
            let tail = subject.strip_prefix(root).unwrap_or(&subject);
            // Scopes of a table stand together.
            let table = tail.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
            *tables.entry(table).or_default() += count;
        }
        let (letters, bytes) = (info.state.messages, info.state.bytes);
        status.dead_letters = Some(Letters { stream, letters, bytes, tables });
        Ok(())
    }
}

/// Seconds since the oldest message was stored.
fn oldest_s(info: &StreamInfo) -> Option<u64> {
    if info.state.messages == 0 { None } else { age_s(&info.state.first_ts, &info.ts) }
}

fn name(config: &Value) -> String {
    config.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
}
