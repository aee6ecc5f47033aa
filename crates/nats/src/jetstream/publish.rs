//! Publishing into a stream, with its answer.

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::Deserialize;

use super::{JetStream, understand};
use crate::error::CallError;

/// The stream has the message.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PubAck {
    /// Which stream.
    pub stream: String,
    /// The message's sequence there; of the first of its id when it is a duplicate.
    #[serde(rename = "seq")]
    pub sequence: u64,
    /// A message of the same id was there already, within the stream's window.
    #[serde(default)]
    pub duplicate: bool,
    /// The stream's domain, when it has one.
    #[serde(default)]
    pub domain: Option<String>,
}

impl JetStream {
    /// Publishes to a subject of a stream and waits until it is stored.
    ///
    /// # Errors
    /// [`CallError`]; whether it was stored is open after [`CallError::is_unknown`].
    pub async fn publish(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<PubAck, CallError> {
        let message = self.ask(subject, headers, payload).await?;
        understand(subject, &message)
    }
}
