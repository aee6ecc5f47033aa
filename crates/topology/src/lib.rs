//! What must exist on the message servers for WaveHouse to run on them.
//!
//! [`TopologyInput`] says what a deployment asks for; checked, it is a [`TopologySpec`]. From that follow the objects
//! ([`Desired`]), the [`manifests`] that make them, and the [`permissions`] of the user that connects. [`verify`] holds
//! what was found on the servers ([`TopologyObserved`]) against it and tells every difference that matters.
//!
//! Everything here is data and pure functions: no connection, no clock, no runtime.

mod commands;
mod config;
mod desired;
mod duration;
mod finding;
pub mod limits;
mod manifests;
mod observed;
mod permissions;
mod rules;
mod size;
mod spec;
mod verify;
mod yaml;

pub use commands::{manifests_command, permissions_command};
pub use config::{ConsumerConfig, Nanos, OtherFields, Present, Republish, StreamConfig};
pub use desired::{BucketConfig, Desired, PARTITION_KEY, PARTITIONS_KEY, SHARDS_KEY};
pub use duration::{DurationError, format_duration, parse_duration};
pub use finding::{Finding, Severity, TopologyError};
pub use manifests::manifests;
pub use observed::{
    ConsumerInfo, GoneStream, Refusal, ServerObserved, StreamInfo, StreamObserved, StreamState,
    TopologyObserved,
};
pub use permissions::{Permissions, permissions};
pub use rules::{Mend, RULES, Rule};
pub use size::{FILE_STORE_BYTES, SIZE_BYTES_MAX, SizeError, Sizing, SizingError, format_size, parse_size};
pub use spec::{SpecFinding, TopologyInput, TopologySpec};
pub use verify::verify;
