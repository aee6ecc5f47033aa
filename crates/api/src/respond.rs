//! Answers that are not refusals.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use crate::body::{Body, full};
use crate::error::ApiError;

/// A `200` of JSON.
pub(crate) fn json(bytes: Bytes) -> Response<Body> {
    with_status(StatusCode::OK, "application/json", bytes)
}

/// A `200` of a value as JSON, with a line break at its end.
pub(crate) fn serialized<T: Serialize>(value: &T) -> Result<Response<Body>, ApiError> {
    let mut bytes = serde_json::to_vec(value).map_err(|_| ApiError::Internal)?;
    bytes.push(b'\n');
    Ok(json(bytes.into()))
}

/// An answer of bytes at hand.
pub(crate) fn with_status(status: StatusCode, media: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}
