//! The queue on a JetStream cluster that the operator owns.
//!
//! Nothing here makes, changes, purges or deletes a stream, a durable or a bucket: the topology is the operator's, is
//! looked at and judged before the queue opens, and goes on being looked at. One message carries one block.

mod logs;
