//! The client, the catalogue and the sink against the real engine.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod catalog;
mod client;
mod differential;
mod kit;
mod sink;
mod tls;
