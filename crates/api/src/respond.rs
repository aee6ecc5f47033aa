//! Answers that are not refusals.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};

use crate::body::{Body, full};

/// A `200` of JSON.
pub(crate) fn json(bytes: Bytes) -> Response<Body> {
    with_status(StatusCode::OK, "application/json", bytes)
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
