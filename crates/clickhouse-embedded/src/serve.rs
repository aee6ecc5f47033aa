//! Accepts connections until told to stop, then lets what runs finish.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::cancel;
use crate::handler::{self, Server};
use crate::wire::{Flushes, Wire};

/// Connections at once; more wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 1_024;
/// A connection that sends no request for this long is closed.
const IDLE_MS_MAX: u64 = 60_000;
/// At a stop, running queries get this long to finish (ClickHouse's `shutdown_wait_unfinished`), and then this long
/// to notice that they were killed. Together less than a successor waits for the directory.
const FINISH_MS_MAX: u64 = 5_000;
const KILLED_MS_MAX: u64 = 3_000;
/// After a failed accept (no file descriptors left).
const ACCEPT_PAUSE_MS: u64 = 100;

/// Serves until `stop`, then finishes what runs. Returns true when nothing had to be killed.
pub(crate) async fn serve(listener: TcpListener, server: Arc<Server>, stop: CancellationToken) -> bool {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (place, listener.accept().await)
        };
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            (Ok(place), accepted) = next => match accepted {
                Ok((stream, _)) => {
                    let (server, stop) = (Arc::clone(&server), stop.clone());
                    connections.spawn(async move {
                        connection(stream, server, stop).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
                }
            },
        }
    }
    drop(listener);
    server.queries.close();
    let mut finish = async |limit_ms| {
        let all = async {
            while connections.join_next().await.is_some() {}
            server.queries.wait().await;
        };
        timeout(Duration::from_millis(limit_ms), all).await.is_ok()
    };
    if finish(FINISH_MS_MAX).await {
        return true;
    }
    tracing::warn!(waited_ms = FINISH_MS_MAX, "queries still run; killing them");
    cancel::kill_all(&server.engine);
    finish(KILLED_MS_MAX).await;
    false
}

async fn connection(stream: TcpStream, server: Arc<Server>, stop: CancellationToken) {
    // Answers are small and wait for nothing.
    stream.set_nodelay(true).ok();
    let flushes = Arc::new(Flushes::default());
    let io = TokioIo::new(Wire::new(stream, Arc::clone(&flushes)));
    let service = service_fn(move |request| {
        let (server, flushes) = (Arc::clone(&server), Arc::clone(&flushes));
        async move { Ok::<_, Infallible>(handler::handle(server, flushes, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(Duration::from_millis(IDLE_MS_MAX));
    let mut connection = pin!(builder.serve_connection(io, service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
