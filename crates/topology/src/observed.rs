//! What was found on the servers: plain data, filled by whoever can ask them, from JetStream's own answers.

use serde::{Deserialize, Serialize};
use wavehouse_core::subjects_overlap;

use crate::config::{ConsumerConfig, StreamConfig};

/// Everything that the rules judge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopologyObserved {
    /// The servers that were asked; the first is the one that is connected to.
    pub servers: Vec<ServerObserved>,
    /// Largest message that the connected server takes, headers included, in bytes.
    pub max_payload_bytes: u64,
    /// Every stream that holds a subject of ours, the history by its name, and the lease bucket's stream.
    pub streams: Vec<StreamObserved>,
    /// Streams that were listed and then not there.
    pub gone: Vec<GoneStream>,
    /// What the connecting user may not do.
    pub refusals: Vec<Refusal>,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerObserved {
    /// What it is called; empty for the connected one.
    pub name: String,
    /// Its version; `None` when it could not be reached.
    pub version: Option<String>,
}

/// One stream and its durables.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamObserved {
    /// The answer to `STREAM.INFO`.
    pub info: StreamInfo,
    /// The answers to `CONSUMER.INFO`, of every durable that is called as a shard's.
    pub consumers: Vec<ConsumerInfo>,
}

/// As much of a `STREAM.INFO` answer as is judged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamInfo {
    /// The configuration.
    pub config: StreamConfig,
    /// The state.
    pub state: StreamState,
}

/// As much of a stream's state as is judged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamState {
    /// Messages that it holds.
    pub messages: u64,
}

/// As much of a `CONSUMER.INFO` answer as is judged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConsumerInfo {
    /// Its name.
    pub name: String,
    /// The configuration.
    pub config: ConsumerConfig,
    /// Messages not delivered yet.
    pub num_pending: u64,
    /// Messages delivered and not settled.
    pub num_ack_pending: u64,
    /// Whether delivery is paused at this moment.
    pub paused: bool,
}

/// A stream that was listed and then not there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GoneStream {
    /// Its name.
    pub name: String,
    /// The subject that it was listed for.
    pub listed_for: String,
}

/// Something that the connecting user may not do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Pull from a durable, or unpin its reader.
    Durable {
        /// The stream.
        stream: String,
        /// The durable.
        durable: String,
        /// The subject that was refused first.
        subject: String,
    },
    /// Read or remove dead letters; the subject that was refused.
    DeadLetters(String),
    /// Ask whether another process lives, or answer; the subject that was refused.
    Live(String),
}

impl TopologyObserved {
    /// The stream of this name.
    #[must_use]
    pub fn stream(&self, name: &str) -> Option<&StreamObserved> {
        self.streams.iter().find(|stream| stream.name() == name)
    }

    /// The streams that hold a subject, or a part of a pattern.
    pub fn holding<'a, 's>(
        &'a self,
        subject: &'s str,
    ) -> impl Iterator<Item = &'a StreamObserved> + use<'a, 's> {
        self.streams.iter().filter(move |stream| {
            stream.info.config.subjects.iter().any(|held| subjects_overlap(held, subject))
        })
    }
}

impl StreamObserved {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.config.name
    }

    /// The durable of this name.
    #[must_use]
    pub fn consumer(&self, name: &str) -> Option<&ConsumerInfo> {
        self.consumers.iter().find(|consumer| consumer.name == name)
    }
}
