//! Where the worker's batches go. What travels on the wire is the sink's own affair: rows go in as lines and JSONEachRow
//! is what this one sends.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use wavehouse_core::{FaultKind, TableRef, TenantId};

use crate::catalog::TableInfo;
use crate::client::Request;
use crate::error::{Class, ClickHouseError, MESSAGE_BYTES_MAX};
use crate::metrics::{ClickHouseMetrics, OutcomeLabel};
use crate::targets::Targets;

/// How long an insert may take before it is given up as of unknown outcome.
pub const INSERT_TIMEOUT: Duration = Duration::from_secs(30);
/// Most rows of a batch. Above, the server would make more than one block of it.
pub const BATCH_ROWS_LIMIT: u32 = 1_000_000;
/// [`BATCH_ROWS_LIMIT`] as the server wants it.
const BLOCK_ROWS: &str = "1000000";

/// How every batch is inserted. Public so that tests can ask a server for its verdict on the same terms.
pub const INSERT_SETTINGS: [(&str, &str); 18] = [
    // One insert, waited for, told apart from its own repetition by the token that is added to these.
    ("async_insert", "0"),
    ("insert_deduplicate", "1"),
    ("wait_end_of_query", "1"),
    // One block, so that rows, constraints and deduplication see the batch as a whole: read by one thread and neither cut
    // nor squashed by size.
    ("input_format_parallel_parsing", "0"),
    ("max_insert_block_size", BLOCK_ROWS),
    ("min_insert_block_size_rows", BLOCK_ROWS),
    ("min_insert_block_size_bytes", "0"),
    // A batch holds the rows that came; to how many partitions they belong is nobody's mistake, and a limit here would
    // hold the table up for ever.
    ("max_partitions_per_insert_block", "0"),
    // Rows were checked against these habits when they came in.
    ("date_time_input_format", "best_effort"),
    ("input_format_skip_unknown_fields", "0"),
    ("input_format_null_as_default", "1"),
    ("input_format_defaults_for_omitted_fields", "1"),
    ("input_format_import_nested_json", "0"),
    // A text in a column of JSON or Dynamic is a text, not a date that the server makes of it: it would read `01/02/2026` as
    // the first of February and `2026-02-31` as a day in March.
    ("input_format_try_infer_dates", "0"),
    ("input_format_try_infer_datetimes", "0"),
    // A row that is refused must fail the batch, or it would be lost without a word.
    ("input_format_allow_errors_num", "0"),
    ("input_format_allow_errors_ratio", "0"),
    ("insert_allow_materialized_columns", "0"),
];
/// Codes after which the catalogue may be out of date: `NO_SUCH_COLUMN_IN_TABLE`, `UNKNOWN_TABLE`, and `INCORRECT_DATA`,
/// which is what an unknown field of a JSON row is.
const STALE_CATALOG: [u32; 3] = [16, 60, 117];

/// Rows of one table that are inserted at once, all or none.
#[derive(Debug, Clone)]
pub struct RowBatch {
    /// Where they go.
    pub table: TableRef,
    /// JSONEachRow lines, each ending in `\n`, in pieces that each hold whole lines.
    pub lines: Vec<Bytes>,
    /// How many rows; at most [`BATCH_ROWS_LIMIT`].
    pub rows: u32,
    /// How many bytes the pieces have.
    pub bytes: u64,
    /// Names the batch: the same token with the same rows is stored once where the table has a deduplication window.
    /// The same token with other rows would be dropped without a word, so it must be made of the rows.
    pub token: String,
}

/// Why a batch was not stored, or may not be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The tenant has no ClickHouse.
    #[error("tenant {0} has no clickhouse")]
    NoTarget(TenantId),
    /// ClickHouse refused the batch or cannot be reached.
    #[error("rows of {table} cannot be inserted")]
    ClickHouse {
        /// Where they were going.
        table: TableRef,
        /// Whether the table remembers tokens, as far as is known, so that trying again with the same one stores no
        /// twins.
        remembers: bool,
        /// Why.
        #[source]
        source: ClickHouseError,
    },
}

impl WriteError {
    /// What the failure means.
    #[must_use]
    pub fn class(&self) -> Class {
        self.clickhouse().map_or(Class::Unavailable, |error| error.class)
    }

    /// ClickHouse's part of it, where it has one.
    #[must_use]
    pub fn clickhouse(&self) -> Option<&ClickHouseError> {
        match self {
            Self::NoTarget(_) => None,
            Self::ClickHouse { source, .. } => Some(source),
        }
    }

    /// What the caller should do.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        self.clickhouse().map_or(FaultKind::Retry { after: None }, ClickHouseError::fault)
    }
}

/// Takes batches.
#[async_trait]
pub trait RowSink: Send + Sync + 'static {
    /// Stores a batch: `Ok` means that every row is stored, now or by an earlier call with the same token. An error
    /// means that none is, unless it [`may_be_stored`](ClickHouseError::may_be_stored).
    ///
    /// # Errors
    /// [`WriteError`] says whether to try again or to find the bad row.
    async fn write(&self, batch: &RowBatch) -> Result<(), WriteError>;

    /// Names the server and account that a tenant's rows go to. Tenants with the same name fail and recover together.
    fn target(&self, tenant: &TenantId) -> Arc<str>;
}

/// Inserts batches over HTTP.
#[derive(Debug, Clone)]
pub struct ClickHouseSink {
    targets: Targets,
    metrics: ClickHouseMetrics,
}

impl ClickHouseSink {
    /// A sink that finds each tenant's server in `targets`.
    #[must_use]
    pub fn new(targets: Targets, metrics: ClickHouseMetrics) -> Self {
        Self { targets, metrics }
    }

    fn count(&self, batch: &RowBatch, began: Instant, outcome: &Result<(), ClickHouseError>) {
        let outcome = match outcome {
            Ok(()) => {
                self.metrics.rows.inc_by(u64::from(batch.rows));
                self.metrics.bytes.inc_by(batch.bytes);
                "stored"
            }
            Err(error) => error.class.as_str(),
        };
        self.metrics.inserts.get_or_create(&OutcomeLabel { outcome }).inc();
        self.metrics.insert_seconds.observe(began.elapsed().as_secs_f64());
    }
}

#[async_trait]
impl RowSink for ClickHouseSink {
    async fn write(&self, batch: &RowBatch) -> Result<(), WriteError> {
        let tenant = &batch.table.tenant;
        let connection = self.targets.get(tenant).ok_or_else(|| WriteError::NoTarget(tenant.clone()))?;
        let sql = statement(
            batch.table.table.as_str(),
            connection.catalog.table(batch.table.table.as_str()).as_deref(),
        );
        let mut settings = INSERT_SETTINGS.to_vec();
        settings.push(("insert_deduplication_token", &batch.token));
        let request =
            Request { sql: &sql, settings: &settings, rows: Some(&batch.lines), timeout: INSERT_TIMEOUT };
        let began = Instant::now();
        let outcome = match connection.client.send(request).await {
            Ok(answer) => answer.bytes(MESSAGE_BYTES_MAX).await.map(drop),
            Err(error) => Err(error),
        };
        self.count(batch, began, &outcome);
        outcome.map_err(|source| {
            if source.code.is_some_and(|code| STALE_CATALOG.contains(&code)) {
                connection.catalog.nudge();
            }
            let info = connection.catalog.table(batch.table.table.as_str());
            let remembers = info.is_none_or(|info| info.dedup_window > 0);
            WriteError::ClickHouse { table: batch.table.clone(), remembers, source }
        })
    }

    fn target(&self, tenant: &TenantId) -> Arc<str> {
        self.targets
            .get(tenant)
            .map_or_else(|| format!("none of tenant {tenant}").into(), |found| found.name())
    }
}

/// The statement that inserts into a table. Its columns are named only where ClickHouse would else not take all of them.
fn statement(name: &str, table: Option<&TableInfo>) -> String {
    let columns = table.filter(|table| table.schema.needs_column_list()).map(|table| {
        let names: Vec<String> =
            table.schema.insertable_columns().map(|column| quoted(&column.name)).collect();
        format!(" ({})", names.join(", "))
    });
    format!("INSERT INTO {}{} FORMAT JSONEachRow", quoted(name), columns.unwrap_or_default())
}

/// A name as an identifier.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("page views"), "`page views`");
        assert_eq!(quoted(r"a`b\c"), r"`a\`b\\c`");
        assert_eq!(BLOCK_ROWS, BATCH_ROWS_LIMIT.to_string());
    }
}
