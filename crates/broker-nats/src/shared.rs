//! What all parts of an open queue share: the connection, the partitions, and whether all is well.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wavehouse_core::{LogId, PartitionId, Timestamp, UnitId};
use wavehouse_nats::{Connection, JetStream};
use wavehouse_topology::TopologySpec;

use crate::gaps::Gaps;
use crate::options::Options;
use crate::pool::Pool;

/// One partition as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Which.
    pub(crate) id: PartitionId,
    /// Its stream.
    pub(crate) stream: String,
    /// The log that its sequences belong to.
    pub(crate) log: LogId,
    /// Most bytes that the stream keeps; zero where it has no bound.
    pub(crate) bytes_max: u64,
}

/// Where a unit is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnitPlace {
    /// Its stream.
    pub(crate) stream: String,
    /// Its durable.
    pub(crate) durable: String,
    /// The log that its sequences belong to.
    pub(crate) log: LogId,
}

/// What all parts share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) connection: Connection,
    pub(crate) jetstream: JetStream,
    /// Names this process in batch records and message ids: random, new with each opening of the queue.
    pub(crate) session: String,
    /// The configured partitions, by number.
    pub(crate) partitions: Vec<Partition>,
    /// Units beside the configured ones, and where they are read.
    pub(crate) extras: Mutex<HashMap<UnitId, UnitPlace>>,
    /// Whether everything that must be on the servers is there, as far as is known.
    pub(crate) topology_ok: watch::Sender<bool>,
    /// How far the history was behind the partitions when last seen.
    pub(crate) history_behind: watch::Sender<Option<Duration>>,
    /// Whether the history goes back as far as tenants want.
    pub(crate) gaps: Gaps,
    /// Largest encoded block, in bytes.
    pub(crate) block_bytes_max: usize,
    /// What all units hold together.
    pub(crate) pool: Pool,
    /// How many owners of batch records this process has been.
    pub(crate) owners: AtomicU64,
    /// Cancelled when the queue is closed.
    pub(crate) closed: CancellationToken,
}

impl Shared {
    pub(crate) fn spec(&self) -> &TopologySpec {
        &self.options.spec
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// A name for the owner of a batch record that no other has.
    pub(crate) fn next_owner(&self) -> String {
        format!("{}.{}", self.session, self.owners.fetch_add(1, Ordering::Relaxed))
    }

    /// A configured partition.
    pub(crate) fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(usize::from(id.0))
    }

    /// Where a unit is read, whether it is configured or an extra.
    pub(crate) fn unit_place(&self, unit: UnitId) -> Option<UnitPlace> {
        if !self.spec().placement().contains(unit) {
            return lock(&self.extras).get(&unit).cloned();
        }
        let partition = self.partition(unit.partition)?;
        let durable = self.spec().durable(unit.shard);
        Some(UnitPlace { stream: partition.stream.clone(), durable, log: partition.log })
    }

    /// Something that must be on the servers is not.
    pub(crate) fn topology_fault(&self, what: &str) {
        if self.topology_ok.send_replace(false) {
            tracing::error!(what, "what must be on the message servers is not there");
        }
    }
}

/// The time by this machine's clock.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Locks, whatever became of an earlier holder: nothing is left half done under these locks.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
