//! Wall-clock time as the gateway stamps it: never backwards within a process, whatever the machine's clock does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use wavehouse_core::Timestamp;

/// Gives receipt times.
#[derive(Debug, Default)]
pub(crate) struct ReceiptClock {
    last_ns: AtomicU64,
}

impl ReceiptClock {
    /// The time now, or the latest time given if the machine's clock has gone back since.
    pub(crate) fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ns = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
        Timestamp(self.last_ns.fetch_max(now_ns, Ordering::Relaxed).max(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back() {
        let clock = ReceiptClock::default();
        let ahead = clock.now().0 + 3_600_000_000_000;
        clock.last_ns.store(ahead, Ordering::Relaxed);
        assert_eq!(clock.now(), Timestamp(ahead));
    }
}
