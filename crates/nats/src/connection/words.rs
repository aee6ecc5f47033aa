//! What is said over a connection: by the server of itself, and by us of a delivered message.

use std::time::Duration;

use bytes::Bytes;

/// What the connected server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// Its name.
    pub name: String,
    /// Its version, such as `2.14.6`.
    pub version: String,
    /// Largest message that it takes, headers included, in bytes.
    pub max_payload_bytes: u64,
    /// The domain of its JetStream, when it has one.
    pub domain: Option<String>,
    /// The cluster that it belongs to, when it does.
    pub cluster: Option<String>,
    /// Addresses of all servers of the cluster, as it knows them.
    pub known_servers: Vec<String>,
}

/// How a delivered message is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// Done; it is never delivered again.
    Ack,
    /// Deliver it again at once.
    Nak,
    /// Deliver it again after a while.
    NakAfter(Duration),
    /// Still at work: the ack wait starts anew.
    InProgress,
    /// Never deliver it again, though it was not done.
    Term,
}

impl Settle {
    pub(super) fn payload(self) -> Bytes {
        match self {
            Self::Ack => Bytes::from_static(b"+ACK"),
            Self::Nak => Bytes::from_static(b"-NAK"),
            Self::NakAfter(after) => format!("-NAK {{\"delay\":{}}}", after.as_nanos()).into(),
            Self::InProgress => Bytes::from_static(b"+WPI"),
            Self::Term => Bytes::from_static(b"+TERM"),
        }
    }
}
