//! Connections: accepting them, serving each, and letting them end well.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::dispatch;
use crate::live;
use crate::shared::Shared;

/// Most connections that are open at once; further ones are closed at once and counted.
pub const CONNECTIONS_MAX: usize = 65_536;
/// How long a client may take to send a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait after a failed accept, such as when file descriptors have run out.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Serves until `stop`; then accepts nothing more, lets each connection finish the request that it is in, and returns
/// when the last has ended. Dropping the future closes what is left.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_ended) = connections.join_next() => {
                shared.metrics.connections.set(i64::try_from(connections.len()).unwrap_or(i64::MAX));
            }
            accepted = listener.accept() => match accepted {
                Ok(_) if connections.len() >= CONNECTIONS_MAX => {
                    shared.metrics.connections_refused.inc();
                }
                Ok((stream, _peer)) => {
                    connections.spawn(connection(Arc::clone(&shared), stream, stop.clone()));
                    shared.metrics.connections.set(i64::try_from(connections.len()).unwrap_or(i64::MAX));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    shared.metrics.connections.set(0);
}

/// Serves one connection. All but a stream that is open is boxed, so that the task of one is as small as it can be.
async fn connection(shared: Arc<Shared>, mut stream: TcpStream, stop: CancellationToken) {
    match Box::pin(is_stream_request(&stream, &stop)).await {
        Some(true) => {
            drop(stop);
            let opened = Box::pin(live::begin(&shared, &mut stream, HEAD_TIMEOUT)).await;
            drop(shared);
            if let Some(subscriber) = opened {
                live::push(stream, subscriber).await;
            }
        }
        Some(false) => Box::pin(requests(shared, stream, stop)).await,
        None => {}
    }
}

/// Whether a connection begins with a stream request; none if it ends before.
async fn is_stream_request(stream: &TcpStream, stop: &CancellationToken) -> Option<bool> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "connection went before it was served");
        return None;
    }
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        first = tokio::time::timeout(HEAD_TIMEOUT, live::is_stream_request(stream)) => first.ok(),
    }
}

async fn requests(shared: Arc<Shared>, stream: TcpStream, stop: CancellationToken) {
    let service = service_fn(move |request| dispatch::answer(Arc::clone(&shared), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        biased;
        outcome = connection.as_mut() => outcome,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        // A client that goes away in mid-request is its own affair.
        tracing::debug!(%error, "connection ended early");
    }
}
