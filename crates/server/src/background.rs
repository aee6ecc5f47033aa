//! What runs on timers, and what is measured when somebody looks: the sweeper and the queue's depths.

mod depths;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use wavehouse_broker::SharedBroker;
use wavehouse_core::Timestamp;

pub(crate) use depths::Depths;

/// Between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Gives back disk of rows that are written and older than their tenant's gap window, once a minute.
pub(crate) async fn sweep(broker: SharedBroker, stop: CancellationToken) -> anyhow::Result<()> {
    let mut ticks = interval(SWEEP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            _ = ticks.tick() => {}
        }
        let report = broker.sweep(now()).await;
        debug!(freed_bytes = report.freed_bytes, moved_bytes = report.moved_bytes, "swept the queue");
    }
}

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
