//! What a `Content-Type` says about a body: almost nothing. JSON is recognised by its first byte; the header only tells
//! lines from one object, and formats that are not read yet from those that are.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use wavehouse_rows::Framing;

use crate::error::ApiError;

/// How a body is to be cut into rows.
///
/// # Errors
/// A format that ingest does not read.
pub(crate) fn framing(headers: &HeaderMap) -> Result<Framing, ApiError> {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let media = text.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    match media.as_str() {
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/jsonlines" => {
            Ok(Framing::Lines)
        }
        "text/csv" | "text/tab-separated-values" | "application/csv" => Err(ApiError::MediaType(format!(
            "Content-Type {media:?}: ingest reads JSON so far; requires one of application/json, \
             application/x-ndjson, application/ndjson, application/jsonl, application/jsonlines"
        ))),
        _ => Ok(Framing::Auto),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: Option<&str>) -> Result<Framing, ApiError> {
        let mut headers = HeaderMap::new();
        if let Some(text) = text {
            headers.insert(CONTENT_TYPE, text.parse().unwrap());
        }
        framing(&headers)
    }

    #[test]
    fn the_header_is_a_hint() {
        for auto in [
            None,
            Some("application/json"),
            Some("application/json; charset=utf-8"),
            Some("text/plain"),
            Some("application/x-www-form-urlencoded"),
        ] {
            assert_eq!(of(auto), Ok(Framing::Auto), "{auto:?}");
        }
        for lines in ["application/x-ndjson", "Application/NDJSON; charset=utf-8", "application/jsonl"] {
            assert_eq!(of(Some(lines)), Ok(Framing::Lines), "{lines}");
        }
        for other in ["text/csv", "text/tab-separated-values; header=absent"] {
            assert!(matches!(of(Some(other)), Err(ApiError::MediaType(_))), "{other}");
        }
    }
}
