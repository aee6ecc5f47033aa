//! The few questions that a run asks the gateway itself: statements for ClickHouse, a fresh schema, metrics.

use std::time::Duration;

use anyhow::{Context, bail};
use http::Uri;

use super::wire::{Wire, body_of};

/// How long one question may take.
const QUESTION_WAIT: Duration = Duration::from_secs(60);

/// A gateway to ask.
#[derive(Clone, Debug)]
pub(super) struct Gateway {
    /// `host:port`.
    pub(super) host: String,
    /// Path before `/v1`, without a slash at its end.
    prefix: String,
    /// Header lines for every request.
    pub(super) headers: Vec<String>,
}

impl Gateway {
    /// `url` is plain http; a load generator that speaks TLS would measure TLS.
    pub(super) fn new(url: &str, headers: Vec<String>) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url:?} is not an address"))?;
        let Some(host) = uri.host().filter(|_| uri.scheme_str() == Some("http")) else {
            bail!("{url:?} is not an http:// address");
        };
        Ok(Self {
            host: format!("{host}:{}", uri.port_u16().unwrap_or(80)),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            headers,
        })
    }

    /// Path and query of the route that takes rows of `table`.
    pub(super) fn ingest_path(&self, table: &str) -> String {
        format!("{}/v1/ingest?table={table}", self.prefix)
    }

    /// Runs one statement in ClickHouse and gives the answer's body.
    pub(super) async fn sql(&self, statement: &str) -> anyhow::Result<Vec<u8>> {
        let body = serde_json::to_vec(&serde_json::json!({ "sql": statement }))?;
        self.ask("POST", "/v1/ops/query", &body).await
    }

    /// Makes the gateway see a table that was just made.
    pub(super) async fn refresh_schema(&self) -> anyhow::Result<()> {
        self.ask("POST", "/v1/ops/schema/refresh", b"").await.map(drop)
    }

    /// Path and query of the route that pushes the rows of `table`.
    pub(super) fn stream_path(&self, table: &str) -> String {
        format!("{}/v1/stream?table={table}", self.prefix)
    }

    /// Path of the route that runs statements.
    pub(super) fn query_path(&self) -> String {
        format!("{}/v1/ops/query", self.prefix)
    }

    /// Rows in `table` now.
    pub(super) async fn count(&self, table: &str) -> anyhow::Result<u64> {
        self.number(&format!("SELECT count() AS rows FROM `{table}`")).await
    }

    /// Rows in all tables whose names begin so.
    pub(super) async fn count_all(&self, prefix: &str) -> anyhow::Result<u64> {
        self.number(&format!(
            "SELECT sum(total_rows) AS rows FROM system.tables \
             WHERE database = currentDatabase() AND startsWith(name, '{prefix}')"
        ))
        .await
    }

    async fn number(&self, statement: &str) -> anyhow::Result<u64> {
        let body = self.sql(statement).await?;
        let rows: Vec<serde_json::Value> =
            serde_json::from_slice(&body).context("the answer is not JSON rows")?;
        let count = rows.first().and_then(|row| row.get("rows")).context("the answer has no count")?;
        match count.as_str() {
            Some(quoted) => Ok(quoted.parse()?),
            None => count.as_u64().context("the count is not a number"),
        }
    }

    /// The metrics page.
    pub(super) async fn metrics(&self) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&self.ask("GET", "/metrics", b"").await?).into_owned())
    }

    async fn ask(&self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        let mut request = format!(
            "{method} {}{path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n",
            self.prefix,
            self.host,
            body.len()
        );
        for header in &self.headers {
            request.push_str(header);
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        let mut request = request.into_bytes();
        request.extend_from_slice(body);
        let exchange = async {
            let mut wire = Wire::open(&self.host).await?;
            wire.send(&request).await?;
            let seen = wire.answer().await?;
            anyhow::Ok((seen.status, body_of(wire.buffer(), &seen)))
        };
        let (status, answer) = tokio::time::timeout(QUESTION_WAIT, exchange)
            .await
            .with_context(|| format!("{method} {path}: no answer"))?
            .with_context(|| format!("{method} {path} at {}", self.host))?;
        if !(200..300).contains(&status) {
            bail!("{method} {path}: {status} {}", String::from_utf8_lossy(&answer).trim());
        }
        Ok(answer)
    }
}
