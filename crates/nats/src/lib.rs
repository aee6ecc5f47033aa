//! Message servers: connecting, what they refuse, and the JetStream requests that we make, as plain calls.
//!
//! [`ConnectOptions`] are checked before anything is dialled. A [`Connection`] is there at once, whether or not a server
//! answers, and comes back for ever. [`JetStream`] makes one request a call and gives back what was answered; it decides
//! nothing, repeats nothing and keeps no state. [`Puller`] sends pulls and hands on what comes back, in order.
//!
//! This crate knows no queue: which streams there should be, and what their messages mean, is for those who use it.

mod connection;
mod error;
mod jetstream;
mod options;

pub use async_nats::{HeaderMap, Message, Subscriber};
pub use connection::{
    Banner, Connection, Link, RECONNECT_WAIT_MS, Refused, ServerFacts, Settle, UNANSWERED_MAX,
};
pub use error::{CallError, codes, found};
pub use jetstream::{
    AckAddress, Bucket, ConsumerInfo, Delivered, HistoryConsumer, JetStream, KvEntry, PriorityGroup, PubAck,
    PullRequest, PullStatus, Pulled, Puller, SequenceInfo, StartAt, StoredMessage, StreamInfo, StreamState,
};
pub use options::{ConnectOptions, Finding, InvalidOptions, TlsOptions};
