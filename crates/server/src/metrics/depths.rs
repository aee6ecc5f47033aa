//! How much waits for ClickHouse, by table: read from the queue whenever metrics are. A thousand tables must not become
//! thousands of series, so the deepest are named and the rest stand together as `other`.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use wavehouse_broker::{SharedBroker, TableDepth};
use wavehouse_core::Timestamp;

use super::{OTHER, TABLES_NAMED_MAX};
use crate::background::now;

/// Measures the queue when asked.
pub(crate) struct Depths(pub(crate) SharedBroker);

impl fmt::Debug for Depths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Depths")
    }
}

/// One series of each gauge.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Depth {
    tenant: String,
    table: String,
    rows: u64,
    bytes: u64,
    age: Duration,
}

impl Collector for Depths {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        encode(&fold(self.0.depths(), now()), encoder)
    }
}

/// An example of each gauge.
#[derive(Debug)]
pub(super) struct Example;

impl Collector for Example {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (tenant, table) = (String::new(), String::new());
        encode(&[Depth { tenant, table, rows: 0, bytes: 0, age: Duration::ZERO }], encoder)
    }
}

fn encode(depths: &[Depth], mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let mut gauge = |name, help, unit: Option<&Unit>, value: fn(&Depth) -> f64| {
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for depth in depths {
            let labels = [("tenant", depth.tenant.as_str()), ("table", depth.table.as_str())];
            ConstGauge::new(value(depth)).encode(family.encode_family(&labels)?)?;
        }
        Ok::<(), fmt::Error>(())
    };
    gauge("wavehouse_queue_unwritten_rows", "Rows that wait for ClickHouse", None, |depth| {
        depth.rows as f64
    })?;
    gauge("wavehouse_queue_unwritten", "Bytes that wait for ClickHouse", Some(&Unit::Bytes), |depth| {
        depth.bytes as f64
    })?;
    gauge(
        "wavehouse_queue_oldest_unwritten",
        "Age of the oldest row that waits for ClickHouse",
        Some(&Unit::Seconds),
        |depth| depth.age.as_secs_f64(),
    )
}

/// The deepest tables by bytes, then the rest of each tenant as one.
fn fold(mut depths: Vec<TableDepth>, now: Timestamp) -> Vec<Depth> {
    depths.sort_by_key(|depth| std::cmp::Reverse(depth.unwritten_bytes));
    let mut folded: Vec<Depth> = Vec::new();
    for (rank, depth) in depths.iter().enumerate() {
        let age = depth.oldest_unwritten.map_or(Duration::ZERO, |oldest| now.since(oldest));
        let named = rank < TABLES_NAMED_MAX;
        let tenant = if named { depth.table.tenant.to_string() } else { OTHER.to_owned() };
        let table = if named { depth.table.table.to_string() } else { OTHER.to_owned() };
        match folded.last_mut().filter(|_| rank > TABLES_NAMED_MAX) {
            Some(rest) => {
                rest.rows += depth.unwritten_rows;
                rest.bytes += depth.unwritten_bytes;
                rest.age = rest.age.max(age);
            }
            None => folded.push(Depth {
                tenant,
                table,
                rows: depth.unwritten_rows,
                bytes: depth.unwritten_bytes,
                age,
            }),
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use wavehouse_core::{TableName, TableRef, TenantId};

    use super::*;

    fn depth(index: u64) -> TableDepth {
        let table = TableName::parse(&format!("t{index}")).unwrap();
        TableDepth {
            table: TableRef::new(TenantId::default(), table),
            unwritten_rows: 1,
            unwritten_bytes: index,
            oldest_unwritten: Some(Timestamp::from_millis(1000 * index)),
        }
    }

    #[test]
    fn the_deepest_are_named_and_the_rest_stands_together() {
        let now = Timestamp::from_millis(100_000);
        let folded = fold((1..=60).map(depth).collect(), now);
        assert_eq!(folded.len(), TABLES_NAMED_MAX + 1);
        assert_eq!((folded[0].table.as_str(), folded[0].bytes), ("t60", 60));
        let rest = folded.last().unwrap();
        assert_eq!((rest.table.as_str(), rest.rows, rest.bytes), (OTHER, 10, 55));
        assert_eq!(rest.age, Duration::from_secs(99));
        assert!(fold(vec![], now).is_empty());
    }
}
