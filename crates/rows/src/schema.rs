//! A table as ingest sees it: its columns, which of them a row may or must name, and the server's habits
//! that change what a value means.

use std::collections::HashMap;

use crate::types::{ColumnType, Rules};

/// The column that the gateway fills with the receipt time when a row omits it.
pub const RECEIPT_COLUMN: &str = "received_timestamp";

/// The first server version that reads a bare number in a `DateTime64` column as seconds; earlier ones
/// read raw ticks. The same version began to take a fraction there and in `DateTime`.
const BARE_SECONDS_SINCE: (u32, u32) = (26, 8);

/// A table of one database: its name, its columns, and what is derived from them once.
#[derive(Debug, Clone)]
pub struct TableSchema {
    /// The table's name, without its database.
    pub name: String,
    /// All columns in declaration order, also those that no row may name.
    pub columns: Vec<Column>,
    server: Server,
    by_name: HashMap<Box<[u8]>, usize>,
    keys: Vec<Key>,
    required: Vec<u64>,
    wire: Vec<usize>,
    receipt: Option<usize>,
}

/// What the checker needs of one column, beside its type, in the form that a byte comparison likes.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// The name and its closing quote, as a JSON key without escapes spells it; empty if the name needs escapes.
    pub(crate) quoted: Box<[u8]>,
    /// Whether an INSERT may name the column (not MATERIALIZED, not ALIAS).
    pub(crate) insertable: bool,
    /// Whether `null` is a value of the column or asks for its DEFAULT expression.
    pub(crate) takes_null: bool,
    /// The first column of the nested structure that this array belongs to, if it has others: their arrays
    /// must be of one length in every row.
    pub(crate) sibling: Option<usize>,
}

/// The server's habits, resolved.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// A bare number in `DateTime64` counts seconds (else ticks).
    pub(crate) bare_seconds: bool,
    /// The zone of `DateTime` columns that name none.
    pub(crate) zone: Rules,
}

impl TableSchema {
    /// Builds the derived tables. `columns` come in declaration order, as `system.columns` gives them.
    pub fn new(name: String, columns: Vec<Column>, server: ServerFacts) -> Self {
        let mut required = vec![0u64; columns.len().div_ceil(64)];
        for (index, column) in columns.iter().enumerate() {
            if column.is_required() {
                required[index / 64] |= 1 << (index % 64);
            }
        }
        let by_name = columns.iter().enumerate().map(|(i, c)| (c.name.as_bytes().into(), i)).collect();
        let siblings = siblings(&columns);
        let keys = columns.iter().zip(siblings).map(|(column, sibling)| Key::new(column, sibling)).collect();
        let wire = (0..columns.len()).filter(|&i| columns[i].is_wire()).collect();
        let receipt = columns.iter().position(Column::holds_receipt_time);
        let server = Server::new(&server);
        Self { name, columns, server, by_name, keys, required, wire, receipt }
    }

    /// The column of that name, also one that cannot be inserted.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.by_name.get(name.as_bytes()).map(|&index| &self.columns[index])
    }

    /// Whether the table has an insertable column `received_timestamp` of a DateTime, DateTime64 or String type.
    pub fn has_column_for_receipt_time(&self) -> bool {
        self.receipt.is_some()
    }

    /// The columns a positional format carries, in declaration order: without MATERIALIZED, ALIAS, EPHEMERAL.
    pub fn wire_columns(&self) -> impl Iterator<Item = &Column> {
        self.wire.iter().map(|&index| &self.columns[index])
    }

    /// Whether an INSERT must list its columns: without a list the server knows no EPHEMERAL column.
    pub fn needs_column_list(&self) -> bool {
        self.columns.iter().any(|column| column.default_kind == Some(DefaultKind::Ephemeral))
    }

    /// The columns that a row may name: all but MATERIALIZED and ALIAS, in declaration order.
    pub fn insertable_columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.is_insertable())
    }

    pub(crate) fn index_of(&self, name: &[u8]) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    pub(crate) fn required(&self) -> &[u64] {
        &self.required
    }

    pub(crate) fn wire(&self) -> &[usize] {
        &self.wire
    }

    pub(crate) fn receipt(&self) -> Option<usize> {
        self.receipt
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }
}

/// One column of a table.
#[derive(Debug, Clone)]
pub struct Column {
    /// The name, as the server spells it.
    pub name: String,
    /// The type, as the server spells it.
    pub type_text: String,
    /// The type, parsed; `Opaque` where this crate does not know it.
    pub ty: ColumnType,
    /// How the column gets a value when a row has none; `None`: the type's zero.
    pub default_kind: Option<DefaultKind>,
    /// The expression of `default_kind`, as the server spells it.
    pub default_expression: Option<String>,
    /// 1-based place in the declaration.
    pub position: u64,
}

impl Column {
    /// A column from what `system.columns` tells; the type text is parsed here.
    pub fn new(name: impl Into<String>, type_text: impl Into<String>, position: u64) -> Self {
        let type_text = type_text.into();
        let ty = ColumnType::parse(&type_text);
        Self { name: name.into(), type_text, ty, default_kind: None, default_expression: None, position }
    }

    /// The same column with a default of that kind.
    #[must_use]
    pub fn with_default(mut self, kind: DefaultKind, expression: impl Into<String>) -> Self {
        self.default_kind = Some(kind);
        self.default_expression = Some(expression.into());
        self
    }

    /// Whether the stored value can be NULL by type (`Nullable`, also inside `LowCardinality`).
    pub fn is_nullable(&self) -> bool {
        self.ty.is_nullable()
    }

    /// Whether the column has a default of any kind.
    pub fn has_default(&self) -> bool {
        self.default_kind.is_some()
    }

    /// Whether a row may name the column: not MATERIALIZED, not ALIAS.
    pub fn is_insertable(&self) -> bool {
        !matches!(self.default_kind, Some(DefaultKind::Materialized | DefaultKind::Alias))
    }

    /// Whether every row must name the column: it has no default and cannot be null.
    pub fn is_required(&self) -> bool {
        self.default_kind.is_none() && !self.ty.takes_null()
    }

    fn is_wire(&self) -> bool {
        matches!(self.default_kind, None | Some(DefaultKind::Default))
    }

    fn holds_receipt_time(&self) -> bool {
        self.name == RECEIPT_COLUMN && self.is_insertable() && self.ty.holds_receipt_time()
    }
}

/// How a column gets its value when a row has none (`default_kind` of `system.columns`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultKind {
    /// Evaluated when the row omits the column.
    Default,
    /// Always computed; a row may not name it.
    Materialized,
    /// Computed when read, never stored; a row may not name it.
    Alias,
    /// Never stored; a row may name it, and other defaults read it.
    Ephemeral,
}

impl DefaultKind {
    /// From the text of `system.columns.default_kind`; the empty text and unknown ones are `None`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "DEFAULT" => Some(Self::Default),
            "MATERIALIZED" => Some(Self::Materialized),
            "ALIAS" => Some(Self::Alias),
            "EPHEMERAL" => Some(Self::Ephemeral),
            _ => None,
        }
    }

    /// The text of `system.columns.default_kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "DEFAULT",
            Self::Materialized => "MATERIALIZED",
            Self::Alias => "ALIAS",
            Self::Ephemeral => "EPHEMERAL",
        }
    }
}

/// What changes the meaning of a value from server to server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// Major and minor version, for example `(26, 7)`.
    pub version: (u32, u32),
    /// The server's time zone (`SELECT timezone()`), read by `DateTime` columns that name none.
    pub time_zone: String,
}

impl Server {
    fn new(facts: &ServerFacts) -> Self {
        Self { bare_seconds: facts.version >= BARE_SECONDS_SINCE, zone: Rules::of(&facts.time_zone) }
    }
}

impl Key {
    fn new(column: &Column, sibling: Option<usize>) -> Self {
        let plain = column.name.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\');
        let quoted = if plain { [column.name.as_bytes(), b"\""].concat() } else { Vec::new() };
        let takes_null = column.ty.takes_null() || column.default_kind.is_some();
        Self { quoted: quoted.into(), insertable: column.is_insertable(), takes_null, sibling }
    }
}

/// Of each column, the first array whose name has the same part before its first point, if there are several.
fn siblings(columns: &[Column]) -> Vec<Option<usize>> {
    let structure = |column: &Column| match column.ty {
        ColumnType::Array(_) if column.is_insertable() => {
            column.name.split_once('.').map(|(structure, _)| structure.to_owned())
        }
        _ => None,
    };
    let mut firsts: HashMap<String, (usize, usize)> = HashMap::new();
    let structures: Vec<_> = columns.iter().map(structure).collect();
    for (index, structure) in structures.iter().enumerate() {
        if let Some(structure) = structure {
            firsts.entry(structure.clone()).or_insert((index, 0)).1 += 1;
        }
    }
    let first =
        |structure: String| firsts.get(&structure).filter(|(_, count)| *count > 1).map(|(first, _)| *first);
    structures.into_iter().map(|structure| structure.and_then(first)).collect()
}

#[cfg(test)]
mod tests;
