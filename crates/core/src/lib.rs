//! Words and decisions of WaveHouse: ids, blocks, positions, subjects, placement, assignment, faults.
//!
//! Everything here is data and pure functions. This crate does no I/O, reads no clock and knows no runtime; time and
//! randomness are passed in. Every other crate may use it, and it uses none of them.

mod assign;
mod block;
mod escape;
mod fault;
mod ids;
mod placement;
mod position;
mod subject;
mod time;

pub use assign::{MEMBERS_MAX, MemberSlot, assign, score};
pub use block::{BLOCK_VERSION, BlockError, RowBlock, Segment, decode_block, encode_block, encode_merged};
pub use escape::{UnescapeError, escape_token, unescape_token};
pub use fault::{FaultKind, chain};
pub use ids::{
    IdError, PartitionId, SCOPE_BYTES_MAX, Scope, ShardId, TABLE_BYTES_MAX, TENANT_BYTES_MAX, TableName,
    TableRef, TenantId, UnitId,
};
pub use placement::{PARTITIONS_MAX, Placement, PlacementError, SHARDS_MAX};
pub use position::{LogId, Position, PositionError, Sequence};
pub use subject::{
    LeaseKey, PrefixError, Subject, SubjectPrefix, Topic, TopicKey, lease_filter, lease_subject,
    subjects_overlap,
};
pub use time::{TimeError, Timestamp};
