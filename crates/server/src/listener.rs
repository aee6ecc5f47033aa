//! A small HTTP listener, for what is not the gateway's own face: metrics on a port of their own, and the probes of a
//! process without that face.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Clients that are answered at once; more wait in the listener's queue.
const CONNECTIONS_MAX: usize = 32;
/// A connection is closed after this long, whatever it does; clients connect anew.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// After a failed accept, such as for want of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// An answer, whole.
pub(crate) type Answer = Response<Full<Bytes>>;

/// Answers requests until `stop`.
///
/// # Errors
/// Never; a client's failure is its own.
pub(crate) async fn serve<F, Fut>(
    listener: TcpListener,
    answer: F,
    stop: CancellationToken,
) -> anyhow::Result<()>
where
    F: Fn(Request<Incoming>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let answer = Arc::new(answer);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _peer)) => {
                    connections.spawn(connection(stream, Arc::clone(&answer)));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
}

async fn connection<F, Fut>(stream: TcpStream, answer: Arc<F>)
where
    F: Fn(Request<Incoming>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let serving =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = timeout(CONNECTION_TIMEOUT, serving).await {
        tracing::debug!(%error, "client went early");
    }
}

/// An answer of these parts.
pub(crate) fn answer(status: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media));
    response
}
