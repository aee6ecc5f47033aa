//! A bare HTTP client over TCP, to see bytes that a library would hide and to hang up where it would not.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wavehouse_testkit::Engine;

/// A loaded machine may be slow; a server that hangs is worse than that.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection with a request's head and body already sent.
pub(crate) async fn send(engine: &Engine, target: &str, headers: &str, body: &[u8]) -> TcpStream {
    let mut stream = connect(engine).await;
    let head = head(engine, target, &format!("content-length: {}\r\n{headers}", body.len()));
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    stream
}

/// A connection with nothing sent.
pub(crate) async fn connect(engine: &Engine) -> TcpStream {
    TcpStream::connect(("127.0.0.1", engine.port())).await.unwrap()
}

/// The head of a POST with the engine's user; `headers` each end in CRLF.
pub(crate) fn head(engine: &Engine, target: &str, headers: &str) -> String {
    let Engine { user, password, .. } = engine;
    let login = format!("x-clickhouse-user: {user}\r\nx-clickhouse-key: {password}\r\n");
    format!("POST {target} HTTP/1.1\r\nhost: x\r\n{login}{headers}\r\n")
}

/// Everything until the server closes the connection.
pub(crate) async fn read_all(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the server closes").unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
