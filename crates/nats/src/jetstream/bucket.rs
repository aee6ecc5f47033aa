//! Keys and values in a stream, each write of which names the revision that it replaces.

use std::sync::Arc;

use async_nats::HeaderMap;
use bytes::Bytes;

use super::{JetStream, StoredMessage};
use crate::error::CallError;

/// The header that tells what a write did.
const OPERATION: &str = "KV-Operation";
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

/// A bucket. Its keys are subjects below `$KV.<bucket>.`.
#[derive(Clone)]
pub struct Bucket {
    jetstream: JetStream,
    name: Arc<str>,
}

/// The newest write of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEntry {
    /// Its revision: the sequence in the bucket's stream.
    pub revision: u64,
    /// The value; empty when it was deleted.
    pub value: Bytes,
    /// The write was a deletion. The key can be written again over this revision.
    pub deleted: bool,
    /// When it was written, as RFC 3339.
    pub time: String,
}

impl JetStream {
    /// A bucket, which is not looked up.
    #[must_use]
    pub fn bucket(&self, name: &str) -> Bucket {
        Bucket { jetstream: self.clone(), name: name.into() }
    }
}

impl Bucket {
    /// The stream behind it.
    #[must_use]
    pub fn stream(&self) -> String {
        format!("KV_{}", self.name)
    }

    /// The subject that a key lies under, as the stream has it.
    #[must_use]
    pub fn subject(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.name)
    }

    /// The newest write of a key; none when there never was one. Any server of the stream's group may answer, so one
    /// may see less than the last write.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::NoResponders`] when there is no such bucket.
    pub async fn get(&self, key: &str) -> Result<Option<KvEntry>, CallError> {
        let found = self.jetstream.direct_get_last(&self.stream(), &self.subject(key)).await?;
        Ok(found.map(KvEntry::from))
    }

    /// Writes a key that has never been written, and gives back its revision.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::is_conflict`] when it has, even if it was deleted since.
    pub async fn create(&self, key: &str, value: Bytes) -> Result<u64, CallError> {
        self.update(key, value, 0).await
    }

    /// Writes a key over a revision, and gives back the new one.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::is_conflict`] when the key's newest revision is another.
    pub async fn update(&self, key: &str, value: Bytes, revision: u64) -> Result<u64, CallError> {
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, revision.to_string());
        self.write(key, value, headers).await
    }

    /// Deletes a key over a revision, leaving a mark, whose revision it gives back.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::is_conflict`] when the key's newest revision is another.
    pub async fn delete(&self, key: &str, revision: u64) -> Result<u64, CallError> {
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, revision.to_string());
        headers.insert(OPERATION, "DEL");
        self.write(key, Bytes::new(), headers).await
    }

    async fn write(&self, key: &str, value: Bytes, headers: HeaderMap) -> Result<u64, CallError> {
        let plain = self.subject(key);
        // Under a domain writes are requests to it, like all others.
        let subject = if self.jetstream.domain.is_some() { self.jetstream.subject(&plain) } else { plain };
        self.jetstream.publish(&subject, Some(headers), value).await.map(|ack| ack.sequence)
    }
}

impl From<StoredMessage> for KvEntry {
    fn from(message: StoredMessage) -> Self {
        let operation = message.headers.get(OPERATION).map(async_nats::HeaderValue::as_str);
        Self {
            revision: message.sequence,
            value: message.payload,
            deleted: matches!(operation, Some("DEL" | "PURGE")),
            time: message.time,
        }
    }
}
