//! Answers one HTTP request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use crate::auth::Account;
use crate::cancel::{Canceller, Running};
use crate::encoding::{self, Encoder};
use crate::engine::{Engine, Format};
use crate::fault::Fault;
use crate::feed::{self, feed};
use crate::ffi::Stats;
use crate::params::{self, Ask};
use crate::reply::{Begun, Body, Framing, Guard, Output, full, streaming};
use crate::wire::Flushes;
use crate::work::{self, Job};

/// Queries that run at once, each on a thread of its own.
pub(crate) const QUERIES_MAX: usize = 64;
/// Queries that wait for a place; one more is refused with TOO_MANY_SIMULTANEOUS_QUERIES.
const WAITING_MAX: usize = 256;
/// Asked of a kernel pipe: fewer switches between the engine and us than with its usual 64 KiB.
const PIPE_BYTES: usize = 1 << 20;
/// A client refused for crowding is told to come back after this.
const RETRY_AFTER_S: &str = "1";

const ANSWER_OK: &str = "Ok.\n";
const ANSWER_NO_PAGE: &str = "There is no such page.\n\nUse / or /ping for health checks.\n\
     Or /replicas_status for more sophisticated health checks.\n\n\
     Send queries with POST to /, or with GET /?query=… when they only read.\n";

/// What all requests share.
pub(crate) struct Server {
    pub(crate) engine: Arc<Engine>,
    account: Account,
    canceller: Arc<Canceller>,
    /// The threads that run queries.
    pub(crate) queries: TaskTracker,
    places: Arc<Semaphore>,
    waiting: Semaphore,
    marks: AtomicU64,
}

impl Server {
    /// A server for `engine` that lets `account` in.
    pub(crate) fn new(engine: Arc<Engine>, account: Account) -> std::io::Result<Self> {
        Ok(Self {
            canceller: Arc::new(Canceller::start(Arc::clone(&engine))?),
            engine,
            account,
            queries: TaskTracker::new(),
            places: Arc::new(Semaphore::new(QUERIES_MAX)),
            waiting: Semaphore::new(WAITING_MAX),
            marks: AtomicU64::new(0),
        })
    }

    async fn place(&self) -> Result<OwnedSemaphorePermit, Fault> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let crowded = || {
            let text =
                format!("Too many simultaneous queries. Maximum: {QUERIES_MAX}, waiting: {WAITING_MAX}.");
            Fault::new(202, format!("{text} (TOO_MANY_SIMULTANEOUS_QUERIES)"))
        };
        let _waiting = self.waiting.try_acquire().map_err(|_| crowded())?;
        Arc::clone(&self.places).acquire_owned().await.map_err(|_| crowded())
    }
}

/// Answers `request`.
pub(crate) async fn handle(
    server: Arc<Server>,
    flushes: Arc<Flushes>,
    request: Request<Incoming>,
) -> Response<Body> {
    let path = request.uri().path();
    let mut response = match (request.method(), path) {
        (&Method::GET | &Method::HEAD, "/ping" | "/replicas_status") => text(StatusCode::OK, ANSWER_OK),
        (&Method::GET | &Method::HEAD, "/") if request.uri().query().unwrap_or_default().is_empty() => {
            text(StatusCode::OK, ANSWER_OK)
        }
        (&Method::GET | &Method::HEAD | &Method::POST, "/") => query(&server, flushes, request).await,
        (_, "/") => text(StatusCode::METHOD_NOT_ALLOWED, "Send queries with GET or POST.\n"),
        _ => text(StatusCode::NOT_FOUND, ANSWER_NO_PAGE),
    };
    set(response.headers_mut(), "x-clickhouse-server-display-name", &server.engine.host);
    response
}

async fn query(server: &Arc<Server>, flushes: Arc<Flushes>, request: Request<Incoming>) -> Response<Body> {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let url_query = parts.uri.query().unwrap_or_default();
    let asked = params::ask(url_query, &parts.headers, parts.method != Method::POST);
    let mut id = None;
    let mut zone = None;
    let answer = match asked {
        Err(fault) => Err((fault, Some(body))),
        Ok((ask, login)) => {
            id = ask.query_id.clone();
            zone = ask.setting("session_timezone").map(str::to_owned);
            match admit(server, &parts.headers, &login) {
                Err(fault) => Err((fault, Some(body))),
                Ok(coding) => {
                    let request = Admitted { ask, coding, flushes, started, headers: &parts.headers };
                    run(server, request, body).await.map_err(|fault| (fault, None))
                }
            }
        }
    };
    let mut response = match answer {
        Ok(response) => response,
        Err((fault, unread)) => {
            if let Some(body) = unread {
                feed::drain(body).await;
            }
            refusal(&fault, &server.engine.version)
        }
    };
    let headers = response.headers_mut();
    set(headers, "x-clickhouse-query-id", &id.unwrap_or_else(random_id));
    set(headers, "x-clickhouse-timezone", zone.as_deref().unwrap_or(&server.engine.timezone));
    response
}

fn admit(
    server: &Server,
    headers: &HeaderMap,
    login: &params::UrlLogin,
) -> Result<Option<encoding::Coding>, Fault> {
    server.account.admit(headers, login)?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if content_type.is_some_and(|value| value.starts_with("multipart/")) {
        return Err(Fault::unsupported("multipart bodies; send parameters in the URL"));
    }
    encoding::of_body(headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok()))
}

struct Admitted<'a> {
    ask: Ask,
    coding: Option<encoding::Coding>,
    flushes: Arc<Flushes>,
    started: Instant,
    headers: &'a HeaderMap,
}

async fn run(server: &Server, request: Admitted<'_>, body: Incoming) -> Result<Response<Body>, Fault> {
    let Admitted { ask, coding, flushes, started, headers } = request;
    let place = server.place().await?;
    let io_fault = |error| Fault::new(76, format!("No pipe for the result: {error}. (CANNOT_OPEN_FILE)"));
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| io_fault(error.into()))?;
    // Best effort: the kernel bounds what all pipes of a user may take.
    rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES).ok();
    let reader = pipe::Receiver::from_owned_fd(reader).map_err(io_fault)?;
    let mark = format!("wh-{}-{}", std::process::id(), server.marks.fetch_add(1, Ordering::Relaxed));
    let running = Arc::new(Running::new(mark));
    let (head, head_told) = oneshot::channel();
    let (tail, tail_told) = oneshot::channel();
    let (pump, feed) = feed();
    let encoded = ask.setting("enable_http_compression") != Some("0");
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let answer_coding = encoding::of_answer(accepted).filter(|_| encoded);
    let (waits, default_format) = (ask.waits, ask.format.clone());
    let guard = Guard { canceller: Arc::clone(&server.canceller), running: Arc::clone(&running) };
    let job = Job {
        engine: Arc::clone(&server.engine),
        ask,
        coding,
        feed,
        out: writer,
        head: Some(head),
        tail,
        running,
        place,
    };
    server.queries.spawn_blocking(move || work::run(job));
    let output = Output::new(reader, tail_told, guard);
    let ((), begun) = tokio::join!(pump.run(body), output.begin(waits));
    let format = head_told.await.ok().or_else(|| server.engine.format(&default_format).cloned());
    let tag = random_tag();
    let encode = || Encoder::new(answer_coding).map_err(|error| Fault::new(1001, error.to_string()));
    let (stats, body) = match begun {
        Begun::Whole(_, Err(fault)) => return Err(fault),
        Begun::Whole(data, Ok(stats)) => (stats, whole(data, encode()?)?),
        Begun::Partly(output) => {
            let version = server.engine.version.clone();
            let framing = Framing { encoder: encode()?, tag: tag.clone(), version, flushes };
            (Stats::default(), streaming(output, framing))
        }
    };
    let mut response = Response::new(body);
    let fields = response.headers_mut();
    if let Some(Format { name, content_type }) = format {
        set(fields, "x-clickhouse-format", &name);
        set(fields, "content-type", &content_type);
    }
    if let Some(coding) = answer_coding {
        set(fields, "content-encoding", coding.name());
    }
    set(fields, "x-clickhouse-summary", &summary(&stats, started));
    set(fields, "x-clickhouse-exception-tag", &tag);
    Ok(response)
}

fn whole(data: Bytes, mut encoder: Encoder) -> Result<Body, Fault> {
    let encoded = encoder.piece(data).and_then(|data| {
        let end = encoder.finish()?;
        Ok(if end.is_empty() { data } else { [data, end].concat().into() })
    });
    encoded.map(full).map_err(|error| Fault::new(1001, format!("{error} (STD_EXCEPTION)")))
}

fn summary(stats: &Stats, started: Instant) -> String {
    let Stats { result_rows, read_rows, read_bytes, written_rows, written_bytes } = stats;
    let elapsed_ns = started.elapsed().as_nanos();
    serde_json::json!({
        "read_rows": read_rows.to_string(),
        "read_bytes": read_bytes.to_string(),
        "written_rows": written_rows.to_string(),
        "written_bytes": written_bytes.to_string(),
        "total_rows_to_read": "0",
        "result_rows": result_rows.max(written_rows).to_string(),
        "result_bytes": written_bytes.to_string(),
        "elapsed_ns": elapsed_ns.to_string(),
    })
    .to_string()
}

fn refusal(fault: &Fault, version: &str) -> Response<Body> {
    let mut response = text(fault.status(), format!("{}\n", fault.full_text(version)));
    let headers = response.headers_mut();
    set(headers, "x-clickhouse-exception-code", &fault.code.to_string());
    if fault.status() == StatusCode::UNAUTHORIZED {
        set(headers, "www-authenticate", "Basic realm=\"ClickHouse server HTTP API\"");
    }
    if fault.code == 202 {
        set(headers, "retry-after", RETRY_AFTER_S);
    }
    response
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    set(response.headers_mut(), "content-type", "text/plain; charset=UTF-8");
    response
}

/// Sets a header unless the value cannot be one, as a client's query id with a line break in it.
fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Without randomness ids repeat, which confuses a log and nothing else.
    getrandom::fill(&mut bytes).ok();
    bytes
}

/// A version 4 UUID.
fn random_id() -> String {
    let mut bytes: [u8; 16] = random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Sixteen letters no result contains by chance.
fn random_tag() -> String {
    random::<16>().iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}
