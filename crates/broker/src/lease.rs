//! Leases: a few small keys that many processes change by compare-and-set.
//!
//! The bucket is as narrow as can be: it compares revisions and knows nothing of holders, terms or time. What a lease
//! means is decided by whoever uses it, once, over any bucket.

use async_trait::async_trait;
use bytes::Bytes;
use wavehouse_core::FaultKind;

/// The number that a bucket gave a write. Grows with every write to the bucket, over deletions too, so the revision that a
/// term began at is its fencing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseEntry {
    /// The value as it was written.
    pub value: Bytes,
    /// The write that made it.
    pub revision: Revision,
}

/// Longest value, in bytes.
pub const LEASE_BYTES_MAX: usize = 64 << 10;

/// Keys of letters, digits, `_`, `-` and `.`, shared by all processes of one deployment.
///
/// - A write that succeeds is durable and seen by every later read of any process.
/// - [`create`](Self::create) succeeds where there is no key or a deleted one; [`update`](Self::update) and
///   [`delete`](Self::delete) only where the key's last write is the named one. Of several that compete one wins, the
///   others get [`LeaseError::Conflict`].
/// - A call that fails with [`LeaseError::Unavailable`] may have been done all the same; the caller reads to find out.
#[async_trait]
pub trait LeaseBucket: Send + Sync + 'static {
    /// What the key holds; `None` if it was never written or is deleted.
    ///
    /// # Errors
    /// [`LeaseError`], never `Conflict`.
    async fn get(&self, key: &str) -> Result<Option<LeaseEntry>, LeaseError>;

    /// Writes a key that is not there.
    ///
    /// # Errors
    /// [`LeaseError`].
    async fn create(&self, key: &str, value: Bytes) -> Result<Revision, LeaseError>;

    /// Writes a key whose last write was `last`.
    ///
    /// # Errors
    /// [`LeaseError`].
    async fn update(&self, key: &str, value: Bytes, last: Revision) -> Result<Revision, LeaseError>;

    /// Deletes a key whose last write was `last`.
    ///
    /// # Errors
    /// [`LeaseError`].
    async fn delete(&self, key: &str, last: Revision) -> Result<(), LeaseError>;

    /// The keys that begin with `prefix` and hold something, in order.
    ///
    /// # Errors
    /// [`LeaseError`], never `Conflict`.
    async fn list(&self, prefix: &str) -> Result<Vec<String>, LeaseError>;
}

/// Why a lease could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Another write came first.
    #[error("lease {key} was written by another")]
    Conflict {
        /// The key.
        key: String,
    },
    /// There is no such bucket; the operator must make it.
    #[error("lease bucket {bucket} does not exist")]
    NoBucket {
        /// The bucket.
        bucket: String,
    },
    /// Nobody answered, or the answer was an error; the write may have been done.
    #[error("lease {key} cannot be reached: {reason}")]
    Unavailable {
        /// The key.
        key: String,
        /// What was seen.
        reason: String,
    },
}

impl LeaseError {
    /// What the caller should do.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        match self {
            Self::Conflict { .. } => FaultKind::Reject,
            Self::NoBucket { .. } => FaultKind::Stop,
            Self::Unavailable { .. } => FaultKind::Retry { after: None },
        }
    }
}
