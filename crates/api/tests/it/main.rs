//! The HTTP face over TCP, with a real engine behind it and a broker in memory.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test ends where something is not as it must be"
)]

mod dlq;
mod harness;
mod ingest;
mod live;
mod ops;
mod surface;
