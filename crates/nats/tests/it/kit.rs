//! A server with the objects that a queue needs, made by the operator, and a user who may do what the product does.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use wavehouse_nats::{ConnectOptions, Connection, JetStream};
use wavehouse_testkit::{NatsServer, wait_for};

pub(crate) const PARTITION: &str = "WH_INGEST_0";
pub(crate) const HISTORY: &str = "WH_HISTORY";
pub(crate) const LETTERS: &str = "WH_DLQ";
pub(crate) const BUCKET: &str = "wh_coord";
pub(crate) const GROUP: &str = "wavehouse";
pub(crate) const SHARDS: u32 = 2;
/// What a server says that cannot make a stream's store.
const STORE_NOT_MADE: u32 = 10_049;

pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) struct Kit {
    pub(crate) server: NatsServer,
    pub(crate) operator: JetStream,
    pub(crate) user: JetStream,
}

impl Kit {
    /// A server with all objects; `more` is added to its configuration.
    pub(crate) async fn start(more: &str) -> Self {
        Self::start_in_domain(more, None).await
    }

    pub(crate) async fn start_in_domain(more: &str, domain: Option<&str>) -> Self {
        let server = NatsServer::start(&config(more, domain)).await;
        let operator = connect(&server, "operator", "_INBOX", domain).await.jetstream();
        let user = connect(&server, "wavehouse", "_INBOX_wh", domain).await.jetstream();
        make_objects(&operator).await;
        Self { server, operator, user }
    }

    /// Publishes a row as the user.
    pub(crate) async fn row(&self, shard: u32, table: &str, payload: &'static str) -> u64 {
        let subject = format!("wh.ingest.0.{shard}.0.{table}");
        self.user
            .publish(&subject, None, Bytes::from_static(payload.as_bytes()))
            .await
            .expect("stored")
            .sequence
    }

    /// A connection of the product's user to this server.
    pub(crate) async fn another(&self) -> JetStream {
        connect(&self.server, "wavehouse", "_INBOX_wh", None).await.jetstream()
    }
}

/// Options for a user whose password is its name.
pub(crate) fn options(server: &NatsServer, user: &str, inbox: &str) -> ConnectOptions {
    ConnectOptions {
        urls: vec![server.url()],
        name: format!("test {user}"),
        user: Some(user.to_owned()),
        password_file: Some(password_file(server, user)),
        inbox_prefix: inbox.to_owned(),
        connect_timeout: Duration::from_secs(2),
        record_refusals_of: vec!["wh.live.".to_owned()],
        ..ConnectOptions::default()
    }
}

pub(crate) async fn connect(
    server: &NatsServer,
    user: &str,
    inbox: &str,
    domain: Option<&str>,
) -> Connection {
    let options = ConnectOptions { js_domain: domain.map(str::to_owned), ..options(server, user, inbox) };
    let connection = Connection::open(&options).await.expect("good options");
    wait_connected(&connection).await;
    connection
}

pub(crate) async fn wait_connected(connection: &Connection) {
    wait_for("a server to be connected", LONG, async || connection.is_connected()).await;
}

pub(crate) fn body(value: &Value) -> Bytes {
    value.to_string().into()
}

/// Accounts: an operator, and the product's user with what it may do.
pub(crate) fn config(more: &str, domain: Option<&str>) -> String {
    let list = |subjects: &[String]| {
        subjects.iter().fold(String::new(), |mut text, subject| {
            let _written = write!(text, "\"{subject}\", ");
            text
        })
    };
    let user = format!(
        "accounts {{ A {{ jetstream: enabled, users: [
            {{ user: operator, password: operator }}
            {{ user: wavehouse, password: wavehouse, permissions: {{
                publish: {{ allow: [ {} ], deny: [ {} ] }}
                subscribe: {{ allow: [ \"_INBOX_wh.>\", \"wh.live.>\" ] }}
            }} }}
        ] }} }}\n",
        list(&allowed()),
        list(&denied())
    );
    let text = NatsServer::jetstream_config(&(user + more));
    match domain {
        Some(domain) => text.replacen("jetstream {", &format!("jetstream {{ domain: {domain},"), 1),
        None => text,
    }
}

fn allowed() -> Vec<String> {
    let mut allowed: Vec<String> = [
        "wh.ingest.>",
        "wh.dlq.>",
        "wh.live.>",
        "$JS.API.INFO",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.INFO.*",
        "$JS.API.CONSUMER.INFO.*.*",
        "$JS.API.CONSUMER.NAMES.*",
        "$JS.API.CONSUMER.CREATE.WH_HISTORY.>",
        "$JS.API.CONSUMER.MSG.NEXT.WH_HISTORY.>",
        "$JS.API.CONSUMER.DELETE.WH_HISTORY.>",
        "$KV.wh_coord.lease.>",
        "$JS.API.DIRECT.GET.KV_wh_coord.$KV.wh_coord.lease.>",
        "$JS.API.STREAM.MSG.GET.WH_DLQ",
        "$JS.API.STREAM.MSG.DELETE.WH_DLQ",
    ]
    .map(str::to_owned)
    .to_vec();
    for shard in 0..SHARDS {
        for verb in ["MSG.NEXT", "UNPIN", "RESET"] {
            allowed.push(format!("$JS.API.CONSUMER.{verb}.*.wh-ingest-{shard}"));
        }
        allowed.push(format!("$JS.ACK.*.wh-ingest-{shard}.>"));
        allowed.push(format!("$JS.ACK.*.*.*.wh-ingest-{shard}.>"));
    }
    allowed
}

fn denied() -> Vec<String> {
    let verbs = [
        "STREAM.CREATE.>",
        "STREAM.UPDATE.>",
        "STREAM.DELETE.>",
        "STREAM.PURGE.>",
        "CONSUMER.DURABLE.CREATE.>",
    ];
    let denied = verbs.map(|verb| format!("$JS.API.{verb}"));
    std::iter::once("wh.hist.>".to_owned()).chain(denied).collect()
}

async fn make_objects(operator: &JetStream) {
    make_stream(
        operator,
        PARTITION,
        json!({
            "subjects": ["wh.ingest.0.>"], "retention": "workqueue", "discard": "new", "max_bytes": 64_000_000,
            "max_msgs_per_subject": 1000, "discard_new_per_subject": true,
            "republish": {"src": "wh.ingest.0.*.>", "dest": "wh.hist.>"},
        }),
    )
    .await;
    make_stream(operator, HISTORY, json!({"subjects": ["wh.hist.>"], "max_age": 900_000_000_000_u64})).await;
    make_stream(
        operator,
        LETTERS,
        json!({"subjects": ["wh.dlq.>"], "max_msgs_per_subject": 3, "discard": "old"}),
    )
    .await;
    make_stream(
        operator,
        &format!("KV_{BUCKET}"),
        json!({"subjects": [format!("$KV.{BUCKET}.>")], "max_msgs_per_subject": 1, "allow_direct": true, "discard": "new"}),
    )
    .await;
    for shard in 0..SHARDS {
        make_durable(operator, &format!("wh-ingest-{shard}"), &format!("wh.ingest.0.{shard}.>"), json!({}))
            .await;
    }
}

pub(crate) async fn make_stream(operator: &JetStream, name: &str, mut config: Value) {
    config["name"] = name.into();
    config["storage"] = "file".into();
    // Not while the files of one of that name are going that was removed a moment ago.
    let made = wait_for("a store for the stream", LONG, async || {
        let made = operator.call::<Value>(&format!("STREAM.CREATE.{name}"), body(&config)).await;
        let is_going = made.as_ref().is_err_and(|error| error.code() == Some(STORE_NOT_MADE));
        (!is_going).then_some(made)
    });
    made.await.expect("the stream is made");
}

/// A durable of the partition whose pin lapses after two seconds.
pub(crate) async fn make_durable(operator: &JetStream, name: &str, filter: &str, more: Value) {
    let mut config = json!({
        "durable_name": name, "ack_policy": "explicit", "ack_wait": 60_000_000_000_u64, "max_deliver": -1,
        "filter_subject": filter, "priority_policy": "pinned_client", "priority_groups": [GROUP],
        "priority_timeout": 2_000_000_000_u64, "max_ack_pending": 1000,
    });
    let more = more.as_object().cloned().unwrap_or_default();
    config.as_object_mut().expect("an object").extend(more);
    let request = json!({"stream_name": PARTITION, "config": config, "action": "create"});
    let verb = format!("CONSUMER.CREATE.{PARTITION}.{name}.{filter}");
    operator.call::<Value>(&verb, body(&request)).await.expect("the durable is made");
}

/// A file with a password that is the user's name; line ends after it do not count.
fn password_file(server: &NatsServer, user: &str) -> PathBuf {
    let path = server.dir().join(format!("{user}.password"));
    std::fs::write(&path, format!("{user}\r\n")).expect("written");
    path
}
