//! The official clients, unchanged.

use std::path::Path;
use std::process::Command;

use wavehouse_testkit::{Engine, deps};

/// Runs a script of `tests/clients` to its end; what it printed goes into the failure.
async fn passes(mut command: Command) {
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
}

fn script(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn node_client_passes() {
    let engine = Engine::start().await;
    let mut command = Command::new("node");
    command.arg(script("node_client.cjs")).args([&engine.url(), &engine.user, &engine.password]);
    command.env("NODE_PATH", deps::path("node/node_modules"));
    passes(command).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_client_passes() {
    let engine = Engine::start().await;
    let mut command = Command::new("python3");
    command.arg(script("python_client.py")).args([
        "127.0.0.1",
        &engine.port().to_string(),
        &engine.user,
        &engine.password,
    ]);
    command.env("PYTHONPATH", deps::path("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    passes(command).await;
}
