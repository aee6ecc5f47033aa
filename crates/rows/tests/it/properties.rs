//! Arbitrary bodies: counts that add up, rows that mean what their records meant.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use wavehouse_rows::{
    BodyError, CheckOptions, Checked, Column, ColumnType, DEPTH_MAX, DefaultKind, Framing, ServerFacts,
    TableSchema, check_body,
};

const RECEIPT: &str = "2026-06-21T04:00:00.123456789Z";

fn table() -> TableSchema {
    let columns = vec![
        Column::new("id", "UInt32", 1),
        Column::new("s", "String", 2).with_default(DefaultKind::Default, "''"),
        Column::new("n", "Nullable(Float64)", 3),
        Column::new("ts", "Nullable(DateTime64(3))", 4),
        Column::new("t", "Nullable(TypeToCome)", 5),
        Column::new("list", "Array(Map(String, Tuple(a Int8, b String)))", 6)
            .with_default(DefaultKind::Default, "[]"),
        Column::new("é\"", "Nullable(String)", 7),
        Column::new("received_timestamp", "DateTime64(9)", 8),
    ];
    TableSchema::new(
        "t".to_owned(),
        columns,
        ServerFacts { version: (26, 7), time_zone: "Europe/Berlin".to_owned() },
    )
}

fn check(body: &[u8], framing: Framing) -> Result<Checked, BodyError> {
    let options = CheckOptions { receipt_time: Some(RECEIPT), row_bytes_max: 1 << 16, depth_max: DEPTH_MAX };
    check_body(body, framing, &table(), &options)
}

/// What must hold of any answer.
fn is_sound(checked: &Checked) {
    assert_eq!(checked.total, u64::from(checked.rows) + checked.refused.len() as u64);
    assert_eq!(checked.rows as usize, checked.ends.len());
    assert_eq!(checked.ends.last().copied().unwrap_or(0) as usize, checked.lines.len());
    let mut start = 0;
    for &end in &checked.ends {
        let line = &checked.lines[start..end as usize];
        assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1, "one line");
        assert_eq!(line.last(), Some(&b'\n'));
        match serde_json::from_slice::<Map<String, Value>>(line) {
            Ok(row) => assert!(row.contains_key("id"), "the required column"),
            // JSON all the same: `1e999` in a column that takes any value.
            Err(error) => assert!(error.to_string().starts_with("number out of range"), "{error}"),
        }
        start = end as usize;
    }
    let indices: Vec<u64> = checked.refused.iter().map(|refused| refused.0).collect();
    assert!(indices.windows(2).all(|pair| pair[0] < pair[1]), "in order, each once");
    assert!(indices.iter().all(|&index| index >= 1 && index <= checked.total));
}

/// Any JSON value, not deep.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9f64).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// A row that the table takes.
fn row() -> impl Strategy<Value = Value> {
    (
        any::<u32>(),
        prop::option::of(any::<String>()),
        prop::option::of(-1e9..1e9f64),
        prop::option::of(value()),
    )
        .prop_map(|(id, text, number, any)| {
            let mut row = Map::new();
            row.insert("n".to_owned(), number.into());
            if let Some(text) = text {
                row.insert("s".to_owned(), text.clone().into());
                row.insert("é\"".to_owned(), text.clone().into());
                row.insert("list".to_owned(), json!([{ text: { "b": "x\ny", "a": 7 } }]));
            }
            row.insert("id".to_owned(), id.into());
            if let Some(any) = any {
                row.insert("t".to_owned(), any);
            }
            Value::Object(row)
        })
}

/// Text that is nearly JSON: tokens in any order.
fn token_soup() -> impl Strategy<Value = String> {
    const TOKENS: [&str; 28] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"id\"",
        "\"s\"",
        "\"x\"",
        "1",
        "-",
        "300e9",
        "1.5",
        "null",
        "true",
        "\"",
        "\\",
        "\n",
        "\r\n",
        " ",
        "{\"id\":1}",
        "{\"id\":1,",
        "\"id\":2}",
        "\\u00",
        "é",
        "\u{feff}",
        "\"list\":[{\"a\":{\"a\":1,\"b\":2}}]",
        "\0",
    ];
    prop::collection::vec(prop::sample::select(&TOKENS[..]), 0..40).prop_map(|tokens| tokens.concat())
}

fn sound_in_both_framings(body: &[u8]) {
    for framing in [Framing::Auto, Framing::Lines] {
        if let Ok(checked) = check(body, framing) {
            is_sound(&checked);
        }
    }
}

/// How a batch is written down.
fn written(rows: &[Value], style: usize) -> (String, Framing) {
    let compact = |row: &Value| row.to_string();
    let pretty = |row: &Value| serde_json::to_string_pretty(row).unwrap();
    match style {
        0 => (rows.iter().map(compact).collect::<Vec<_>>().join("\n"), Framing::Lines),
        1 => (rows.iter().map(compact).collect::<Vec<_>>().join("\r\n\r\n"), Framing::Lines),
        2 => (Value::from(rows.to_vec()).to_string(), Framing::Auto),
        3 => (serde_json::to_string_pretty(rows).unwrap(), Framing::Lines),
        4 => (rows.iter().map(pretty).collect::<Vec<_>>().join("\n"), Framing::Lines),
        5 => (rows.iter().map(compact).collect::<String>(), Framing::Lines),
        _ => (rows.iter().map(pretty).collect::<String>(), Framing::Auto),
    }
}

proptest! {
    #[test]
    fn any_bytes_are_answered(body in prop::collection::vec(any::<u8>(), 0..200)) {
        sound_in_both_framings(&body);
    }

    #[test]
    fn token_soup_is_answered(body in token_soup()) {
        sound_in_both_framings(body.as_bytes());
    }

    #[test]
    fn any_type_text_is_answered(text in any::<String>(), value in value()) {
        let _: ColumnType = ColumnType::parse(&text);
        for text in [text.clone(), format!("Enum8('{text}' = 1)"), format!("Tuple({text} Int8)")] {
            let server = ServerFacts { version: (26, 8), time_zone: text.clone() };
            let table = TableSchema::new("t".to_owned(), vec![Column::new("v", text, 1)], server);
            let options = CheckOptions { receipt_time: None, row_bytes_max: 1 << 16, depth_max: DEPTH_MAX };
            let body = format!("{{\"v\":{value}}}");
            prop_assert_eq!(check_body(body.as_bytes(), Framing::Auto, &table, &options).unwrap().total, 1);
        }
    }

    #[test]
    fn rows_mean_what_their_records_meant(rows in prop::collection::vec(row(), 1..8), style in 0usize..7) {
        let (body, framing) = written(&rows, style);
        let checked = check(body.as_bytes(), framing).unwrap();
        prop_assert_eq!(&checked.refused, &vec![]);
        is_sound(&checked);
        let stored: Vec<Value> = checked.lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap()).collect();
        let expected: Vec<Value> = rows.iter().map(|row| {
            // Through a text, since serde_json does not read every float as it wrote it.
            let mut row: Value = serde_json::from_str(&row.to_string()).unwrap();
            row["received_timestamp"] = RECEIPT.into();
            row
        }).collect();
        prop_assert_eq!(stored, expected);
    }

    #[test]
    fn a_cut_body_never_gains_rows(rows in prop::collection::vec(row(), 1..4), style in 0usize..7, cut in any::<prop::sample::Index>()) {
        let (body, framing) = written(&rows, style);
        let body = &body.as_bytes()[..cut.index(body.len())];
        if let Ok(checked) = check(body, framing) {
            is_sound(&checked);
            prop_assert!(checked.rows as usize <= rows.len());
        }
    }

    #[test]
    fn a_changed_byte_is_answered(rows in prop::collection::vec(row(), 1..4), style in 0usize..7, at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (body, _) = written(&rows, style);
        let mut body = body.into_bytes();
        let at = at.index(body.len());
        body[at] = byte;
        sound_in_both_framings(&body);
    }
}
