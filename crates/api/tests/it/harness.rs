//! The HTTP face over a broker in memory and a real engine, and a client that speaks to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wavehouse_api::{Access, Api, ApiHandle, ApiOptions, ApiParts, Cors, Metrics, VersionInfo};
use wavehouse_broker::conformance::{MemoryBroker, MemoryOptions};
use wavehouse_broker::{Broker, HistoryEvent, HistoryFilter, HistoryStart};
use wavehouse_clickhouse::{CatalogOptions, ClickHouseMetrics, Connection, Secret, Target};
use wavehouse_testkit::Engine;

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

pub(crate) fn open_options() -> ApiOptions {
    ApiOptions {
        access: Access::Open,
        cors: Cors::Off,
        loopback_port: None,
        metrics_path: Some("/metrics".to_owned()),
        bodies_in_flight_bytes_max: 64 << 20,
        keepalive: Duration::from_secs(30),
        ready_with_queue: false,
        version: VersionInfo {
            version: "9.9.9".to_owned(),
            git_commit: "abc".to_owned(),
            build_time: String::new(),
            rust_version: "1".to_owned(),
        },
    }
}

pub(crate) struct Harness {
    pub(crate) broker: Arc<MemoryBroker>,
    pub(crate) connection: Arc<Connection>,
    pub(crate) handle: ApiHandle,
    pub(crate) stop: CancellationToken,
    pub(crate) port: u16,
    pub(crate) serving: JoinSet<()>,
    client: HttpClient<HttpConnector, Full<Bytes>>,
}

impl Harness {
    /// A face whose tables are known.
    pub(crate) async fn start(engine: &Engine, options: ApiOptions) -> Self {
        let harness = Self::start_at(&engine.url(), engine, options, MemoryOptions::default()).await;
        harness.connection.catalog.refresh().await.expect("the engine answers");
        harness
    }

    pub(crate) async fn start_at(
        url: &str,
        engine: &Engine,
        options: ApiOptions,
        memory: MemoryOptions,
    ) -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let target = Target::new(url, &engine.user, Secret::new(&engine.password), "default");
        let clickhouse = ClickHouseMetrics::register(&mut registry);
        let connection = Arc::new(Connection::new(target, CatalogOptions::default(), &clickhouse).unwrap());
        let broker = Arc::new(MemoryBroker::new(memory));
        let api = Api::new(
            options,
            ApiParts {
                broker: Arc::clone(&broker) as Arc<dyn Broker>,
                connection: Arc::clone(&connection),
                registry: Arc::new(registry),
                metrics,
                process_id: 7,
            },
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (handle, stop, mut serving) = (api.handle(), CancellationToken::new(), JoinSet::new());
        serving.spawn(api.serve(listener, stop.clone()));
        let client = HttpClient::builder(TokioExecutor::new()).build_http();
        Self { broker, connection, handle, stop, port, serving, client }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request =
            Request::builder().method(method).uri(format!("http://127.0.0.1:{}{path}", self.port));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response =
            self.client.request(request.body(Full::new(body.into())).unwrap()).await.expect("an answer");
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.expect("a whole answer").to_bytes();
        Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    pub(crate) async fn ingest(
        &self,
        table: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.send("POST", &format!("/v1/ingest?table={table}"), headers, body).await
    }

    /// Every row that the broker has, in order.
    pub(crate) async fn stored(&self) -> Vec<String> {
        let start = HistoryStart::Since(wavehouse_core::Timestamp(0));
        let mut history = self.broker.open_history(start, HistoryFilter::All).await.unwrap();
        let mut rows = Vec::new();
        loop {
            let event =
                tokio::time::timeout(Duration::from_secs(5), history.next()).await.expect("history").unwrap();
            match event {
                HistoryEvent::Block { stored, .. } => {
                    rows.extend(stored.block.lines().map(|line| String::from_utf8(line.to_vec()).unwrap()));
                }
                HistoryEvent::CaughtUp => return rows,
                HistoryEvent::Hole { .. } => panic!("hole"),
            }
        }
    }
}
