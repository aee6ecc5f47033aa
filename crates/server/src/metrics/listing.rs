//! The listing of all metrics, as a page. It is read off a registry in which everything was counted once, so that it cannot
//! name what is not there.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prometheus_client::registry::Registry;
use wavehouse_clickhouse::ClickHouseMetrics;
use wavehouse_core::{TableName, TableRef, TenantId};
use wavehouse_worker::WorkerMetrics;

use super::{LetterGauges, Process, depths, message_servers, parts};

/// One metric.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Metric {
    /// As a query names it; a histogram's without `_bucket`, `_sum` and `_count`.
    name: String,
    kind: String,
    labels: Vec<String>,
    help: String,
}

/// A registry in which every metric has a series.
fn registry() -> Registry {
    let mut registry = Registry::default();
    wavehouse_api::Metrics::register(&mut registry).count_each();
    wavehouse_broker_embedded::Metrics::register(&mut registry);
    ClickHouseMetrics::register(&mut registry).count_each();
    if let Ok(table) = TableName::parse("events") {
        WorkerMetrics::register(&mut registry).count_each(&TableRef::new(TenantId::default(), table));
    }
    LetterGauges::register(&mut registry).count_each();
    registry.register_collector(Box::new(depths::Example));
    registry.register_collector(Box::new(parts::Example));
    registry.register_collector(Box::new(message_servers::Example));
    registry.register_collector(Box::new(Process));
    registry
}

/// Every metric, by name.
fn metrics() -> Vec<Metric> {
    let mut text = String::new();
    // Writing to a text does not fail.
    let _written = prometheus_client::encoding::text::encode(&mut text, &registry());
    read(&text)
}

/// Reads the text form of a registry.
fn read(text: &str) -> Vec<Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let (mut help, mut at) = (String::new(), String::new());
    for line in text.lines() {
        let words = |prefix: &str| line.strip_prefix(prefix)?.split_once(' ');
        if let Some((_, words)) = words("# HELP ") {
            words.trim_end_matches('.').clone_into(&mut help);
        } else if let Some((family, kind)) = words("# TYPE ") {
            let name = if kind == "counter" { format!("{family}_total") } else { family.to_owned() };
            at.clone_from(&name);
            let metric = Metric { name, kind: kind.to_owned(), labels: Vec::new(), help: help.clone() };
            metrics.insert(at.clone(), metric);
        } else if let (Some((_, labels)), Some(metric)) = (line.split_once('{'), metrics.get_mut(&at)) {
            let labels = labels.rsplit_once('}').map_or("", |(labels, _)| labels);
            for label in labels.split(',').filter_map(|pair| Some(pair.split_once('=')?.0)) {
                if label != "le" && !metric.labels.iter().any(|known| known == label) {
                    metric.labels.push(label.to_owned());
                }
            }
        }
    }
    metrics.into_values().collect()
}

/// The reference page.
pub(crate) fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
        `GET /metrics`, OpenMetrics text. `deployments/grafana/` has a dashboard of them, `deployments/prometheus/` alert rules.\n\
        This page is written by `wavehouse metrics`. Histograms have `_bucket`, `_sum` and `_count`. Where there are very\n\
        many tables, some stand together as `other`.\n\n\
        | metric | kind | labels | tells |\n| --- | --- | --- | --- |\n",
    );
    for Metric { name, kind, labels, help } in metrics() {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        // Writing to a text does not fail.
        let _written = writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn file(path: &str) -> String {
        std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn the_reference_page_is_current() {
        let path = repository().join("docs/reference/metrics.md");
        let page = page();
        #[expect(
            clippy::disallowed_methods,
            reason = "asks whoever runs the tests whether to write the page"
        )]
        if std::env::var("UPDATE_DOCS").is_ok() {
            std::fs::write(&path, &page).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == page,
            "docs/reference/metrics.md is old: UPDATE_DOCS=1 cargo test -p wavehouse-server"
        );
    }

    #[test]
    fn every_metric_says_what_it_tells_and_has_one_meaning() {
        let metrics = metrics();
        assert!(metrics.len() > 40, "{}", metrics.len());
        for metric in &metrics {
            assert!(metric.help.len() > 5, "{metric:?}");
            assert!(
                metric.name.starts_with("wavehouse_") || metric.name.starts_with("process_"),
                "{metric:?}"
            );
        }
    }

    /// Names of ours in a text, as a query writes them.
    fn names(text: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if word.starts_with("wavehouse_") || word.starts_with("process_") {
                names.insert(word.to_owned());
            }
        }
        names
    }

    /// Whether a query by this name finds series.
    fn can_be_asked(metrics: &[Metric], name: &str) -> bool {
        let is = |name: &str, histogram: bool| {
            metrics.iter().any(|metric| metric.name == name && (metric.kind == "histogram") == histogram)
        };
        let parts = ["_bucket", "_sum", "_count"];
        is(name, false) || parts.iter().any(|part| name.strip_suffix(part).is_some_and(|name| is(name, true)))
    }

    /// The queries of a dashboard or of alert rules.
    fn queries(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                found.extend(fields.get("expr").and_then(|expr| expr.as_str()).map(str::to_owned));
                fields.values().for_each(|value| queries(value, found));
            }
            serde_json::Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
            _ => {}
        }
    }

    #[test]
    fn dashboards_alerts_and_guides_name_only_metrics_that_exist() {
        let metrics = metrics();
        let (dashboard, alerts) =
            ("deployments/grafana/wavehouse.json", "deployments/prometheus/alerts.yaml");
        for path in [dashboard, alerts] {
            let mut asked = Vec::new();
            queries(&serde_saphyr::from_str(&file(path)).unwrap(), &mut asked);
            let names = names(&asked.join(" "));
            assert!(names.len() > 10, "{path} asks hardly anything");
            let unknown: Vec<&String> = names.iter().filter(|name| !can_be_asked(&metrics, name)).collect();
            assert!(unknown.is_empty(), "{path} asks for metrics that do not exist: {unknown:?}");
        }
        for path in [alerts, "docs/operating/embedded.md"] {
            let names = names(&file(path));
            let known = |name: &str| metrics.iter().any(|metric| metric.name == name);
            let unknown: Vec<&String> =
                names.iter().filter(|name| !known(name) && !can_be_asked(&metrics, name)).collect();
            assert!(unknown.is_empty(), "{path} names metrics that do not exist: {unknown:?}");
        }
    }

    #[test]
    fn dashboard_and_alerts_are_well_formed() {
        let dashboard: serde_json::Value =
            serde_json::from_str(&file("deployments/grafana/wavehouse.json")).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        for panel in panels.iter().filter(|panel| panel["type"] != "row") {
            let what = panel["title"].as_str().unwrap();
            assert!(!panel["targets"].as_array().unwrap().is_empty(), "{what} asks nothing");
            assert!(!panel["description"].as_str().unwrap_or_default().is_empty(), "{what} explains nothing");
        }
        let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len(), "ids of panels are unique");
        let rules: serde_json::Value =
            serde_saphyr::from_str(&file("deployments/prometheus/alerts.yaml")).unwrap();
        let rules = rules["groups"][0]["rules"].as_array().unwrap().clone();
        assert!(rules.len() >= 10);
        for rule in rules {
            let name = rule["alert"].as_str().unwrap();
            for key in ["summary", "description"] {
                assert!(rule["annotations"][key].is_string(), "{name} has no {key}");
            }
            assert!(rule["labels"]["severity"].is_string() && rule["expr"].is_string(), "{name}");
        }
    }
}
