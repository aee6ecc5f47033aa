//! A server of its own for one test, with what a deployment asks for, made by the operator; the product connects as the
//! user with the generated permissions and nothing more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use wavehouse_nats::{ConnectOptions, Connection, JetStream};
use wavehouse_testkit::{NatsServer, wait_for};
use wavehouse_topology::{Permissions, StreamConfig, TopologyInput, TopologySpec, permissions};

use crate::fixture::{accounts, make_stream, provision};

pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A server, its operator, and what the deployment asks for.
pub(crate) struct Stage {
    pub(crate) server: NatsServer,
    pub(crate) operator: JetStream,
    pub(crate) spec: Arc<TopologySpec>,
}

/// What tests ask for: one partition of two shards on one server, with a small store.
pub(crate) fn input() -> TopologyInput {
    TopologyInput { shards: 2, replicas: 1, file_store_bytes: 1 << 30, ..TopologyInput::default() }
}

pub(crate) fn spec(input: TopologyInput) -> Arc<TopologySpec> {
    Arc::new(input.check().expect("a good deployment"))
}

impl Stage {
    /// A server with every object.
    pub(crate) async fn start(input: TopologyInput) -> Self {
        let stage = Self::bare(input).await;
        stage.provision().await;
        stage
    }

    /// A server without objects.
    pub(crate) async fn bare(input: TopologyInput) -> Self {
        let spec = spec(input);
        Self::bare_with(&spec, &permissions(&spec)).await
    }

    /// The same, whose user has other permissions than the generated ones.
    pub(crate) async fn bare_with(spec: &Arc<TopologySpec>, permissions: &Permissions) -> Self {
        Self::bare_as(spec, &config(permissions, spec.input().js_domain.as_deref())).await
    }

    /// The same on a server of this configuration, with both users.
    pub(crate) async fn bare_as(spec: &Arc<TopologySpec>, config: &str) -> Self {
        let server = NatsServer::start(config).await;
        let operator = connect(&server, "operator", "_INBOX", spec).await.jetstream();
        Self { server, operator, spec: Arc::clone(spec) }
    }

    /// The product's connection.
    pub(crate) async fn user(&self) -> Connection {
        connect(&self.server, "wavehouse", &format!("_INBOX_{}", self.spec.prefix()), &self.spec).await
    }

    /// Makes every object.
    pub(crate) async fn provision(&self) {
        provision(&self.operator, &self.spec).await;
    }

    pub(crate) async fn make_stream(&self, config: &StreamConfig) {
        make_stream(&self.operator, config).await;
    }

    pub(crate) async fn try_durable(&self, stream: &str, config: &Value) -> Result<Value, String> {
        let request = json!({"stream_name": stream, "config": config, "action": ""});
        let name = config["durable_name"].as_str().unwrap_or_default();
        self.call(&format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"), &request).await
    }

    /// A request of the operator's; the error as text.
    pub(crate) async fn call(&self, verb: &str, body: &Value) -> Result<Value, String> {
        let answer = self.operator.call::<Value>(verb, Bytes::from(body.to_string())).await;
        answer.map_err(|error| error.to_string())
    }
}

/// A connection of a user whose password is its name.
pub(crate) async fn connect(server: &NatsServer, user: &str, inbox: &str, spec: &TopologySpec) -> Connection {
    let password_file = server.dir().join(format!("{user}.password"));
    std::fs::write(&password_file, user).expect("written");
    let options = ConnectOptions {
        urls: vec![server.url()],
        name: format!("test {user}"),
        user: Some(user.to_owned()),
        password_file: Some(password_file),
        inbox_prefix: inbox.to_owned(),
        js_domain: spec.input().js_domain.clone(),
        connect_timeout: Duration::from_secs(2),
        record_refusals_of: vec![format!("{}.live.", spec.prefix())],
        ..ConnectOptions::default()
    };
    let connection = Connection::open(&options).await.expect("good options");
    wait_for("a server to be connected", LONG, async || connection.is_connected()).await;
    connection
}

/// Accounts: an operator, and the product's user.
pub(crate) fn config(permissions: &Permissions, domain: Option<&str>) -> String {
    let text = NatsServer::jetstream_config(&accounts(permissions));
    match domain {
        Some(domain) => text.replacen("jetstream {", &format!("jetstream {{ domain: {domain},"), 1),
        None => text,
    }
}
