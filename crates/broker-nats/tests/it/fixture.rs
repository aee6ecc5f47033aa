//! A message server with everything that the manifests make, an operator on it, and brokers that connect as the
//! restricted user.
//!
//! Brokers connect through a line that can be cut, which is what a killed process looks like to a server.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use wavehouse_broker_nats::{NatsBroker, Options};
use wavehouse_nats::{CallError, ConnectOptions, Connection, JetStream};
use wavehouse_testkit::{NATS_VERSION, NatsServer, wait_for};
use wavehouse_topology::{
    ConsumerConfig, Desired, Permissions, StreamConfig, TopologyInput, TopologySpec, permissions,
};

/// What a server says that cannot make a stream's store.
const STORE_NOT_MADE: u32 = 10_049;

/// How long a fact is waited for.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The version of the servers under test: `WAVEHOUSE_NATS_VERSION`, or the one that the product runs on.
pub(crate) fn version() -> String {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test run chooses its servers; the product reads no environment here"
    )]
    std::env::var("WAVEHOUSE_NATS_VERSION").unwrap_or_else(|_| NATS_VERSION.to_owned())
}

/// What tests ask for: small, on one server.
pub(crate) fn input() -> TopologyInput {
    TopologyInput {
        partitions: 2,
        shards: 2,
        replicas: 1,
        publish_timeout: Duration::from_secs(2),
        file_store_bytes: 2 << 30,
        ..TopologyInput::default()
    }
}

/// A server with all objects.
pub(crate) struct Servers {
    pub(crate) server: NatsServer,
    pub(crate) operator: JetStream,
    pub(crate) spec: TopologySpec,
}

impl Servers {
    pub(crate) async fn start() -> Self {
        Self::start_with(input(), "").await
    }

    /// A server for this topology; `more` is added to its configuration.
    pub(crate) async fn start_with(input: TopologyInput, more: &str) -> Self {
        let spec = input.check().expect("a legal topology");
        let server = NatsServer::start_version(&version(), &config(&spec, more)).await;
        let operator = operator(&server).await;
        provision(&operator, &spec).await;
        Self { server, operator, spec }
    }

    /// Options of the restricted user.
    pub(crate) fn options(&self) -> Options {
        self.options_at(self.server.url())
    }

    /// The same through another address.
    pub(crate) fn options_at(&self, url: String) -> Options {
        options(&self.spec, &self.server, vec![url])
    }

    /// A broker as the product is.
    pub(crate) async fn open(&self) -> Arc<NatsBroker> {
        NatsBroker::open(self.options()).await.expect("the queue opens")
    }

    /// Asks as the operator.
    pub(crate) async fn call(&self, request: &str, body: &Value) -> Value {
        self.operator.call(request, body.to_string().into()).await.expect("the operator may do everything")
    }
}

/// Options of the restricted user, whose password lies beside a server.
pub(crate) fn options(spec: &TopologySpec, server: &NatsServer, urls: Vec<String>) -> Options {
    let connect = ConnectOptions {
        urls,
        name: "wavehouse under test".to_owned(),
        user: Some("wavehouse".to_owned()),
        password_file: Some(password_file(server, "wavehouse")),
        connect_timeout: Duration::from_secs(2),
        ..ConnectOptions::default()
    };
    let mut options = Options::new(spec.clone(), connect);
    options.topology_wait = Duration::from_secs(10);
    options
}

/// A connection of the operator, who may do everything.
pub(crate) async fn operator(server: &NatsServer) -> JetStream {
    connect(&operator_options(server)).await
}

/// How the operator connects.
pub(crate) fn operator_options(server: &NatsServer) -> ConnectOptions {
    ConnectOptions {
        urls: vec![server.url()],
        name: "operator".to_owned(),
        user: Some("operator".to_owned()),
        password_file: Some(password_file(server, "operator")),
        ..ConnectOptions::default()
    }
}

/// A connection that is there.
pub(crate) async fn connect(options: &ConnectOptions) -> JetStream {
    let connection = Connection::open(options).await.expect("good options");
    wait_for("a server to be connected", LONG, async || connection.is_connected()).await;
    connection.jetstream()
}

/// Makes everything that the manifests describe.
pub(crate) async fn provision(operator: &JetStream, spec: &TopologySpec) {
    let desired = Desired::new(spec).expect("it fits the store");
    for (stream, durables) in &desired.partitions {
        make_stream(operator, stream).await;
        for durable in durables {
            make_durable(operator, &stream.name, durable).await;
        }
    }
    for stream in [&desired.history, &desired.dead_letters, &desired.bucket.stream()] {
        make_stream(operator, stream).await;
    }
}

pub(crate) async fn make_stream(operator: &JetStream, config: &StreamConfig) {
    try_stream(operator, &json!(config)).await.expect("the stream is made");
}

/// Makes a stream, if the server takes it. The files of one of that name that was removed a moment ago may still be going:
/// then the server cannot make a store for it, and can soon after.
pub(crate) async fn try_stream(operator: &JetStream, config: &Value) -> Result<Value, CallError> {
    let verb = format!("STREAM.CREATE.{}", config["name"].as_str().expect("a name"));
    wait_for("the files of a removed stream to be gone", LONG, async || {
        let made = operator.call::<Value>(&verb, config.to_string().into()).await;
        let is_going = made.as_ref().is_err_and(|error| error.code() == Some(STORE_NOT_MADE));
        (!is_going).then_some(made)
    })
    .await
}

pub(crate) async fn make_durable(operator: &JetStream, stream: &str, config: &ConsumerConfig) {
    let request = json!({"stream_name": stream, "config": config, "action": "create"});
    let verb = format!("CONSUMER.CREATE.{stream}.{}.{}", config.durable_name, config.filter_subject);
    operator.call::<Value>(&verb, request.to_string().into()).await.expect("the durable is made");
}

/// JetStream, an operator, and the product's user with what the product says that it needs.
pub(crate) fn config(spec: &TopologySpec, more: &str) -> String {
    NatsServer::jetstream_config(&(accounts(&permissions(spec)) + more))
}

/// The operator, and the product's user, who may do so much.
pub(crate) fn accounts(allowed: &Permissions) -> String {
    let list = |subjects: &[String]| {
        subjects.iter().fold(String::new(), |mut text, subject| {
            let _written = write!(text, "\"{subject}\", ");
            text
        })
    };
    format!(
        "accounts {{ A {{ jetstream: enabled, users: [
            {{ user: operator, password: operator }}
            {{ user: wavehouse, password: wavehouse, permissions: {{
                publish: {{ allow: [ {} ], deny: [ {} ] }}
                subscribe: {{ allow: [ {} ] }}
            }} }}
        ] }} }}\n",
        list(&allowed.publish_allow),
        list(&allowed.publish_deny),
        list(&allowed.subscribe_allow)
    )
}

/// A file with a password that is the user's name.
fn password_file(server: &NatsServer, user: &str) -> PathBuf {
    let path = server.dir().join(format!("{user}.password"));
    std::fs::write(&path, user).expect("written");
    path
}

/// A line to a server that can be cut for good: the server sees the client go, the client finds nobody any more.
pub(crate) struct Line {
    port: u16,
    pump: Option<JoinSet<()>>,
}

impl Line {
    pub(crate) async fn to(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let mut pump = JoinSet::new();
        pump.spawn(async move {
            // Connections end with this set.
            let mut links = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let Ok(mut server) = TcpStream::connect(("127.0.0.1", server_port)).await else { continue };
                let _small = (client.set_nodelay(true), server.set_nodelay(true));
                links.spawn(async move {
                    let _ended = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { port, pump: Some(pump) }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Cuts it, and waits until its sockets are closed.
    pub(crate) async fn cut(&mut self) {
        if let Some(mut pump) = self.pump.take() {
            pump.shutdown().await;
        }
    }
}
