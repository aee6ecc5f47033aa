//! What a process without the gateway's face answers: is it alive, is it ready, what is it, its metrics. Everything else
//! is not here.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Incoming;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wavehouse_api::VersionInfo;
use wavehouse_broker::{BrokerHealth, SharedBroker};
use wavehouse_clickhouse::Connection;

use crate::listener::{self, Answer};
use crate::metrics;

/// How long a probe waits for ClickHouse's ping.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// What the answers are made from.
pub(crate) struct Ops {
    /// The queue that rows come from.
    pub(crate) broker: SharedBroker,
    /// The ClickHouse that rows go to.
    pub(crate) connection: Arc<Connection>,
    /// Every metric of the process.
    pub(crate) registry: Arc<Registry>,
    /// Where metrics are read here, if they are.
    pub(crate) metrics_path: Option<String>,
    /// What is running.
    pub(crate) version: VersionInfo,
}

/// Answers until `stop`; from `unready` on the process is not ready.
///
/// # Errors
/// Never; a client's failure is its own.
pub(crate) async fn serve(
    ops: Ops,
    listener: TcpListener,
    unready: CancellationToken,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let ops = Arc::new(ops);
    let answer = move |request: Request<Incoming>| {
        let (ops, unready) = (Arc::clone(&ops), unready.clone());
        async move { ops.answer(&request, unready.is_cancelled()).await }
    };
    listener::serve(listener, answer, stop).await
}

impl Ops {
    async fn answer(&self, request: &Request<Incoming>, stopping: bool) -> Answer {
        let (method, path) = (request.method(), request.uri().path());
        if self.metrics_path.as_deref() == Some(path) {
            return metrics::text(method, &self.registry);
        }
        let known = matches!(path, "/livez" | "/healthz" | "/health" | "/readyz" | "/ready" | "/version");
        if known && method != Method::GET && method != Method::HEAD {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
        }
        match path {
            "/livez" | "/healthz" | "/health" => told(StatusCode::OK, &json!({"status": "ok"})),
            "/readyz" | "/ready" => self.ready(stopping).await,
            "/version" => told(StatusCode::OK, &self.version.answer()),
            _ if path.starts_with("/v1/ops") => refuse(ops_status(request.headers()), "not served here"),
            _ => refuse(StatusCode::NOT_FOUND, "not found"),
        }
    }

    /// Ready: not stopping, the queue is reached, and ClickHouse answers.
    async fn ready(&self, stopping: bool) -> Answer {
        let cause = if stopping {
            Some("shutting down".to_owned())
        } else if let Some(cause) = self.queue_trouble() {
            Some(cause)
        } else {
            match timeout(PING_TIMEOUT, self.connection.client.ping()).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => {
                    // The cause names addresses and users: it is for the log, not for whoever can reach a probe.
                    tracing::debug!(error = %wavehouse_core::chain(&error), "clickhouse does not answer");
                    Some("clickhouse does not answer".to_owned())
                }
                Err(_elapsed) => Some("clickhouse did not answer in time".to_owned()),
            }
        };
        match cause {
            None => told(StatusCode::OK, &json!({"status": "ready"})),
            Some(cause) => {
                told(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "not ready", "error": cause}))
            }
        }
    }

    fn queue_trouble(&self) -> Option<String> {
        match &*self.broker.health().borrow() {
            BrokerHealth::Good => None,
            BrokerHealth::Refusing { reason } | BrokerHealth::Failed { reason } => Some(reason.clone()),
        }
    }
}

/// Operators' routes are on the processes with the gateway's face; here nobody verifies a token, and a stranger is not
/// told what there is.
fn ops_status(headers: &HeaderMap) -> StatusCode {
    let authorization = headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match authorization {
        Some(text) if text.starts_with("Bearer ") => StatusCode::UNAUTHORIZED,
        None if !headers.contains_key("x-operator-key") => StatusCode::FORBIDDEN,
        _ => StatusCode::NOT_FOUND,
    }
}

fn told(status: StatusCode, value: &Value) -> Answer {
    listener::answer(status, "application/json", format!("{value}\n"))
}

fn refuse(status: StatusCode, error: &str) -> Answer {
    told(status, &json!({"error": error}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_routes_are_elsewhere() {
        let status = |headers: &[(&'static str, &'static str)]| {
            let headers = headers.iter().map(|(name, text)| {
                (http::HeaderName::from_static(name), http::HeaderValue::from_static(text))
            });
            ops_status(&headers.collect()).as_u16()
        };
        assert_eq!(status(&[]), 403);
        assert_eq!(status(&[("authorization", "Bearer x")]), 401);
        assert_eq!(status(&[("authorization", "Operator x")]), 404);
        assert_eq!(status(&[("x-operator-key", "x")]), 404);
    }
}
