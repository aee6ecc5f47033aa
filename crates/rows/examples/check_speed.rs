//! How many rows a second one core checks: `cargo run --release -p wavehouse-rows --example check_speed`.
//!
//! Four bodies of the same events (about 256 bytes, 9 fields): lines, an array, lines whose keys change their
//! order from row to row, and lines that each lack another field. The best pass tells what the core can do when
//! nothing else wants it.
#![expect(clippy::print_stdout, reason = "the figures are what the program is for")]

use std::time::{Duration, Instant};

use wavehouse_rows::{
    CheckOptions, Column, DEPTH_MAX, DefaultKind, Framing, ServerFacts, TableSchema, check_body,
};

const ROWS: usize = 10_000;
const RUN: Duration = Duration::from_secs(2);

fn main() -> Result<(), wavehouse_rows::BodyError> {
    let table = table();
    let rows: Vec<[String; 9]> = (0..ROWS).map(fields).collect();
    let line = |fields: &[String; 9]| format!("{{{}}}", fields.join(","));
    let lines: Vec<String> = rows.iter().map(line).collect();
    let shuffled: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(i, fields)| {
            let mut fields = fields.clone();
            fields.rotate_left(i % 9);
            line(&fields)
        })
        .collect();
    measure("lines", &lines.join("\n"), Framing::Lines, &table)?;
    measure("array", &format!("[{}]", lines.join(",")), Framing::Auto, &table)?;
    measure("lines, keys in changing order", &shuffled.join("\n"), Framing::Lines, &table)?;
    let sparse: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(i, fields)| {
            let mut fields = fields.to_vec();
            fields.remove(i * 7 % 9);
            format!("{{{}}}", fields.join(","))
        })
        .collect();
    measure("lines, a field missing", &sparse.join("\n"), Framing::Lines, &table)
}

fn measure(
    name: &str,
    body: &str,
    framing: Framing,
    table: &TableSchema,
) -> Result<(), wavehouse_rows::BodyError> {
    let options = CheckOptions { receipt_time: None, row_bytes_max: 1 << 20, depth_max: DEPTH_MAX };
    let (mut rows, mut best) = (0u64, Duration::MAX);
    let start = Instant::now();
    while start.elapsed() < RUN {
        let begun = Instant::now();
        let checked = check_body(body.as_bytes(), framing, table, &options)?;
        best = best.min(begun.elapsed());
        assert!(checked.refused.is_empty(), "refused: {:?}", checked.refused.first());
        rows += u64::from(checked.rows);
    }
    let seconds = start.elapsed().as_secs_f64();
    let mean = rows as f64 / seconds;
    let row_bytes = body.len() as f64 / ROWS as f64;
    println!(
        "{name}: {:.2} M rows/s, {:.0} MB/s, {:.0} ns/row (best pass {:.0} ns/row; {row_bytes:.0} B a row)",
        mean / 1e6,
        mean * row_bytes / 1e6,
        1e9 / mean,
        best.as_nanos() as f64 / ROWS as f64
    );
    Ok(())
}

fn table() -> TableSchema {
    let columns = [
        ("event_id", "UUID"),
        ("ts", "DateTime64(3, 'UTC')"),
        ("user_id", "UInt64"),
        ("session", "String"),
        ("kind", "LowCardinality(String)"),
        ("url", "String"),
        ("price", "Float64"),
        ("ok", "Bool"),
        ("country", "FixedString(2)"),
    ];
    let column = |((name, ty), at): (&(&str, &str), u64)| {
        Column::new(*name, *ty, at).with_default(DefaultKind::Default, "whatever")
    };
    let columns = columns.iter().zip(1..).map(column).collect();
    let server = ServerFacts { version: (26, 7), time_zone: "UTC".to_owned() };
    TableSchema::new("events".to_owned(), columns, server)
}

fn fields(i: usize) -> [String; 9] {
    [
        format!("\"event_id\":\"61f0c404-5cb3-11e7-907b-{i:012x}\""),
        format!("\"ts\":\"2026-01-05T{:02}:{:02}:12.{:03}Z\"", i % 24, i % 60, i % 1000),
        format!("\"user_id\":{}", i * 7_919 + 1_000_000),
        format!("\"session\":\"s-{:016x}\"", i * 2_654_435_761),
        format!("\"kind\":\"{}\"", ["click", "view", "scroll", "purchase"][i % 4]),
        format!("\"url\":\"https://shop.example.com/products/{}?ref=home\"", i * 31),
        format!("\"price\":{}.{:02}", i % 500, i % 100),
        format!("\"ok\":{}", i & 1 == 0),
        format!("\"country\":\"{}\"", ["DE", "FR", "US"][i % 3]),
    ]
}
