//! The HTTP face over TCP, with a real engine behind it and a broker in memory.

mod harness;
mod ingest;
mod ops;
mod surface;
