//! One question to the operator routes, over http or https.

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::send::percent_encode;

/// Largest answer that is read: a full page of the largest rows is larger than anyone reads in a terminal.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A server and the key to its operator routes.
pub(super) struct Gateway {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    base: String,
    key: Option<HeaderValue>,
}

impl Gateway {
    pub(super) fn new(url: &str, key: Option<&str>) -> anyhow::Result<Self> {
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .context("cannot set up TLS")?
            .https_or_http()
            .enable_http1()
            .build();
        let key = key.map(HeaderValue::from_str).transpose();
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            base: url.trim_end_matches('/').to_owned(),
            key: key.context("the operator key holds characters that a header cannot carry")?,
        })
    }

    /// The answer's body; what the server refuses is an error in its own words.
    pub(super) async fn ask(
        &self,
        method: &str,
        path: &str,
        parameters: &[(&'static str, String)],
    ) -> anyhow::Result<String> {
        let query: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{name}={}", percent_encode(value))).collect();
        let uri = format!("{}{path}?{}", self.base, query.join("&"));
        let mut request = Request::builder().method(method).uri(&uri);
        if let Some(key) = &self.key {
            request = request.header("x-operator-key", key);
        }
        let request =
            request.body(Empty::new()).with_context(|| format!("{} is not an address", self.base))?;
        let response = self.client.request(request).await;
        let response = response.with_context(|| format!("no answer from {}", self.base))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() {
            return Ok(text);
        }
        let said = serde_json::from_str::<serde_json::Value>(&text).ok();
        let said = said.as_ref().and_then(|value| value.get("error")?.as_str()).unwrap_or(text.trim());
        bail!("{} answered {}: {said}", self.base, status.as_u16())
    }
}
