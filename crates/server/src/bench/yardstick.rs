//! Small servers to hold ours against: one that only parses, one that syncs every row alone, and one that passes rows on
//! to all who watch.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::Stream;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::broadcast;

/// Largest body, as the gateway's.
pub(super) const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Arguments of `bench parse-only-server`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct ParseOnlyArgs {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
}

/// Arguments of `bench naive-server`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct NaiveArgs {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:8091")]
    listen: SocketAddr,
    /// File that rows are appended to.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

/// Arguments of `bench naive-stream-server`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct NaiveStreamArgs {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:8092")]
    listen: SocketAddr,
}

/// Rows that a watcher of the naive stream may be behind.
const BEHIND_MAX: usize = 1024;

/// A row as a typed program would read it.
#[derive(Deserialize)]
struct TypedEvent<'a> {
    event_id: &'a str,
    session: &'a str,
    user_id: u64,
    event: &'a str,
    url: &'a str,
    country: &'a str,
    duration_ms: u32,
    price: f64,
    ts: &'a str,
}

impl TypedEvent<'_> {
    /// Something that depends on every field, so that no parsing is left out.
    fn weight(&self) -> usize {
        let texts = [self.event_id, self.session, self.event, self.url, self.country, self.ts];
        texts.iter().map(|text| text.len()).sum::<usize>()
            + usize::from(self.price > 0.0)
            + usize::from(self.user_id > 0)
            + usize::from(self.duration_ms > 0)
    }
}

/// Serves until it is killed.
pub(super) async fn parse_only(args: &ParseOnlyArgs) -> anyhow::Result<()> {
    let routes = Router::new().fallback_service(post(parse).layer(DefaultBodyLimit::max(BODY_BYTES_MAX)));
    serve(args.listen, routes).await
}

async fn parse(body: Bytes) -> Result<String, StatusCode> {
    let mut rows = 0;
    for line in body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let event: TypedEvent<'_> = serde_json::from_slice(line).map_err(|_error| StatusCode::BAD_REQUEST)?;
        rows += usize::from(event.weight() > 0);
    }
    Ok(taken(rows))
}

pub(super) fn taken(rows: usize) -> String {
    format!("{{\"total\":{rows},\"succeeded\":{rows},\"failed\":0,\"duplicates\":0}}")
}

/// Serves until it is killed.
pub(super) async fn naive(args: &NaiveArgs) -> anyhow::Result<()> {
    let file = File::create(&args.file).with_context(|| format!("cannot make {}", args.file.display()))?;
    let routes = Router::new().fallback_service(
        post(append).layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).with_state(Arc::new(Mutex::new(file))),
    );
    serve(args.listen, routes).await
}

async fn append(State(file): State<Arc<Mutex<File>>>, body: Bytes) -> Result<String, StatusCode> {
    let append = move || -> io::Result<usize> {
        let mut rows = 0;
        for line in body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(&[line, b"\n"].concat())?;
            file.sync_data()?;
            rows += 1;
        }
        Ok(rows)
    };
    let failed = StatusCode::INTERNAL_SERVER_ERROR;
    let rows =
        tokio::task::spawn_blocking(append).await.map_err(|_panic| failed)?.map_err(|_error| failed)?;
    Ok(taken(rows))
}

/// Serves until it is killed: a broadcast channel between posts and server-sent events, as frameworks' examples have it.
pub(super) async fn naive_stream(args: &NaiveStreamArgs) -> anyhow::Result<()> {
    let (sender, _none) = broadcast::channel::<Bytes>(BEHIND_MAX);
    let routes = Router::new().route("/rows", get(watch).post(pass_on)).with_state(sender);
    serve(args.listen, routes).await
}

async fn pass_on(State(sender): State<broadcast::Sender<Bytes>>, body: Bytes) -> String {
    // Without a watcher nothing is sent, which is no failure.
    let _watched = sender.send(body);
    taken(1)
}

async fn watch(
    State(sender): State<broadcast::Sender<Bytes>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let rows = futures_util::stream::unfold(sender.subscribe(), |mut receiver| async {
        loop {
            match receiver.recv().await {
                Ok(row) => {
                    let event = Event::default().data(String::from_utf8_lossy(&row));
                    return Some((Ok(event), receiver));
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    });
    Sse::new(rows).keep_alive(KeepAlive::default())
}

pub(super) async fn serve(listen: SocketAddr, routes: Router) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    writeln!(io::stdout(), "listening on {listen}")?;
    Ok(axum::serve(listener, routes).await?)
}
