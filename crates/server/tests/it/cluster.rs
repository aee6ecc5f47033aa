//! `make cluster`, as its script makes it: rows taken by one process, seen at the other, written by a third.
#![expect(clippy::unwrap_used, reason = "a harness has nothing to do about a machine that fails it")]

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wavehouse_testkit::{deps, free_port, wait_for};

use crate::http::Client;
use crate::program::SOON;

/// Ports that the script takes.
const PORTS: u16 = 24;

/// A cluster that may run; ended on drop.
struct Cluster {
    dir: TempDir,
    port: u16,
}

impl Cluster {
    fn new() -> Self {
        let _built =
            deps::program("wavehouse-clickhouse", "wavehouse-clickhouse-embedded", "clickhouse-embedded");
        // Below those that the system gives out by itself.
        let port = 20_000 + free_port() % 400 * PORTS;
        Self { dir: tempfile::tempdir().unwrap(), port }
    }

    fn script(&self, word: &str) -> Output {
        let programs = Path::new(env!("CARGO_BIN_EXE_wavehouse")).parent().unwrap();
        Command::new(deps::root().join("scripts/cluster"))
            .arg(word)
            .env("CLUSTER_DIR", self.dir.path())
            .env("CLUSTER_PORT", self.port.to_string())
            .env("PROGRAMS", programs)
            .output()
            .unwrap()
    }

    fn up(&self) -> String {
        let output = self.script("up");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn client(&self, number: u16) -> Client {
        let key = std::fs::read_to_string(self.dir.path().join("secrets/operator-key")).unwrap();
        Client::new(&format!("http://127.0.0.1:{}", self.port + number)).with("x-operator-key", &key)
    }

    /// A stream of the table, from now on.
    async fn watch(&self, number: u16) -> TcpStream {
        let key = std::fs::read_to_string(self.dir.path().join("secrets/operator-key")).unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port + number)).await.unwrap();
        let head =
            format!("GET /v1/stream?table=events HTTP/1.1\r\nHost: x\r\nX-Operator-Key: {key}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        read_until(&mut stream, ": connected").await;
        stream
    }

    fn running(&self) -> usize {
        String::from_utf8_lossy(&self.script("status").stdout).matches(" runs as ").count()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.script("down");
    }
}

async fn read_until(stream: &mut TcpStream, wanted: &str) {
    let mut read = Vec::new();
    let reading = async {
        let mut part = [0; 4096];
        while !String::from_utf8_lossy(&read).contains(wanted) {
            let count = stream.read(&mut part).await.unwrap();
            assert!(count > 0, "the stream ended:\n{}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&part[..count]);
        }
    };
    let found = tokio::time::timeout(SOON, reading).await;
    assert!(found.is_ok(), "{wanted} is not in\n{}", String::from_utf8_lossy(&read));
}

#[tokio::test]
async fn a_cluster_is_started_used_and_ended() {
    let cluster = Cluster::new();
    let page = cluster.up();
    assert!(page.contains(&format!("http://127.0.0.1:{}", cluster.port + 1)), "{page}");
    assert_eq!(cluster.running(), 8);

    let (mut at_1, mut at_2) = (cluster.watch(1).await, cluster.watch(2).await);
    for (number, user) in [(1, 7_001), (2, 7_002)] {
        let row = format!(r#"{{"name":"signup","user_id":{user}}}"#);
        let answer = cluster.client(number).post("/v1/ingest?table=events", row).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        for stream in [&mut at_1, &mut at_2] {
            read_until(stream, &user.to_string()).await;
        }
    }
    wait_for("both rows in ClickHouse", SOON, async || {
        let sql = r#"{"sql":"SELECT count() AS rows, sum(user_id) AS users FROM events"}"#;
        let answer = cluster.client(1).post("/v1/ops/query", sql).await;
        answer.text.contains(r#""rows":2,"users":14003"#)
    })
    .await;

    // Started again, it has nothing to do.
    cluster.up();
    assert_eq!(cluster.running(), 8);
    assert!(cluster.script("down").status.success());
    assert_eq!(cluster.running(), 0);
}
