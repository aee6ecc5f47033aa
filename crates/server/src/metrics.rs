//! Metrics: what this program measures of itself beside what its parts count, the listing of all of them, and a port of
//! their own for installations whose main port is public.

mod depths;
mod letters;
mod listing;
mod parts;
mod process;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) use depths::Depths;
pub(crate) use letters::LetterGauges;
pub(crate) use listing::page as reference_page;
pub(crate) use parts::Parts;
pub(crate) use process::Process;

/// Tables that have series of their own in gauges that are read when asked.
const TABLES_NAMED_MAX: usize = 50;
/// The name under which the rest stands.
const OTHER: &str = "other";

/// Scrapers that are answered at once; more wait in the listener's queue.
const CONNECTIONS_MAX: usize = 32;
/// A connection is closed after this long, whatever it does; scrapers connect anew.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// After a failed accept, such as for want of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
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
    let path: Arc<str> = path.into();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _peer)) => {
                    connections.spawn(connection(stream, Arc::clone(&path), Arc::clone(&registry)));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a scraper");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
}

async fn connection(stream: TcpStream, path: Arc<str>, registry: Arc<Registry>) {
    let service = service_fn(move |request| {
        let response = answer(&request, &path, &registry);
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let serving =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = timeout(CONNECTION_TIMEOUT, serving).await {
        tracing::debug!(%error, "scraper went early");
    }
}

fn answer(request: &Request<Incoming>, path: &str, registry: &Registry) -> Response<Full<Bytes>> {
    let mut text = String::new();
    let (status, body) = if request.uri().path() != path {
        (StatusCode::NOT_FOUND, format!("metrics are at {path}\n"))
    } else if request.method() != Method::GET {
        (StatusCode::METHOD_NOT_ALLOWED, "GET only\n".to_owned())
    } else if prometheus_client::encoding::text::encode(&mut text, registry).is_err() {
        (StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written\n".to_owned())
    } else {
        (StatusCode::OK, text)
    };
    let media = if status == StatusCode::OK { MEDIA } else { "text/plain" };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media));
    response
}
