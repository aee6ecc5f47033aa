//! The queue on a JetStream cluster that the operator owns.
//!
//! Nothing here makes, changes, purges or deletes a stream, a durable or a bucket: the topology is the operator's, is
//! looked at and judged before the queue opens, and goes on being looked at. One message carries one block.
//!
//! ```text
//!   submit ─► lanes, one a table ─► partition streams ─► durable of a unit ─► puller ─► shelf ─► deliveries
//!                                         │                     ▲                        │
//!                                         └─► history           └──────── acks ◄─────────┘
//!   record_cut ─► batch record, a key of the lease bucket
//! ```

mod broker;
mod bucket;
mod flood;
mod gaps;
mod history;
mod letters;
mod logs;
mod open;
mod options;
mod pool;
mod publish;
mod record;
mod shared;
mod sharing;
mod topology;
mod unit;

pub use broker::NatsBroker;
pub use bucket::NatsBucket;
pub use history::{History, HistoryCounts, Origins};
pub use letters::{LETTER_HEADER_BYTES, LETTERS_READ_MAX, Letters};
pub use open::OpenError;
pub use options::Options;
pub use topology::{history_behind, observe};
pub use unit::{UnreadableCount, UnreadableMessages};
