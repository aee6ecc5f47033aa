//! Names of who sent a row, where it goes, and which part of the queue holds it.
//!
//! Ids are parsed once and cannot be wrong afterwards. They are cheap to clone: the text is shared.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest tenant id, in bytes.
pub const TENANT_BYTES_MAX: usize = 64;
/// Longest table name, in bytes. ClickHouse itself stops near 206 for names that become file names.
pub const TABLE_BYTES_MAX: usize = 255;
/// Longest scope, in bytes.
pub const SCOPE_BYTES_MAX: usize = 255;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The tenant id is not 1 to 64 of letters, digits, `_` and `-`.
    #[error("tenant id {0:?} is not 1 to {TENANT_BYTES_MAX} of ASCII letters, digits, '_' and '-'")]
    Tenant(String),
    /// The table name is empty, too long, or has a control character.
    #[error("table name {0:?} is empty, longer than {TABLE_BYTES_MAX} bytes, or has a control character")]
    Table(String),
    /// The scope is too long or has a control character.
    #[error("scope {0:?} is longer than {SCOPE_BYTES_MAX} bytes or has a control character")]
    Scope(String),
}

/// Who sent a row: 1 to 64 of ASCII letters, digits, `_` and `-`. The default tenant is `0`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct TenantId(Arc<str>);

impl TenantId {
    /// Checks and takes a tenant id.
    ///
    /// # Errors
    /// [`IdError::Tenant`] when the text does not keep to the grammar.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if text.is_empty() || text.len() > TENANT_BYTES_MAX || !text.bytes().all(legal) {
            return Err(IdError::Tenant(text.to_owned()));
        }
        Ok(Self(text.into()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TenantId {
    fn default() -> Self {
        Self("0".into())
    }
}

/// The name of a table in its tenant's database: any name that ClickHouse takes, as it is, unescaped.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct TableName(Arc<str>);

impl TableName {
    /// Checks and takes a table name.
    ///
    /// # Errors
    /// [`IdError::Table`] when it is empty, longer than 255 bytes or has a control character.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        if text.is_empty() || text.len() > TABLE_BYTES_MAX || text.chars().any(char::is_control) {
            return Err(IdError::Table(text.to_owned()));
        }
        Ok(Self(text.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A sub-division of a table's rows that readers can filter on; empty for none.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Default)]
pub struct Scope(Option<Arc<str>>);

impl Scope {
    /// Checks and takes a scope; the empty text is no scope.
    ///
    /// # Errors
    /// [`IdError::Scope`] when it is longer than 255 bytes or has a control character.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        if text.len() > SCOPE_BYTES_MAX || text.chars().any(char::is_control) {
            return Err(IdError::Scope(text.to_owned()));
        }
        Ok(Self((!text.is_empty()).then(|| text.into())))
    }

    /// The scope as text, empty for none.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or("")
    }
}

macro_rules! text_id {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.as_str())
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    )*};
}
text_id!(TenantId, TableName, Scope);

/// One table of one tenant: the key of every queue, batch and metric.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TableRef {
    /// Who the table belongs to.
    pub tenant: TenantId,
    /// The table's name.
    pub table: TableName,
}

impl TableRef {
    /// Pairs a tenant and a table.
    #[must_use]
    pub fn new(tenant: TenantId, table: TableName) -> Self {
        Self { tenant, table }
    }
}

impl fmt::Display for TableRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.table)
    }
}

/// One of the N ingest partitions of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PartitionId(pub u16);

/// One of the V slices inside a partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ShardId(pub u16);

/// What one process owns at a time: a shard of a partition. The embedded queue has one unit, `0.0`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct UnitId {
    /// The partition.
    pub partition: PartitionId,
    /// The shard inside it.
    pub shard: ShardId,
}

impl UnitId {
    /// The only unit of a queue that is not split.
    pub const WHOLE: Self = Self { partition: PartitionId(0), shard: ShardId(0) };
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.partition.0, self.shard.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Case 2.
    #[test]
    fn tenant_grammar() {
        for good in ["0", "acme", "A-b_9", &"x".repeat(64)] {
            assert_eq!(TenantId::parse(good).map(|id| id.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "a.b", "*", "a b", "é", &"x".repeat(65)] {
            assert_eq!(TenantId::parse(bad), Err(IdError::Tenant(bad.to_owned())));
        }
    }

    #[test]
    fn any_clickhouse_name_is_a_table() {
        for good in ["events", "page views", "a*b>c", "naïve", "x.y"] {
            assert!(TableName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "a\nb", &"x".repeat(256)] {
            assert!(TableName::parse(bad).is_err(), "{bad}");
        }
    }
}
