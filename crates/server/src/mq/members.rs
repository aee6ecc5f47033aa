//! Who shares the units, as the lease bucket says.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use serde::Serialize;
use wavehouse_core::{LeaseKey, Timestamp, UnitId};
use wavehouse_nats::{CallError, JetStream};
use wavehouse_topology::TopologySpec;
use wavehouse_worker::MemberTold;

/// A process that has a place among those that share the units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Member {
    /// Its place.
    pub(super) slot: u16,
    /// Its instance id.
    pub(super) instance_id: String,
    pub(super) version: Option<String>,
    /// How it sees the queue.
    pub(super) partitions: Option<u16>,
    pub(super) shards: Option<u16>,
    /// Seconds since it renewed its lease.
    pub(super) renewed_s: u64,
    /// Whether that is so long ago that its lease does not count any more.
    pub(super) lapsed: bool,
    /// How many units it has, or had when it last said so.
    pub(super) units: usize,
    #[serde(skip)]
    held: Vec<UnitId>,
}

/// Everybody who has a place, by place, and the time on the servers.
pub(super) async fn members(jetstream: &JetStream, spec: &TopologySpec) -> Result<Vec<Member>, CallError> {
    let bucket = jetstream.bucket(&spec.coord_bucket());
    let filter = bucket.subject("lease.ingest.>");
    let stream = match jetstream.stream_subjects(&bucket.stream(), &filter).await {
        Ok(stream) => stream,
        // Without a bucket nobody shares anything.
        Err(error) if error.is_stream_gone() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let now = Timestamp::parse_rfc3339(&stream.ts).unwrap_or_default();
    let subjects = stream.state.subjects.unwrap_or_default();
    let root = bucket.subject("");
    let keys = subjects.keys().filter_map(|subject| subject.strip_prefix(&root));
    let asked = keys.map(async |key| {
        let Some(LeaseKey::Member(slot)) = LeaseKey::parse(key) else { return Ok(None) };
        let Some(entry) = bucket.get(key).await?.filter(|entry| !entry.deleted) else { return Ok(None) };
        let renewed = Timestamp::parse_rfc3339(&entry.time).unwrap_or_default();
        let told = MemberTold::parse(&entry.value);
        let since = now.since(renewed);
        Ok::<_, CallError>(Some(Member {
            slot: slot.0,
            instance_id: told.instance_id,
            version: told.version,
            partitions: told.placement.map(|placement| placement.partitions()),
            shards: told.placement.map(|placement| placement.shards()),
            renewed_s: since.as_secs(),
            lapsed: since >= told.duration,
            units: told.units.len(),
            held: told.units.into_iter().collect(),
        }))
    });
    let mut members: Vec<Member> = try_join_all(asked).await?.into_iter().flatten().collect();
    members.sort_by_key(|member| member.slot);
    Ok(members)
}

/// Whose each unit is, as far as leases count. One that two say they have is on its way from one to the other.
pub(super) fn owners(members: &[Member]) -> BTreeMap<UnitId, Vec<&str>> {
    let mut owners: BTreeMap<UnitId, Vec<&str>> = BTreeMap::new();
    for member in members.iter().filter(|member| !member.lapsed) {
        for unit in &member.held {
            owners.entry(*unit).or_default().push(&member.instance_id);
        }
    }
    owners
}
