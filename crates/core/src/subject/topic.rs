//! Tenant, table and scope as the tail of a subject.

use std::fmt;

use crate::escape::{escape_token, unescape_token};
use crate::ids::{Scope, TableName, TableRef, TenantId};

/// One table of one tenant, and maybe one scope of it: what a subject's tail names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic {
    /// The table and whose it is.
    pub table: TableRef,
    /// The scope; empty for none.
    pub scope: Scope,
}

/// The tail as text: `<tenant>.<table>[.<scope>]`, names escaped.
impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.table.tenant, escape_token(self.table.table.as_str()))?;
        match self.scope.as_str() {
            "" => Ok(()),
            scope => write!(f, ".{}", escape_token(scope)),
        }
    }
}

/// What a tail was read as. Nothing is dropped for its name: a tail that names no topic is kept as it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TopicKey {
    /// A topic. A tail of one token is a table of the default tenant, as the first release wrote them.
    Known(Topic),
    /// A tail that names no topic: no tenant, and the whole text in place of a table.
    Unknown(String),
}

impl TopicKey {
    /// Reads a tail.
    #[must_use]
    pub fn parse(tail: &str) -> Self {
        Self::known(tail).map_or_else(|| Self::Unknown(tail.to_owned()), Self::Known)
    }

    fn known(tail: &str) -> Option<Topic> {
        let name = |token: &str| unescape_token(token).ok().filter(|name| !name.is_empty());
        let table = |token: &str| TableName::parse(&name(token)?).ok();
        let tokens: Vec<_> = tail.split('.').collect();
        let (table, scope) = match tokens[..] {
            [only] => (TableRef::new(TenantId::default(), table(only)?), Scope::default()),
            [tenant, of] => (TableRef::new(TenantId::parse(tenant).ok()?, table(of)?), Scope::default()),
            [tenant, of, scope] => {
                (TableRef::new(TenantId::parse(tenant).ok()?, table(of)?), Scope::parse(&name(scope)?).ok()?)
            }
            _ => return None,
        };
        Some(Topic { table, scope })
    }
}
