//! Framing, keys and limits: a table of bodies and what becomes of each.

use super::{BodyError, CheckOptions, Checked, DEPTH_MAX, Framing, check_body};
use crate::schema::{Column, DefaultKind, ServerFacts, TableSchema};

use Framing::{Auto, Lines};

const OPTIONS: CheckOptions<'_> = CheckOptions { receipt_time: None, row_bytes_max: 200, depth_max: 10 };

fn table_of(columns: Vec<Column>) -> TableSchema {
    TableSchema::new("t".to_owned(), columns, ServerFacts { version: (26, 7), time_zone: "UTC".to_owned() })
}

/// `a` is required; `b` has a default; `n` is nullable; the others cannot or need not be sent.
fn table() -> TableSchema {
    table_of(vec![
        Column::new("a", "Int8", 1),
        Column::new("b", "String", 2).with_default(DefaultKind::Default, "'x'"),
        Column::new("n", "Nullable(String)", 3),
        Column::new("m", "Int8", 4).with_default(DefaultKind::Materialized, "a + 1"),
        Column::new("al", "Int8", 5).with_default(DefaultKind::Alias, "a + 2"),
        Column::new("e", "Int8", 6).with_default(DefaultKind::Ephemeral, "0"),
    ])
}

fn check(body: &[u8], framing: Framing) -> Result<Checked, BodyError> {
    check_body(body, framing, &table(), &OPTIONS)
}

/// The rows, and the refusals as `index: message`.
fn outcome(checked: &Checked) -> (Vec<&str>, Vec<String>) {
    let lines = std::str::from_utf8(&checked.lines).unwrap();
    let rows: Vec<&str> = lines.lines().collect();
    let mut start = 0;
    for (row, &end) in rows.iter().zip(&checked.ends) {
        assert_eq!(&checked.lines[start..end as usize], format!("{row}\n").as_bytes());
        start = end as usize;
    }
    assert_eq!(start, checked.lines.len());
    assert_eq!((rows.len(), rows.len()), (checked.rows as usize, checked.ends.len()));
    assert_eq!(checked.total as usize, rows.len() + checked.refused.len());
    (rows, checked.refused.iter().map(|(index, error)| format!("{index}: {error}")).collect())
}

#[track_caller]
fn rows(body: &str, framing: Framing, expected: &[&str], refused: &[&str]) -> Checked {
    let checked = check(body.as_bytes(), framing).unwrap_or_else(|error| panic!("{body:?}: {error}"));
    assert_eq!(
        outcome(&checked),
        (expected.to_vec(), refused.iter().map(ToString::to_string).collect()),
        "{body:?}"
    );
    checked
}

#[track_caller]
fn body_error(body: &str, framing: Framing, expected: &str) {
    assert_eq!(check(body.as_bytes(), framing).unwrap_err().to_string(), expected, "{body:?}");
}

#[test]
fn one_object() {
    for body in [r#"{"a":1}"#, " \r\n{\"a\":1}\n\n", "\u{feff}{\"a\":1}"] {
        let checked = rows(body, Auto, &[r#"{"a":1}"#], &[]);
        assert!(checked.single, "{body:?}");
    }
    assert!(
        rows(r#"{"a":300}"#, Auto, &[], &["1: type mismatch for column \"a\" (Int8): 300 is out of range"])
            .single
    );
    // Bytes stay: blanks, escapes, order, spelling of numbers.
    let odd = "{ \"b\" :\t\"\\u0041\\/é\" , \"\\u0061\" : -0 }";
    rows(odd, Auto, &[odd], &[]);
    rows("{\r\n  \"a\": 1,\n  \"n\": \"x\\n\"\n}", Auto, &[r#"{  "a": 1,  "n": "x\n"}"#], &[]);
}

#[test]
fn several_objects_are_a_batch() {
    for body in ["{\"a\":1}{\"a\":2}", "{\"a\":1}\n{\"a\":2}\n", " {\"a\":1} {\"a\":2} "] {
        for framing in [Auto, Lines] {
            let checked = rows(body, framing, &[r#"{"a":1}"#, r#"{"a":2}"#], &[]);
            assert!(!checked.single, "{body:?}");
        }
    }
    assert!(!rows("{\"a\":1}\n", Lines, &[r#"{"a":1}"#], &[]).single);
    body_error("{\"a\":1} x", Auto, "invalid json: unexpected data after the object at byte 9");
    body_error("{\"a\":1},{\"a\":2}", Auto, "invalid json: unexpected data after the object at byte 8");
    body_error("{\"a\":1}{\"a\":", Auto, "invalid json: the object does not end");
}

#[test]
fn arrays() {
    for framing in [Auto, Lines] {
        assert_eq!(rows("[]", framing, &[], &[]), Checked { lines: Vec::new(), ..Checked::default() });
        let checked =
            rows("\u{feff} [\n{\"a\":1\n},\r\n {\"a\":2}] \n", framing, &[r#"{"a":1}"#, r#"{"a":2}"#], &[]);
        assert!(!checked.single);
        assert!(!rows("[{\"a\":1}]", framing, &[r#"{"a":1}"#], &[]).single);
        rows(
            r#"[{"a":1},5,"x",null,[1],true,{"a":300},{"a":2}]"#,
            framing,
            &[r#"{"a":1}"#, r#"{"a":2}"#],
            &[
                "2: a row must be a JSON object, not a number",
                "3: a row must be a JSON object, not a string",
                "4: a row must be a JSON object, not null",
                "5: a row must be a JSON object, not an array",
                "6: a row must be a JSON object, not true or false",
                "7: type mismatch for column \"a\" (Int8): 300 is out of range",
            ],
        );
        let whole = r#"[{"a":1},{"a":2,"n":"x"}]"#;
        for end in 1..whole.len() {
            body_error(&whole[..end], framing, "invalid json: unterminated json array");
        }
        body_error("[{\"a\":1},]", framing, "invalid json: expected a value at byte 10");
        body_error("[{\"a\":1} {\"a\":2}]", framing, "invalid json: expected , or ] at byte 10");
        body_error("[{\"a\":1}] 7", framing, "invalid json: unexpected data after the array at byte 11");
        body_error(
            "[{\"a\":1}][{\"a\":1}]",
            framing,
            "invalid json: unexpected data after the array at byte 10",
        );
        body_error("[{\"a\":tru}]", framing, "invalid json: expected true, false or null at byte 10");
        body_error("[{\"n\":\"a\nb\"}]", framing, "invalid json: a control character in a string at byte 9");
    }
}

#[test]
fn empty_bodies() {
    for body in ["", " \r\n\t", "\u{feff}", "\u{feff}\n"] {
        body_error(body, Auto, "empty body");
        body_error(body, Lines, "empty ndjson body");
    }
    body_error("5", Auto, "invalid json: expected an object or an array of objects");
    body_error("\0", Auto, "invalid json: expected an object or an array of objects");
    rows("5", Lines, &[], &["1: a row must be a JSON object, not a number"]);
}

#[test]
fn a_broken_line_is_refused_alone() {
    rows(
        "{\"a\":1}\r\n\r\n{\"a\":2\n{\"a\":3}\nnonsense\n{\"a\":4} {\"a\":5}\n{\"a\":6} trailing\n\0\n{\"a\":7}",
        Lines,
        &[r#"{"a":1}"#, r#"{"a":3}"#, r#"{"a":4}"#, r#"{"a":5}"#, r#"{"a":7}"#],
        &[
            "2: invalid json: expected , or } at byte 8",
            "4: invalid json: expected true, false or null at byte 2",
            "7: invalid json: unexpected data after the row at byte 9",
            "8: invalid json: expected a value at byte 1",
        ],
    );
    // A row before the breach goes with its line, so that the line can be sent again.
    rows(
        "{\"a\":1}{\"a\":2}{\"a\":\n{\"a\":3}",
        Lines,
        &[r#"{"a":3}"#],
        &["1: invalid json: expected , or } at byte 28"],
    );
    rows(
        "{\"a\":1},\n{\"a\":2}",
        Lines,
        &[r#"{"a":2}"#],
        &["1: invalid json: unexpected data after the row at byte 8"],
    );
    rows("{\"a\":1}\n{\"a\":", Lines, &[r#"{"a":1}"#], &["2: invalid json: expected a value at byte 6"]);
    rows("{\"a\":1}\n[{\"a\":2}]", Lines, &[r#"{"a":1}"#], &["2: a row must be a JSON object, not an array"]);
}

#[test]
fn a_line_that_breaks_in_a_bad_value_does_not_spoil_the_next() {
    let table = table_of(vec![Column::new("a", "Array(Int8)", 1)]);
    let body = "{\"a\":[300,\n{\"a\":[1]}\n{\"a\":[2]}";
    let checked = check_body(body.as_bytes(), Lines, &table, &OPTIONS).unwrap();
    assert_eq!((checked.rows, checked.refused.len()), (2, 1), "{:?}", checked.refused);
}

#[test]
fn an_object_over_several_lines_is_one_row() {
    rows("{\n\"a\": 1\n}\n{ \"a\":2}\n", Lines, &[r#"{"a": 1}"#, r#"{ "a":2}"#], &[]);
}

#[test]
fn invalid_utf8_refuses_its_record() {
    let lines = b"{\"a\":1,\"n\":\"\xFF\"}\n{\"a\":2}\n\xC3\x28\n{\"a\":3,\"n\":\"\xC3\xA9\"}";
    let checked = check(lines, Lines).unwrap();
    let expected = vec!["1: invalid UTF-8 in a row".to_owned(), "3: invalid UTF-8 in a row".to_owned()];
    assert_eq!(outcome(&checked), (vec![r#"{"a":2}"#, r#"{"a":3,"n":"é"}"#], expected));
    let checked = check(b"[{\"a\":1,\"n\":\"\xFF\"},{\"a\":2}]", Auto).unwrap();
    assert_eq!(outcome(&checked).0, [r#"{"a":2}"#]);
    assert_eq!(check(b"{\"a\":1,\"\xFF\":1}", Auto).unwrap().refused.len(), 1);
    assert!(matches!(check(b"[\xFF]", Auto), Err(BodyError::InvalidJson(_))));
}

#[test]
fn keys() {
    let case = |body: &str, message: &str, code: Option<u32>| {
        let checked = check(body.as_bytes(), Auto).unwrap();
        let (_, error) = &checked.refused[0];
        assert_eq!((error.message.as_str(), error.exception_code), (message, code), "{body}");
    };
    let unknown = "Unknown field found while parsing JSONEachRow format: ";
    let twice = "Duplicate field found while parsing JSONEachRow format: ";
    case(r#"{"a":1,"x":{"y":[1]}}"#, &format!("{unknown}x"), Some(117));
    case(r#"{"a":1,"A":1}"#, &format!("{unknown}A"), Some(117));
    case(r#"{"":1,"a":1}"#, unknown, Some(117));
    case(r#"{"m":1,"a":1}"#, &format!("{unknown}m"), Some(117));
    case(r#"{"a":1,"al":1}"#, &format!("{unknown}al"), Some(117));
    case(r#"{"a":1,"a":1}"#, &format!("{twice}a"), Some(117));
    case(r#"{"a":1,"\u0061":[2]}"#, &format!("{twice}a"), Some(117));
    case(r#"{"b":"y"}"#, "missing required column \"a\"", None);
    case("{}", "missing required column \"a\"", None);
    case(r#"{"a":null}"#, "null value for non-nullable column \"a\"", None);
    // The first error counts, and the record is read to its end all the same.
    case(r#"{"x":1,"a":300,"n":[{}]}"#, &format!("{unknown}x"), Some(117));
    rows(r#"{"n":null,"b":null,"a":1,"e":5}"#, Auto, &[r#"{"n":null,"b":null,"a":1,"e":5}"#], &[]);
}

#[test]
fn names_that_need_escapes() {
    let table = table_of(vec![Column::new("q\"x", "Int8", 1), Column::new("b\\s", "Int8", 2)]);
    let read = |body: &str| check_body(body.as_bytes(), Auto, &table, &OPTIONS).map(|checked| checked.rows);
    assert_eq!(read(r#"{"q\"x":1,"b\\s":2}"#), Ok(1));
    assert!(matches!(read(r#"{"q"x":1,"b\\s":2}"#), Err(BodyError::InvalidJson(_))));
}

#[test]
fn key_order_changes_from_row_to_row() {
    let body = "{\"a\":1,\"b\":\"x\"}\n{\"b\":\"y\",\"a\":2}\n{\"n\":\"z\",\"b\":\"y\",\"a\":3}\n{\"a\":4}\n{\"b\":\"w\",\"a\":300}";
    let checked = check(body.as_bytes(), Lines).unwrap();
    assert_eq!((checked.rows, checked.refused.len()), (4, 1));
}

#[test]
fn arrays_of_a_nested_structure_are_of_one_length() {
    let table = table_of(vec![
        Column::new("n.x", "Array(Array(Int8))", 1),
        Column::new("n.y", "Array(String)", 2),
        Column::new("n.z", "String", 3).with_default(DefaultKind::Default, "''"),
        Column::new("m.x", "Array(Int8)", 4).with_default(DefaultKind::Default, "[]"),
    ]);
    let refused = |body: &str| check_body(body.as_bytes(), Auto, &table, &OPTIONS).unwrap().refused.pop();
    assert_eq!(refused(r#"{"n.x":[[1,2],[]],"n.y":["a","b"],"n.z":"c","m.x":[1]}"#), None);
    assert_eq!(refused(r#"{"n.y":[],"n.x":[]}"#), None);
    let (_, error) = refused(r#"{"n.y":["a"],"n.x":[[1],[2]]}"#).unwrap();
    assert!(error.message.starts_with("Elements 'n.y' and 'n.x' of Nested data structure 'n'"), "{error}");
    assert_eq!(error.exception_code, Some(190));
}

#[test]
fn receipt_time() {
    let required = Column::new("received_timestamp", "DateTime64(9, 'UTC')", 2);
    let table = table_of(vec![Column::new("a", "Nullable(Int8)", 1), required]);
    assert!(table.has_column_for_receipt_time());
    let options = CheckOptions { receipt_time: Some("2026-06-21T04:00:00.123456789Z"), ..OPTIONS };
    let read = |body: &str, options: &CheckOptions<'_>| {
        let checked = check_body(body.as_bytes(), Auto, &table, options).unwrap();
        let rows = String::from_utf8(checked.lines).unwrap();
        rows.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let added = r#""received_timestamp":"2026-06-21T04:00:00.123456789Z"}"#;
    let sent = r#"{"received_timestamp":"2026-01-01"}"#;
    assert_eq!(read(r#"{"a":1 }"#, &options), [format!("{{\"a\":1 ,{added}")]);
    assert_eq!(read("{\n}", &options), [format!("{{{added}")]);
    assert_eq!(read(sent, &options), [sent]);
    assert_eq!(read("{}", &OPTIONS), [""; 0]);
    for (ty, kind) in [("Int64", None), ("DateTime", Some(DefaultKind::Materialized))] {
        let mut column = Column::new("received_timestamp", ty, 1);
        column.default_kind = kind;
        assert!(!table_of(vec![column]).has_column_for_receipt_time(), "{ty}");
    }
}

#[test]
fn limits() {
    let row = |bytes: usize| format!("{{\"a\":1,\"n\":\"{}\"}}", "x".repeat(bytes - 14));
    assert_eq!(row(200).len(), 200);
    rows(&row(200), Auto, &[&row(200)], &[]);
    let body = format!("{}\n{{\"a\":2}}", row(201));
    rows(&body, Lines, &[r#"{"a":2}"#], &["1: the row is larger than 200 bytes"]);
    let nested = |depth: usize| format!("{{\"a\":1,\"n\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(check(nested(9).as_bytes(), Auto).unwrap().rows, 1);
    for depth in [10, 200_000] {
        rows(&format!("[{},{{\"a\":2}}]", nested(depth)), Auto, &[r#"{"a":2}"#], &["1: nested too deeply"]);
        let body = format!("{}\n{{\"a\":2}}", nested(depth));
        rows(&body, Lines, &[r#"{"a":2}"#], &["1: invalid json: nested too deeply at byte 22"]);
    }
    let many = "{}\n".repeat(1 + usize::try_from(super::RECORDS_MAX).unwrap());
    assert_eq!(check(many.as_bytes(), Lines), Err(BodyError::TooManyRecords));
    assert_eq!(check(&many.as_bytes()[3..], Lines).unwrap().refused.len() as u64, super::RECORDS_MAX);
}

#[test]
fn reading_a_broken_line_again_costs_little() {
    // Each line opens what no line closes: without a limit on depth every line would be read to the body's end.
    let body = "{\"n\":[\n".repeat(100_000);
    let options = CheckOptions { depth_max: DEPTH_MAX, ..OPTIONS };
    let checked = check_body(body.as_bytes(), Lines, &table(), &options).unwrap();
    assert_eq!(checked.refused.len(), 100_000);
}
