//! Dead letters: what is there, why, and sending it on or away once the cause is mended.
//!
//! Every route takes the same filter in its query string: `table`, `code`, `from`, `until` (RFC 3339, when the row was
//! buried) and `id` (one letter). Replaying publishes first and removes after, so a crash in between leaves a letter
//! that has been sent, never one that is lost. A letter that is no row, such as a message that could not be read, is never
//! sent on: it stays until it is dropped.

use bytes::{BufMut, BytesMut};
use http::Response;
use serde::Serialize;
use serde_json::value::RawValue;
use wavehouse_broker::{DeadLetter, LetterCursor, LetterError, LetterFilter};
use wavehouse_core::{Position, RowBlock, Scope, TableName, TableRef, Timestamp};

use crate::body::Body;
use crate::error::ApiError;
use crate::respond::serialized;
use crate::shared::Shared;
use crate::tenant::{self, Query};

/// Letters in a page if the request does not say.
const PAGE: usize = 100;
/// Most letters in a page.
const PAGE_MAX: usize = 1_000;
/// Letters that are replayed or dropped between two looks at the store.
const STEP: usize = 500;
/// Digits of a second in the times of letters.
const DIGITS: usize = 3;

/// Which letters a request means.
struct Wanted {
    filter: LetterFilter,
    id: Option<Position>,
}

impl Wanted {
    fn of(shared: &Shared, query: &Query) -> Result<Self, ApiError> {
        let moment = |name: &str| {
            let parse =
                |text| Timestamp::parse_rfc3339(text).map_err(|error| parameter(name, &error.to_string()));
            query.get(name).map(parse).transpose()
        };
        let table = query.get("table").map(TableName::parse).transpose();
        let code = query.get("code").map(str::parse).transpose();
        let id = query.get("id").map(str::parse::<Position>).transpose();
        let filter = LetterFilter {
            tenant: tenant::of_query(query, &shared.tenant)?,
            table: table.map_err(|error| ApiError::InvalidTable(error.to_string()))?,
            code: code.map_err(|_| parameter("code", "it is no exception code"))?,
            from: moment("from")?,
            until: moment("until")?,
        };
        Ok(Self { filter, id: id.map_err(|error| parameter("id", &error.to_string()))? })
    }

    /// For what changes letters: which table must be said, so that nobody empties everything by a slip.
    fn of_one_table(shared: &Shared, query: &Query) -> Result<Self, ApiError> {
        let wanted = Self::of(shared, query)?;
        if wanted.filter.table.is_none() {
            return Err(ApiError::MissingTable);
        }
        Ok(wanted)
    }

    fn takes(&self, letter: &DeadLetter) -> bool {
        self.id.is_none_or(|id| id == letter.position)
    }
}

fn parameter(name: &str, why: &str) -> ApiError {
    ApiError::Parameter(format!("{name}: {why}"))
}

#[derive(Serialize)]
struct Stats {
    tables: std::collections::BTreeMap<TableName, u64>,
    total: u64,
}

#[derive(Serialize)]
struct Page<'a> {
    letters: Vec<View<'a>>,
    more: bool,
}

#[derive(Serialize)]
struct View<'a> {
    id: Position,
    table: &'a TableName,
    code: Option<u32>,
    reason: &'a str,
    received_at: String,
    buried_at: String,
    row: Box<RawValue>,
}

#[derive(Serialize)]
struct Changed {
    matched: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<u64>,
    /// Letters that stay because they are no rows; only told when there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_rows: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
    dry_run: bool,
}

/// Letters that a request went through.
#[derive(Default)]
struct Counted {
    matched: u64,
    /// Those of them that a replay leaves where they are.
    not_rows: u64,
}

/// `GET /v1/ops/dlq/stats[?table=]`: how many, by table.
pub(crate) async fn stats(shared: &Shared, query: &Query) -> Result<Response<Body>, ApiError> {
    let wanted = Wanted::of(shared, query)?;
    let counts =
        shared.broker.letter_counts(&wanted.filter.tenant).await.map_err(|error| unreachable(&error))?;
    let mut tables = counts.tables;
    tables.retain(|name, count| *count > 0 && wanted.filter.table.as_ref().is_none_or(|only| only == name));
    let total = tables.values().sum();
    serialized(&Stats { tables, total })
}

/// `GET /v1/ops/dlq`: a page of letters. `after` is the id of the last letter of the page before; it needs `table`.
pub(crate) async fn list(shared: &Shared, query: &Query) -> Result<Response<Body>, ApiError> {
    let wanted = Wanted::of(shared, query)?;
    let limit = match query.get("limit").map(str::parse::<usize>) {
        None => PAGE,
        Some(Ok(limit)) if (1..=PAGE_MAX).contains(&limit) => limit,
        Some(_) => return Err(parameter("limit", &format!("it is 1 to {PAGE_MAX}"))),
    };
    let after = match (query.get("after"), &wanted.filter.table) {
        (None, _) => None,
        (Some(_), None) => return Err(parameter("after", "it needs a table")),
        (Some(text), Some(table)) => {
            let position = text
                .parse()
                .map_err(|error: wavehouse_core::PositionError| parameter("after", &error.to_string()))?;
            Some(LetterCursor { table: table.clone(), position })
        }
    };
    let page = if wanted.id.is_some() {
        let letters = matching(shared, &wanted).await?;
        wavehouse_broker::LetterPage { letters, more: false }
    } else {
        shared
            .broker
            .letters(&wanted.filter, after.as_ref(), limit)
            .await
            .map_err(|error| unreachable(&error))?
    };
    serialized(&Page { letters: page.letters.iter().map(view).collect(), more: page.more })
}

/// What is done with letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Replay,
    Drop,
}

/// `POST /v1/ops/dlq/replay`: publishes the rows again, then removes their letters.
pub(crate) async fn replay(shared: &Shared, query: &Query) -> Result<Response<Body>, ApiError> {
    let dry_run = query.is_on("dry_run");
    let wanted = Wanted::of_one_table(shared, query)?;
    let Counted { matched, not_rows } = each_step(shared, wanted, Act::Replay, dry_run).await?;
    let replayed = Some(if dry_run { 0 } else { matched - not_rows });
    let not_rows = Some(not_rows).filter(|count| *count > 0);
    serialized(&Changed { matched, replayed, not_rows, dropped: None, dry_run })
}

/// `DELETE /v1/ops/dlq`: removes letters for good.
pub(crate) async fn remove(shared: &Shared, query: &Query) -> Result<Response<Body>, ApiError> {
    let dry_run = query.is_on("dry_run");
    let wanted = Wanted::of_one_table(shared, query)?;
    let Counted { matched, .. } = each_step(shared, wanted, Act::Drop, dry_run).await?;
    let dropped = Some(if dry_run { 0 } else { matched });
    serialized(&Changed { matched, replayed: None, not_rows: None, dropped, dry_run })
}

/// Goes through the letters that match now, a step at a time, and counts them; a dry run does no more. What is buried
/// meanwhile is not among them, so rows that are refused again do not go round.
async fn each_step(
    shared: &Shared,
    mut wanted: Wanted,
    act: Act,
    dry_run: bool,
) -> Result<Counted, ApiError> {
    let now = shared.clock.now();
    wanted.filter.until = Some(wanted.filter.until.map_or(now, |until| until.min(now)));
    let (mut counted, mut after) = (Counted::default(), None);
    loop {
        let page = shared.broker.letters(&wanted.filter, after.as_ref(), STEP).await;
        let page = page.map_err(|error| unreachable(&error))?;
        after = page
            .letters
            .last()
            .map(|letter| LetterCursor { table: letter.table.table.clone(), position: letter.position });
        let mut letters: Vec<DeadLetter> =
            page.letters.into_iter().filter(|letter| wanted.takes(letter)).collect();
        counted.matched += letters.len() as u64;
        if act == Act::Replay {
            let all = letters.len();
            letters.retain(is_row);
            counted.not_rows += (all - letters.len()) as u64;
        }
        if let Some(first) = letters.first().filter(|_| !dry_run) {
            if act == Act::Replay {
                publish(shared, &letters).await?;
            }
            let positions: Vec<Position> = letters.iter().map(|letter| letter.position).collect();
            let dropped = shared.broker.drop_letters(&first.table, &positions).await;
            dropped.map_err(|error| unreachable(&error))?;
        }
        if !page.more {
            return Ok(counted);
        }
    }
}

async fn matching(shared: &Shared, wanted: &Wanted) -> Result<Vec<DeadLetter>, ApiError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = shared.broker.letters(&wanted.filter, after.as_ref(), STEP).await;
        let page = page.map_err(|error| unreachable(&error))?;
        let last = page.letters.last();
        after =
            last.map(|letter| LetterCursor { table: letter.table.table.clone(), position: letter.position });
        found.extend(page.letters.into_iter().filter(|letter| wanted.takes(letter)));
        if !page.more || !found.is_empty() {
            return Ok(found);
        }
    }
}

/// Publishes letters of one table as they came in: each row with the time at which it was received first.
async fn publish(shared: &Shared, letters: &[DeadLetter]) -> Result<(), ApiError> {
    let blocks = letters.iter().map(|letter| {
        let mut line = BytesMut::with_capacity(letter.line.len() + 1);
        line.put_slice(&letter.line);
        line.put_u8(b'\n');
        RowBlock::new(letter.table.clone(), letter.received_at, Scope::default(), 1, line.freeze())
    });
    for result in shared.broker.submit(blocks.collect()).await {
        result.map_err(|error| ApiError::from(&error))?;
    }
    Ok(())
}

/// Whether a letter's content is what can be sent on: one JSON object in one line.
fn is_row(letter: &DeadLetter) -> bool {
    let is_object =
        || serde_json::from_slice::<&RawValue>(&letter.line).is_ok_and(|row| row.get().starts_with('{'));
    !letter.line.contains(&b'\n') && is_object()
}

fn view(letter: &DeadLetter) -> View<'_> {
    let text = String::from_utf8_lossy(&letter.line).into_owned();
    // A line that is no JSON, which ingest never lets in, is shown as text.
    let row = RawValue::from_string(text.clone())
        .or_else(|_| serde_json::value::to_raw_value(&text))
        .unwrap_or_else(|_| RawValue::NULL.to_owned());
    let TableRef { table, .. } = &letter.table;
    View {
        id: letter.position,
        table,
        code: letter.code,
        reason: &letter.reason,
        received_at: letter.received_at.to_rfc3339(DIGITS),
        buried_at: letter.buried_at.to_rfc3339(DIGITS),
        row,
    }
}

fn unreachable(error: &LetterError) -> ApiError {
    match error {
        LetterError::Unsupported { .. } => ApiError::Unsupported(error.to_string()),
        _ => ApiError::QueueUnavailable(error.to_string()),
    }
}
