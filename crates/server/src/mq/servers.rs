//! How the operator's commands reach message servers: by flags, or as a server here would.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use wavehouse_nats::{CallError, ConnectOptions, Connection, TlsOptions};
use wavehouse_topology::parse_duration;

use super::{FAILED, Refusal};

/// Where the servers are, and who asks.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServerFlags {
    /// Message servers, nats://host:4222 or tls://host:4222; may be repeated.
    #[arg(long = "server", value_name = "URL", value_delimiter = ',')]
    pub(super) servers: Vec<String>,
    /// A file with a JWT and its seed.
    #[arg(long, value_name = "FILE")]
    pub(super) creds: Option<PathBuf>,
    /// A file with the seed of an nkey.
    #[arg(long, value_name = "FILE")]
    pub(super) nkey_seed_file: Option<PathBuf>,
    /// A user; with --password-file.
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,
    /// A file with the user's password.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// PEM certificates to trust in place of the system's.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// PEM certificate to show; with --tls-key.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// PEM key of --tls-cert.
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// The name that the servers' certificates must hold, where it is not the host's.
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,
    /// Encrypts from the first byte.
    #[arg(long)]
    tls_first: bool,
    /// How long to wait for the servers: for a connection, and while a cluster elects its leaders.
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) wait: Duration,
}

impl ServerFlags {
    /// What the client wants; `inbox_prefix` is where answers come back.
    pub(crate) fn options(&self, js_domain: Option<String>, inbox_prefix: String) -> ConnectOptions {
        ConnectOptions {
            urls: self.servers.clone(),
            name: "wavehouse mq".to_owned(),
            creds_file: self.creds.clone(),
            nkey_seed_file: self.nkey_seed_file.clone(),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
            tls: TlsOptions {
                ca_file: self.tls_ca.clone(),
                cert_file: self.tls_cert.clone(),
                key_file: self.tls_key.clone(),
                server_name: self.tls_server_name.clone(),
                handshake_first: self.tls_first,
            },
            js_domain,
            inbox_prefix,
            ..ConnectOptions::default()
        }
    }
}

/// Connects, waiting for a server at most so long.
pub(crate) async fn connect(options: &ConnectOptions, wait: Duration) -> Result<Connection, Refusal> {
    let connection = Connection::open(options).await.map_err(|invalid| {
        let told: String = invalid.0.iter().map(|finding| format!("\n  {finding}")).collect();
        Refusal { text: format!("mq: the servers cannot be reached like this:{told}"), code: super::USAGE }
    })?;
    let connected = tokio::time::timeout(wait, connection.connected()).await;
    if connected != Ok(true) {
        let waited = wavehouse_topology::format_duration(wait);
        let text = format!(
            "mq: no message server took the connection within {waited}: {}; see that one listens there and knows this user",
            options.urls.join(", ")
        );
        return Err(Refusal { text, code: FAILED });
    }
    Ok(connection)
}

/// A request that came to nothing.
pub(super) fn failed(error: &CallError) -> Refusal {
    Refusal { text: format!("mq: {error}"), code: FAILED }
}
