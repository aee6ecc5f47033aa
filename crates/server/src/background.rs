//! What runs on timers: the sweeper, and the count of dead letters.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use wavehouse_broker::SharedBroker;
use wavehouse_core::{TenantId, Timestamp};

use crate::metrics::LetterGauges;

/// Between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Between two counts of dead letters.
const LETTERS_INTERVAL: Duration = Duration::from_secs(10);

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

/// Keeps the gauges of dead letters at what the queue holds.
pub(crate) async fn count_letters(
    broker: SharedBroker,
    gauges: LetterGauges,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut ticks = interval(LETTERS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let tenant = TenantId::default();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            _ = ticks.tick() => {}
        }
        match broker.letter_counts(&tenant).await {
            Ok(counts) => gauges.set(&tenant, &counts),
            Err(error) => debug!(error = %wavehouse_core::chain(&error), "cannot count dead letters"),
        }
    }
}

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
