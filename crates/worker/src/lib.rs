//! From the queue into ClickHouse.
//!
//! One task a unit ([`unit`]) takes deliveries, keeps one open batch a table ([`table`]), and starts inserts
//! ([`flush`]) as batches become ready ([`ready`]), a table at a time and few at once. Before an insert the batch's cut
//! is recorded in the queue; what comes back after a crash or an outage is rebuilt into exactly that batch
//! ([`rebuild`]). A refused batch is split until the bad row is alone ([`splits`]), and that row becomes a dead letter.
//! Everything else that can go wrong is waited out ([`backoff`]), for ever.
//!
//! The modules `ready`, `rebuild`, `splits`, `token` and `backoff` are pure; `unit` and `flush` act.

mod backoff;
mod batch;
mod flush;
mod metrics;
mod options;
mod ready;
mod rebuild;
mod splits;
mod table;
mod token;
mod unit;
mod worker;

pub use metrics::Metrics;
pub use options::{
    BATCH_BYTES, BATCH_BYTES_MAX, BATCH_ROWS, BATCH_ROWS_MAX, HELD_BYTES, HELD_ROWS, INSERT_SPACING,
    INSERTS_MAX, LINGER, Options, REFUSALS_IN_A_ROW_MAX,
};
pub use worker::{Worker, WorkerFault};
