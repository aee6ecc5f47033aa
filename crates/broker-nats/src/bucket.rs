//! The lease bucket on the message servers.
//!
//! Keys are taken as the bucket has them (`lease.ingest.m0` lies under `$KV.<bucket>.lease.ingest.m0`); only those below
//! `lease.` are permitted. Every write names the revision that it replaces, so one of several wins wherever they sit.
//! Reads are answered by any server of the bucket's group: with replicas one may lag behind the last write by a moment.
//! That delays a decision and spoils none, since what follows a read is a write over the revision that was read.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use wavehouse_broker::{LeaseBucket, LeaseEntry, LeaseError, Revision};
use wavehouse_nats::{Bucket, CallError, JetStream, KvEntry};

/// How long one read or write of a lease waits: short, since a lease is renewed many times in its life.
const LEASE_CALL_MS: u64 = 1_000;
/// Most reads of one listing that are under way at once.
const READS_MAX: usize = 16;
/// What every key begins with.
const ROOT: &str = "lease.";

/// The bucket of one deployment; it is not looked up until it is used.
#[derive(Clone)]
pub struct NatsBucket {
    jetstream: JetStream,
    bucket: Bucket,
    name: String,
}

impl NatsBucket {
    /// The bucket of this name.
    #[must_use]
    pub fn new(jetstream: &JetStream, name: &str) -> Self {
        let quick = jetstream.with_timeout(Duration::from_millis(LEASE_CALL_MS));
        Self { jetstream: jetstream.clone(), bucket: quick.bucket(name), name: name.to_owned() }
    }

    /// What a failed call means. Where nobody answers, the bucket may be gone or electing a leader.
    async fn failed(&self, key: &str, error: CallError) -> LeaseError {
        let key = key.to_owned();
        if error.is_conflict() {
            return LeaseError::Conflict { key };
        }
        let absent = match &error {
            CallError::NoResponders { .. } => {
                let found = self.jetstream.stream_info(&self.bucket.stream()).await;
                found.is_err_and(|error| error.is_stream_gone())
            }
            error => error.is_stream_gone(),
        };
        if absent {
            return LeaseError::NoBucket { bucket: self.name.clone() };
        }
        LeaseError::Unavailable { key, reason: error.to_string() }
    }

    async fn read(&self, key: &str) -> Result<Option<KvEntry>, LeaseError> {
        match self.bucket.get(key).await {
            Ok(entry) => Ok(entry),
            Err(error) => Err(self.failed(key, error).await),
        }
    }

    /// The key, unless it is deleted. What a lagging server has not heard of yet is there: the leader has just said so.
    async fn if_there(&self, key: String) -> Result<Option<String>, LeaseError> {
        let gone = self.read(&key).await?.is_some_and(|entry| entry.deleted);
        Ok((!gone).then_some(key))
    }

    async fn written(&self, key: &str, outcome: Result<u64, CallError>) -> Result<Revision, LeaseError> {
        match outcome {
            Ok(revision) => Ok(Revision(revision)),
            Err(error) => Err(self.failed(key, error).await),
        }
    }
}

#[async_trait]
impl LeaseBucket for NatsBucket {
    async fn get(&self, key: &str) -> Result<Option<LeaseEntry>, LeaseError> {
        let entry = self.read(key).await?.filter(|entry| !entry.deleted);
        Ok(entry.map(|entry| LeaseEntry { value: entry.value, revision: Revision(entry.revision) }))
    }

    async fn create(&self, key: &str, value: Bytes) -> Result<Revision, LeaseError> {
        let first = self.bucket.create(key, value.clone()).await;
        if !first.as_ref().is_err_and(CallError::is_conflict) {
            return self.written(key, first).await;
        }
        // The key was written before; where that was a deletion, it is written over.
        match self.read(key).await? {
            Some(entry) if entry.deleted => {
                let second = self.bucket.update(key, value, entry.revision).await;
                self.written(key, second).await
            }
            _ => Err(LeaseError::Conflict { key: key.to_owned() }),
        }
    }

    async fn update(&self, key: &str, value: Bytes, last: Revision) -> Result<Revision, LeaseError> {
        if last.0 == 0 {
            // No write has this number; to the servers it would mean that there must be none.
            return Err(LeaseError::Conflict { key: key.to_owned() });
        }
        let outcome = self.bucket.update(key, value, last.0).await;
        self.written(key, outcome).await
    }

    async fn delete(&self, key: &str, last: Revision) -> Result<(), LeaseError> {
        if last.0 == 0 {
            return Err(LeaseError::Conflict { key: key.to_owned() });
        }
        let outcome = self.bucket.delete(key, last.0).await;
        self.written(key, outcome).await.map(drop)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>, LeaseError> {
        let filter = self.bucket.subject(&tokens_of(prefix));
        let listed = self.jetstream.stream_subjects(&self.bucket.stream(), &filter).await;
        let info = match listed {
            Ok(info) => info,
            Err(error) => return Err(self.failed(prefix, error).await),
        };
        let root = self.bucket.subject("");
        let subjects = info.state.subjects.unwrap_or_default().into_keys();
        let keys = subjects.filter_map(|subject| subject.strip_prefix(&root).map(str::to_owned));
        let keys: Vec<_> = keys.filter(|key| key.starts_with(prefix)).collect();
        let reads: Vec<_> = keys.into_iter().map(|key| self.if_there(key)).collect();
        let read: Vec<Option<String>> = stream::iter(reads).buffer_unordered(READS_MAX).try_collect().await?;
        let mut keys: Vec<String> = read.into_iter().flatten().collect();
        keys.sort();
        Ok(keys)
    }
}

/// A pattern of whole tokens that every key with this prefix matches.
fn tokens_of(prefix: &str) -> String {
    let whole = prefix.rfind('.').map_or("", |at| prefix.get(..=at).unwrap_or_default());
    format!("{}>", if whole.starts_with(ROOT) { whole } else { ROOT })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_widened_to_whole_tokens() {
        for (prefix, pattern) in [
            ("lease.ingest.m", "lease.ingest.>"),
            ("lease.ingest.", "lease.ingest.>"),
            ("lease.", "lease.>"),
            ("lease", "lease.>"),
            ("", "lease.>"),
            ("other.x", "lease.>"),
        ] {
            assert_eq!(tokens_of(prefix), pattern, "{prefix}");
        }
    }
}
