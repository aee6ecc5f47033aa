//! What goes wrong with ClickHouse, and what it means to whoever asked.

mod classify;
mod refusal;
mod text;

use std::fmt;
use std::time::Duration;

use wavehouse_core::FaultKind;

pub use classify::{Cause, Class, classify};
pub use refusal::{Scope, refusal};
pub use text::bad_row;
pub(crate) use text::{code_of, exception_in_tail};

/// Most bytes that are kept of what ClickHouse says about a failure.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// Wait before asking a ClickHouse again that is unavailable.
const UNAVAILABLE_RETRY: Duration = Duration::from_secs(5);

/// Codes that speak of one table, so that the server's other tables can go on: `TABLE_IS_READ_ONLY`,
/// `TOO_MANY_PARTS`, `ACCESS_DENIED`, `TOO_MANY_MUTATIONS`, `TABLE_IS_BEING_RESTARTED`.
const TABLE_SCOPED: [u32; 5] = [242, 252, 497, 692, 774];
/// Codes that say that what was sent was too much at once: `MEMORY_LIMIT_EXCEEDED` and
/// `LIMIT_EXCEEDED`-like refusals of memory (241), `TOO_MANY_BYTES` of a row policy aside; 413 is the HTTP twin.
const SIZE_RELATED: [u32; 2] = [241, 413];

/// Codes of an insert whose fate the server itself does not know: `UNKNOWN_STATUS_OF_INSERT`, `KEEPER_EXCEPTION`.
const FATE_UNKNOWN: [u32; 2] = [319, 999];

/// A request that ClickHouse did not serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("clickhouse {}: {message}", Layer(self))]
pub struct ClickHouseError {
    /// What it means; decided by [`classify`].
    pub class: Class,
    /// What was seen.
    pub cause: Cause,
    /// ClickHouse's exception code, if it gave one.
    pub code: Option<u32>,
    /// HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// ClickHouse's words, or the transport's; at most [`MESSAGE_BYTES_MAX`] bytes.
    pub message: String,
}

struct Layer<'a>(&'a ClickHouseError);

impl fmt::Display for Layer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.cause.as_str())?;
        match (self.0.code, self.0.status) {
            (Some(code), _) => write!(f, " with code {code}"),
            (None, Some(status)) => write!(f, " with status {status}"),
            (None, None) => Ok(()),
        }
    }
}

impl ClickHouseError {
    /// A failure that came as an answer.
    pub(crate) fn answered(status: u16, code: Option<u32>, message: &str) -> Self {
        Self::build(Cause::Answered, Some(status), code.or_else(|| code_of(message)), message)
    }

    /// A failure of the way to ClickHouse or back.
    pub(crate) fn transport(cause: Cause, message: &str) -> Self {
        Self::build(cause, None, None, message)
    }

    fn build(cause: Cause, status: Option<u16>, code: Option<u32>, message: &str) -> Self {
        let class = classify(status, code, cause);
        Self { class, cause, code, status, message: text::shortened(message, MESSAGE_BYTES_MAX) }
    }

    /// What the caller should do.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        match self.class {
            Class::Unavailable => FaultKind::Retry { after: Some(UNAVAILABLE_RETRY) },
            Class::Denied | Class::Unknown => FaultKind::Retry { after: None },
            Class::Rejected => FaultKind::Reject,
        }
    }

    /// Whether only the table that was asked for is concerned; other tables of the server can go on.
    #[must_use]
    pub fn table_scoped(&self) -> bool {
        self.code.is_some_and(|code| TABLE_SCOPED.contains(&code))
    }

    /// Whether less at once may work. `TOO_MANY_PARTS` (252) is not of this kind: more inserts make it worse.
    #[must_use]
    pub fn size_related(&self) -> bool {
        let http = self.code.is_none() && self.status == Some(413);
        http || self.code.is_some_and(|code| SIZE_RELATED.contains(&code))
    }

    /// Whether an insert that failed so may be stored all the same: its answer was lost, or the server cannot say.
    #[must_use]
    pub fn may_be_stored(&self) -> bool {
        match (self.cause, self.code) {
            (Cause::Connect | Cause::Tls, _) => false,
            _ if self.in_view() => true,
            (_, Some(code)) => FATE_UNKNOWN.contains(&code),
            (_, None) => self.class != Class::Rejected,
        }
    }

    /// Whether a materialized view failed and not the table itself. Then the table's own rows are stored, the view's are
    /// not, and a row that is named is one of the view's.
    #[must_use]
    pub fn in_view(&self) -> bool {
        self.cause == Cause::Answered && self.message.contains("while pushing to view ")
    }

    /// The row that ClickHouse names as the bad one, from 1; see [`bad_row`].
    #[must_use]
    pub fn bad_row(&self) -> Option<u64> {
        bad_row(&self.message)
    }
}

/// Why a client could not be made of a target.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is no `http://` or `https://` URL with a host, or carries a query.
    #[error("clickhouse url {url:?} is not http(s)://host[:port][/path]")]
    Url {
        /// The address.
        url: String,
    },
    /// A header's name or value is not legal, or is one that the client sets itself.
    #[error("header {name:?} cannot be sent to clickhouse")]
    Header {
        /// Its name.
        name: String,
    },
    /// A certificate or key file cannot be used.
    #[error("file {path:?} cannot be used for TLS: {reason}")]
    TlsFile {
        /// Which file.
        path: std::path::PathBuf,
        /// What was seen.
        reason: String,
    },
    /// The TLS settings do not fit together.
    #[error("TLS settings for clickhouse are not usable: {reason}")]
    Tls {
        /// What was seen.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_code_once() {
        let error = ClickHouseError::answered(404, None, "Code: 60. DB::Exception: no table");
        assert_eq!(error.to_string(), "clickhouse refused with code 60: Code: 60. DB::Exception: no table");
        assert_eq!((error.code, error.class), (Some(60), Class::Rejected));
    }

    #[test]
    fn too_many_parts_is_of_its_table_and_not_about_size() {
        let error = ClickHouseError::answered(500, Some(252), "Too many parts");
        assert!(error.table_scoped() && !error.size_related());
        assert_eq!(error.class, Class::Unavailable);
    }

    #[test]
    fn an_insert_may_be_stored_unless_the_server_said_no() {
        let lost = [Cause::Timeout, Cause::Broken].map(|cause| ClickHouseError::transport(cause, ""));
        let unsure =
            [(Some(319), 500), (None, 504)].map(|(code, status)| ClickHouseError::answered(status, code, ""));
        assert!(lost.iter().chain(&unsure).all(ClickHouseError::may_be_stored));
        let refused = [(Some(241), 500), (Some(117), 400), (None, 413)];
        assert!(
            refused
                .iter()
                .all(|(code, status)| !ClickHouseError::answered(*status, *code, "").may_be_stored())
        );
        assert!(!ClickHouseError::transport(Cause::Connect, "").may_be_stored());
        let view =
            "Code: 469. DB::Exception: Constraint `c` is violated at row 5: while pushing to view default.v.";
        let view = ClickHouseError::answered(500, None, view);
        assert!(view.in_view() && view.may_be_stored());
    }

    #[test]
    fn memory_and_413_are_about_size() {
        assert!(ClickHouseError::answered(500, Some(241), "").size_related());
        assert!(ClickHouseError::answered(413, None, "").size_related());
        assert!(!ClickHouseError::answered(413, Some(117), "").size_related());
    }
}
