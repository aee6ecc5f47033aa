//! Bodies: counts add up, rows are lines of JSON that are taken again as they are, and no line takes another with it.

use serde_json::value::RawValue;
use wavehouse_rows::{
    CheckOptions, Checked, Column, DefaultKind, Framing, ServerFacts, TableSchema, check_body,
};

use crate::first;

const RECEIPT: &str = "2026-06-21T04:00:00.123456789Z";
const GOOD_ROW: &[u8] = b"{\"id\":7}";

fn table() -> TableSchema {
    let columns = vec![
        Column::new("id", "UInt32", 1),
        Column::new("s", "String", 2).with_default(DefaultKind::Default, "''"),
        Column::new("n", "Nullable(Float64)", 3),
        Column::new("j", "JSON", 4).with_default(DefaultKind::Default, "'{}'"),
        Column::new("d", "Dynamic", 5),
        Column::new("list", "Array(Map(String, Tuple(a Int8, b String)))", 6)
            .with_default(DefaultKind::Default, "[]"),
        Column::new("é\"", "Nullable(String)", 7),
        Column::new("x.a", "Array(Int8)", 8).with_default(DefaultKind::Default, "[]"),
        Column::new("x.b", "Array(DateTime)", 9).with_default(DefaultKind::Default, "[]"),
        Column::new("m", "Int8", 10).with_default(DefaultKind::Materialized, "1"),
        Column::new("received_timestamp", "DateTime64(9)", 11).with_default(DefaultKind::Default, "now64(9)"),
    ];
    let server = ServerFacts { version: (26, 7), time_zone: "Europe/Berlin".to_owned() };
    TableSchema::new("t".to_owned(), columns, server)
}

/// The first byte chooses how the rest is read.
pub fn lines(data: &[u8]) {
    let (choice, body) = first(data);
    let framing = if choice & 1 == 0 { Framing::Lines } else { Framing::Auto };
    let options = CheckOptions {
        receipt_time: (choice & 2 == 0).then_some(RECEIPT),
        row_bytes_max: if choice & 4 == 0 { 1 << 20 } else { 80 },
        depth_max: if choice & 8 == 0 { 100 } else { 4 },
    };
    let table = table();
    let Ok(checked) = check_body(body, framing, &table, &options) else { return };
    is_sound(&checked);
    let again = CheckOptions { receipt_time: None, ..options };
    match check_body(&checked.lines, Framing::Lines, &table, &again) {
        Ok(second) => {
            assert!(second.lines == checked.lines && second.ends == checked.ends, "taken again as it is")
        }
        Err(_) => assert_eq!(checked.rows, 0),
    }
    if framing == Framing::Lines && !is_array(body) {
        let longer = check_body(&[body, b"\n", GOOD_ROW].concat(), framing, &table, &options);
        let rows = longer.map(|longer| (longer.rows, longer.total));
        assert_eq!(rows, Ok((checked.rows + 1, checked.total + 1)), "no line takes the next one with it");
    }
}

fn is_array(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    body.trim_ascii_start().starts_with(b"[")
}

pub(crate) fn is_sound(checked: &Checked) {
    assert_eq!(checked.total, u64::from(checked.rows) + checked.refused.len() as u64);
    assert_eq!(checked.rows as usize, checked.ends.len());
    assert_eq!(checked.ends.last().copied().unwrap_or(0) as usize, checked.lines.len());
    let mut start = 0;
    for &end in &checked.ends {
        let line = &checked.lines[start..end as usize];
        assert_eq!(line.iter().position(|&byte| byte == b'\n'), Some(line.len() - 1), "one line");
        assert!(line.starts_with(b"{"));
        // Of numbers only the form is read: JSON knows larger ones than any machine.
        assert!(serde_json::from_slice::<&RawValue>(line).is_ok(), "another parser takes it for JSON");
        start = end as usize;
    }
    let places: Vec<u64> = checked.refused.iter().map(|refused| refused.0).collect();
    assert!(
        places.is_sorted_by(|a, b| a < b) && places.iter().all(|place| (1..=checked.total).contains(place))
    );
}
