//! From the queue into ClickHouse: batches, cuts, retries, refusals, fair turns.
//!
//! [`Worker`] is the component. Its mind is `core`, which decides and never waits; `flush` is one batch on its way in.
//! The small decisions are pure and have a file each: when a batch is made (`batcher`), how it is split (`splits`), what
//! its name is and how it comes back after a crash (`cut`), in which order blocks are taken (`gate`), whose turn it is
//! (`turns`), how long to wait (`backoff`).

mod backoff;
mod batcher;
mod core;
mod cut;
mod flush;
mod gate;
mod metrics;
mod options;
mod outage;
mod rows;
mod splits;
mod table;
mod turns;
mod worker;

pub use metrics::WorkerMetrics;
pub use options::Options;
pub use worker::{Worker, WorkerFault};
