//! For tests only: real servers, free ports, waiting for facts.
//!
//! Nothing here returns an error: what goes wrong in a test's surroundings ends the test with a message that says
//! what to do.

pub mod deps;
pub mod engine;
mod link;
mod nats;
mod wait;

pub use engine::Engine;
pub use link::Link;
pub use nats::{NATS_VERSION, NatsCluster, NatsServer};
pub use wait::{Fact, free_port, wait_for};
