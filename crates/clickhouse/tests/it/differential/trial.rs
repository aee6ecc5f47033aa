//! One type's table: its values go to the checker and to the engine, and what was stored comes back.

use std::collections::HashMap;

use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::Value;
use wavehouse_clickhouse::{ClickHouseError, INSERT_SETTINGS, RowBatch, RowSink};
use wavehouse_core::{TableName, TableRef, TenantId};
use wavehouse_rows::{CheckOptions, DEPTH_MAX, Framing, check_body};

use super::alike::alike;
use super::json::Json;
use super::meaning::{Server, meaning};
use super::types::Ty;
use crate::kit::House;

/// Rows that the engine refused one by one before a type is given up.
const REFUSALS_MAX: usize = 60;
pub(super) const OPTIONS: CheckOptions<'_> =
    CheckOptions { receipt_time: None, row_bytes_max: 1 << 20, depth_max: DEPTH_MAX };

/// One value and what became of it.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) json: Json,
    /// Why the checker refused it.
    pub(super) refused: Option<String>,
    /// What the engine stored; `None` if it refused too.
    pub(super) stored: Option<Value>,
    /// What it means.
    pub(super) meant: Option<Value>,
}

/// A table of one type.
pub(super) struct Trial {
    pub(super) family: &'static str,
    pub(super) ty: Ty,
    table: String,
    pub(super) cases: Vec<Case>,
    /// Inserts so far, which need different tokens.
    inserts: usize,
    /// What is worth telling, though no failure.
    pub(super) notes: Vec<String>,
}

impl Trial {
    /// Makes the table.
    pub(super) async fn create(
        house: &House,
        index: usize,
        (family, ty): (&'static str, Ty),
        values: Vec<Json>,
    ) -> Self {
        let table = format!("t{index}");
        let sql = format!("CREATE TABLE {table} (i UInt32, v {}) ENGINE = MergeTree ORDER BY i", ty.sql());
        let settings = "/?enable_time_time64_type=1&allow_suspicious_low_cardinality_types=1&flatten_nested=0\
            &allow_suspicious_variant_types=1";
        ask(house, settings, sql).await.unwrap_or_else(|text| panic!("{}: {text}", ty.sql()));
        let case = |json| Case { json, refused: None, stored: None, meant: None };
        Self {
            family,
            ty,
            table,
            cases: values.into_iter().map(case).collect(),
            inserts: 0,
            notes: Vec::new(),
        }
    }

    /// Asks both about all values. Comes back with what the engine refused of what the checker took.
    pub(super) async fn run(&mut self, house: &House, server: &Server) -> Vec<String> {
        let line = |(at, case): (usize, &Case)| format!("{{\"i\":{at},\"v\":{}}}\n", case.json.written());
        let lines: Vec<String> = self.cases.iter().enumerate().map(line).collect();
        let info = house.connection.catalog.table(&self.table).unwrap();
        let checked = check_body(lines.concat().as_bytes(), Framing::Lines, &info.schema, &OPTIONS).unwrap();
        assert_eq!(checked.total as usize, lines.len());
        for (at, error) in checked.refused {
            self.cases[usize::try_from(at).unwrap() - 1].refused = Some(error.message);
        }
        let (mut taken, mut refused) = (Vec::new(), Vec::new());
        for (line, case) in lines.iter().zip(&self.cases) {
            if case.refused.is_none() { taken.push(line.as_str()) } else { refused.push(line.as_str()) }
        }
        let bugs = self.insert_all(house, taken).await;
        self.insert_what_fits(house, &refused).await;
        let rows = self.read_back(house).await;
        for (at, case) in self.cases.iter_mut().enumerate() {
            case.stored = rows.get(&at).cloned();
            case.meant = meaning(&self.ty, &case.json, server);
        }
        bugs
    }

    /// Whether what was stored is what was meant.
    pub(super) fn is_same(&self, case: &Case, server: &Server) -> bool {
        let Some(stored) = &case.stored else { return false };
        match (&self.ty, &case.meant) {
            // Read back as one member: the value must mean just that there.
            (Ty::Variant(members), _) => {
                let stored = stored.as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
                let mut meant = members.iter().filter_map(|member| meaning(member, &case.json, server));
                meant.any(|meant| meant == stored) || (case.json == Json::Null && stored == Value::Null)
            }
            (_, None) => false,
            (ty, Some(meant)) if ty.is_inferred() => alike(meant, stored, server),
            (_, Some(meant)) => meant == stored,
        }
    }

    /// Inserts rows through the sink, as the product does; those that the engine refuses are told and left out.
    async fn insert_all(&mut self, house: &House, mut rows: Vec<&str>) -> Vec<String> {
        let mut bugs = Vec::new();
        while let Err(error) = self.insert(house, &rows).await {
            let named = error.bad_row().and_then(|row| usize::try_from(row).ok()).map(|row| row - 1);
            let bad = match named {
                Some(bad) => bad,
                None => self.first_bad(house, &rows).await,
            };
            let row = rows.remove(bad);
            match self.insert(house, &[row]).await {
                Ok(()) => self.notes.push(format!("refused among others, taken alone: {}", row.trim())),
                Err(error) => bugs.push(format!("{} {}: {}", self.ty.sql(), row.trim(), error.message)),
            }
            if bugs.len() >= REFUSALS_MAX {
                break;
            }
        }
        bugs
    }

    /// The first row that the engine refuses, where it did not say which. The rows before it are stored twice then, which
    /// does not matter.
    async fn first_bad(&mut self, house: &House, rows: &[&str]) -> usize {
        for (at, row) in rows.iter().enumerate() {
            if self.insert(house, &[row]).await.is_err() {
                return at;
            }
        }
        panic!("{}: refused together, each taken alone", self.ty.sql())
    }

    async fn insert(&mut self, house: &House, rows: &[&str]) -> Result<(), ClickHouseError> {
        if rows.is_empty() {
            return Ok(());
        }
        self.inserts += 1;
        let batch = RowBatch {
            table: TableRef::new(TenantId::default(), TableName::parse(&self.table).unwrap()),
            rows: u32::try_from(rows.len()).unwrap(),
            bytes: rows.iter().map(|row| row.len() as u64).sum(),
            lines: vec![Bytes::from(rows.concat())],
            token: format!("{}-{}", self.table, self.inserts),
        };
        house.sink.write(&batch).await.map_err(|error| error.clickhouse().unwrap().clone())
    }

    /// With the sink's settings, but rows that the engine refuses are passed over. Some refusals end the whole statement
    /// all the same: then halves are tried until the row that does it is alone.
    async fn insert_what_fits(&self, house: &House, rows: &[&str]) {
        let settings = INSERT_SETTINGS.iter().map(|&(name, value)| match name {
            "input_format_allow_errors_num" => format!("{name}=1000000"),
            _ => format!("{name}={value}"),
        });
        let settings = settings.collect::<Vec<_>>().join("&");
        let path = format!("/?{settings}&query=INSERT+INTO+{}+FORMAT+JSONEachRow", self.table);
        let mut open = vec![rows];
        while let Some(rows) = open.pop() {
            if !rows.is_empty() && ask(house, &path, rows.concat()).await.is_err() && rows.len() > 1 {
                let (front, back) = rows.split_at(rows.len() / 2);
                open.extend([back, front]);
            }
        }
    }

    async fn read_back(&self, house: &House) -> HashMap<usize, Value> {
        let exact = self.ty.exact("v");
        let sql = format!("SELECT i, {exact} FROM {} ORDER BY i FORMAT JSONCompactEachRow", self.table);
        let settings =
            if self.ty.is_inferred() { "/" } else { "/?output_format_json_named_tuples_as_objects=0" };
        let answer =
            ask(house, settings, sql).await.unwrap_or_else(|text| panic!("{}: {text}", self.ty.sql()));
        answer.lines().map(|line| serde_json::from_str::<(usize, Value)>(line).unwrap()).collect()
    }
}

/// Sends a statement; the answer, or the engine's refusal.
async fn ask(house: &House, path: &str, body: impl Into<Bytes>) -> Result<String, String> {
    let response = house.engine.request(path, body).await.map_err(|error| error.to_string())?;
    let fine = response.status().is_success();
    let bytes = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if fine { Ok(text) } else { Err(text) }
}
