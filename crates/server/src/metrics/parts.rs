//! Active data parts of ClickHouse's tables, as the last look at the tables saw them. Too many of them is how ClickHouse
//! says that it is fed in too small bites.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use wavehouse_clickhouse::Catalog;

use super::TABLES_NAMED_MAX;

/// Reads the catalogue when asked.
#[derive(Debug)]
pub(crate) struct Parts(pub(crate) Catalog);

impl Collector for Parts {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(snapshot) = self.0.snapshot() else { return Ok(()) };
        let tables = snapshot.tables.iter();
        let counts = tables.filter_map(|(name, info)| Some((name.as_str(), info.active_parts?))).collect();
        encode(most(counts), encoder)
    }
}

/// An example of the gauge.
#[derive(Debug)]
pub(super) struct Example;

impl Collector for Example {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        encode(vec![("", 0)], encoder)
    }
}

/// The tables with most parts. A sum over the rest would tell nothing: the server's limits are for each table.
fn most(mut counts: Vec<(&str, u64)>) -> Vec<(&str, u64)> {
    counts.sort_by_key(|(_, parts)| std::cmp::Reverse(*parts));
    counts.truncate(TABLES_NAMED_MAX);
    counts
}

fn encode(counts: Vec<(&str, u64)>, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let help = "Active parts of the tables with most of them, at the last look";
    let mut family =
        encoder.encode_descriptor("wavehouse_clickhouse_active_parts", help, None, MetricType::Gauge)?;
    for (table, parts) in counts {
        ConstGauge::new(parts as f64).encode(family.encode_family(&[("table", table)])?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_with_most_parts_are_named() {
        let names: Vec<String> = (0..60).map(|n| format!("t{n}")).collect();
        let most = most(names.iter().map(String::as_str).zip(0..).collect());
        assert_eq!((most.len(), most[0]), (TABLES_NAMED_MAX, ("t59", 59)));
    }
}
