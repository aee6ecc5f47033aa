//! Reading a database's tables from its server.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use wavehouse_rows::{Column, DefaultKind, ServerFacts, TableSchema};

use super::{Snapshot, TableInfo};
use crate::client::Client;
use crate::error::ClickHouseError;

const SERVER: &str = "SELECT version() AS version, timezone() AS time_zone";
const TABLES: &str = "SELECT name, engine, engine_full FROM system.tables \
    WHERE database = currentDatabase() AND NOT is_temporary";
const COLUMNS: &str = "SELECT table, name, type, default_kind, default_expression, position FROM system.columns \
    WHERE database = currentDatabase() ORDER BY table, position";
/// Active parts of each table. Not every user may read it, and nothing but a gauge depends on it.
const PARTS: &str = "SELECT table AS name, count() AS parts FROM system.parts \
    WHERE active AND database = currentDatabase() GROUP BY table";
/// What a replicated table remembers of its latest inserts where its settings do not say.
const REPLICATED_WINDOW: u64 = 1000;

#[derive(Deserialize)]
struct ServerRow {
    version: String,
    time_zone: String,
}

#[derive(Deserialize)]
struct TableRow {
    name: String,
    engine: String,
    engine_full: String,
}

#[derive(Deserialize)]
struct PartsRow {
    name: String,
    parts: u64,
}

#[derive(Deserialize)]
struct ColumnRow {
    table: String,
    name: String,
    #[serde(rename = "type")]
    type_text: String,
    default_kind: String,
    default_expression: String,
    position: u64,
}

pub(super) async fn discover(client: &Client) -> Result<Snapshot, ClickHouseError> {
    let server = client.rows::<ServerRow>(SERVER, &[]).await?;
    let tables = client.rows::<TableRow>(TABLES, &[]).await?;
    let columns = client.rows::<ColumnRow>(COLUMNS, &[]).await?;
    let (version, time_zone) =
        server.into_iter().next().map(|row| (row.version, row.time_zone)).unwrap_or_default();
    let server = ServerFacts { version: major_minor(&version), time_zone };
    let mut by_table: BTreeMap<String, Vec<Column>> = BTreeMap::new();
    for row in columns {
        by_table.entry(row.table.clone()).or_default().push(column(row));
    }
    let parts = match client.rows::<PartsRow>(PARTS, &[]).await {
        Ok(rows) => rows.into_iter().map(|row| (row.name, row.parts)).collect(),
        Err(error) => {
            tracing::debug!(error = %wavehouse_core::chain(&error), "cannot read system.parts");
            BTreeMap::new()
        }
    };
    let info = |row: TableRow| {
        // A table that came or went between the two questions has no columns or is not asked for.
        let columns = by_table.remove(&row.name)?;
        let schema = TableSchema::new(row.name.clone(), columns, server.clone());
        let dedup_window = dedup_window(&row.engine, &row.engine_full);
        let active_parts = parts.get(&row.name).copied();
        Some((row.name, Arc::new(TableInfo { schema, engine: row.engine, dedup_window, active_parts })))
    };
    let tables = tables.into_iter().filter_map(info).collect();
    Ok(Snapshot { tables, server, version })
}

fn column(row: ColumnRow) -> Column {
    let column = Column::new(row.name, row.type_text, row.position);
    match DefaultKind::parse(&row.default_kind) {
        Some(kind) => column.with_default(kind, row.default_expression),
        None => column,
    }
}

fn major_minor(version: &str) -> (u32, u32) {
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// How many inserts the table remembers. Tables that only forward or hold no parts remember none.
fn dedup_window(engine: &str, engine_full: &str) -> u64 {
    if !engine.ends_with("MergeTree") {
        return 0;
    }
    let replicated = engine.starts_with("Replicated") || engine.starts_with("Shared");
    let (name, default) = if replicated {
        ("replicated_deduplication_window", REPLICATED_WINDOW)
    } else {
        ("non_replicated_deduplication_window", 0)
    };
    setting(engine_full, name).unwrap_or(default)
}

/// A setting in the text of an engine, `… SETTINGS a = 1, b = 2`.
fn setting(engine_full: &str, name: &str) -> Option<u64> {
    let (_, settings) = engine_full.rsplit_once("SETTINGS ")?;
    let pairs = settings.split(',').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(key, _)| key.trim() == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(major_minor("26.7.2.1"), (26, 7));
        assert_eq!(major_minor("26.8-testing"), (26, 0));
        assert_eq!(major_minor(""), (0, 0));
    }

    #[test]
    fn windows() {
        let full = "MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 100, index_granularity = 8192";
        for (engine, full, window) in [
            ("MergeTree", full, 100),
            ("ReplacingMergeTree", "ReplacingMergeTree ORDER BY a SETTINGS index_granularity = 8192", 0),
            ("ReplicatedMergeTree", full, 1000),
            ("SharedMergeTree", "SharedMergeTree(…) SETTINGS replicated_deduplication_window = 7", 7),
            ("Memory", full, 0),
            ("MergeTree", "MergeTree ORDER BY a", 0),
        ] {
            assert_eq!(dedup_window(engine, full), window, "{engine} {full}");
        }
    }
}
