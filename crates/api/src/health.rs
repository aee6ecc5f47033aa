//! Is the process alive, is it ready, what is it, and its metrics.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use serde_json::json;

use crate::body::Body;
use crate::error::ApiError;
use crate::respond::{empty, json, with_status};
use crate::shared::Shared;
use crate::tenant;

/// How long one answer of ClickHouse's ping serves every probe.
const PING_KEPT: Duration = Duration::from_secs(1);
/// How long a probe waits for ClickHouse's ping.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
const METRICS_MEDIA: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The last outcome of a ping, and when.
pub(crate) type PingMemory = tokio::sync::Mutex<Option<(Instant, Result<(), String>)>>;

fn status(status: StatusCode, value: &serde_json::Value) -> Response<Body> {
    with_status(status, "application/json", Bytes::from(format!("{value}\n")))
}

/// Alive: the tables were discovered once since boot.
pub(crate) fn livez(shared: &Shared) -> Response<Body> {
    match shared.undiscovered() {
        None => status(StatusCode::OK, &json!({"status": "ok"})),
        Some(cause) => status(
            StatusCode::SERVICE_UNAVAILABLE,
            &json!({"status": "degraded", "error": format!("schema discovery: {cause}")}),
        ),
    }
}

/// Ready: not stopping, a shared queue takes rows, the tables are known, and ClickHouse answers. One ping serves all probes of a second.
pub(crate) async fn readyz(shared: &Shared) -> Response<Body> {
    let outcome = if !shared.is_ready() {
        Err("shutting down".to_owned())
    } else if let Some(cause) = shared.queue_trouble() {
        Err(cause)
    } else if shared.undiscovered().is_some() {
        Err("schema not loaded yet".to_owned())
    } else {
        pinged(shared).await
    };
    match outcome {
        Ok(()) => status(StatusCode::OK, &json!({"status": "ready"})),
        Err(cause) => {
            status(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "not ready", "error": cause}))
        }
    }
}

async fn pinged(shared: &Shared) -> Result<(), String> {
    let mut memory = shared.ping.lock().await;
    if let Some((at, outcome)) = memory.as_ref()
        && at.elapsed() < PING_KEPT
    {
        return outcome.clone();
    }
    let outcome = match tokio::time::timeout(PING_TIMEOUT, shared.connection.client.ping()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            // The cause names addresses and users: it is for the log, not for whoever can reach a probe.
            tracing::debug!(error = %wavehouse_core::chain(&error), "clickhouse does not answer");
            Err("clickhouse does not answer".to_owned())
        }
        Err(_elapsed) => Err("clickhouse did not answer in time".to_owned()),
    };
    *memory = Some((Instant::now(), outcome.clone()));
    outcome
}

/// As [`livez`], without a body, for browsers.
pub(crate) fn content_free(shared: &Shared, headers: &HeaderMap) -> Result<Response<Body>, ApiError> {
    tenant::of_header(headers, &shared.tenant)?;
    let found = shared.undiscovered().is_none();
    Ok(empty(if found { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }))
}

/// What is running.
pub(crate) fn version(shared: &Shared) -> Response<Body> {
    json(Bytes::from(format!("{}\n", shared.options.version.answer())))
}

/// Every metric of the process.
pub(crate) fn metrics(shared: &Shared) -> Result<Response<Body>, ApiError> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &shared.registry).map_err(|_| ApiError::Internal)?;
    Ok(with_status(StatusCode::OK, METRICS_MEDIA, text.into()))
}
