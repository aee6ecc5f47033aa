//! How to reach the servers, and as whom: what an operator wrote, checked before anything is dialled.

mod credentials;
mod tls;

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::ServerAddr;

pub(crate) use credentials::Credentials;

/// How to reach the servers, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Where servers are: `nats://host:port`, `tls://host:port` or `host:port`. At least one, without a user in it.
    pub urls: Vec<String>,
    /// What the servers call this process in their lists.
    pub name: String,
    /// A file with a JWT and the seed that signs for it.
    pub creds_file: Option<PathBuf>,
    /// A file with the seed of an nkey.
    pub nkey_seed_file: Option<PathBuf>,
    /// A user; with `password_file`.
    pub user: Option<String>,
    /// A file with the user's password; line ends after it do not count.
    pub password_file: Option<PathBuf>,
    /// Encryption; servers that want it get it even when all of this is empty.
    pub tls: TlsOptions,
    /// The domain of JetStream that requests go to; none for the one that the connection is in.
    pub js_domain: Option<String>,
    /// The first tokens of subjects that answers come back on, such as `_INBOX_wh`.
    pub inbox_prefix: String,
    /// Longest wait for one server to take the connection.
    pub connect_timeout: Duration,
    /// Refused publishes are recorded when their subject begins so, beside those to JetStream. Such subjects must be
    /// few: what is recorded is bounded, and the oldest goes first.
    pub record_refusals_of: Vec<String>,
}

/// Encryption.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsOptions {
    /// Whom to trust, as PEM; the system's roots without it.
    pub ca_file: Option<PathBuf>,
    /// Our certificate, as PEM; with `key_file`.
    pub cert_file: Option<PathBuf>,
    /// The key to it, as PEM.
    pub key_file: Option<PathBuf>,
    /// The name that the servers' certificates must bear; the host of the URL without it.
    pub server_name: Option<String>,
    /// Encrypts from the first byte, which servers must be set up for.
    pub handshake_first: bool,
}

/// One thing that is wrong with the options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// There is no URL.
    #[error("urls: name at least one server")]
    NoUrl,
    /// A URL is empty; its place in the list, from 0.
    #[error("urls: entry {0} is empty")]
    EmptyUrl(usize),
    /// A URL has a user in it; its place in the list, from 0. The URL is not repeated.
    #[error("urls: entry {0} has a user in it: use creds_file, nkey_seed_file, or user and password_file")]
    UserInUrl(usize),
    /// A URL is none.
    #[error("urls: {url} is no address of a server ({why})")]
    BadUrl {
        /// The URL.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// Several ways to say who we are; their keys.
    #[error("{}: give one of them at most", .0.join(", "))]
    SeveralCredentials(Vec<&'static str>),
    /// A key that needs another one.
    #[error("{key}: needs {needs}")]
    Needs {
        /// The key that is given.
        key: &'static str,
        /// The key that is not.
        needs: &'static str,
    },
    /// A file cannot be read.
    #[error("{key}: {} cannot be read ({why})", path.display())]
    Unreadable {
        /// The key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file or a value is not what it should be.
    #[error("{key}: {what}")]
    Unusable {
        /// The key.
        key: &'static str,
        /// What is wrong; never a secret.
        what: String,
    },
}

/// Everything that is wrong with the options, in the order of their fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct InvalidOptions(pub Vec<Finding>);

/// Options that passed, as the client wants them.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) servers: Vec<ServerAddr>,
    pub(crate) credentials: Credentials,
    pub(crate) tls: Option<rustls::ClientConfig>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            name: "wavehouse".to_owned(),
            creds_file: None,
            nkey_seed_file: None,
            user: None,
            password_file: None,
            tls: TlsOptions::default(),
            js_domain: None,
            inbox_prefix: "_INBOX".to_owned(),
            connect_timeout: Duration::from_secs(5),
            record_refusals_of: Vec::new(),
        }
    }
}

impl ConnectOptions {
    /// Looks for everything that is wrong, reading the files and dialling nothing.
    ///
    /// # Errors
    /// [`InvalidOptions`] with all findings.
    pub fn check(&self) -> Result<(), InvalidOptions> {
        self.checked().map(drop)
    }

    pub(crate) fn checked(&self) -> Result<Checked, InvalidOptions> {
        let mut found = Vec::new();
        let servers = servers(&self.urls, &mut found);
        let credentials = Credentials::choose(self, &mut found);
        let tls = tls::client_config(&self.tls, &mut found);
        if let Some(domain) = &self.js_domain
            && !is_token(domain)
        {
            let what = format!("{domain:?} is not one or more of letters, digits, '_' and '-'");
            found.push(Finding::Unusable { key: "js_domain", what });
        }
        if self.inbox_prefix.is_empty() || !self.inbox_prefix.split('.').all(is_token) {
            let what = format!("{:?} is no subject", self.inbox_prefix);
            found.push(Finding::Unusable { key: "inbox_prefix", what });
        }
        if self.connect_timeout.is_zero() {
            found.push(Finding::Unusable { key: "connect_timeout", what: "must be more than 0".to_owned() });
        }
        if found.is_empty() { Ok(Checked { servers, credentials, tls }) } else { Err(InvalidOptions(found)) }
    }

    /// `$JS.API.`, or its form for the domain.
    #[must_use]
    pub fn api_prefix(&self) -> String {
        match &self.js_domain {
            Some(domain) => format!("$JS.{domain}.API."),
            None => "$JS.API.".to_owned(),
        }
    }
}

fn servers(urls: &[String], found: &mut Vec<Finding>) -> Vec<ServerAddr> {
    if urls.is_empty() {
        found.push(Finding::NoUrl);
    }
    let mut servers = Vec::with_capacity(urls.len());
    for (at, url) in urls.iter().enumerate() {
        match server(url) {
            Ok(server) => servers.push(server),
            Err(None) if url.trim().is_empty() => found.push(Finding::EmptyUrl(at)),
            Err(None) => found.push(Finding::UserInUrl(at)),
            Err(Some(why)) => found.push(Finding::BadUrl { url: url.clone(), why }),
        }
    }
    servers
}

/// `None` for a URL that must not be repeated or is not there.
fn server(url: &str) -> Result<ServerAddr, Option<String>> {
    if url.trim().is_empty() || url.contains('@') {
        return Err(None);
    }
    let server: ServerAddr = url.trim().parse().map_err(|error| Some(format!("{error}")))?;
    if server.host().is_empty() {
        return Err(Some("it has no host".to_owned()));
    }
    // Websockets are for browsers.
    match server.scheme() {
        "nats" | "tls" => Ok(server),
        scheme => Err(Some(format!("{scheme} is not nats or tls"))),
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// The file's text without line ends after it.
fn read_text(key: &'static str, path: &Path) -> Result<String, Finding> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) => Err(Finding::Unreadable { key, path: path.to_owned(), why: error.to_string() }),
    }
}

#[cfg(test)]
mod tests;
