//! `POST /v1/ingest?table=`: rows in, and a `200` only once they are durable.
//!
//! The body is read within its cap, checked row by row against its table, cut into blocks and handed to the queue in
//! order. Rows that pass keep the bytes that the client sent.

mod answer;
mod media;

use bytes::Bytes;
use http::{Response, request};
use hyper::body::Incoming;
use wavehouse_core::{RowBlock, Scope, TableName, TableRef, Timestamp};
use wavehouse_rows::{
    BodyError, CheckOptions, Checked, ColumnType, DEPTH_MAX, Framing, RECEIPT_COLUMN, TableSchema,
};

use crate::body::{BODY_BYTES_MAX, Body, ReadBody, read_body};
use crate::error::ApiError;
use crate::respond::json;
use crate::shared::Shared;
use crate::tenant::{self, Query};

/// Size at which rows of one request are cut into another block, in bytes of lines.
const BLOCK_BYTES_TARGET: usize = 128 * 1024;
/// Room in a block for its head and one segment, in bytes.
const BLOCK_HEAD_BYTES: usize = 512;
/// Bodies above this are checked off the network threads, so that they do not stall other connections.
const INLINE_BYTES_MAX: usize = 512 * 1024;
/// Digits of a second in receipt times of tables that have no column for them.
const RECEIPT_DIGITS: usize = 3;
/// How a strict refusal is classed; the word that clients know.
const REJECTED: &str = "clickhouse.rejected";

/// What a request asks for, before its body is looked at.
struct Plan {
    table: TableRef,
    framing: Framing,
    strict: bool,
    received_at: Timestamp,
    row_bytes_max: usize,
}

/// Takes the rows of a request.
pub(crate) async fn handle(
    shared: &Shared,
    head: request::Parts,
    body: Incoming,
) -> Result<Response<Body>, ApiError> {
    if shared.is_stopping() {
        return Err(ApiError::Stopping);
    }
    let (query, headers) = (Query::parse(head.uri.query())?, &head.headers);
    let tenant = tenant::of_header(headers, &shared.tenant)?;
    let name = query.get("table").filter(|name| !name.is_empty()).ok_or(ApiError::MissingTable)?;
    let name = TableName::parse(name).map_err(|error| ApiError::InvalidTable(error.to_string()))?;
    let table = shared.table(name.as_str())?;
    let plan = Plan {
        table: TableRef::new(tenant, name),
        framing: media::framing(headers)?,
        strict: query.is_on("strict"),
        received_at: shared.clock.now(),
        row_bytes_max: shared.broker.block_bytes_max().saturating_sub(BLOCK_HEAD_BYTES),
    };
    let ReadBody { bytes, mut held } = read_body(headers, body, &shared.bodies, BODY_BYTES_MAX).await?;
    let body_bytes = bytes.len();
    // Thousands of requests may wait for the disk at once: none holds more than its rows by then.
    drop((head, query));
    // The bytes lie in the connection's read buffer, which it can use again for its next request only if nothing of it is
    // held while this one waits for the disk.
    let mut checked = if bytes.len() <= INLINE_BYTES_MAX {
        let checked = check(&bytes, &table.schema, &plan)?;
        drop(bytes);
        checked
    } else {
        let (framing, received_at, row_bytes_max) = (plan.framing, plan.received_at, plan.row_bytes_max);
        let plan =
            Plan { table: plan.table.clone(), framing, strict: plan.strict, received_at, row_bytes_max };
        tokio::task::spawn_blocking(move || check(&bytes, &table.schema, &plan))
            .await
            .map_err(|_| ApiError::Internal)??
    };
    // Rows of `{}` grow by their receipt time; what is held grows with them.
    held.grow_to(body_bytes + checked.lines.len())?;
    shared.metrics.records(checked.total, checked.refused.len() as u64);
    if let Some(error) = whole_refusal(&checked, plan.strict) {
        return Err(error);
    }
    let (single, total, refused) = (checked.single, checked.total, std::mem::take(&mut checked.refused));
    publish(shared, blocks(&plan.table, checked, plan.received_at)).await?;
    drop(held);
    Ok(json(if single {
        Bytes::from_static(answer::SINGLE.as_bytes())
    } else {
        answer::batch(total, &refused).into()
    }))
}

fn check(body: &Bytes, schema: &TableSchema, plan: &Plan) -> Result<Checked, ApiError> {
    let receipt_time = receipt_text(schema, plan.received_at);
    let options = CheckOptions {
        receipt_time: receipt_time.as_deref(),
        row_bytes_max: plan.row_bytes_max,
        depth_max: DEPTH_MAX,
    };
    wavehouse_rows::check_body(body, plan.framing, schema, &options).map_err(|error| match error {
        BodyError::TooManyRecords | BodyError::TooLarge => ApiError::Oversized(error.to_string()),
        _ => ApiError::Framing(error.to_string()),
    })
}

/// The receipt time as the table's own column shows it, where it has one, so that stream and table agree to the letter.
fn receipt_text(schema: &TableSchema, received_at: Timestamp) -> Option<String> {
    schema.has_column_for_receipt_time().then(|| received_at.to_rfc3339(receipt_digits(Some(schema))))
}

/// Digits of a second in the receipt times of a table: those of its own column for them, if it has one.
pub(crate) fn receipt_digits(schema: Option<&TableSchema>) -> usize {
    let Some(column) = schema.and_then(|schema| schema.column(RECEIPT_COLUMN)) else { return RECEIPT_DIGITS };
    let mut ty = &column.ty;
    while let ColumnType::Nullable(inner) | ColumnType::LowCardinality(inner) = ty {
        ty = inner;
    }
    match ty {
        ColumnType::DateTime64 { scale, .. } => usize::from(*scale),
        ColumnType::DateTime(_) => 0,
        _ => RECEIPT_DIGITS,
    }
}

/// The refusal of the whole request, where its records decide that.
fn whole_refusal(checked: &Checked, strict: bool) -> Option<ApiError> {
    let (index, error) = checked.refused.first()?;
    if checked.single {
        let (message, exception_code) = (error.message.clone(), error.exception_code);
        return Some(ApiError::Record { message, code: None, exception_code });
    }
    strict.then(|| ApiError::Record {
        message: format!("record {index}: {}", error.message),
        code: Some(REJECTED),
        exception_code: error.exception_code,
    })
}

/// Cuts checked rows into blocks of about the target size; a larger row travels alone.
fn blocks(table: &TableRef, checked: Checked, received_at: Timestamp) -> Vec<RowBlock> {
    let lines = Bytes::from(checked.lines);
    let cut = |from: usize, to: usize, rows: u32| {
        RowBlock::new(table.clone(), received_at, Scope::default(), rows, lines.slice(from..to))
    };
    let mut blocks = Vec::with_capacity(lines.len() / BLOCK_BYTES_TARGET + 1);
    let (mut from, mut end, mut rows) = (0, 0, 0);
    for next in checked.ends.iter().map(|next| *next as usize) {
        if rows > 0 && next - from > BLOCK_BYTES_TARGET {
            blocks.push(cut(from, end, rows));
            (from, rows) = (end, 0);
        }
        rows += 1;
        end = next;
    }
    if rows > 0 {
        blocks.push(cut(from, end, rows));
    }
    blocks
}

/// Hands blocks to the queue and waits until each is durable. The first refusal is the answer: what came before it in
/// the request may be stored, and a client that sends the request again sends those rows twice.
async fn publish(shared: &Shared, blocks: Vec<RowBlock>) -> Result<(), ApiError> {
    if blocks.is_empty() {
        return Ok(());
    }
    for result in shared.broker.submit(blocks).await {
        if let Err(error) = result {
            tracing::debug!(error = %wavehouse_core::chain(&error), "block was not accepted");
            return Err(ApiError::from(&error));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use wavehouse_core::TenantId;
    use wavehouse_rows::{Column, RowError, ServerFacts};

    use super::*;

    fn table() -> TableRef {
        TableRef::new(TenantId::default(), TableName::parse("t").unwrap())
    }

    fn schema(receipt: Option<&str>) -> TableSchema {
        let mut columns = vec![Column::new("a", "Int32", 1)];
        columns.extend(receipt.map(|ty| Column::new(RECEIPT_COLUMN, ty, 2)));
        TableSchema::new("t".into(), columns, ServerFacts { version: (26, 7), time_zone: "UTC".into() })
    }

    fn checked(body: &str, framing: Framing) -> Checked {
        let options = CheckOptions { receipt_time: None, row_bytes_max: 1 << 20, depth_max: DEPTH_MAX };
        wavehouse_rows::check_body(body.as_bytes(), framing, &schema(None), &options).unwrap()
    }

    #[test]
    fn blocks_hold_the_rows_in_order_near_the_target_size() {
        let body: String = (0..40_000).map(|i| format!("{{\"a\":{i}}}\n")).collect();
        let blocks = blocks(&table(), checked(&body, Framing::Lines), Timestamp(1));
        assert!(blocks.len() > 2, "{}", blocks.len());
        assert!(blocks.iter().all(|block| block.lines.len() <= BLOCK_BYTES_TARGET));
        assert_eq!(blocks.iter().map(RowBlock::rows).sum::<u32>(), 40_000);
        let joined: Vec<u8> = blocks.iter().flat_map(|block| block.lines.to_vec()).collect();
        assert_eq!(joined, body.as_bytes());
        assert!(blocks.iter().all(|block| block.lines().count() == block.rows() as usize));
    }

    #[test]
    fn receipt_times_have_the_columns_own_width() {
        let at = Timestamp(1_120_456_789);
        for (ty, wanted) in [
            (None, None),
            (Some("DateTime"), Some("1970-01-01T00:00:01Z")),
            (Some("DateTime64(3, 'UTC')"), Some("1970-01-01T00:00:01.120Z")),
            (Some("Nullable(DateTime64(6))"), Some("1970-01-01T00:00:01.120456Z")),
            (Some("String"), Some("1970-01-01T00:00:01.120Z")),
        ] {
            assert_eq!(receipt_text(&schema(ty), at).as_deref(), wanted, "{ty:?}");
        }
    }

    #[test]
    fn when_one_record_refuses_the_request() {
        let bad = checked("{\"a\":1}\n{\"b\":1}\n", Framing::Lines);
        assert_eq!(whole_refusal(&bad, false), None);
        assert!(matches!(whole_refusal(&bad, true),
            Some(ApiError::Record { message, code: Some(REJECTED), .. }) if message.starts_with("record 2: ")));
        let single = checked("{\"b\":1}", Framing::Auto);
        let RowError { message, exception_code } = single.refused[0].1.clone();
        assert_eq!(
            whole_refusal(&single, false),
            Some(ApiError::Record { message, code: None, exception_code })
        );
    }
}
