//! From a type's text, as `system.columns` prints it, to a [`ColumnType`].

use super::{ColumnType, Element, EnumValues, FloatType, Zone};

/// Deeper types are not taken apart (their values pass unjudged), so that no text can exhaust the stack.
const TYPE_DEPTH_MAX: usize = 32;

/// Parses `text`; whatever is not understood becomes `Opaque(text)`.
pub(super) fn parse(text: &str) -> ColumnType {
    parse_at(text, TYPE_DEPTH_MAX)
}

fn parse_at(text: &str, depth: usize) -> ColumnType {
    let text = text.trim();
    known(text, depth).unwrap_or_else(|| ColumnType::Opaque(text.to_owned()))
}

fn known(text: &str, depth: usize) -> Option<ColumnType> {
    let depth = depth.checked_sub(1)?;
    match text.split_once('(') {
        None => simple(text),
        Some((name, rest)) => with_arguments(name.trim_end(), rest.strip_suffix(')')?, depth),
    }
}

fn simple(name: &str) -> Option<ColumnType> {
    Some(match name {
        "Int8" => int(8, true),
        "Int16" => int(16, true),
        "Int32" => int(32, true),
        "Int64" => int(64, true),
        "Int128" => int(128, true),
        "Int256" => int(256, true),
        "UInt8" => int(8, false),
        "UInt16" => int(16, false),
        "UInt32" => int(32, false),
        "UInt64" => int(64, false),
        "UInt128" => int(128, false),
        "UInt256" => int(256, false),
        "Float32" => ColumnType::Float(FloatType::Float32),
        "Float64" => ColumnType::Float(FloatType::Float64),
        "BFloat16" => ColumnType::Float(FloatType::BFloat16),
        "Decimal" => ColumnType::Decimal { precision: 10, scale: 0 },
        "Bool" => ColumnType::Bool,
        "String" => ColumnType::String,
        "UUID" => ColumnType::Uuid,
        "IPv4" => ColumnType::Ipv4,
        "IPv6" => ColumnType::Ipv6,
        "Date" => ColumnType::Date,
        "Date32" => ColumnType::Date32,
        "DateTime" => ColumnType::DateTime(Zone::of_server()),
        "DateTime64" => ColumnType::DateTime64 { scale: 3, zone: Zone::of_server() },
        "Time" => ColumnType::Time,
        "Time64" => ColumnType::Time64 { scale: 3 },
        "JSON" => ColumnType::Json,
        "Dynamic" => ColumnType::Dynamic,
        "Point" => point(),
        "Ring" | "LineString" => arrays(1),
        "Polygon" | "MultiLineString" => arrays(2),
        "MultiPolygon" => arrays(3),
        // Ring is a LineString here, MultiLineString a Polygon: values of both look the same.
        "Geometry" => ColumnType::Variant((0..=3).map(arrays).collect()),
        _ if is_interval(name) => ColumnType::Interval,
        _ => return None,
    })
}

fn with_arguments(name: &str, inside: &str, depth: usize) -> Option<ColumnType> {
    let parts = split(inside)?;
    let wrap = |at: usize| Box::new(parse_at(parts[at], depth));
    Some(match (name, parts.len()) {
        ("Nullable", 1) => ColumnType::Nullable(wrap(0)),
        ("LowCardinality", 1) => ColumnType::LowCardinality(wrap(0)),
        ("Array", 1) => ColumnType::Array(wrap(0)),
        ("Map", 2) => ColumnType::Map(wrap(0), wrap(1)),
        ("SimpleAggregateFunction", 2) => parse_at(parts[1], depth),
        ("Tuple", _) => ColumnType::Tuple(elements(&parts, depth)?),
        ("Nested", _) => ColumnType::Nested(elements(&parts, depth)?),
        ("FixedString", 1) => ColumnType::FixedString(parts[0].parse().ok()?),
        ("Decimal", 1) => decimal(parts[0].parse().ok()?, 0)?,
        ("Decimal", 2) => decimal(parts[0].parse().ok()?, parts[1].parse().ok()?)?,
        ("Decimal32", 1) => decimal(9, parts[0].parse().ok()?)?,
        ("Decimal64", 1) => decimal(18, parts[0].parse().ok()?)?,
        ("Decimal128", 1) => decimal(38, parts[0].parse().ok()?)?,
        ("Decimal256", 1) => decimal(76, parts[0].parse().ok()?)?,
        ("DateTime", 1) => ColumnType::DateTime(zone(parts[0])?),
        ("DateTime64", 1) => ColumnType::DateTime64 { scale: scale(parts[0])?, zone: Zone::of_server() },
        ("DateTime64", 2) => ColumnType::DateTime64 { scale: scale(parts[0])?, zone: zone(parts[1])? },
        ("Time64", 1) => ColumnType::Time64 { scale: scale(parts[0])? },
        ("Enum8" | "Enum16" | "Enum", _) => ColumnType::Enum(enum_values(&parts)?),
        ("JSON" | "Object", _) => ColumnType::Json,
        ("Variant", _) => ColumnType::Variant(parts.iter().map(|part| parse_at(part, depth)).collect()),
        ("Dynamic", _) => ColumnType::Dynamic,
        _ => return None,
    })
}

fn int(bits: u16, signed: bool) -> ColumnType {
    ColumnType::Int { bits, signed }
}

/// A `Point` is two numbers.
fn point() -> ColumnType {
    let coordinate = || Element { name: None, ty: ColumnType::Float(FloatType::Float64) };
    ColumnType::Tuple(vec![coordinate(), coordinate()])
}

/// Arrays of arrays of points, so many deep.
fn arrays(depth: u8) -> ColumnType {
    (0..depth).fold(point(), |ty, _| ColumnType::Array(Box::new(ty)))
}

fn decimal(precision: u8, scale: u8) -> Option<ColumnType> {
    let legal = (1..=76).contains(&precision) && scale <= precision;
    legal.then_some(ColumnType::Decimal { precision, scale })
}

fn scale(text: &str) -> Option<u8> {
    text.parse().ok().filter(|&scale| scale <= 9)
}

fn zone(text: &str) -> Option<Zone> {
    let (name, rest) = quoted_prefix(text, '\'')?;
    rest.trim().is_empty().then(|| Zone::named(&String::from_utf8_lossy(&name)))
}

fn is_interval(name: &str) -> bool {
    const UNITS: [&str; 11] = [
        "Nanosecond",
        "Microsecond",
        "Millisecond",
        "Second",
        "Minute",
        "Hour",
        "Day",
        "Week",
        "Month",
        "Quarter",
        "Year",
    ];
    name.strip_prefix("Interval").is_some_and(|unit| UNITS.contains(&unit))
}

fn elements(parts: &[&str], depth: usize) -> Option<Vec<Element>> {
    let elements: Vec<_> = parts.iter().map(|part| element(part, depth)).collect::<Option<_>>()?;
    let named = elements.iter().filter(|element| element.name.is_some()).count();
    (named == 0 || named == elements.len()).then_some(elements)
}

fn element(part: &str, depth: usize) -> Option<Element> {
    let (name, ty) = match part.chars().next() {
        Some(quote @ ('`' | '"')) => {
            let (name, rest) = quoted_prefix(part, quote)?;
            (Some(String::from_utf8(name).ok()?), rest)
        }
        _ => match part.split_once(char::is_whitespace) {
            Some((name, ty)) if is_identifier(name) => (Some(name.to_owned()), ty),
            _ => (None, part),
        },
    };
    Some(Element { name, ty: parse_at(ty, depth) })
}

fn is_identifier(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.' || b >= 0x80)
}

fn enum_values(parts: &[&str]) -> Option<EnumValues> {
    let mut next = 1i16;
    let mut pairs = Vec::with_capacity(parts.len());
    for part in parts {
        let (name, rest) = quoted_prefix(part, '\'')?;
        let number = match rest.trim().strip_prefix('=') {
            Some(number) => number.trim().parse().ok()?,
            None if rest.trim().is_empty() => next,
            None => return None,
        };
        next = number.wrapping_add(1);
        pairs.push((name.into_boxed_slice(), number));
    }
    Some(EnumValues::new(pairs))
}

/// Splits at the commas that stand in no parentheses and no quotes; `None` if those do not match.
fn split(inside: &str) -> Option<Vec<&str>> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0usize, 0usize);
    let mut quote = None;
    let mut bytes = inside.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (quote, byte) {
            (Some(_), b'\\') => {
                bytes.next();
            }
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"' | b'`') => quote = Some(byte),
            (None, b'(') => depth += 1,
            (None, b')') => depth = depth.checked_sub(1)?,
            (None, b',') if depth == 0 => {
                parts.push(inside[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = inside[start..].trim();
    if !(parts.is_empty() && last.is_empty()) {
        parts.push(last);
    }
    (depth == 0 && quote.is_none()).then_some(parts)
}

/// A quoted string at the start of `text`, with ClickHouse's backslash escapes, and what follows it.
fn quoted_prefix(text: &str, quote: char) -> Option<(Vec<u8>, &str)> {
    let inside = text.strip_prefix(quote)?;
    let mut value = Vec::with_capacity(inside.len());
    let mut chars = inside.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next()?.1 {
                'n' => value.push(b'\n'),
                't' => value.push(b'\t'),
                'r' => value.push(b'\r'),
                '0' => value.push(0),
                'b' => value.push(8),
                'f' => value.push(12),
                'a' => value.push(7),
                'v' => value.push(11),
                'e' => value.push(27),
                'x' => {
                    let high = chars.next()?.1.to_digit(16)?;
                    let low = chars.next()?.1.to_digit(16)?;
                    value.push(u8::try_from(high * 16 + low).ok()?);
                }
                other => push_char(&mut value, other),
            },
            _ if c == quote => match inside[at + c.len_utf8()..].strip_prefix(quote) {
                // A doubled quote is the quote itself.
                Some(_) => {
                    chars.next();
                    push_char(&mut value, c);
                }
                None => return Some((value, &inside[at + c.len_utf8()..])),
            },
            _ => push_char(&mut value, c),
        }
    }
    None
}

fn push_char(value: &mut Vec<u8>, c: char) {
    value.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}
