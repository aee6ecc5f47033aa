//! The HTTP client of one target: connections kept alive, at most so many requests at a time, every request with a
//! deadline, every failure classed.

use std::error::Error;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};
use http_body_util::BodyExt;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::body::RequestBody;
use crate::error::{Cause, ClickHouseError, ClientError, MESSAGE_BYTES_MAX};
use crate::response::{Response, ResponseBody};
use crate::target::Target;
use crate::tls::{Connector, connector};

/// An idle connection is closed by us after so long, before any server's own keep-alive (3 s at the shortest) does it
/// in the middle of a request.
const IDLE_TIMEOUT: Duration = Duration::from_millis(2500);
/// Largest answer of [`Client::rows`].
const ROWS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Deadline of [`Client::ping`].
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Headers that the client sets itself.
const OWN_HEADERS: [&str; 3] = ["x-clickhouse-user", "x-clickhouse-key", "authorization"];

/// One request.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The statement.
    pub sql: &'a str,
    /// Settings, and `param_*` for the statement's parameters.
    pub settings: &'a [(&'a str, &'a str)],
    /// Rows behind the statement, sent in pieces as they are. Then the statement travels in the address; without, it is
    /// the body.
    pub rows: Option<&'a [Bytes]>,
    /// Deadline, from the wait for a place to the last byte of the answer.
    pub timeout: Duration,
}

/// A client of one target. Cheap to clone; clones share connections and limits.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    http: legacy::Client<Connector, RequestBody>,
    target: Target,
    headers: HeaderMap,
    base: String,
    slots: Arc<Semaphore>,
}

impl Client {
    /// Makes a client; dials nothing.
    ///
    /// # Errors
    /// [`ClientError`]: the address, a header or a TLS setting is not usable.
    pub fn new(target: Target) -> Result<Self, ClientError> {
        let base = base(&target.url)?;
        let headers = headers(&target)?;
        let connections = target.max_open_conns.max(1);
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(connections)
            .build(connector(&target.tls)?);
        let slots = Arc::new(Semaphore::new(connections));
        Ok(Self { inner: Arc::new(Inner { http, target, headers, base, slots }) })
    }

    /// Whom the client speaks to.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.inner.target
    }

    /// Sends a request and waits for the head of the answer.
    ///
    /// # Errors
    /// [`ClickHouseError`]: there was no answer, or it is not a 2xx.
    pub async fn send(&self, request: Request<'_>) -> Result<Response, ClickHouseError> {
        let end = Instant::now() + request.timeout;
        let late = |_| ClickHouseError::transport(Cause::Timeout, "no answer came before the deadline");
        tokio::time::timeout_at(end, self.send_by(request, end)).await.map_err(late)?
    }

    /// Sends a statement with the target's query time-out; a query that only reads stops when the answer is dropped.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn query(&self, sql: &str, settings: &[(&str, &str)]) -> Result<Response, ClickHouseError> {
        let mut all = vec![("cancel_http_readonly_queries_on_client_close", "1")];
        all.extend_from_slice(settings);
        self.send(Request { sql, settings: &all, rows: None, timeout: self.inner.target.query_timeout }).await
    }

    /// The rows of a query, each read from its JSON object; at most 64 MiB of them. The query names no format.
    ///
    /// # Errors
    /// [`ClickHouseError`]; [`Cause::Unreadable`] when a row is not a `T`.
    pub async fn rows<T: DeserializeOwned>(
        &self,
        sql: &str,
        settings: &[(&str, &str)],
    ) -> Result<Vec<T>, ClickHouseError> {
        // The server holds the answer back until it is whole, so that an error is an error and not a broken answer.
        let mut all = vec![
            ("default_format", "JSONEachRow"),
            ("output_format_json_quote_64bit_integers", "0"),
            ("wait_end_of_query", "1"),
        ];
        all.extend_from_slice(settings);
        let body = self.query(sql, &all).await?.bytes(ROWS_BYTES_MAX).await?;
        let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).map_err(|error| unreadable(&error))).collect()
    }

    /// Whether the server answers this account now.
    ///
    /// # Errors
    /// [`ClickHouseError`]: it does not.
    pub async fn ping(&self) -> Result<(), ClickHouseError> {
        let timeout = PING_TIMEOUT.min(self.inner.target.query_timeout);
        let request =
            Request { sql: "SELECT 1", settings: &[("wait_end_of_query", "1")], rows: None, timeout };
        self.send(request).await?.bytes(MESSAGE_BYTES_MAX).await.map(drop)
    }

    async fn send_by(&self, request: Request<'_>, end: Instant) -> Result<Response, ClickHouseError> {
        let inner = &self.inner;
        let slot = Arc::clone(&inner.slots).acquire_owned().await;
        let slot = slot.map_err(|_| ClickHouseError::transport(Cause::Connect, "the client is closed"))?;
        let (query, body) = match request.rows {
            Some(rows) => (Some(request.sql), RequestBody::new(rows.iter().cloned())),
            None => (None, RequestBody::new([Bytes::copy_from_slice(request.sql.as_bytes())])),
        };
        let uri = inner.uri(query, request.settings)?;
        let mut outgoing = http::Request::new(body);
        *outgoing.method_mut() = Method::POST;
        *outgoing.uri_mut() = uri;
        *outgoing.headers_mut() = inner.headers.clone();
        let answer = inner.http.request(outgoing).await.map_err(|error| no_answer(&error))?;
        let (head, incoming) = answer.into_parts();
        let body = ResponseBody::new(incoming, &head, end, slot);
        let code = exception_code(&head.headers);
        if head.status.is_success() && code.is_none() {
            return Ok(Response { status: head.status, headers: head.headers, body });
        }
        Err(ClickHouseError::answered(head.status.as_u16(), code, &beginning(body).await))
    }
}

impl Inner {
    fn uri(&self, query: Option<&str>, settings: &[(&str, &str)]) -> Result<Uri, ClickHouseError> {
        let mut text = format!("{}/?database=", self.base);
        encode(&self.target.database, &mut text);
        for (name, value) in query.map(|sql| ("query", sql)).iter().chain(settings) {
            text.push('&');
            encode(name, &mut text);
            text.push('=');
            encode(value, &mut text);
        }
        text.parse()
            .map_err(|_| ClickHouseError::transport(Cause::Unreadable, "the request's address is too long"))
    }
}

/// The base of all addresses, without the `/` at its end.
fn base(url: &str) -> Result<String, ClientError> {
    let wrong = || ClientError::Url { url: url.to_owned() };
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let web = matches!(uri.scheme_str(), Some("http" | "https"));
    let user_in_it = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if !web || user_in_it || uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
        return Err(wrong());
    }
    Ok(url.trim_end_matches('/').to_owned())
}

fn headers(target: &Target) -> Result<HeaderMap, ClientError> {
    let mut headers = HeaderMap::new();
    let bad = |name: &str| ClientError::Header { name: name.to_owned() };
    for (name, value) in &target.headers {
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad(name))?;
        if OWN_HEADERS.contains(&parsed.as_str()) {
            return Err(bad(name));
        }
        headers.insert(parsed, HeaderValue::from_str(value).map_err(|_| bad(name))?);
    }
    let user = HeaderValue::from_bytes(target.user.as_bytes()).map_err(|_| bad("X-ClickHouse-User"))?;
    headers.insert("x-clickhouse-user", user);
    if !target.password.expose().is_empty() {
        let key = HeaderValue::from_bytes(target.password.expose().as_bytes());
        let mut key = key.map_err(|_| bad("X-ClickHouse-Key"))?;
        key.set_sensitive(true);
        headers.insert("x-clickhouse-key", key);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(headers)
}

fn exception_code(headers: &HeaderMap) -> Option<u32> {
    headers.get("x-clickhouse-exception-code")?.to_str().ok()?.parse().ok().filter(|code| *code != 0)
}

/// As much of an error's text as is kept; a text that breaks off is still the best there is.
async fn beginning(mut body: ResponseBody) -> String {
    let mut text = Vec::new();
    while text.len() < MESSAGE_BYTES_MAX {
        let Some(Ok(frame)) = body.frame().await else { break };
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data.as_ref()));
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn no_answer(error: &legacy::Error) -> ClickHouseError {
    let mut source: Option<&(dyn Error + 'static)> = error.source();
    let mut tls = false;
    while let Some(layer) = source {
        tls |= layer.is::<rustls::Error>();
        // The TLS layer hides its errors inside I/O errors, which tell only of what is below those.
        let inner = layer.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        source = inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| layer.source());
    }
    let cause = match (tls, error.is_connect()) {
        (true, _) => Cause::Tls,
        (false, true) => Cause::Connect,
        (false, false) => Cause::Broken,
    };
    ClickHouseError::transport(cause, &sources(error))
}

/// The layers below an error's own, for errors of other crates: their own layer says little.
pub(crate) fn sources(error: &(dyn Error + 'static)) -> String {
    error.source().map_or_else(|| error.to_string(), wavehouse_core::chain)
}

fn unreadable(error: &serde_json::Error) -> ClickHouseError {
    ClickHouseError::transport(Cause::Unreadable, &format!("a row of the answer cannot be read: {error}"))
}

/// Percent-encodes all but the characters that never need it.
fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _written = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Secret;

    fn target(url: &str) -> Target {
        Target::new(url, "default", Secret::default(), "my db")
    }

    #[test]
    fn addresses() {
        for good in ["http://h", "https://h:8443/", "http://[::1]:8123/sub/path/"] {
            assert!(Client::new(target(good)).is_ok(), "{good}");
        }
        for bad in ["", "h:8123", "ftp://h", "http://", "http://h/?a=b", "http://u:p@h"] {
            assert!(matches!(Client::new(target(bad)), Err(ClientError::Url { .. })), "{bad}");
        }
    }

    #[test]
    fn a_request_names_the_database_the_statement_and_the_settings() {
        let client = Client::new(target("http://h:1/p/")).unwrap();
        let uri = client.inner.uri(Some("SELECT 'ü'"), &[("a", "1"), ("param_b", "x&y")]).unwrap();
        let expected = "http://h:1/p/?database=my%20db&query=SELECT%20%27%C3%BC%27&a=1&param_b=x%26y";
        assert_eq!(uri.to_string(), expected);
    }

    #[test]
    fn own_headers_cannot_be_set() {
        for name in ["Authorization", "x-clickhouse-KEY", "bad name"] {
            let mut target = target("http://h");
            target.headers.insert(name.to_owned(), "x".to_owned());
            assert!(matches!(Client::new(target), Err(ClientError::Header { .. })), "{name}");
        }
    }
}
