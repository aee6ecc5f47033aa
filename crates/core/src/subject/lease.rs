//! The keys of the lease bucket: who is a member, and which batch of a unit is on its way.

use std::fmt;

use super::number;
use crate::assign::MemberSlot;
use crate::ids::{PartitionId, ShardId, UnitId};

/// One key of the lease bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LeaseKey {
    /// A place among those who share the units.
    Member(MemberSlot),
    /// The record of the batch that a unit's owner inserts next; whoever takes it over fences the owner.
    Batch(UnitId),
}

impl LeaseKey {
    /// Reads a key as the bucket has it; `None` when it is another's.
    #[must_use]
    pub fn parse(key: &str) -> Option<Self> {
        let name = key.strip_prefix("lease.")?;
        let small = |text: &str| {
            number(text).filter(|_| text == "0" || !text.starts_with('0')).and_then(|n| u16::try_from(n).ok())
        };
        if let Some(slot) = name.strip_prefix("ingest.m") {
            return Some(Self::Member(MemberSlot(small(slot)?)));
        }
        let (partition, shard) = name.strip_prefix("batch.")?.split_once('.')?;
        Some(Self::Batch(UnitId { partition: PartitionId(small(partition)?), shard: ShardId(small(shard)?) }))
    }
}

/// The key as the bucket has it.
impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(slot) => write!(f, "lease.ingest.m{}", slot.0),
            Self::Batch(unit) => write!(f, "lease.batch.{unit}"),
        }
    }
}

/// The subject that a key of the bucket is written under.
#[must_use]
pub fn lease_subject(bucket: &str, key: LeaseKey) -> String {
    format!("$KV.{bucket}.{key}")
}

/// All leases of a bucket.
#[must_use]
pub fn lease_filter(bucket: &str) -> String {
    format!("$KV.{bucket}.lease.>")
}
