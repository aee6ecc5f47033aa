//! Words and decisions of WaveHouse: ids, blocks, positions, faults.
//!
//! Everything here is data and pure functions. This crate does no I/O, reads no clock and knows no runtime; time and
//! randomness are passed in. Every other crate may use it, and it uses none of them.

mod block;
mod fault;
mod ids;
mod position;
mod time;

pub use block::{BLOCK_VERSION, BlockError, RowBlock, Segment, decode_block, encode_block, encode_merged};
pub use fault::{FaultKind, chain};
pub use ids::{
    IdError, PartitionId, SCOPE_BYTES_MAX, Scope, ShardId, TABLE_BYTES_MAX, TENANT_BYTES_MAX, TableName,
    TableRef, TenantId, UnitId,
};
pub use position::{LogId, Position, PositionError, Sequence};
pub use time::{TimeError, Timestamp};
