//! Starting, stopping and dying.

use std::process::{Command, Stdio};
use std::time::Duration;

use wavehouse_testkit::{Engine, deps, wait_for};

use crate::raw;

const PATIENCE: Duration = Duration::from_secs(60);

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_wavehouse-clickhouse"))
}

#[tokio::test]
async fn acknowledged_inserts_survive_a_kill() {
    let mut engine = Engine::start().await;
    engine.query("CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a").await;
    let mut acknowledged = 0_u64;
    for round in 0..3 {
        let mut inserts = tokio::task::JoinSet::new();
        let (url, login) = (engine.port(), raw::head(&engine, "/", "connection: close\r\n"));
        let first = round * 1_000_000;
        inserts.spawn(async move {
            let mut good = 0_u64;
            loop {
                let body =
                    format!("INSERT INTO t SELECT {first} + {good} * 1000 + number FROM numbers(1000)");
                let head =
                    login.replacen("connection", &format!("content-length: {}\r\nconnection", body.len()), 1);
                match exchange(url, &format!("{head}{body}")).await {
                    Some(answer) if answer.starts_with("HTTP/1.1 200") => good += 1,
                    _ => return good,
                }
            }
        });
        wait_for("inserts to land", PATIENCE, async || {
            let sql = format!("SELECT count() FROM t WHERE a >= {first}");
            engine.query(&sql).await.trim().parse::<u64>().unwrap() >= 20_000
        })
        .await;
        engine.kill9();
        let good = inserts.join_next().await.unwrap().unwrap();
        assert!(good >= 19, "{good} inserts were acknowledged");
        acknowledged += good * 1000;
        engine.restart().await;
        let row = engine.query("SELECT count(), uniqExact(a), countIf(a % 1000 = 0) FROM t").await;
        let counts: Vec<u64> = row.split_whitespace().map(|count| count.parse().unwrap()).collect();
        assert_eq!(counts[0], counts[1], "no row twice");
        assert_eq!(counts[0], counts[2] * 1000, "no insert in part");
        assert!(counts[0] >= acknowledged, "{} of {acknowledged} acknowledged rows", counts[0]);
        // The last insert of a round may have been stored without its answer.
        acknowledged = counts[0];
    }
}

async fn exchange(port: u16, request: &str) -> Option<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

#[tokio::test]
async fn a_stop_lets_running_queries_finish() {
    let mut engine = Engine::start().await;
    let sql = b"SELECT 'm4', sleepEachRow(1) FROM numbers(2) SETTINGS max_block_size = 1";
    let client = raw::send(&engine, "/", "connection: close\r\n", sql).await;
    let live =
        "SELECT count() FROM system.processes WHERE query LIKE '%m4%' AND query NOT LIKE '%processes%'";
    wait_for("the query to run", PATIENCE, async || engine.query(live).await == "1\n").await;
    let (status, answer) = tokio::join!(engine.terminate(), raw::read_all(client));
    assert_eq!(status.code(), Some(0), "{}", engine.log());
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("m4\t0\nm4\t0\n"), "{answer}");
    engine.restart().await;
    assert_eq!(engine.query("SELECT 1").await, "1\n");
}

#[tokio::test]
async fn a_directory_in_use_is_refused_with_who_uses_it() {
    let engine = Engine::start().await;
    let mut second = program();
    second.arg("--path").arg(engine.data_dir()).args(["--listen", "127.0.0.1:0"]);
    second.arg("--libchdb").arg(deps::path("chdb/libchdb.so"));
    let output = tokio::task::spawn_blocking(move || second.output()).await.unwrap().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(76), "{log}");
    assert!(log.contains("Code: 76") && log.contains(&format!("process {}", engine.pid())), "{log}");
    assert_eq!(engine.query("SELECT 1").await, "1\n");
}

#[tokio::test]
async fn what_keeps_it_from_starting_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let library = deps::path("chdb/libchdb.so");
    let library = library.to_str().unwrap();
    let no_library = dir.path().join("absent.so");
    let free = "127.0.0.1:0";
    for (args, want) in [
        (vec!["--path", data, "--listen", free, "--libchdb", no_library.to_str().unwrap()], "make deps"),
        (vec!["--path", "/proc/none", "--listen", free, "--libchdb", library], "/proc/none"),
        (vec!["--path", data, "--listen", &taken, "--libchdb", library], "is another server there?"),
        (
            vec!["--path", data, "--listen", free, "--libchdb", library, "--password-file", "/absent"],
            "/absent",
        ),
    ] {
        let output = program().args(&args).stdin(Stdio::null()).output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {log}");
        assert!(log.contains(want), "{args:?}: {log}");
    }
}

#[tokio::test]
async fn it_ends_with_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = program();
    command.arg("--path").arg(dir.path().join("data")).args([
        "--listen",
        "127.0.0.1:0",
        "--exit-with-parent",
    ]);
    command.arg("--libchdb").arg(deps::path("chdb/libchdb.so"));
    // A parent that dies closes its end of the pipe; so does dropping it.
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the engine to hold its directory", PATIENCE, async || dir.path().join("data/status").exists())
        .await;
    assert!(child.try_wait().unwrap().is_none());
    drop(child.stdin.take());
    let status = wait_for("the engine to end", PATIENCE, async || child.try_wait().unwrap()).await;
    assert_eq!(status.code(), Some(0));
}
