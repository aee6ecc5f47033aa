//! One request and what its answer means.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use thiserror::Error;

/// How long an answer may take; after that the request counts as lost.
const ANSWER_WAIT: Duration = Duration::from_secs(120);
/// Longest answer that is read: 10,000 results with room for their texts.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// First wait after a failure without `Retry-After`; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// Longest wait of our own between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Longest `Retry-After` that is obeyed as it is.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// Where rows go.
#[derive(Clone, Debug)]
pub(super) struct Target {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Uri,
    key: Option<header::HeaderValue>,
    tenant: Option<header::HeaderValue>,
    answered: Arc<AtomicBool>,
}

/// Why there is no target.
#[derive(Debug, Error)]
pub(super) enum TargetError {
    /// The URL is not one that rows can be posted to.
    #[error("{url:?} is not an http:// or https:// address")]
    Url {
        /// As given.
        url: String,
    },
    /// The operator key or the tenant cannot stand in a header.
    #[error("{what} holds characters that a header cannot carry")]
    Header {
        /// Which of them.
        what: &'static str,
    },
    /// No TLS.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
}

/// What came back.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// An HTTP answer.
    Http {
        /// Its status.
        status: StatusCode,
        /// `Retry-After` in whole seconds, where given.
        retry_after_s: Option<u64>,
        /// Its body.
        body: Bytes,
    },
    /// No answer: the connection could not be made.
    NotSent(String),
    /// No answer to a request that may have been taken.
    Lost(String),
}

/// What one record got.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct RowResult {
    /// Which row of the batch, from 1.
    pub(super) index: usize,
    /// Set when the row was refused.
    #[serde(default)]
    pub(super) error: Option<String>,
    /// ClickHouse's code, where given.
    #[serde(default)]
    pub(super) exception_code: Option<i64>,
}

/// A batch answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Taken {
    /// Rows taken.
    #[serde(default)]
    pub(super) succeeded: u64,
    /// Rows refused.
    #[serde(default)]
    pub(super) failed: u64,
    /// Rows known already.
    #[serde(default)]
    pub(super) duplicates: u64,
    /// Per row, the first 10,000.
    #[serde(default)]
    pub(super) results: Vec<RowResult>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The batch was read.
    Done(Taken),
    /// The same again after `wait`.
    Again {
        /// How long to wait first.
        wait: Duration,
        /// Whether the rows may be stored already.
        may_be_stored: bool,
        /// For the person who watches.
        why: String,
    },
    /// The request is too large for the server or a proxy: halve it.
    Halve,
    /// Trying again would not help.
    Fatal(String),
}

#[derive(Deserialize)]
struct ErrorBody {
    error: String,
}

impl Target {
    /// `url` may carry a path prefix. `key` is the operator key, `tenant` goes into `X-Tenant-ID`.
    pub(super) fn new(
        url: &str,
        table: &str,
        key: Option<&str>,
        tenant: Option<&str>,
    ) -> Result<Self, TargetError> {
        let bad_url = || TargetError::Url { url: url.to_owned() };
        let base: Uri = url.parse().map_err(|_syntax| bad_url())?;
        if !matches!(base.scheme_str(), Some("http" | "https")) || base.query().is_some() {
            return Err(bad_url());
        }
        let uri = format!("{}/v1/ingest?table={}", url.trim_end_matches('/'), percent_encode(table))
            .parse()
            .map_err(|_syntax| bad_url())?;
        let value = |what, text: Option<&str>| {
            text.map(header::HeaderValue::from_str).transpose().map_err(|_bytes| TargetError::Header { what })
        };
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .map_err(TargetError::Tls)?
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            uri,
            key: value("the operator key", key)?,
            tenant: value("the tenant", tenant)?,
            answered: Arc::default(),
        })
    }

    /// Sends one body of NDJSON and reads the answer.
    pub(super) async fn post(&self, body: Bytes) -> Answer {
        let Ok(answer) = tokio::time::timeout(ANSWER_WAIT, self.exchange(body)).await else {
            return Answer::Lost(format!("no answer within {} s", ANSWER_WAIT.as_secs()));
        };
        if matches!(answer, Answer::Http { .. }) {
            self.answered.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Whether anything ever answered at this address.
    pub(super) fn answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    async fn exchange(&self, body: Bytes) -> Answer {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        request.uri_mut().clone_from(&self.uri);
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/x-ndjson"));
        headers.insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
        if let Some(key) = &self.key {
            headers.insert("x-operator-key", key.clone());
        }
        if let Some(tenant) = &self.tenant {
            headers.insert("x-tenant-id", tenant.clone());
        }
        let response = match self.client.request(request).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Answer::NotSent(chain(&error)),
            Err(error) => return Answer::Lost(chain(&error)),
        };
        let status = response.status();
        let retry_after_s = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.trim().parse().ok());
        match Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await {
            Ok(body) => Answer::Http { status, retry_after_s, body: body.to_bytes() },
            Err(error) => Answer::Lost(chain(error.as_ref())),
        }
    }
}

/// What an answer to a batch of `rows` means after `attempt` failures (from 0).
pub(super) fn judge(answer: Answer, rows: usize, attempt: u32) -> Verdict {
    let own_wait = BACKOFF_FIRST.saturating_mul(1 << attempt.min(10)).min(BACKOFF_MAX);
    let again = |wait, may_be_stored, why| Verdict::Again { wait, may_be_stored, why };
    let (status, retry_after_s, body) = match answer {
        Answer::NotSent(why) => return again(own_wait, false, why),
        Answer::Lost(why) => return again(own_wait, true, why),
        Answer::Http { status, retry_after_s, body } => (status, retry_after_s, body),
    };
    let asked = retry_after_s.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
    let wait = asked.unwrap_or(own_wait);
    let text = || said(status, &body);
    match status.as_u16() {
        200..=299 => match serde_json::from_slice::<Taken>(&body) {
            Ok(taken) if taken.succeeded + taken.failed + taken.duplicates == rows as u64 => {
                Verdict::Done(taken)
            }
            _ => Verdict::Fatal(format!("the answer does not account for the {rows} rows sent: {}", text())),
        },
        // Refused before anything was taken.
        429 | 503 => again(wait, false, text()),
        // A proxy's words, or a publish whose outcome the server does not know.
        408 | 500 | 502 | 504 => again(wait, true, text()),
        413 if rows > 1 => Verdict::Halve,
        400 | 403 | 413 | 422 if rows == 1 && is_about_the_row(&body) => Verdict::Done(Taken {
            failed: 1,
            results: vec![RowResult { index: 1, error: Some(text()), exception_code: None }],
            ..Taken::default()
        }),
        _ => Verdict::Fatal(text()),
    }
}

/// A proxy may refuse a single large row; its answer has no body of ours.
fn is_about_the_row(body: &[u8]) -> bool {
    serde_json::from_slice::<ErrorBody>(body).map_or(true, |body| body.error.starts_with("request body"))
}

fn said(status: StatusCode, body: &[u8]) -> String {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => format!("{} {}", status.as_u16(), body.error),
        Err(_not_ours) => {
            let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
            format!("{status} {}", text.trim()).trim_end().to_owned()
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

pub(crate) fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(status: u16, retry_after_s: Option<u64>, body: &str) -> Answer {
        let status = StatusCode::from_u16(status).unwrap();
        Answer::Http { status, retry_after_s, body: Bytes::copy_from_slice(body.as_bytes()) }
    }

    fn again(wait_ms: u64, may_be_stored: bool, why: &str) -> Verdict {
        Verdict::Again { wait: Duration::from_millis(wait_ms), may_be_stored, why: why.to_owned() }
    }

    #[test]
    fn each_answer_has_one_meaning() {
        let full = r#"{"error":"service unavailable"}"#;
        let cases = [
            (
                http(200, None, r#"{"total":2,"succeeded":2,"failed":0,"duplicates":0}"#),
                Verdict::Done(Taken { succeeded: 2, ..Taken::default() }),
            ),
            (http(503, Some(30), full), again(30_000, false, "503 service unavailable")),
            (http(503, None, full), again(500, false, "503 service unavailable")),
            (http(503, Some(9_999), full), again(300_000, false, "503 service unavailable")),
            (http(429, Some(1), ""), again(1_000, false, "429 Too Many Requests")),
            (http(502, None, "<html>"), again(500, true, "502 Bad Gateway <html>")),
            (http(500, None, r#"{"error":"publish failed"}"#), again(500, true, "500 publish failed")),
            (Answer::NotSent("refused".into()), again(500, false, "refused")),
            (Answer::Lost("reset".into()), again(500, true, "reset")),
            (http(413, None, ""), Verdict::Halve),
            (
                http(404, None, r#"{"error":"unknown table: t"}"#),
                Verdict::Fatal("404 unknown table: t".into()),
            ),
            (http(403, None, r#"{"error":"denied"}"#), Verdict::Fatal("403 denied".into())),
        ];
        for (answer, expected) in cases {
            assert_eq!(judge(answer.clone(), 2, 0), expected, "{answer:?}");
        }
        assert!(matches!(judge(http(200, None, "{}"), 2, 0), Verdict::Fatal(_)));
        assert!(
            matches!(judge(Answer::Lost(String::new()), 1, 40), Verdict::Again { wait, .. } if wait == BACKOFF_MAX)
        );
        let Verdict::Done(taken) = judge(http(413, None, "<html>"), 1, 0) else {
            panic!("one row, one refusal")
        };
        assert_eq!((taken.failed, taken.results.len()), (1, 1));
    }

    #[test]
    fn tables_and_prefixes_reach_the_address() {
        let target = Target::new("https://example.net/wh/", "a b&c", None, None).unwrap();
        assert_eq!(target.uri, "https://example.net/wh/v1/ingest?table=a%20b%26c");
        assert!(Target::new("example.net", "t", None, None).is_err());
        assert!(Target::new("ftp://example.net", "t", None, None).is_err());
        assert!(Target::new("http://example.net", "t", Some("a\nb"), None).is_err());
    }
}
