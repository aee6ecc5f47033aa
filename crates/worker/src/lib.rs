//! From the queue into ClickHouse: batches, cuts, retries, refusals, fair turns.
//!
//! [`Worker`] is the component. Its mind is `core`, which decides and never waits; `flush` is one batch on its way in.
//! The small decisions are pure and have a file each: when a batch is made (`batcher`), how it is split (`splits`), what
//! its name is and how it comes back after a crash (`cut`), in which order blocks are taken (`gate`), whose turn it is
//! (`turns`), how long to wait (`backoff`).
//!
//! Of a queue that many processes read, each worker takes a share: `claims` works out with the others who reads which
//! unit, through `lease`s, and `budget` is how the units of one process share what it may hold.

mod backoff;
mod batcher;
mod budget;
mod claims;
mod core;
mod cut;
mod flush;
mod gate;
mod lease;
mod metrics;
mod options;
mod outage;
mod rows;
mod splits;
mod table;
mod turns;
mod worker;

pub use claims::ClaimOptions;
pub use lease::{LeaseTimings, LeaseTimingsError, MemberTold};
pub use metrics::WorkerMetrics;
pub use options::Options;
pub use worker::{Worker, WorkerFault};
