//! The worker between a queue and a ClickHouse, both scripted, on a clock of its own.

mod crash;
mod kit;
mod limits;
mod model;
mod outage;
mod refusals;
mod steady;
