//! A client that does no more than it is told.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::HeaderMap;
use hyper::{Method, Request};
use hyper_util::client::legacy::Client as Legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// Longest that any answer may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// Speaks to one address.
#[derive(Clone)]
pub(crate) struct Client {
    base: String,
    headers: Vec<(String, String)>,
    inner: Legacy<HttpConnector, Full<Bytes>>,
}

impl Client {
    pub(crate) fn new(base: &str) -> Self {
        let inner = Legacy::builder(TokioExecutor::new()).build_http();
        Self { base: base.to_owned(), headers: Vec::new(), inner }
    }

    /// The same, sending a header with every request.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The answer; the text of the failure when there is none.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer, String> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body.into())).map_err(|error| error.to_string())?;
        let exchange = async {
            let response = self.inner.request(request).await.map_err(|error| format!("{error:?}"))?;
            let (head, body) = response.into_parts();
            let bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Ok(Answer { status: head.status.as_u16(), headers: head.headers, text })
        };
        tokio::time::timeout(TIMEOUT, exchange)
            .await
            .map_err(|_| format!("{path}: no answer in {TIMEOUT:?}"))?
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, Bytes::new()).await.unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.send(Method::POST, path, body).await.unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    /// The status of a probe; 0 when nobody listens.
    pub(crate) async fn status(&self, path: &str) -> u16 {
        self.send(Method::GET, path, Bytes::new()).await.map_or(0, |answer| answer.status)
    }
}
