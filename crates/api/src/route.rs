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
        }
    }

    /// Who may call it.
    pub(crate) fn gate(self) -> Gate {
        match self {
            Self::Livez | Self::Readyz | Self::Version | Self::Metrics | Self::Health => Gate::Public,
            Self::Ingest => Gate::Data,
            Self::OpsQuery | Self::OpsSchema | Self::OpsSchemaRefresh => Gate::Operator,
        }
    }

    fn method(self) -> Method {
        match self {
            Self::Ingest | Self::OpsQuery | Self::OpsSchemaRefresh => Method::POST,
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
            (Method::GET, "/v1/ingest/", Err(ApiError::NotFound)),
            (Method::GET, "/", Err(ApiError::NotFound)),
        ] {
            assert_eq!(route(&method, path, metrics), wanted, "{method} {path}");
        }
        assert_eq!(route(&Method::GET, "/metrics", None), Err(ApiError::NotFound));
    }
}
