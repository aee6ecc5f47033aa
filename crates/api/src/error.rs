//! Every refusal that a client can see: its text, status, and when to come back. Handlers name what happened; this
//! table alone knows numbers. Causes that a client must not see go to the log under the request's id.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;
use wavehouse_broker::PublishError;
use wavehouse_core::FaultKind;

use crate::body::{Body, full};

/// `Retry-After` of a full queue, in seconds.
const FULL_RETRY_S: u64 = 30;
/// `Retry-After` of what is expected back soon, in seconds.
const SOON_RETRY_S: u64 = 5;
/// `Retry-After` when this process is only busy, in seconds.
const BUSY_RETRY_S: u64 = 1;

/// A refusal. `Display` is what the client reads under `error`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("not found")]
    NotFound,
    #[error("method not allowed")]
    MethodNotAllowed,
    #[error("internal server error")]
    Internal,
    #[error("this address does not answer for host {0:?}: use localhost")]
    WrongHost(String),
    #[error("{0}")]
    Forbidden(&'static str),
    #[error("invalid X-Tenant-ID: {0}")]
    TenantHeader(String),
    #[error("invalid query string: {0}")]
    QueryString(String),
    #[error("invalid ?tenant: {0}")]
    TenantParameter(String),
    #[error("unknown tenant: {0}")]
    UnknownTenant(String),
    #[error("invalid parameter {0}")]
    Parameter(String),
    #[error("{0}")]
    Unsupported(String),
    #[error("missing table")]
    MissingTable,
    #[error("missing required query parameter: table")]
    MissingStreamTable,
    #[error("invalid table: {0}")]
    InvalidTable(String),
    #[error("unknown table: {0}")]
    UnknownTable(String),
    #[error("table not found")]
    TableNotFound,
    #[error("schema not loaded yet")]
    SchemaNotLoaded,
    #[error("refresh failed: clickhouse unavailable")]
    RefreshUnavailable,
    #[error("refresh failed")]
    RefreshFailed,
    #[error("{0}")]
    MediaType(String),
    #[error("unsupported Content-Encoding {0:?}: ingest reads gzip, zstd and identity")]
    ContentEncoding(String),
    #[error("request body exceeded {0} bytes")]
    TooLarge(usize),
    #[error("{0}")]
    Oversized(String),
    #[error("invalid request body")]
    BrokenBody,
    #[error("invalid request body: {0}")]
    InvalidBody(String),
    #[error("{0}")]
    Framing(String),
    /// A record that is not accepted, and it was sent alone, or strictness was asked for.
    #[error("{message}")]
    Record { message: String, code: Option<&'static str>, exception_code: Option<u32> },
    #[error("service unavailable: too many request bytes in flight")]
    Busy,
    #[error("service unavailable: shutting down")]
    Stopping,
    #[error("service unavailable: {0}")]
    QueueFull(String),
    #[error("service unavailable: {0}")]
    QueueUnavailable(String),
    #[error("publish failed")]
    PublishFailed,
    #[error("invalid json")]
    InvalidJson,
    #[error("missing sql")]
    MissingSql,
    /// ClickHouse's answer, already sorted into status and code.
    #[error("{message}")]
    ClickHouse {
        message: String,
        status: u16,
        code: &'static str,
        retryable: bool,
        exception_code: Option<u32>,
    },
}

impl From<&PublishError> for ApiError {
    fn from(error: &PublishError) -> Self {
        match error {
            PublishError::TenantFull { .. } | PublishError::DiskFull | PublishError::Full { .. } => {
                Self::QueueFull(error.to_string())
            }
            PublishError::Overrun { .. }
            | PublishError::Closed
            | PublishError::Unavailable { .. }
            | PublishError::Unconfirmed { .. } => Self::QueueUnavailable(error.to_string()),
            PublishError::TooLarge { .. } => {
                Self::Record { message: error.to_string(), code: None, exception_code: None }
            }
            PublishError::Unknown { .. } => Self::PublishFailed,
        }
    }
}

impl ApiError {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound | Self::UnknownTenant(_) | Self::UnknownTable(_) | Self::TableNotFound => {
                StatusCode::NOT_FOUND
            }
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
            Self::Internal | Self::PublishFailed | Self::RefreshFailed => StatusCode::INTERNAL_SERVER_ERROR,
            Self::WrongHost(_) | Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::MediaType(_) | Self::ContentEncoding(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge(_) | Self::Oversized(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TenantHeader(_)
            | Self::QueryString(_)
            | Self::TenantParameter(_)
            | Self::Parameter(_)
            | Self::MissingTable
            | Self::MissingStreamTable
            | Self::InvalidTable(_)
            | Self::BrokenBody
            | Self::InvalidBody(_)
            | Self::Framing(_)
            | Self::Record { .. }
            | Self::InvalidJson
            | Self::MissingSql => StatusCode::BAD_REQUEST,
            Self::SchemaNotLoaded
            | Self::RefreshUnavailable
            | Self::Busy
            | Self::Stopping
            | Self::QueueFull(_)
            | Self::QueueUnavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::ClickHouse { status, .. } => {
                StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY)
            }
        }
    }

    fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::QueueFull(_) => Some(FULL_RETRY_S),
            Self::Busy => Some(BUSY_RETRY_S),
            Self::SchemaNotLoaded | Self::RefreshUnavailable | Self::Stopping | Self::QueueUnavailable(_) => {
                Some(SOON_RETRY_S)
            }
            Self::ClickHouse { status: 503, retryable: true, .. } => Some(SOON_RETRY_S),
            _ => None,
        }
    }

    /// The class for the metric and the log: what the client should do.
    pub(crate) fn fault(&self) -> FaultKind {
        match self.status().as_u16() {
            503 => FaultKind::Retry { after: self.retry_after_s().map(std::time::Duration::from_secs) },
            500 => FaultKind::Stop,
            _ => FaultKind::Reject,
        }
    }

    /// The whole answer.
    pub(crate) fn response(&self) -> Response<Body> {
        let mut envelope = json!({ "error": self.to_string() });
        if let Some(object) = envelope.as_object_mut() {
            if let Self::ClickHouse { code, retryable, .. } = self {
                object.insert("code".to_owned(), json!(code));
                object.insert("retryable".to_owned(), json!(retryable));
            }
            if let Self::Record { code: Some(code), .. } = self {
                object.insert("code".to_owned(), json!(code));
            }
            if let Self::ClickHouse { exception_code: Some(code), .. }
            | Self::Record { exception_code: Some(code), .. } = self
            {
                object.insert("exception_code".to_owned(), json!(code));
            }
        }
        let mut response = Response::new(full(Bytes::from(format!("{envelope}\n"))));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after_s() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use wavehouse_core::TenantId;

    use super::*;

    fn seen(error: &ApiError) -> (u16, Option<u64>) {
        (error.status().as_u16(), error.retry_after_s())
    }

    #[test]
    fn a_full_queue_is_503_and_says_when_to_return() {
        let full = PublishError::TenantFull { tenant: TenantId::default(), budget_bytes: 1 };
        for (error, wanted) in [
            (full, (503, Some(30))),
            (PublishError::DiskFull, (503, Some(30))),
            (PublishError::Overrun { pending_bytes: 1 }, (503, Some(5))),
            (PublishError::Closed, (503, Some(5))),
            (PublishError::Unknown { reason: "x".into() }, (500, None)),
            (PublishError::Full { reason: "x".into() }, (503, Some(30))),
            (PublishError::Unconfirmed { reason: "x".into() }, (503, Some(5))),
            (PublishError::TooLarge { bytes: 2, bytes_max: 1 }, (400, None)),
        ] {
            assert_eq!(seen(&ApiError::from(&error)), wanted, "{error}");
        }
    }

    #[test]
    fn the_envelope_has_the_agreed_keys_only() {
        let response = ApiError::UnknownTable("t".into()).response();
        assert_eq!(response.status(), 404);
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    }
}
