//! Dead letters: rows that can never be written, kept with the reason.

use std::collections::BTreeMap;

use bytes::Bytes;
use wavehouse_core::{Position, TableName, TableRef, TenantId, Timestamp};

/// One row that ClickHouse refuses, or a stored message that is no rows. Its identity is its table and position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where the row was going.
    pub table: TableRef,
    /// Where it stood in the queue.
    pub position: Position,
    /// When the gateway received it.
    pub received_at: Timestamp,
    /// When it was buried.
    pub buried_at: Timestamp,
    /// ClickHouse's exception code, if it gave one.
    pub code: Option<u32>,
    /// Why, in ClickHouse's words.
    pub reason: String,
    /// The row: one JSONEachRow line without its `\n`; of a message that could not be read, its bytes.
    pub line: Bytes,
}

/// Longest reason that is kept, in bytes; a longer one is cut.
pub const REASON_BYTES_MAX: usize = 4096;

/// Which letters are asked for. All conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterFilter {
    /// Whose.
    pub tenant: TenantId,
    /// Of which table; all of the tenant's when none.
    pub table: Option<TableName>,
    /// With this exception code.
    pub code: Option<u32>,
    /// Buried at this moment or later.
    pub from: Option<Timestamp>,
    /// Buried before this moment.
    pub until: Option<Timestamp>,
}

/// Where a page ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterCursor {
    /// The table of the last letter.
    pub table: TableName,
    /// Its position.
    pub position: Position,
}

/// How many letters there are, by table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LetterCounts {
    /// Tables that have any.
    pub tables: BTreeMap<TableName, u64>,
}

impl LetterCounts {
    /// Letters of all tables.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.tables.values().sum()
    }
}

/// A page of letters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LetterPage {
    /// In the order of table, then position.
    pub letters: Vec<DeadLetter>,
    /// Whether there are more after the last.
    pub more: bool,
}
