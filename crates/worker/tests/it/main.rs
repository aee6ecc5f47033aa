//! The worker between a queue and a ClickHouse, both scripted, on a clock of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod crash;
mod kit;
mod limits;
mod model;
mod outage;
mod refusals;
mod steady;
