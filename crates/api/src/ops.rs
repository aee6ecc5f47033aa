//! What operators ask for: SQL as it is, and the tables as we know them.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Either};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wavehouse_clickhouse::{Cause, Class, ClickHouseError, RawAnswer, Snapshot, TableInfo};

use crate::body::{BODY_BYTES_MAX, Body, read_body};
use crate::error::ApiError;
use crate::respond::{json, serialized};
use crate::shared::Shared;
use crate::tenant::{self, Query};

/// The format whose envelope is opened; statements that name another get ClickHouse's own body.
const ENVELOPE_FORMAT: &str = "JSON";
/// `TOO_MANY_ROWS`, `TOO_MANY_BYTES`, `TOO_MANY_ROWS_OR_BYTES`.
const LIMIT_CODES: [u32; 3] = [158, 307, 396];
/// `ACCESS_DENIED`.
const ACCESS_DENIED: u32 = 497;
/// `READONLY`.
const READONLY: u32 = 164;

#[derive(Deserialize)]
struct Statement {
    #[serde(default)]
    sql: String,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Serialize)]
struct TableView<'a> {
    name: &'a str,
    columns: Vec<ColumnView<'a>>,
}

#[derive(Serialize)]
struct ColumnView<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    type_text: &'a str,
    is_nullable: bool,
    has_default: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_expression: Option<&'a str>,
    position: u64,
}

/// `POST /v1/ops/query`: `{"sql": "…"}`.
pub(crate) async fn query(
    shared: &Shared,
    query: &Query,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Response<Body>, ApiError> {
    tenant::of_query(query, &shared.tenant)?;
    let read = read_body(headers, body, &shared.bodies, BODY_BYTES_MAX).await?;
    let statement: Statement = serde_json::from_slice(&read.bytes).map_err(|_| ApiError::InvalidJson)?;
    if statement.sql.trim().is_empty() {
        return Err(ApiError::MissingSql);
    }
    let answer = shared.connection.client.raw(&statement.sql).await.map_err(|error| refused(&error))?;
    let mut response = pass_on(answer).await?;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn pass_on(answer: RawAnswer) -> Result<Response<Body>, ApiError> {
    let enveloped = answer.format.as_deref().is_none_or(|format| format == ENVELOPE_FORMAT);
    if !enveloped {
        let body = answer.body.map_err(std::io::Error::other).boxed_unsync();
        let mut response = Response::new(Either::Right(body));
        if let Some(media) = answer.content_type {
            response.headers_mut().insert(CONTENT_TYPE, media);
        }
        return Ok(response);
    }
    let bytes = answer.body.collect().await.map_err(|error| refused(&error))?.to_bytes();
    if bytes.trim_ascii().is_empty() {
        return Ok(json(Bytes::from_static(b"[]\n")));
    }
    let rows = serde_json::from_slice::<Envelope<'_>>(&bytes).map(|envelope| compact(envelope.data.get()));
    match rows {
        Ok(rows) => Ok(json(rows.into())),
        // Statements such as SHOW may answer in a form of their own whatever the default is.
        Err(_) => Ok(json(bytes)),
    }
}

/// JSON without the white space between its tokens, and a line break at its end.
fn compact(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 1);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        if !in_string && byte.is_ascii_whitespace() {
            continue;
        }
        if byte == b'"' && !escaped {
            in_string = !in_string;
        }
        escaped = in_string && byte == b'\\' && !escaped;
        out.push(byte);
    }
    out.push(b'\n');
    out
}

/// `GET /v1/ops/schema[?table=]`.
pub(crate) fn schema(shared: &Shared, query: &Query) -> Result<Response<Body>, ApiError> {
    tenant::of_query(query, &shared.tenant)?;
    let snapshot = shared.connection.catalog.snapshot().ok_or(ApiError::SchemaNotLoaded)?;
    match query.get("table") {
        None => serialized(&views(&snapshot)),
        Some(name) => serialized(&view(snapshot.tables.get(name).ok_or(ApiError::TableNotFound)?)),
    }
}

/// `POST /v1/ops/schema/refresh`: looks now and answers what it found.
pub(crate) async fn refresh(shared: &Shared, query: &Query) -> Result<Response<Body>, ApiError> {
    tenant::of_query(query, &shared.tenant)?;
    match shared.connection.catalog.refresh().await {
        Ok(snapshot) => serialized(&views(&snapshot)),
        Err(error) => {
            tracing::warn!(error = %wavehouse_core::chain(&error), "schema refresh failed");
            let away = error.class == Class::Unavailable;
            Err(if away { ApiError::RefreshUnavailable } else { ApiError::RefreshFailed })
        }
    }
}

fn views(snapshot: &Snapshot) -> Vec<TableView<'_>> {
    snapshot.tables.values().map(|table| view(table)).collect()
}

fn view(table: &TableInfo) -> TableView<'_> {
    let columns = table.schema.columns.iter().map(|column| ColumnView {
        name: &column.name,
        type_text: &column.type_text,
        is_nullable: column.is_nullable(),
        has_default: column.has_default(),
        default_kind: column.default_kind.map(wavehouse_rows::DefaultKind::as_str),
        default_expression: column.default_expression.as_deref(),
        position: column.position,
    });
    TableView { name: &table.schema.name, columns: columns.collect() }
}

/// ClickHouse's refusal of an operator's statement, as status and code.
fn refused(error: &ClickHouseError) -> ApiError {
    let code_in = |codes: &[u32]| error.code.is_some_and(|code| codes.contains(&code));
    let (status, code, retryable) = match error.class {
        _ if error.cause == Cause::TooLarge => {
            (StatusCode::BAD_GATEWAY, "clickhouse.response_too_large", false)
        }
        _ if code_in(&LIMIT_CODES) => (StatusCode::BAD_REQUEST, "clickhouse.limit_exceeded", false),
        _ if code_in(&[READONLY]) => (StatusCode::BAD_GATEWAY, "clickhouse.misconfigured", false),
        Class::Rejected => (StatusCode::BAD_REQUEST, "clickhouse.rejected", false),
        Class::Denied if code_in(&[ACCESS_DENIED]) => {
            (StatusCode::FORBIDDEN, "clickhouse.access_denied", false)
        }
        Class::Denied => (StatusCode::BAD_GATEWAY, "clickhouse.misconfigured", false),
        Class::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "clickhouse.unavailable", true),
        Class::Unknown => (StatusCode::BAD_GATEWAY, "clickhouse.unknown", true),
    };
    let answered = error.status.is_some();
    let message = if answered {
        error.message.clone()
    } else {
        format!("clickhouse request failed: {}", error.message)
    };
    ApiError::ClickHouse { message, status: status.as_u16(), code, retryable, exception_code: error.code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_goes_only_between_tokens() {
        for (text, wanted) in [
            ("[\n\t{ \"a b\" : 1 }\n]", r#"[{"a b":1}]"#),
            (r#"[ "x\" y", "\\" , " " ]"#, r#"["x\" y","\\"," "]"#),
        ] {
            assert_eq!(String::from_utf8(compact(text)).unwrap().trim_end(), wanted);
        }
    }
}
