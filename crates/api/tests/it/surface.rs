//! What every answer carries, who may call, and how it ends.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wavehouse_api::{Access, ApiOptions, Cors};
use wavehouse_testkit::Engine;

use crate::harness::{Harness, open_options};

#[tokio::test]
async fn without_the_key_only_public_routes_answer() {
    let engine = Engine::start().await;
    let access = Access::Key(Some("secret".to_owned()));
    let api = Harness::start(&engine, ApiOptions { access, ..open_options() }).await;
    for path in ["/livez", "/healthz", "/readyz", "/version", "/metrics", "/v1/health"] {
        assert_eq!(api.send("GET", path, &[], "").await.status, 200, "{path}");
    }
    for (method, path) in
        [("POST", "/v1/ingest?table=t"), ("POST", "/v1/ops/query"), ("GET", "/v1/ops/schema")]
    {
        let none = api.send(method, path, &[], "{}").await;
        assert_eq!(none.status, 403, "{path}");
        assert!(none.error().contains("operator key"), "{}", none.text);
        assert_eq!(api.send(method, path, &[("x-operator-key", "wrong")], "{}").await.status, 403);
        assert_ne!(api.send(method, path, &[("x-operator-key", "secret")], "{}").await.status, 403);
        assert_ne!(api.send(method, path, &[("authorization", "Operator secret")], "{}").await.status, 403);
    }
    let metrics = api.send("GET", "/metrics", &[], "").await.text;
    assert!(metrics.contains("wavehouse_auth_operator_key_failures_total 3"), "{metrics}");
}

#[tokio::test]
async fn unknown_ways_request_ids_and_cors() {
    let engine = Engine::start().await;
    let cors = Cors::Allow(vec!["https://a.example".to_owned()]);
    let api = Harness::start(&engine, ApiOptions { cors, ..open_options() }).await;
    assert_eq!(api.send("GET", "/nope", &[], "").await.error(), "not found");
    let wrong = api.send("GET", "/v1/ingest", &[("origin", "https://a.example")], "").await;
    assert_eq!((wrong.status, wrong.error().as_str()), (405, "method not allowed"));
    assert_eq!(
        wrong.header("access-control-allow-origin"),
        Some("https://a.example"),
        "refusals are readable too"
    );
    let preflight = api.send("OPTIONS", "/anything", &[("origin", "https://b.example")], "").await;
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, None));
    let one = api.send("GET", "/version", &[("x-request-id", "mine")], "").await;
    assert_eq!(one.header("x-request-id"), Some("mine"));
    assert_eq!(one.json()["version"], "9.9.9");
    let (two, three) =
        (api.send("GET", "/version", &[], "").await, api.send("GET", "/version", &[], "").await);
    assert_ne!(two.header("x-request-id"), three.header("x-request-id"));
}

#[tokio::test]
async fn a_development_server_answers_only_to_its_own_name() {
    let engine = Engine::start().await;
    // The harness's port is not known before it starts; a host without a port is enough to be right or wrong.
    let api = Harness::start(&engine, ApiOptions { loopback_port: Some(1), ..open_options() }).await;
    assert_eq!(api.send("GET", "/version", &[("host", "localhost")], "").await.status, 200);
    let other =
        api.send("POST", "/v1/ops/query", &[("host", "evil.example")], "{\"sql\":\"SELECT 1\"}").await;
    assert_eq!(other.status, 403);
}

#[tokio::test]
async fn a_stop_finishes_what_has_begun() {
    let engine = Engine::start().await;
    engine.query("CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a").await;
    let mut api = Harness::start(&engine, open_options()).await;
    let mut begun = TcpStream::connect(("127.0.0.1", api.port)).await.unwrap();
    let idle = TcpStream::connect(("127.0.0.1", api.port)).await.unwrap();
    begun
        .write_all(b"POST /v1/ingest?table=t HTTP/1.1\r\nhost: x\r\ncontent-length: 7\r\n\r\n{\"a\"")
        .await
        .unwrap();
    // The answer to another request proves that the server has had time to read the head of the first.
    assert_eq!(api.send("GET", "/version", &[], "").await.status, 200);
    api.handle.set_unready();
    assert_eq!(api.send("GET", "/readyz", &[], "").await.status, 503);
    api.stop.cancel();
    begun.write_all(b":1}").await.unwrap();
    let mut answer = String::new();
    begun.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.ends_with("{\"ok\":true}\n"), "{answer}");
    drop(idle);
    let ended = tokio::time::timeout(Duration::from_secs(5), api.serving.join_next()).await;
    assert!(ended.is_ok(), "serving ends once the connections have");
    assert!(TcpStream::connect(("127.0.0.1", api.port)).await.is_err());
    assert_eq!(api.stored().await, ["{\"a\":1}"]);
}

#[tokio::test]
async fn a_slow_head_is_cut_off_and_garbage_is_400() {
    let engine = Engine::start().await;
    let api = Harness::start(&engine, open_options()).await;
    let mut stream = TcpStream::connect(("127.0.0.1", api.port)).await.unwrap();
    stream.write_all(b"this is not http\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let mut slow = TcpStream::connect(("127.0.0.1", api.port)).await.unwrap();
    slow.write_all(b"GET /version HT").await.unwrap();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(15), slow.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "a head that never ends holds no connection");
}
