//! Dead letters that are kept, by table.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use wavehouse_broker::LetterCounts;
use wavehouse_core::TenantId;

use super::{OTHER, TABLES_NAMED_MAX};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TableLabels {
    tenant: String,
    table: String,
}

/// The gauges; clones are the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct LetterGauges(Family<TableLabels, Gauge>);

impl LetterGauges {
    /// Gauges that show up in `registry`.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let gauges = Self::default();
        registry.register("wavehouse_dlq_letters", "Dead letters that are kept, by table", gauges.0.clone());
        gauges
    }

    /// Counts one, so that a listing has every name and label.
    pub(super) fn count_each(&self) {
        self.0.get_or_create(&TableLabels { tenant: String::new(), table: String::new() }).set(1);
    }

    /// Sets the gauges of a tenant. Tables without letters have none; those with most are named, the rest stands together.
    pub(crate) fn set(&self, tenant: &TenantId, counts: &LetterCounts) {
        let mut tables: Vec<(&str, u64)> =
            counts.tables.iter().map(|(table, count)| (table.as_str(), *count)).collect();
        tables.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let rest = tables.split_off(tables.len().min(TABLES_NAMED_MAX));
        if !rest.is_empty() {
            tables.push((OTHER, rest.iter().map(|(_, count)| count).sum()));
        }
        self.0.clear();
        for (table, count) in tables {
            let labels = TableLabels { tenant: tenant.to_string(), table: table.to_owned() };
            self.0.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use wavehouse_core::TableName;

    use super::*;

    #[test]
    fn gauges_follow_the_letters() {
        let mut registry = Registry::default();
        let gauges = LetterGauges::register(&mut registry);
        let table = |n: u64| TableName::parse(&format!("t{n}")).unwrap();
        let many = LetterCounts { tables: (1..=60).map(|n| (table(n), n)).collect() };
        gauges.set(&TenantId::default(), &many);
        let text = |registry| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
            text
        };
        let seen = text(&registry);
        assert!(seen.contains(r#"wavehouse_dlq_letters{tenant="0",table="t60"} 60"#), "{seen}");
        assert!(seen.contains(r#"wavehouse_dlq_letters{tenant="0",table="other"} 55"#), "{seen}");
        gauges.set(&TenantId::default(), &LetterCounts::default());
        assert!(!text(&registry).contains("table="), "letters that are gone are not shown");
    }
}
