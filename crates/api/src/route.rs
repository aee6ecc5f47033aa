//! Which route a request is for. A table, so that everything served can be seen in one place; it also names routes in
//! metrics and logs, so that a client's path never becomes a label.

use http::Method;

use crate::error::ApiError;

/// Everything this process serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    Livez,
    Readyz,
    Version,
    Metrics,
    Health,
    Ingest,
    OpsQuery,
    OpsSchema,
    OpsSchemaRefresh,
    Stream,
    DlqStats,
    Dlq,
    DlqDrop,
    DlqReplay,
}

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Anyone.
    Public,
    /// A sender of rows.
    Data,
    /// An operator.
    Operator,
}

impl Route {
    /// The route's path, as it stands in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Livez => "/livez",
            Self::Readyz => "/readyz",
            Self::Version => "/version",
            Self::Metrics => "/metrics",
            Self::Health => "/v1/health",
            Self::Ingest => "/v1/ingest",
            Self::OpsQuery => "/v1/ops/query",
            Self::OpsSchema => "/v1/ops/schema",
            Self::OpsSchemaRefresh => "/v1/ops/schema/refresh",
            Self::Stream => "/v1/stream",
            Self::DlqStats => "/v1/ops/dlq/stats",
            Self::Dlq | Self::DlqDrop => "/v1/ops/dlq",
            Self::DlqReplay => "/v1/ops/dlq/replay",
        }
    }

    /// Who may call it.
    pub(crate) fn gate(self) -> Gate {
        match self {
            Self::Livez | Self::Readyz | Self::Version | Self::Metrics | Self::Health => Gate::Public,
            Self::Ingest | Self::Stream => Gate::Data,
            Self::OpsQuery | Self::OpsSchema | Self::OpsSchemaRefresh => Gate::Operator,
            Self::DlqStats | Self::Dlq | Self::DlqDrop | Self::DlqReplay => Gate::Operator,
        }
    }

    fn method(self) -> Method {
        match self {
            Self::Ingest | Self::OpsQuery | Self::OpsSchemaRefresh | Self::DlqReplay => Method::POST,
            Self::DlqDrop => Method::DELETE,
            _ => Method::GET,
        }
    }
}

/// Finds the route of a request. `metrics_path` is where metrics are served, if they are.
///
/// # Errors
/// `NotFound` for a path that is not served, `MethodNotAllowed` for one that is, by another method.
pub(crate) fn route(method: &Method, path: &str, metrics_path: Option<&str>) -> Result<Route, ApiError> {
    let route = match path {
        "/v1/ingest" => Route::Ingest,
        "/livez" | "/healthz" | "/health" => Route::Livez,
        "/readyz" | "/ready" => Route::Readyz,
        "/version" => Route::Version,
        "/v1/health" => Route::Health,
        "/v1/ops/query" => Route::OpsQuery,
        "/v1/ops/schema" => Route::OpsSchema,
        "/v1/ops/schema/refresh" => Route::OpsSchemaRefresh,
        "/v1/stream" => Route::Stream,
        "/v1/ops/dlq/stats" => Route::DlqStats,
        "/v1/ops/dlq" if method == Method::DELETE => Route::DlqDrop,
        "/v1/ops/dlq" => Route::Dlq,
        "/v1/ops/dlq/replay" => Route::DlqReplay,
        other if metrics_path == Some(other) => Route::Metrics,
        _ => return Err(ApiError::NotFound),
    };
    let head_for_get = method == Method::HEAD && route.method() == Method::GET;
    if *method == route.method() || head_for_get { Ok(route) } else { Err(ApiError::MethodNotAllowed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        let metrics = Some("/metrics");
        for (method, path, wanted) in [
            (Method::POST, "/v1/ingest", Ok(Route::Ingest)),
            (Method::GET, "/v1/ingest", Err(ApiError::MethodNotAllowed)),
            (Method::GET, "/healthz", Ok(Route::Livez)),
            (Method::HEAD, "/readyz", Ok(Route::Readyz)),
            (Method::HEAD, "/v1/ingest", Err(ApiError::MethodNotAllowed)),
            (Method::GET, "/metrics", Ok(Route::Metrics)),
            (Method::DELETE, "/v1/ops/schema", Err(ApiError::MethodNotAllowed)),
            (Method::GET, "/v1/stream", Ok(Route::Stream)),
            (Method::GET, "/v1/ops/dlq", Ok(Route::Dlq)),
            (Method::DELETE, "/v1/ops/dlq", Ok(Route::DlqDrop)),
            (Method::POST, "/v1/ops/dlq", Err(ApiError::MethodNotAllowed)),
            (Method::POST, "/v1/ops/dlq/replay", Ok(Route::DlqReplay)),
            (Method::GET, "/v1/ingest/", Err(ApiError::NotFound)),
            (Method::GET, "/", Err(ApiError::NotFound)),
        ] {
            assert_eq!(route(&method, path, metrics), wanted, "{method} {path}");
        }
        assert_eq!(route(&Method::GET, "/metrics", None), Err(ApiError::NotFound));
    }
}
