//! The queue on message servers: is a server connected, is everything there, is the history with the rows, and did
//! something come that is no rows.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use tokio::sync::watch;
use wavehouse_broker_nats::{NatsBroker, UnreadableCount, UnreadableMessages};
use wavehouse_nats::Link;

/// Asks the queue when metrics are read.
#[derive(Debug)]
pub(crate) struct MessageServers {
    link: watch::Receiver<Link>,
    topology_ok: watch::Receiver<bool>,
    history_behind: watch::Receiver<Option<Duration>>,
    unreadable: Arc<UnreadableMessages>,
}

impl MessageServers {
    /// The gauges of this queue.
    pub(crate) fn of(broker: &NatsBroker) -> Self {
        Self {
            link: broker.link(),
            topology_ok: broker.topology_ok(),
            history_behind: broker.history_behind(),
            unreadable: broker.unreadable(),
        }
    }
}

impl Collector for MessageServers {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (connected, ok) = (self.link.borrow().connected, *self.topology_ok.borrow());
        encode(connected, ok, *self.history_behind.borrow(), &self.unreadable.counts(), encoder)
    }
}

/// An example of each gauge.
#[derive(Debug)]
pub(super) struct Example;

impl Collector for Example {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (tenant, table) = (String::new(), String::new());
        let unreadable = UnreadableCount { tenant, table, reason: "malformed", disposition: "parked" };
        encode(true, true, Some(Duration::ZERO), &[(unreadable, 0)], encoder)
    }
}

fn encode(
    connected: bool,
    topology_ok: bool,
    history_behind: Option<Duration>,
    unreadable: &[(UnreadableCount, u64)],
    mut encoder: DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(
        "wavehouse_ingest_poison",
        "Messages that cannot be read: parked among the dead letters, or kept in the queue",
        None,
        MetricType::Counter,
    )?;
    for (UnreadableCount { tenant, table, reason, disposition }, messages) in unreadable {
        let labels = [
            ("tenant", tenant.as_str()),
            ("table", table.as_str()),
            ("reason", *reason),
            ("disposition", *disposition),
        ];
        ConstCounter::new(*messages).encode(family.encode_family(&labels)?)?;
    }
    let mut gauge = |name, help, unit: Option<&Unit>, value: f64| {
        ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?)
    };
    gauge("wavehouse_mq_connected", "1 while a message server is connected", None, f64::from(connected))?;
    gauge(
        "wavehouse_mq_topology_ok",
        "1 while everything that must be on the message servers is there",
        None,
        f64::from(topology_ok),
    )?;
    let Some(behind) = history_behind else { return Ok(()) };
    gauge(
        "wavehouse_mq_history_behind",
        "By how much the history's newest row is older than the newest one of any partition",
        Some(&Unit::Seconds),
        behind.as_secs_f64(),
    )
}
