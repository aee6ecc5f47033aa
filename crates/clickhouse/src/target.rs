//! Where a ClickHouse is and how to speak to it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Takes a secret.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text itself; for the request that needs it and nothing else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// How an https connection is made sure of. All empty: public roots, the name of the URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Tls {
    /// PEM file of the roots to trust, in place of the public ones.
    pub ca_file: Option<PathBuf>,
    /// PEM file of our certificate chain; goes with `key_file`.
    pub cert_file: Option<PathBuf>,
    /// PEM file of our key.
    pub key_file: Option<PathBuf>,
    /// Take any certificate. For tests of an installation only.
    pub insecure_skip_verify: bool,
    /// The name that the certificate must bear, where it is not the URL's.
    pub server_name: Option<String>,
}

/// One ClickHouse database and the account that uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Base address, `http://host:port` or `https://host:port`, possibly with a path.
    pub url: String,
    /// Account name; sent as `X-ClickHouse-User`.
    pub user: String,
    /// Its password; sent as `X-ClickHouse-Key`, left out when empty.
    pub password: Secret,
    /// The database of all statements that name none.
    pub database: String,
    /// More headers for every request; the client's own win.
    pub headers: BTreeMap<String, String>,
    /// For https.
    pub tls: Tls,
    /// Deadline of a query, from asking for a connection to the last byte of the answer.
    pub query_timeout: Duration,
    /// Most requests at a time; more wait for their turn.
    pub max_open_conns: usize,
}

impl Target {
    /// Deadline of a query where the operator names none.
    pub const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
    /// Requests at a time where the operator names no number.
    pub const MAX_OPEN_CONNS: usize = 10;

    /// A target with everything but the address, account and database at its default.
    #[must_use]
    pub fn new(url: &str, user: &str, password: Secret, database: &str) -> Self {
        Self {
            url: url.to_owned(),
            user: user.to_owned(),
            password,
            database: database.to_owned(),
            headers: BTreeMap::new(),
            tls: Tls::default(),
            query_timeout: Self::QUERY_TIMEOUT,
            max_open_conns: Self::MAX_OPEN_CONNS,
        }
    }

    /// Names the server, account and database for logs and metrics, without the password. Two targets with the same
    /// name fail together and are backed off from together.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}@{}/{}", self.user, self.url.trim_end_matches('/'), self.database)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_never_printed() {
        let target = Target::new("http://h:8123/", "default", Secret::new("hunter2"), "db");
        assert!(!format!("{target:?} {}", target.name()).contains("hunter2"));
        assert_eq!(target.name(), "default@http://h:8123/db");
    }
}
