//! Metrics: what this program measures of itself beside what its parts count, the listing of all of them, and a port of
//! their own for installations whose main port is public.

mod depths;
mod letters;
mod listing;
mod message_servers;
mod parts;
mod process;

use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::listener::{self, Answer};

pub(crate) use depths::Depths;
pub(crate) use letters::LetterGauges;
pub(crate) use listing::page as reference_page;
pub(crate) use message_servers::MessageServers;
pub(crate) use parts::Parts;
pub(crate) use process::Process;

/// Tables that have series of their own in gauges that are read when asked.
const TABLES_NAMED_MAX: usize = 50;
/// The name under which the rest stands.
const OTHER: &str = "other";

const MEDIA: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves the registry on `path` until `stop`.
///
/// # Errors
/// Never; a client's failure is its own.
pub(crate) async fn serve(
    listener: TcpListener,
    path: String,
    registry: Arc<Registry>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let answer = move |request: Request<Incoming>| {
        let found = request.uri().path() == path;
        std::future::ready(if found {
            text(request.method(), &registry)
        } else {
            listener::answer(StatusCode::NOT_FOUND, "text/plain", format!("metrics are at {path}\n"))
        })
    };
    listener::serve(listener, answer, stop).await
}

/// The registry's text, for a request that has found it.
pub(crate) fn text(method: &Method, registry: &Registry) -> Answer {
    let mut text = String::new();
    let (status, body) = if method != Method::GET {
        (StatusCode::METHOD_NOT_ALLOWED, "GET only\n".to_owned())
    } else if prometheus_client::encoding::text::encode(&mut text, registry).is_err() {
        (StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written\n".to_owned())
    } else {
        (StatusCode::OK, text)
    };
    listener::answer(status, if status == StatusCode::OK { MEDIA } else { "text/plain" }, body)
}
