//! Streams: their names and what they hold.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{JetStream, PAGES_MAX, json};
use crate::error::CallError;

/// A stream.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StreamInfo {
    /// Its configuration, as JetStream wrote it.
    pub config: Value,
    /// When it was created, as RFC 3339: another time is another stream.
    #[serde(default)]
    pub created: String,
    /// What it holds.
    pub state: StreamState,
    /// Its servers and their leader, as JetStream wrote it.
    #[serde(default)]
    pub cluster: Option<Value>,
    /// When the server answered, as RFC 3339.
    #[serde(default)]
    pub ts: String,
}

/// What a stream holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct StreamState {
    /// Messages.
    pub messages: u64,
    /// Their size, in bytes.
    pub bytes: u64,
    /// The oldest one's sequence; one past `last_seq` when there is none.
    pub first_seq: u64,
    /// The newest one's sequence, even when it is gone.
    pub last_seq: u64,
    /// The oldest one's time, as RFC 3339.
    pub first_ts: String,
    /// The newest one's time, as RFC 3339, even when it is gone.
    pub last_ts: String,
    /// Consumers.
    pub consumer_count: u64,
    /// Different subjects.
    pub num_subjects: u64,
    /// Messages of each subject, when they were asked for.
    pub subjects: Option<BTreeMap<String, u64>>,
}

#[derive(Serialize)]
struct NamesRequest<'a> {
    offset: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
}

#[derive(Deserialize)]
struct NamesAnswer {
    #[serde(default)]
    total: usize,
    #[serde(default)]
    streams: Option<Vec<String>>,
}

#[derive(Serialize)]
struct InfoRequest<'a> {
    offset: usize,
    subjects_filter: &'a str,
}

#[derive(Deserialize)]
struct InfoAnswer {
    #[serde(default)]
    total: usize,
    #[serde(flatten)]
    info: StreamInfo,
}

impl JetStream {
    /// Names of the streams that hold a subject, or anything that matches a pattern; of all streams without one.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn stream_names(&self, subject: Option<&str>) -> Result<Vec<String>, CallError> {
        let mut names = Vec::new();
        for _ in 0..PAGES_MAX {
            let body = json(&NamesRequest { offset: names.len(), subject });
            let page: NamesAnswer = self.call("STREAM.NAMES", body).await?;
            let streams = page.streams.unwrap_or_default();
            let is_last = streams.is_empty();
            names.extend(streams);
            if is_last || names.len() >= page.total {
                break;
            }
        }
        Ok(names)
    }

    /// A stream's configuration and state.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::is_stream_gone`] when there is none of this name.
    pub async fn stream_info(&self, stream: &str) -> Result<StreamInfo, CallError> {
        self.call(&format!("STREAM.INFO.{stream}"), Bytes::new()).await
    }

    /// The same, with the number of messages of each subject that matches `filter`.
    ///
    /// # Errors
    /// As [`JetStream::stream_info`].
    pub async fn stream_subjects(&self, stream: &str, filter: &str) -> Result<StreamInfo, CallError> {
        let mut subjects = BTreeMap::new();
        let mut pages = 0;
        loop {
            let body = json(&InfoRequest { offset: subjects.len(), subjects_filter: filter });
            let mut page: InfoAnswer = self.call(&format!("STREAM.INFO.{stream}"), body).await?;
            let found = page.info.state.subjects.take().unwrap_or_default();
            let is_last = found.is_empty();
            subjects.extend(found);
            pages += 1;
            if is_last || subjects.len() >= page.total || pages == PAGES_MAX {
                page.info.state.subjects = Some(subjects);
                return Ok(page.info);
            }
        }
    }
}
