//! Values: a type judges one alike wherever it stands.

use serde_json::value::RawValue;
use wavehouse_rows::{CheckOptions, Column, ColumnType, Framing, ServerFacts, TableSchema, check_body};

use crate::body::is_sound;
use crate::first;

/// Types that are judged; each wrapped in others too.
const TYPES: &[&str] = &[
    "Int8",
    "UInt8",
    "Int64",
    "UInt64",
    "Int128",
    "UInt256",
    "Float32",
    "Float64",
    "BFloat16",
    "Decimal(9, 2)",
    "Decimal(76, 40)",
    "Bool",
    "String",
    "FixedString(3)",
    "UUID",
    "IPv4",
    "IPv6",
    "Enum8('a' = 1, 'b\\'c' = -2, '' = 3, '7' = 4)",
    "Date",
    "Date32",
    "DateTime",
    "DateTime('UTC')",
    "DateTime64(3, 'America/New_York')",
    "DateTime64(9)",
    "Time",
    "Time64(3)",
    "IntervalDay",
    "Nullable(Int8)",
    "LowCardinality(Nullable(String))",
    "Array(Array(Int8))",
    "Map(String, Array(Nullable(Int8)))",
    "Map(DateTime, Int8)",
    "Tuple(Int8, String)",
    "Tuple(a Int8, `b c` Nullable(String))",
    "Nested(a Int8, b String)",
    "JSON",
    "Dynamic",
    "Variant(String, UInt64)",
    "Variant(Date, Int8, Array(Float64))",
    "Array(Variant(Decimal(9, 2), Map(String, Int8)))",
    "Geometry",
    "MultiPolygon",
    "AggregateFunction(sum, UInt64)",
];
const DEPTH_MAX: usize = 90;

/// The first byte chooses the type (the last choice: the text up to a line break is one), the second the server.
pub fn values(data: &[u8]) {
    let (choice, data) = first(data);
    let (server, data) = first(data);
    let (ty, value) = match TYPES.get(usize::from(choice)) {
        Some(ty) => ((*ty).to_owned(), data),
        None => {
            let (ty, value) =
                data.split_at(data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len()));
            (String::from_utf8_lossy(ty).into_owned(), value)
        }
    };
    let zone = ["UTC", "Europe/Berlin", "Nowhere/Land", "+02:00"][usize::from(server >> 1 & 3)];
    let version = if server & 1 == 0 { (26, 7) } else { (26, 8) };
    let facts = ServerFacts { version, time_zone: zone.to_owned() };
    let taken = takes(&ty, value, &facts, DEPTH_MAX);
    let parsed = ColumnType::parse(&ty);
    // A value that is whole, and a type as the server spells it.
    let is_whole = serde_json::from_slice::<&RawValue>(value).is_ok();
    if !is_whole || usize::from(choice) >= TYPES.len() || matches!(parsed, ColumnType::Opaque(_)) {
        return;
    }
    let takes = |ty: &str, value: &[u8]| takes(ty, value, &facts, DEPTH_MAX + 1);
    let inside = |front: &[u8], back: &[u8]| [front, value, back].concat();
    assert_eq!(takes(&format!("Array({ty})"), &inside(b"[", b"]")), taken, "in an array");
    assert_eq!(takes(&format!("Tuple({ty})"), &inside(b"[", b"]")), taken, "in a tuple");
    assert_eq!(takes(&format!("Tuple(a {ty})"), &inside(b"{\"a\":", b"}")), taken, "in a named tuple");
    assert_eq!(takes(&format!("Map(String, {ty})"), &inside(b"{\"a\":", b"}")), taken, "in a map");
    let is_null = value.trim_ascii() == b"null";
    let nullable = self::takes(&format!("Nullable({ty})"), value, &facts, DEPTH_MAX);
    assert_eq!(nullable, taken || is_null, "Nullable");
}

fn takes(ty: &str, value: &[u8], facts: &ServerFacts, depth_max: usize) -> bool {
    let table = TableSchema::new("t".to_owned(), vec![Column::new("v", ty, 1)], facts.clone());
    let options = CheckOptions { receipt_time: None, row_bytes_max: 1 << 20, depth_max };
    let body = [b"{\"v\":", value, b"}"].concat();
    let Ok(checked) = check_body(&body, Framing::Auto, &table, &options) else { return false };
    is_sound(&checked);
    if checked.rows > 0 {
        let again = check_body(&checked.lines, Framing::Lines, &table, &options);
        assert_eq!(again.map(|again| again.lines), Ok(checked.lines), "taken again as it is");
    }
    checked.single && checked.rows == 1
}
