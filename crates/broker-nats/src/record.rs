//! The batch record of a unit: which batches its owner inserts, and who the owner is.
//!
//! It is one key of the lease bucket, written by compare-and-set before an insert. Whoever takes the unit over writes the
//! key first, so a former owner's next record conflicts and it starts no further insert. No clock has a part in this.

mod text;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::sleep;
use wavehouse_broker::{Cut, CutError};
use wavehouse_core::{LeaseKey, LogId, TableRef, UnitId};
use wavehouse_nats::{Bucket, CallError, KvEntry};

use self::text::{read, write};
use crate::shared::{Shared, lock};

/// Longest record, in bytes: it is one message of a server that takes the least that we run on.
const RECORD_BYTES_MAX: usize = 192 << 10;
/// Attempts to take a key over, or to write it when an answer was lost.
const ATTEMPTS: u32 = 10;
/// Between them.
const ATTEMPT_WAIT: Duration = Duration::from_millis(100);
/// How long one request waits.
const REQUEST_WAIT: Duration = Duration::from_secs(2);

/// Why a record could not be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    /// Another owner has written it.
    #[error("another process has taken the unit over")]
    Lost,
    /// It could not be reached, or is not understood.
    #[error("batch record cannot be reached: {0}")]
    Unavailable(String),
}

impl RecordError {
    /// As the worker is told.
    pub(crate) fn of_cut(self, table: TableRef) -> CutError {
        match self {
            Self::Lost => CutError::Lost { table },
            Self::Unavailable(reason) => CutError::Unavailable { table, reason },
        }
    }
}

impl From<CallError> for RecordError {
    fn from(error: CallError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// The record of a unit that is open here.
pub(crate) struct Record {
    bucket: Bucket,
    key: String,
    owner: String,
    log: LogId,
    wanted: Mutex<Wanted>,
    /// Held while the key is written, so that cuts that come meanwhile go together with the next write.
    written: tokio::sync::Mutex<Written>,
}

#[derive(Default)]
struct Wanted {
    cuts: BTreeMap<TableRef, Cut>,
    /// Grows with every change.
    version: u64,
}

struct Written {
    revision: u64,
    version: u64,
}

impl Record {
    /// Takes the record of a unit over and gives back the cuts that it holds of this log.
    pub(crate) async fn take_over(
        shared: &Shared,
        unit: UnitId,
        log: LogId,
    ) -> Result<(Self, Vec<Cut>), RecordError> {
        let jetstream = shared.jetstream.with_timeout(REQUEST_WAIT);
        let bucket = jetstream.bucket(&shared.spec().coord_bucket());
        let (key, owner) = (LeaseKey::Batch(unit).to_string(), shared.next_owner());
        let mut last = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                sleep(ATTEMPT_WAIT).await;
            }
            let found = bucket.get(&key).await?;
            let revision = found.as_ref().map_or(0, |entry| entry.revision);
            let cuts = cuts_of(found.as_ref(), log)?;
            match bucket.update(&key, write(&owner, log, cuts.values()), revision).await {
                Ok(revision) => {
                    let given = cuts.values().cloned().collect();
                    let wanted = Mutex::new(Wanted { cuts, version: 0 });
                    let written = tokio::sync::Mutex::new(Written { revision, version: 0 });
                    return Ok((Self { bucket, key, owner, log, wanted, written }, given));
                }
                Err(error) if error.is_conflict() || error.is_unknown() => last = error.to_string(),
                Err(error) => return Err(error.into()),
            }
        }
        Err(RecordError::Unavailable(last))
    }

    /// Stores a cut in place of its table's earlier one, and writes even what is written: only a write proves that the
    /// unit is still this owner's. Cuts that come while another is written share the next write.
    pub(crate) async fn record(&self, cut: Cut) -> Result<(), RecordError> {
        let version = {
            let mut wanted = lock(&self.wanted);
            wanted.cuts.insert(cut.table.clone(), cut);
            wanted.version += 1;
            wanted.version
        };
        self.flush(version).await
    }

    /// Whether the table's recorded cut reaches over a sequence.
    pub(crate) fn covers(&self, table: &TableRef, sequence: u64) -> bool {
        let wanted = lock(&self.wanted);
        wanted.cuts.get(table).is_some_and(|cut| (cut.first.0..=cut.last.0).contains(&sequence))
    }

    /// Forgets cuts whose blocks are all acked; the next write leaves them out. Gives back which version that is.
    pub(crate) fn forget(&self, is_done: impl Fn(&Cut) -> bool) -> u64 {
        let mut wanted = lock(&self.wanted);
        let before = wanted.cuts.len();
        wanted.cuts.retain(|_, cut| !is_done(cut));
        wanted.version += u64::from(wanted.cuts.len() < before);
        wanted.version
    }

    /// Writes everything up to this version, unless it is written.
    pub(crate) async fn flush(&self, version: u64) -> Result<(), RecordError> {
        let mut written = self.written.lock().await;
        if written.version >= version {
            return Ok(());
        }
        let (body, version) = {
            let wanted = lock(&self.wanted);
            (write(&self.owner, self.log, wanted.cuts.values()), wanted.version)
        };
        if body.len() > RECORD_BYTES_MAX {
            return Err(RecordError::Unavailable(format!("{} bytes are too many", body.len())));
        }
        self.write(&mut written, body).await?;
        written.version = version;
        Ok(())
    }

    /// Whether the record is still this owner's, as far as a server that answers knows.
    pub(crate) async fn is_ours(&self) -> Result<bool, RecordError> {
        let revision = self.written.lock().await.revision;
        let found = self.bucket.get(&self.key).await?;
        Ok(found.is_none_or(|entry| !self.is_anothers(&entry, revision)))
    }

    /// A later write than ours that is not ours. An earlier one comes from a server that lags.
    fn is_anothers(&self, entry: &KvEntry, revision: u64) -> bool {
        let ours = read(&entry.value).is_ok_and(|record| record.owner == self.owner);
        entry.revision > revision && !ours
    }

    async fn write(&self, written: &mut Written, body: bytes::Bytes) -> Result<(), RecordError> {
        let mut last = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                sleep(ATTEMPT_WAIT).await;
            }
            match self.bucket.update(&self.key, body.clone(), written.revision).await {
                Ok(revision) => {
                    written.revision = revision;
                    return Ok(());
                }
                Err(error) if error.is_conflict() || error.is_unknown() => last = error.to_string(),
                Err(error) => return Err(error.into()),
            }
            // Our own write may have arrived without its answer.
            let Some(entry) = self.bucket.get(&self.key).await? else { continue };
            if self.is_anothers(&entry, written.revision) {
                return Err(RecordError::Lost);
            }
            if entry.revision > written.revision {
                written.revision = entry.revision;
                if entry.value == body {
                    return Ok(());
                }
            }
        }
        Err(RecordError::Unavailable(last))
    }
}

/// Fences a unit's owner off: it can record no batch any more. The cuts stay for whoever opens the unit.
pub(crate) async fn fence(shared: &Shared, unit: UnitId, log: LogId) -> Result<(), RecordError> {
    Record::take_over(shared, unit, log).await.map(drop)
}

fn cuts_of(entry: Option<&KvEntry>, log: LogId) -> Result<BTreeMap<TableRef, Cut>, RecordError> {
    let Some(entry) = entry.filter(|entry| !entry.deleted) else { return Ok(BTreeMap::new()) };
    let record = read(&entry.value).map_err(RecordError::Unavailable)?;
    // Sequences of a stream that was deleted name other rows now.
    let cuts = if record.log == log { record.cuts } else { Vec::new() };
    Ok(cuts.into_iter().map(|cut| (cut.table.clone(), cut)).collect())
}
