//! Consumers: durables, whose pins and resets are ours, and short-lived readers of a history, which we make ourselves.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wavehouse_core::Timestamp;

use super::status::PullStatus;
use super::{JetStream, PAGES_MAX, json, nanos};
use crate::error::CallError;

/// A consumer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ConsumerInfo {
    /// Its stream.
    pub stream_name: String,
    /// Its name.
    pub name: String,
    /// Its configuration, as JetStream wrote it.
    pub config: Value,
    /// The last message delivered.
    #[serde(default)]
    pub delivered: SequenceInfo,
    /// The last message below which all are acked.
    #[serde(default)]
    pub ack_floor: SequenceInfo,
    /// Delivered and not settled.
    #[serde(default)]
    pub num_ack_pending: u64,
    /// Delivered more than once and not settled.
    #[serde(default)]
    pub num_redelivered: u64,
    /// Pulls that wait.
    #[serde(default)]
    pub num_waiting: u64,
    /// Not delivered yet.
    #[serde(default)]
    pub num_pending: u64,
    /// Whether delivery is paused.
    #[serde(default)]
    pub paused: bool,
    /// Groups, and who is pinned in them.
    #[serde(default)]
    pub priority_groups: Vec<PriorityGroup>,
    /// Its servers and their leader, as JetStream wrote it.
    #[serde(default)]
    pub cluster: Option<Value>,
    /// When the server answered, as RFC 3339.
    #[serde(default)]
    pub ts: String,
}

/// A place in a consumer's delivery.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct SequenceInfo {
    /// Counted by the consumer.
    pub consumer_seq: u64,
    /// Counted by the stream.
    pub stream_seq: u64,
    /// When this changed last, as RFC 3339; none before the first time.
    pub last_active: Option<String>,
}

/// A group of pullers, of whom one is pinned.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct PriorityGroup {
    /// Its name.
    pub group: String,
    /// The pin; empty when nobody is pinned.
    pub pinned_client_id: String,
    /// Since when, as RFC 3339.
    pub pinned_ts: Option<String>,
}

/// A short-lived reader of a history: it acks nothing, lies in memory, and goes when nobody pulls for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryConsumer {
    /// Its name: one token, not used before.
    pub name: String,
    /// Which subjects, none of which matches what another does; all when there is none.
    pub filters: Vec<String>,
    /// From where on.
    pub start: StartAt,
    /// It goes when nobody has pulled for so long.
    pub inactive: Duration,
}

/// Where a reader starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    /// At the oldest message.
    First,
    /// With the next message to come.
    New,
    /// At this sequence of the stream.
    Sequence(u64),
    /// At the first message of this time or later.
    Time(Timestamp),
}

#[derive(Serialize)]
struct NamesRequest {
    offset: usize,
}

#[derive(Deserialize)]
struct NamesAnswer {
    #[serde(default)]
    total: usize,
    #[serde(default)]
    consumers: Option<Vec<String>>,
}

#[derive(Serialize)]
struct CreateRequest<'a> {
    stream_name: &'a str,
    config: CreateConfig<'a>,
    action: &'static str,
}

#[derive(Serialize)]
struct CreateConfig<'a> {
    name: &'a str,
    deliver_policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    opt_start_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    opt_start_time: Option<String>,
    ack_policy: &'static str,
    replay_policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter_subject: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    filter_subjects: &'a [String],
    inactive_threshold: u64,
    mem_storage: bool,
    num_replicas: u32,
}

#[derive(Serialize)]
struct UnpinRequest<'a> {
    group: &'a str,
}

/// An answer of which only the error matters.
#[derive(Deserialize)]
struct Done {}

impl JetStream {
    /// A consumer's configuration, pins and places.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::is_gone`] when there is no such consumer or stream.
    pub async fn consumer_info(&self, stream: &str, consumer: &str) -> Result<ConsumerInfo, CallError> {
        self.call(&format!("CONSUMER.INFO.{stream}.{consumer}"), Bytes::new()).await
    }

    /// Names of a stream's consumers.
    ///
    /// # Errors
    /// As [`JetStream::stream_info`].
    pub async fn consumer_names(&self, stream: &str) -> Result<Vec<String>, CallError> {
        let mut names = Vec::new();
        for _ in 0..PAGES_MAX {
            let body = json(&NamesRequest { offset: names.len() });
            let page: NamesAnswer = self.call(&format!("CONSUMER.NAMES.{stream}"), body).await?;
            let consumers = page.consumers.unwrap_or_default();
            let is_last = consumers.is_empty();
            names.extend(consumers);
            if is_last || names.len() >= page.total {
                break;
            }
        }
        Ok(names)
    }

    /// Takes the pin of a group from whoever has it.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn unpin(&self, stream: &str, consumer: &str, group: &str) -> Result<(), CallError> {
        let body = json(&UnpinRequest { group });
        self.call::<Done>(&format!("CONSUMER.UNPIN.{stream}.{consumer}"), body).await.map(drop)
    }

    /// Puts a consumer back to its ack floor: all that is delivered and not acked is delivered again, the caller's own
    /// too. A server does not answer at all when there is no such consumer.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn reset(&self, stream: &str, consumer: &str) -> Result<(), CallError> {
        self.call::<Done>(&format!("CONSUMER.RESET.{stream}.{consumer}"), Bytes::new()).await.map(drop)
    }

    /// Keeps a pin without taking a message: a pull for one of at most one byte, which no message is. Gives back how
    /// the server ended it.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::NoResponders`] when the consumer is gone or electing a leader.
    pub async fn renew_pin(
        &self,
        stream: &str,
        consumer: &str,
        group: &str,
        pin: &str,
    ) -> Result<PullStatus, CallError> {
        let pull = super::PullRequest {
            batch: 1,
            expires: Duration::from_secs(1),
            max_bytes: Some(1),
            group: Some(group.to_owned()),
            pin: Some(pin.to_owned()),
            ..super::PullRequest::default()
        };
        let subject = self.subject(&format!("CONSUMER.MSG.NEXT.{stream}.{consumer}"));
        let message = self.ask(&subject, None, pull.body()).await?;
        PullStatus::of(&message)
            .ok_or_else(|| CallError::Malformed { subject, why: "a message came".to_owned() })
    }

    /// Makes a short-lived reader of a stream.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn create_history_consumer(
        &self,
        stream: &str,
        consumer: &HistoryConsumer,
    ) -> Result<ConsumerInfo, CallError> {
        let (deliver_policy, opt_start_seq, opt_start_time) = match consumer.start {
            StartAt::First => ("all", None, None),
            StartAt::New => ("new", None, None),
            StartAt::Sequence(sequence) => ("by_start_sequence", Some(sequence.max(1)), None),
            StartAt::Time(time) => ("by_start_time", None, Some(time.to_rfc3339(9))),
        };
        // One filter is a part of the request's subject, several are not.
        let (only, several) = match consumer.filters.as_slice() {
            [only] => (Some(only.as_str()), [].as_slice()),
            several => (None, several),
        };
        let config = CreateConfig {
            name: &consumer.name,
            deliver_policy,
            opt_start_seq,
            opt_start_time,
            ack_policy: "none",
            replay_policy: "instant",
            filter_subject: only,
            filter_subjects: several,
            inactive_threshold: nanos(consumer.inactive),
            mem_storage: true,
            num_replicas: 1,
        };
        let filter = only.map(|filter| format!(".{filter}")).unwrap_or_default();
        let body = json(&CreateRequest { stream_name: stream, config, action: "create" });
        self.call(&format!("CONSUMER.CREATE.{stream}.{}{filter}", consumer.name), body).await
    }

    /// Removes a consumer, which must be one of our own making.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::is_gone`] when it is gone already.
    pub async fn delete_consumer(&self, stream: &str, consumer: &str) -> Result<(), CallError> {
        self.call::<Done>(&format!("CONSUMER.DELETE.{stream}.{consumer}"), Bytes::new()).await.map(drop)
    }
}
