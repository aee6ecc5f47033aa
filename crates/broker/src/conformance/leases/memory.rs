//! A bucket in memory, shared by its clones, that fails where it is told to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use super::LeaseFixture;
use crate::lease::{LeaseBucket, LeaseEntry, LeaseError, Revision};

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketFault {
    /// It is not done, and fails with [`LeaseError::Unavailable`].
    NotDone,
    /// It is done, and fails with [`LeaseError::Unavailable`] all the same: the answer was lost.
    AnswerLost,
    /// It fails with [`LeaseError::NoBucket`].
    NoBucket,
}

/// A write of a key; a deletion has no value.
struct Written {
    value: Option<Bytes>,
    revision: Revision,
}

#[derive(Default)]
struct Kept {
    keys: BTreeMap<String, Written>,
    last: u64,
}

#[derive(Default)]
struct Faults {
    unreachable: bool,
    /// A key's first characters, and what becomes of the next call that names such a key.
    next: VecDeque<(String, BucketFault)>,
}

/// A bucket in memory. Clones are the same handle; [`another`](Self::another) is another process's handle to the same
/// bucket, with failures of its own.
#[derive(Clone, Default)]
pub struct MemoryBucket {
    kept: Arc<Mutex<Kept>>,
    faults: Arc<Mutex<Faults>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryBucket {
    /// Another process's handle to the same bucket.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { kept: Arc::clone(&self.kept), faults: Arc::default() }
    }

    /// Cuts this handle off from the bucket, or joins it again: meanwhile nothing is done and every call fails.
    pub fn set_reachable(&self, reachable: bool) {
        lock(&self.faults).unreachable = !reachable;
    }

    /// Spoils the next call of this handle whose key, or prefix, begins so. Several are used up one after the other.
    pub fn fail_next(&self, key_prefix: &str, fault: BucketFault) {
        lock(&self.faults).next.push_back((key_prefix.to_owned(), fault));
    }

    fn call<T>(
        &self,
        key: &str,
        act: impl FnOnce(&mut Kept) -> Result<T, LeaseError>,
    ) -> Result<T, LeaseError> {
        let unavailable =
            |reason: &str| LeaseError::Unavailable { key: key.to_owned(), reason: reason.to_owned() };
        let fault = {
            let mut faults = lock(&self.faults);
            if faults.unreachable {
                return Err(unavailable("it is cut off"));
            }
            let at = faults.next.iter().position(|(prefix, _)| key.starts_with(prefix.as_str()));
            at.and_then(|at| faults.next.remove(at)).map(|(_, fault)| fault)
        };
        match fault {
            None => act(&mut lock(&self.kept)),
            Some(BucketFault::NotDone) => Err(unavailable("it is told to fail")),
            Some(BucketFault::NoBucket) => Err(LeaseError::NoBucket { bucket: "memory".to_owned() }),
            Some(BucketFault::AnswerLost) => {
                let _lost = act(&mut lock(&self.kept));
                Err(unavailable("the answer was lost"))
            }
        }
    }
}

impl Kept {
    fn entry(&self, key: &str) -> Option<LeaseEntry> {
        let written = self.keys.get(key)?;
        Some(LeaseEntry { value: written.value.clone()?, revision: written.revision })
    }

    /// Writes over what is there if that is a live key whose last write is `last`; with none, if it is no live key.
    fn write(
        &mut self,
        key: &str,
        value: Option<Bytes>,
        last: Option<Revision>,
    ) -> Result<Revision, LeaseError> {
        if self.entry(key).map(|entry| entry.revision) != last {
            return Err(LeaseError::Conflict { key: key.to_owned() });
        }
        self.last += 1;
        let revision = Revision(self.last);
        self.keys.insert(key.to_owned(), Written { value, revision });
        Ok(revision)
    }
}

#[async_trait]
impl LeaseBucket for MemoryBucket {
    async fn get(&self, key: &str) -> Result<Option<LeaseEntry>, LeaseError> {
        self.call(key, |kept| Ok(kept.entry(key)))
    }

    async fn create(&self, key: &str, value: Bytes) -> Result<Revision, LeaseError> {
        self.call(key, |kept| kept.write(key, Some(value), None))
    }

    async fn update(&self, key: &str, value: Bytes, last: Revision) -> Result<Revision, LeaseError> {
        self.call(key, |kept| kept.write(key, Some(value), Some(last)))
    }

    async fn delete(&self, key: &str, last: Revision) -> Result<(), LeaseError> {
        self.call(key, |kept| kept.write(key, None, Some(last)).map(drop))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>, LeaseError> {
        self.call(prefix, |kept| {
            let live = kept.keys.iter().filter(|(_, written)| written.value.is_some());
            Ok(live.map(|(key, _)| key.clone()).filter(|key| key.starts_with(prefix)).collect())
        })
    }
}

#[async_trait]
impl LeaseFixture for MemoryBucket {
    async fn start() -> Self {
        Self::default()
    }

    async fn handle(&self) -> Arc<dyn LeaseBucket> {
        Arc::new(self.another())
    }
}
