//! Message servers for the whole program: one server with an operator and the user that WaveHouse serves as, who may do
//! what `wavehouse mq permissions` says and no more.
#![expect(clippy::unwrap_used, reason = "a harness has nothing to do about a machine that fails it")]

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use wavehouse_nats::{ConnectOptions, Connection, JetStream};
use wavehouse_testkit::NatsServer;
use wavehouse_topology::{Permissions, TopologyInput, TopologySpec, permissions};

use crate::program::run;

/// What manifests ask of the small store of a test's server.
pub(crate) const SMALL: &str = "--replicas 1 --file-store 1G";

/// A server with both users.
pub(crate) struct Servers {
    pub(crate) server: NatsServer,
    pub(crate) spec: TopologySpec,
}

impl Servers {
    /// Starts one for so many partitions and shards; nothing is provisioned.
    pub(crate) async fn start(partitions: u64, shards: u64) -> Self {
        let input = TopologyInput { partitions, shards, replicas: 1, ..TopologyInput::default() };
        let spec = input.check().unwrap();
        let server = NatsServer::start(&config(&permissions(&spec))).await;
        for user in ["operator", "wavehouse"] {
            fs::write(server.dir().join(format!("{user}.password")), format!("{user}\n")).unwrap();
        }
        Self { server, spec }
    }

    /// The same with everything that must exist.
    pub(crate) async fn provisioned(partitions: u64, shards: u64) -> Self {
        let servers = Self::start(partitions, shards).await;
        let (code, out, err) = servers.provision("");
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        servers
    }

    /// Provisions as the operator.
    pub(crate) fn provision(&self, more: &str) -> (i32, String, String) {
        self.mq(&format!("provision {} {} {SMALL} {more}", self.flags("operator"), self.counts()))
    }

    /// `--partitions N --shards V`.
    pub(crate) fn counts(&self) -> String {
        let placement = self.spec.placement();
        format!("--partitions {} --shards {}", placement.partitions(), placement.shards())
    }

    /// Flags that connect as a user.
    pub(crate) fn flags(&self, user: &str) -> String {
        let file = self.password_file(user);
        format!("--server {} --user {user} --password-file {}", self.server.url(), file.display())
    }

    pub(crate) fn password_file(&self, user: &str) -> PathBuf {
        self.server.dir().join(format!("{user}.password"))
    }

    /// Runs a command line; exit code, standard output, standard error.
    pub(crate) fn mq(&self, line: &str) -> (i32, String, String) {
        self.mq_with(line, &[])
    }

    /// The same with variables.
    pub(crate) fn mq_with(&self, line: &str, env: &[(&str, &str)]) -> (i32, String, String) {
        let dir = tempfile::tempdir().unwrap();
        let words: Vec<&str> = std::iter::once("mq").chain(line.split_whitespace()).collect();
        let output = run(dir.path(), &words, env);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    /// Variables with which a process serves from here.
    pub(crate) fn env(&self) -> Vec<(String, String)> {
        let placement = self.spec.placement();
        let password_file = self.password_file("wavehouse").display().to_string();
        [
            ("WH_MQ_BACKEND", "nats".to_owned()),
            ("WH_COORD_BACKEND", "nats".to_owned()),
            ("WH_MQ_NATS_URLS", self.server.url()),
            ("WH_MQ_NATS_USER", "wavehouse".to_owned()),
            ("WH_MQ_NATS_PASSWORD_FILE", password_file),
            ("WH_MQ_NATS_PARTITIONS", placement.partitions().to_string()),
            ("WH_MQ_NATS_SHARDS", placement.shards().to_string()),
        ]
        .map(|(name, text)| (name.to_owned(), text))
        .to_vec()
    }

    /// Takes from WaveHouse's user, as it is connected, the right to publish to this.
    pub(crate) async fn restrict(&mut self, subject: &str) {
        let mut granted = permissions(&self.spec);
        granted.publish_allow.retain(|allowed| !allowed.contains(subject));
        self.server.reload(&config(&granted)).await;
    }

    /// Requests as the operator.
    pub(crate) async fn operator(&self) -> JetStream {
        let options = ConnectOptions {
            urls: vec![self.server.url()],
            user: Some("operator".to_owned()),
            password_file: Some(self.password_file("operator")),
            ..ConnectOptions::default()
        };
        let connection = Connection::open(&options).await.unwrap();
        assert!(connection.connected().await);
        connection.jetstream()
    }
}

/// JSON is what the servers read too.
fn config(granted: &Permissions) -> String {
    let permissions = json!({
        "publish": {"allow": granted.publish_allow, "deny": granted.publish_deny},
        "subscribe": {"allow": granted.subscribe_allow},
    });
    let accounts = json!({"WH": {"jetstream": "enabled", "users": [
        {"user": "operator", "password": "operator"},
        {"user": "wavehouse", "password": "wavehouse", "permissions": permissions},
    ]}});
    NatsServer::jetstream_config(&format!("accounts: {accounts}"))
}
