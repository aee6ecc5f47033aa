//! Every type that ClickHouse 26.7 can print for a column, and texts that are none.

use super::{ColumnType, FloatType, Zone};

fn int(bits: u16, signed: bool) -> ColumnType {
    ColumnType::Int { bits, signed }
}

#[test]
fn simple_types() {
    for bits in [8, 16, 32, 64, 128, 256] {
        assert_eq!(ColumnType::parse(&format!("Int{bits}")), int(bits, true));
        assert_eq!(ColumnType::parse(&format!("UInt{bits}")), int(bits, false));
    }
    let table = [
        ("Float32", ColumnType::Float(FloatType::Float32)),
        ("Float64", ColumnType::Float(FloatType::Float64)),
        ("BFloat16", ColumnType::Float(FloatType::BFloat16)),
        ("Bool", ColumnType::Bool),
        ("String", ColumnType::String),
        ("FixedString(16)", ColumnType::FixedString(16)),
        ("UUID", ColumnType::Uuid),
        ("IPv4", ColumnType::Ipv4),
        ("IPv6", ColumnType::Ipv6),
        ("Date", ColumnType::Date),
        ("Date32", ColumnType::Date32),
        ("Time", ColumnType::Time),
        ("Time64(6)", ColumnType::Time64 { scale: 6 }),
        ("IntervalDay", ColumnType::Interval),
        ("IntervalNanosecond", ColumnType::Interval),
        ("Decimal(18, 3)", ColumnType::Decimal { precision: 18, scale: 3 }),
        ("Decimal32(2)", ColumnType::Decimal { precision: 9, scale: 2 }),
        ("Decimal64(2)", ColumnType::Decimal { precision: 18, scale: 2 }),
        ("Decimal128(2)", ColumnType::Decimal { precision: 38, scale: 2 }),
        ("Decimal256(2)", ColumnType::Decimal { precision: 76, scale: 2 }),
        ("JSON", ColumnType::Json),
        ("JSON(max_dynamic_paths=5, `a.b` UInt32, SKIP c, SKIP REGEXP 'x(')", ColumnType::Json),
        ("Dynamic", ColumnType::Dynamic),
        ("Dynamic(max_types=8)", ColumnType::Dynamic),
        (
            "Variant(Array(Int8), String)",
            ColumnType::Variant(vec![ColumnType::parse("Array(Int8)"), ColumnType::String]),
        ),
        ("Point", ColumnType::parse("Tuple(Float64, Float64)")),
        ("MultiPolygon", ColumnType::parse("Array(Array(Array(Tuple(Float64, Float64))))")),
        ("Tuple()", ColumnType::Tuple(Vec::new())),
        ("SimpleAggregateFunction(sum, UInt64)", int(64, false)),
        (
            "SimpleAggregateFunction(groupArrayArray(3), Array(Int8))",
            ColumnType::Array(Box::new(int(8, true))),
        ),
    ];
    for (text, expected) in table {
        assert_eq!(ColumnType::parse(text), expected, "{text}");
    }
}

#[test]
fn zones() {
    assert_eq!(ColumnType::parse("DateTime"), ColumnType::DateTime(Zone::of_server()));
    let ColumnType::DateTime(zone) = ColumnType::parse("DateTime('Europe/Berlin')") else { panic!() };
    assert_eq!(zone.name(), Some("Europe/Berlin"));
    let ColumnType::DateTime64 { scale: 3, zone } = ColumnType::parse("DateTime64(3, 'UTC')") else {
        panic!()
    };
    assert_eq!(zone, Zone::named("UTC"));
    let plain = ColumnType::parse("DateTime64(9)");
    assert_eq!(plain, ColumnType::DateTime64 { scale: 9, zone: Zone::of_server() });
}

#[test]
fn nested_types() {
    let text =
        "Map(LowCardinality(String), Array(Nullable(Tuple(a Int8, `b, c)` Enum8('x)\\'' = 1, 'y' = -2)))))";
    let ColumnType::Map(key, value) = ColumnType::parse(text) else { panic!() };
    assert_eq!(*key, ColumnType::LowCardinality(Box::new(ColumnType::String)));
    let ColumnType::Array(element) = *value else { panic!() };
    let ColumnType::Nullable(tuple) = *element else { panic!() };
    let ColumnType::Tuple(elements) = *tuple else { panic!() };
    assert_eq!(elements[0].name.as_deref(), Some("a"));
    assert_eq!(elements[1].name.as_deref(), Some("b, c)"));
    let ColumnType::Enum(values) = &elements[1].ty else { panic!() };
    assert!(
        values.has_name(b"x)'") && values.has_number(-2) && !values.has_name(b"z") && !values.has_number(3)
    );

    let ColumnType::Tuple(elements) = ColumnType::parse("Tuple(DateTime64(3, 'UTC'), Enum8('a b' = 1))")
    else {
        panic!()
    };
    assert!(elements.iter().all(|element| element.name.is_none()));
    // As `system.columns` prints it, over several lines.
    let ColumnType::Nested(elements) = ColumnType::parse("Nested(\n    a Int8,\n    b.c Nested(d Int8))")
    else {
        panic!()
    };
    assert_eq!(elements[1].name.as_deref(), Some("b.c"));
    assert!(matches!(&elements[1].ty, ColumnType::Nested(inner) if inner.len() == 1));
}

#[test]
fn null_belongs_to_nullable_types() {
    for text in ["Nullable(Int8)", "LowCardinality(Nullable(String))"] {
        let ty = ColumnType::parse(text);
        assert!(ty.is_nullable() && ty.takes_null(), "{text}");
    }
    for text in ["Int8", "Array(Nullable(Int8))", "LowCardinality(String)", "Point", "JSON"] {
        let ty = ColumnType::parse(text);
        assert!(!ty.is_nullable() && !ty.takes_null(), "{text}");
    }
    assert!(ColumnType::parse("Dynamic").takes_null() && !ColumnType::parse("Dynamic").is_nullable());
}

#[test]
fn what_is_not_known_is_opaque() {
    let opaque = [
        "QBit(Float32, 8)",
        "Nothing",
        "AggregateFunction(quantiles(0.5, 0.9), UInt64)",
        "Int7",
        "int8",
        "IntervalFortnight",
        "",
        "(",
        ")",
        "Array",
        "Array(",
        "Array(Int8",
        "Array(Int8))",
        "Array()",
        "Map(Int8)",
        "FixedString(x)",
        "FixedString(-1)",
        "Decimal(77, 0)",
        "Decimal(2, 3)",
        "DateTime64(10)",
        "DateTime(UTC)",
        "Enum8(a = 1)",
        "Enum8('a' = 99999)",
        "Enum8('a' = )",
        "Enum8('a",
        "Tuple(a Int8, Int8)",
        "Enum8('\\",
    ];
    for text in opaque {
        assert_eq!(ColumnType::parse(text), ColumnType::Opaque(text.to_owned()), "{text}");
    }
    // However deep: no overflow of the stack.
    let deep = format!("{}Int8{}", "Array(".repeat(100_000), ")".repeat(100_000));
    assert!(matches!(ColumnType::parse(&deep), ColumnType::Array(_)));
}
