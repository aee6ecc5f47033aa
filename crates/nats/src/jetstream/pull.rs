//! Pulls from a consumer, and what comes back, in the order in which it came.
//!
//! One subscription serves all pulls of a [`Puller`]; each pull has a number, which its statuses bear. A pull must not
//! be given up while it may still bring messages: those would wait for the ack wait and come back behind newer ones.

use std::time::Duration;

use async_nats::{HeaderMap, Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Serialize;

use super::{AckAddress, JetStream, PullStatus, json, nanos};
use crate::error::CallError;

/// The header that tells a puller its pin.
const PIN: &str = "Nats-Pin-Id";

/// A pull.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PullRequest {
    /// Most messages.
    pub batch: u32,
    /// How long the server keeps it; zero for as long as it likes.
    pub expires: Duration,
    /// Most bytes, those of subjects and headers included; no bound without it.
    pub max_bytes: Option<u64>,
    /// The group, for a consumer that has groups.
    pub group: Option<String>,
    /// The pin, once there is one.
    pub pin: Option<String>,
    /// Between two signs of life while it waits; none without it.
    pub heartbeat: Option<Duration>,
    /// Takes what is there and does not wait.
    pub no_wait: bool,
}

/// What came back.
#[derive(Debug)]
pub enum Pulled {
    /// A message.
    Message(Box<Delivered>),
    /// A pull's end, or a sign of life.
    Status {
        /// The pull's number.
        pull: u64,
        /// What is told of it.
        status: PullStatus,
    },
}

/// A delivered message.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// Where it stands.
    pub address: AckAddress,
    /// Where it is settled.
    pub reply: String,
    /// Its subject.
    pub subject: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its content.
    pub payload: Bytes,
    /// The receiver's pin, on a consumer that pins.
    pub pin: Option<String>,
    /// Its size as pulls count it, in bytes: subjects and headers included.
    pub size_bytes: u64,
}

/// Pulls from one consumer. Dropping it ends its subscription.
pub struct Puller {
    jetstream: JetStream,
    subject: String,
    inbox: String,
    received: Subscriber,
    sent: u64,
}

#[derive(Serialize)]
struct PullBody<'a> {
    batch: u32,
    #[serde(skip_serializing_if = "is_zero")]
    expires: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u64>,
    #[serde(skip_serializing_if = "is_zero")]
    idle_heartbeat: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    no_wait: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl PullRequest {
    pub(super) fn body(&self) -> Bytes {
        json(&PullBody {
            batch: self.batch,
            expires: nanos(self.expires),
            max_bytes: self.max_bytes,
            idle_heartbeat: self.heartbeat.map(nanos).unwrap_or_default(),
            no_wait: self.no_wait,
            group: self.group.as_deref(),
            id: self.pin.as_deref(),
        })
    }
}

impl JetStream {
    /// Gets ready to pull from a consumer, which is not looked up.
    ///
    /// # Errors
    /// [`CallError::BadSubject`], [`CallError::Closed`].
    pub async fn puller(&self, stream: &str, consumer: &str) -> Result<Puller, CallError> {
        let inbox = self.connection.new_inbox();
        let received = self.connection.subscribe(&format!("{inbox}.*")).await?;
        let subject = self.subject(&format!("CONSUMER.MSG.NEXT.{stream}.{consumer}"));
        Ok(Puller { jetstream: self.clone(), subject, inbox, received, sent: 0 })
    }
}

impl Puller {
    /// Sends a pull and gives back its number, from 1. What the user may not pull is never answered: see
    /// [`crate::Connection::refused_since`] with [`Puller::subject`].
    ///
    /// # Errors
    /// [`CallError::NotConnected`], [`CallError::Closed`].
    pub async fn pull(&mut self, request: &PullRequest) -> Result<u64, CallError> {
        let number = self.sent + 1;
        let reply = format!("{}.{number}", self.inbox);
        self.jetstream.connection.publish_with_reply(&self.subject, &reply, request.body()).await?;
        self.sent = number;
        Ok(number)
    }

    /// Where its pulls go.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Waits for the next thing that comes back; none once the connection is closed. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<Pulled> {
        loop {
            let message = self.received.next().await?;
            match self.read(message) {
                Some(pulled) => return Some(pulled),
                None => tracing::warn!(subject = self.subject, "a message without an address came"),
            }
        }
    }

    fn read(&self, message: Message) -> Option<Pulled> {
        if let Some(status) = PullStatus::of(&message) {
            let pull = message.subject.strip_prefix(self.inbox.as_str());
            let pull = pull.and_then(|rest| rest.strip_prefix('.')).and_then(|number| number.parse().ok());
            return Some(Pulled::Status { pull: pull.unwrap_or_default(), status });
        }
        let reply = message.reply?.to_string();
        let address = AckAddress::parse(&reply)?;
        let headers = message.headers.unwrap_or_default();
        let pin = headers.get(PIN).map(|pin| pin.as_str().to_owned());
        Some(Pulled::Message(Box::new(Delivered {
            address,
            reply,
            subject: message.subject.to_string(),
            headers,
            payload: message.payload,
            pin,
            size_bytes: u64::try_from(message.length).unwrap_or(u64::MAX),
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_say_only_what_is_asked_for() {
        let plain = PullRequest { batch: 5, ..PullRequest::default() };
        assert_eq!(&plain.body()[..], br#"{"batch":5}"#);
        let full = PullRequest {
            batch: 1,
            expires: Duration::from_secs(1),
            max_bytes: Some(1),
            group: Some("wavehouse".to_owned()),
            pin: Some("p1".to_owned()),
            heartbeat: Some(Duration::from_millis(500)),
            no_wait: true,
        };
        let expected = r#"{"batch":1,"expires":1000000000,"max_bytes":1,"idle_heartbeat":500000000,"no_wait":true,"group":"wavehouse","id":"p1"}"#;
        assert_eq!(full.body(), expected);
    }
}
