//! The worker between a queue and a ClickHouse: both scripted, on a clock of its own, and both real.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod crash;
mod engine;
mod kit;
mod limits;
mod model;
mod outage;
mod refusals;
mod shared;
mod steady;
