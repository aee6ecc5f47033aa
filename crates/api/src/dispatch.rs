//! One request, from head to answer: host, route, gate, handler; then what every answer carries.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use http::header::{HOST, ORIGIN, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::auth::{self, Verdict};
use crate::body::Body;
use crate::cors;
use crate::error::ApiError;
use crate::live::{self, Subscriber};
use crate::respond::empty;
use crate::route::{Gate, Route, route};
use crate::shared::Shared;
use crate::tenant::Query;
use crate::{dlq, health, ingest, ops};

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest request id that is taken from a client, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Answers a request. Nothing escapes: a refusal is an answer, and so is a panic.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let started = Instant::now();
    let request_id = request_id(&shared, &request);
    let origin = request.headers().get(ORIGIN).cloned();
    let (route_name, mut response) = if request.method() == Method::OPTIONS && origin.is_some() {
        ("preflight", empty(StatusCode::NO_CONTENT))
    } else {
        let found = admitted(&shared, &request);
        let name = found.as_ref().map_or("none", |route| route.name());
        let outcome = match found {
            Ok(route) => guarded(&shared, route, request).await,
            Err(error) => Err(error),
        };
        (name, outcome.unwrap_or_else(|error| refusal(&error, name, &request_id)))
    };
    finish(&shared, route_name, response.status().as_u16(), started);
    decorate(&shared, origin.as_ref(), request_id, response.headers_mut());
    Ok(response)
}

/// Judges a stream request that came on a socket of its own, by the same steps as every other.
///
/// # Errors
/// The refusal, whole.
pub(crate) async fn open_stream(
    shared: &Arc<Shared>,
    request: &Request<()>,
) -> Result<(Response<Body>, Subscriber), Response<Body>> {
    let started = Instant::now();
    let request_id = request_id(shared, request);
    let origin = request.headers().get(ORIGIN);
    let name = Route::Stream.name();
    let opened = match admitted(shared, request) {
        Ok(_stream) => subscribe(shared, request.uri().query(), request.headers()).await,
        Err(error) => Err(error),
    };
    let (mut response, subscriber) = match opened {
        Ok(subscriber) => (live::head(), Some(subscriber)),
        Err(error) => (refusal(&error, name, &request_id), None),
    };
    finish(shared, name, response.status().as_u16(), started);
    decorate(shared, origin, request_id, response.headers_mut());
    match subscriber {
        Some(subscriber) => Ok((response, subscriber)),
        None => Err(response),
    }
}

async fn subscribe(
    shared: &Shared,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Subscriber, ApiError> {
    live::open(shared, &Query::parse(query)?, headers).await
}

/// What every answer carries.
fn decorate(shared: &Shared, origin: Option<&HeaderValue>, request_id: HeaderValue, headers: &mut HeaderMap) {
    cors::decorate(&shared.options.cors, origin, headers);
    headers.insert(&REQUEST_ID, request_id);
}

fn finish(shared: &Shared, route: &'static str, status: u16, started: Instant) {
    shared.metrics.request(route, status, started.elapsed());
}

/// Host, route and gate, in this order.
fn admitted<B>(shared: &Shared, request: &Request<B>) -> Result<Route, ApiError> {
    if let Some(port) = shared.options.loopback_port {
        let host = request.headers().get(HOST).map_or("", |value| value.to_str().unwrap_or("?"));
        if !is_loopback_host(host, port) {
            return Err(ApiError::WrongHost(host.to_owned()));
        }
    }
    let path = request.uri().path();
    let route = route(request.method(), path, shared.options.metrics_path.as_deref())?;
    match auth::check(&shared.options.access, route.gate(), request.headers()) {
        Verdict::Pass => Ok(route),
        Verdict::Refuse { error, wrong_key } => {
            if wrong_key {
                shared.metrics.operator_key_failures.inc();
            }
            let (route, method) = (route.name(), request.method().as_str());
            tracing::warn!(route, method, wrong_key, reason = %error, "request denied");
            Err(error)
        }
    }
}

/// Whether a request's `Host` names this machine itself, so that no other site's page can reach an open server by a
/// name of its own that resolves to loopback.
fn is_loopback_host(host: &str, port: u16) -> bool {
    let name = host.strip_suffix(&format!(":{port}")).unwrap_or(host);
    matches!(name.to_ascii_lowercase().as_str(), "localhost" | "127.0.0.1" | "[::1]")
}

async fn guarded(
    shared: &Arc<Shared>,
    route: Route,
    request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    let handled = AssertUnwindSafe(Box::pin(handle(shared, route, request))).catch_unwind().await;
    let mut outcome = handled.unwrap_or_else(|_panic| {
        shared.metrics.panics.inc();
        Err(ApiError::Internal)
    });
    if let (Ok(response), Gate::Data) = (&mut outcome, route.gate()) {
        response.headers_mut().append(VARY, HeaderValue::from_static("X-Tenant-ID"));
    }
    outcome
}

async fn handle(
    shared: &Arc<Shared>,
    route: Route,
    request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    let (head, body) = request.into_parts();
    match route {
        Route::Livez => Ok(health::livez(shared)),
        Route::Readyz => Ok(health::readyz(shared).await),
        Route::Version => Ok(health::version(shared)),
        Route::Metrics => health::metrics(shared),
        Route::Health => health::content_free(shared, &head.headers),
        Route::Ingest => ingest::handle(shared, head, body).await,
        Route::OpsQuery => {
            let query = Query::parse(head.uri.query())?;
            ops::query(shared, &query, &head.headers, body).await
        }
        Route::OpsSchema => ops::schema(shared, &Query::parse(head.uri.query())?),
        Route::Stream => {
            let subscriber = subscribe(shared, head.uri.query(), &head.headers).await?;
            Ok(live::response(subscriber))
        }
        Route::DlqStats => dlq::stats(shared, &Query::parse(head.uri.query())?).await,
        Route::Dlq => dlq::list(shared, &Query::parse(head.uri.query())?).await,
        Route::DlqReplay => dlq::replay(shared, &Query::parse(head.uri.query())?).await,
        Route::DlqDrop => dlq::remove(shared, &Query::parse(head.uri.query())?).await,
        Route::OpsSchemaRefresh => ops::refresh(shared, &Query::parse(head.uri.query())?).await,
    }
}

fn refusal(error: &ApiError, route: &str, request_id: &HeaderValue) -> Response<Body> {
    let response = error.response();
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(route, ?request_id, reason = %error, fault = ?error.fault(), "request failed");
    }
    response
}

/// The client's own request id if it is fit to be logged, else a fresh one.
fn request_id<B>(shared: &Shared, request: &Request<B>) -> HeaderValue {
    let sent = request.headers().get(&REQUEST_ID);
    let fit = |value: &&HeaderValue| {
        value.len() <= REQUEST_ID_BYTES_MAX
            && !value.is_empty()
            && value.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    sent.filter(fit).cloned().unwrap_or_else(|| shared.fresh_request_id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machines_own_names_are_loopback_hosts() {
        for good in ["localhost", "localhost:8080", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]"]
        {
            assert!(is_loopback_host(good, 8080), "{good}");
        }
        for bad in
            ["", "evil.example", "evil.example:8080", "localhost.evil.example", "localhost:1", "127.0.0.1.x"]
        {
            assert!(!is_loopback_host(bad, 8080), "{bad}");
        }
    }
}
