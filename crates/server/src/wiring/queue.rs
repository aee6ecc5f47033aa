//! The queue: opened with its budgets, told what its tenant may use, watched, closed.

use std::sync::Arc;

use anyhow::{Context, bail};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wavehouse_broker::{Broker, BrokerHealth, SharedBroker, TenantLimits};
use wavehouse_broker_embedded::{EmbeddedBroker, Metrics, Options};
use wavehouse_broker_nats::NatsBroker;
use wavehouse_core::TenantId;

use crate::budget::{self, human};
use crate::config::{Config, Mode, Nats, Queue};
use crate::metrics::MessageServers;

/// Opens the queue that was chosen.
///
/// # Errors
/// When another process has it, when it is damaged, or when the disk refuses; when message servers are not there in time,
/// or are not as they must be.
pub(crate) async fn open(config: &Config, registry: &mut Registry) -> anyhow::Result<SharedBroker> {
    match &config.queue {
        Queue::Embedded => open_embedded(config, registry),
        Queue::Nats(nats) => open_nats(config, nats, registry).await,
    }
}

/// Waits for the servers and for what must be on them, and opens the queue there.
async fn open_nats(config: &Config, nats: &Nats, registry: &mut Registry) -> anyhow::Result<SharedBroker> {
    info!(
        servers = nats.connect.urls.join(", "),
        prefix = nats.topology.prefix().as_str(),
        "looking for the queue on the message servers"
    );
    let mut options = wavehouse_broker_nats::Options::new(nats.topology.clone(), nats.connect.clone());
    options.topology_wait = nats.topology_wait;
    options.message_bytes_target = usize::try_from(nats.message_bytes).unwrap_or(usize::MAX);
    options.held_rows_max = config.worker.held_rows;
    options.held_bytes_max = config.worker.held_bytes;
    let broker = NatsBroker::open(options).await.context("the queue on the message servers does not open")?;
    registry.register_collector(Box::new(MessageServers::of(&broker)));
    let tenant = TenantId::default();
    let limits = TenantLimits { gap_window: config.tenant.gap_window, ..broker.limits(&tenant) };
    broker.set_limits(&tenant, limits);
    Ok(broker as Arc<dyn Broker>)
}

fn open_embedded(config: &Config, registry: &mut Registry) -> anyhow::Result<SharedBroker> {
    let dir = &config.data_dir;
    let free =
        budget::free_bytes(dir).with_context(|| format!("cannot ask the disk of {}", dir.display()))?;
    let queue_dir = dir.join("queue");
    let used = budget::used_bytes(&queue_dir);
    if used == 0 && config.mode == Mode::Serve {
        warn!(dir = %queue_dir.display(), "the queue starts empty: on anything but a first start, the volume did not survive");
    }
    let budget = budget::decide(config.queue_disk_bytes_max, config.tenant.unwritten_bytes_max, free, used);
    info!(
        unwritten_max = human(budget.unwritten_bytes_max),
        disk_max = human(budget.disk_bytes_max),
        disk_free = human(free),
        "queue budgets"
    );
    if budget.overdrawn {
        warn!(
            disk_max = human(budget.disk_bytes_max),
            could_have = human(free.saturating_add(used)),
            "the disk cannot give the queue its whole budget; ingest will answer 503 when the disk is full"
        );
    }
    let limits = TenantLimits {
        unwritten_bytes_max: budget.unwritten_bytes_max,
        gap_window: config.tenant.gap_window,
    };
    let mut options = Options::new(dir.clone());
    options.disk_bytes_max = Some(budget.disk_bytes_max);
    options.default_limits = limits;
    let broker =
        EmbeddedBroker::open(&options, Metrics::register(registry)).context("the queue does not open")?;
    broker.set_limits(&TenantId::default(), limits);
    Ok(broker as Arc<dyn Broker>)
}

/// Watches the queue until `stop`, then closes it.
///
/// # Errors
/// When the queue says that it is broken, or when it cannot close.
pub(crate) async fn keep(broker: SharedBroker, stop: CancellationToken) -> anyhow::Result<()> {
    let health = broker.health();
    watch_health(health, &stop).await?;
    broker.close().await.context("the queue did not close cleanly; acknowledged rows are on disk")
}

async fn watch_health(
    mut health: watch::Receiver<BrokerHealth>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    loop {
        let now = health.borrow_and_update().clone();
        match now {
            BrokerHealth::Good => {}
            BrokerHealth::Refusing { reason } => {
                warn!(reason, "the queue takes no rows for now; it recovers by itself");
            }
            BrokerHealth::Failed { reason } => bail!("the queue is broken: {reason}"),
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            changed = health.changed() => changed.context("the queue is gone")?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_broken_queue_ends_its_task_and_a_full_one_does_not() {
        let reason = || "disk".to_owned();
        let (health, seen) = watch::channel(BrokerHealth::Refusing { reason: reason() });
        let stop = CancellationToken::new();
        let watching = watch_health(seen.clone(), &stop);
        let change = async {
            tokio::task::yield_now().await;
            health.send_replace(BrokerHealth::Good);
            tokio::task::yield_now().await;
            health.send_replace(BrokerHealth::Failed { reason: reason() });
        };
        let (outcome, ()) = tokio::join!(watching, change);
        assert_eq!(outcome.unwrap_err().to_string(), "the queue is broken: disk");

        health.send_replace(BrokerHealth::Good);
        stop.cancel();
        assert!(watch_health(seen, &stop).await.is_ok());
    }
}
