//! Requests to JetStream: one a call, in the domain that the connection was opened for.

mod address;
mod bucket;
mod consumers;
mod messages;
mod publish;
mod pull;
mod status;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, Message, Request};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use address::AckAddress;
pub use bucket::{Bucket, KvEntry};
pub use consumers::{ConsumerInfo, HistoryConsumer, PriorityGroup, SequenceInfo, StartAt};
pub use messages::StoredMessage;
pub use publish::PubAck;
pub use pull::{Delivered, PullRequest, Pulled, Puller};
pub use status::PullStatus;
pub use streams::{StreamInfo, StreamState};

use crate::connection::{Answers, Connection};
use crate::error::CallError;

/// How long a request waits unless it is said otherwise.
const CALL_MS: u64 = 5_000;
/// Most pages of one listing: a server gives 256 names or more a page.
const PAGES_MAX: usize = 4_096;

/// Requests to JetStream over one connection; clones are cheap.
#[derive(Clone)]
pub struct JetStream {
    connection: Connection,
    prefix: Arc<str>,
    domain: Option<Arc<str>>,
    timeout: Duration,
}

/// What an answer looks like when JetStream says no.
#[derive(Deserialize)]
struct MaybeError {
    error: Option<ErrorBody>,
}

#[derive(Deserialize)]
struct ErrorBody {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

impl JetStream {
    pub(crate) fn new(connection: Connection, prefix: Arc<str>, domain: Option<Arc<str>>) -> Self {
        Self { connection, prefix, domain, timeout: Duration::from_millis(CALL_MS) }
    }

    /// The same, whose requests wait so long for their answers; 5 s by default.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// The connection that the requests go over.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The subject of a request such as `STREAM.NAMES`.
    #[must_use]
    pub fn subject(&self, request: &str) -> String {
        format!("{}{request}", self.prefix)
    }

    /// Sends a request such as `STREAM.INFO.ORDERS` and reads its answer as any type.
    ///
    /// # Errors
    /// [`CallError`]; a refusal of JetStream's is [`CallError::JetStream`].
    pub async fn call<T: DeserializeOwned>(&self, request: &str, body: Bytes) -> Result<T, CallError> {
        let subject = self.subject(request);
        let message = self.ask(&subject, None, body).await?;
        understand(&subject, &message)
    }

    /// Sends a request and gives back its answer as it is, statuses too.
    async fn ask(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        body: Bytes,
    ) -> Result<Message, CallError> {
        let mut request = Request::new().payload(body).timeout(Some(self.timeout));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        self.connection.ask(subject, request, self.timeout, Answers::Server).await
    }
}

/// Reads an answer: an error, or what was asked for.
fn understand<T: DeserializeOwned>(subject: &str, message: &Message) -> Result<T, CallError> {
    if let Some(error) = status_error(subject, message) {
        return Err(error);
    }
    let malformed = |error: serde_json::Error| CallError::Malformed {
        subject: subject.to_owned(),
        why: error.to_string(),
    };
    let answer: MaybeError = serde_json::from_slice(&message.payload).map_err(malformed)?;
    if let Some(error) = answer.error {
        return Err(CallError::JetStream {
            subject: subject.to_owned(),
            status: error.code,
            code: error.err_code,
            text: error.description,
        });
    }
    serde_json::from_slice(&message.payload).map_err(malformed)
}

/// An answer that is a bare status.
fn status_error(subject: &str, message: &Message) -> Option<CallError> {
    let status = message.status?.as_u16();
    let text = message.description.clone().unwrap_or_default();
    (status >= 400).then(|| CallError::JetStream { subject: subject.to_owned(), status, code: 0, text })
}

fn json(body: &impl Serialize) -> Bytes {
    // Our own bodies are plain structs of numbers and strings, which always have a JSON form.
    serde_json::to_vec(body).unwrap_or_default().into()
}

/// Nanoseconds, as JetStream writes durations.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
