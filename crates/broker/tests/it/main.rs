//! The conformance suite, proved on the broker in memory.

mod memory;
