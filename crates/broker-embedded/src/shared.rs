//! What all parts of an open queue share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use wavehouse_broker::{BrokerHealth, PublishError, Settle, Settlement, Ticket};
use wavehouse_core::LogId;

use crate::files::Files;
use crate::herald::Herald;
use crate::intake::{Intake, lock};
use crate::metrics::Metrics;
use crate::options::Sizes;
use crate::spare::SpareDesk;
use crate::state::{End, State};
use crate::tenant::Tenants;

/// Where the log files are, below the data directory.
pub(crate) const QUEUE_DIR: &str = "queue";

/// An open queue.
pub(crate) struct Shared {
    pub(crate) log: LogId,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) sizes: Sizes,
    pub(crate) ack_wait: Duration,
    pub(crate) fsync_delay: Duration,
    pub(crate) metrics: Metrics,
    pub(crate) tenants: Tenants,
    /// Bytes of all log files on disk, spare and free ones included.
    pub(crate) taken_bytes: AtomicU64,
    pub(crate) intake: Intake,
    pub(crate) herald: Arc<Herald>,
    pub(crate) spare: SpareDesk,
    pub(crate) state: Mutex<State>,
    /// Wakes the reader of the unit. There is one at a time.
    pub(crate) unit_wake: Notify,
    /// Wakes readers of history: the last commit that added blocks.
    pub(crate) stored: watch::Sender<u64>,
    pub(crate) health: watch::Sender<BrokerHealth>,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The path of a log file.
    pub(crate) fn path(number: u32) -> String {
        format!("{QUEUE_DIR}/{}", file_name(number))
    }

    /// Ends the queue for its readers.
    pub(crate) fn end(&self, end: End) {
        self.state().end.get_or_insert(end);
        self.unit_wake.notify_one();
        self.stored.send_modify(|_| {});
    }

    /// The queue takes rows.
    pub(crate) fn is_good(&self) {
        self.health.send_if_modified(|health| {
            let changed = matches!(health, BrokerHealth::Refusing { .. });
            if changed {
                tracing::debug!("the queue takes rows again");
                *health = BrokerHealth::Good;
            }
            changed
        });
    }

    /// The queue refuses rows for now.
    pub(crate) fn is_refusing(&self, reason: &str) {
        self.health.send_if_modified(|health| {
            let changed = matches!(health, BrokerHealth::Good);
            if changed {
                tracing::debug!(reason, "the queue refuses rows");
                *health = BrokerHealth::Refusing { reason: reason.to_owned() };
            }
            changed
        });
    }

    /// The disk failed: nothing is taken or given any more.
    pub(crate) fn has_failed(&self, reason: &str) {
        tracing::error!(reason, "the queue has failed");
        self.health.send_replace(BrokerHealth::Failed { reason: reason.to_owned() });
        self.end(End::Failed(reason.to_owned()));
    }

    /// Brings the gauges up to date.
    pub(crate) fn count_disk(&self) {
        let history = self.state().history_bytes();
        let gauge = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.metrics.disk_bytes.set(gauge(self.taken_bytes.load(Ordering::Relaxed)));
        self.metrics.history_bytes.set(gauge(history));
    }

    /// Removes a log file of so many bytes.
    pub(crate) fn remove_file(&self, number: u32, bytes: u64) {
        match self.files.remove(&Self::path(number)) {
            Ok(()) => drop(self.taken_bytes.fetch_sub(bytes, Ordering::Relaxed)),
            Err(error) => tracing::warn!(%error, file = Self::path(number), "cannot remove a log file"),
        }
    }

    pub(crate) fn count_refusal(&self, error: &PublishError) {
        self.metrics.refuse(match error {
            PublishError::TenantFull { .. } => "tenant_full",
            PublishError::DiskFull => "disk_full",
            PublishError::Overrun { .. } => "overrun",
            PublishError::TooLarge { .. } => "too_large",
            PublishError::Closed => "closed",
            PublishError::Unavailable { .. } => "unavailable",
            PublishError::Unknown { .. } => "unknown",
            // This queue is one process's, so its own words above are all that it says.
            PublishError::Full { .. } | PublishError::Unconfirmed { .. } => "other",
        });
    }
}

/// The name of a log file.
pub(crate) fn file_name(number: u32) -> String {
    format!("log-{number:010}.wh")
}

/// The number in a log file's name.
pub(crate) fn file_number(name: &str) -> Option<u32> {
    name.strip_prefix("log-")?.strip_suffix(".wh")?.parse().ok()
}

/// Where the deliveries of one session are settled.
pub(crate) struct Settler {
    pub(crate) shared: Arc<Shared>,
    pub(crate) session: u64,
}

impl Settle for Settler {
    fn settle(&self, ticket: Ticket, how: Settlement) {
        let (first, emptied) = {
            let mut state = self.shared.state();
            let none_before = state.unsaved.is_empty();
            let now = tokio::time::Instant::now();
            let emptied = state.end_delivery(self.session, ticket, how, now);
            (none_before && !state.unsaved.is_empty(), emptied)
        };
        if first {
            self.shared.intake.settled();
        }
        if emptied && self.shared.spare.has_failed() {
            self.shared.spare.poke();
        }
        self.shared.unit_wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names() {
        assert_eq!(file_name(7), "log-0000000007.wh");
        assert_eq!(file_number("log-0000000007.wh"), Some(7));
        for other in ["log-7.wh.new", "lock", "queue.format", "log-x.wh"] {
            assert_eq!(file_number(other), None, "{other}");
        }
    }
}
