//! What a JSON value means in a column: worked out from the value's sense alone, with exact arithmetic, in the form in
//! which `Ty::exact` reads stored values back. Lost is only what the documents say is lost.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use super::decimal::Number;
use super::json::{Json, Text};
use super::time;
use super::types::Ty;

/// What the server is.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// Major and minor version.
    pub(super) version: (u32, u32),
    /// The zone of types that name none.
    pub(super) zone: String,
}

/// The stored form of `json`, or `None` where the type has no such value.
pub(super) fn meaning(ty: &Ty, json: &Json, server: &Server) -> Option<Value> {
    if matches!(json, Json::Broken(_)) {
        return None;
    }
    Some(match ty {
        Ty::Int { bits, signed } => integer(json, *bits, *signed)?.into(),
        Ty::Interval(_) => integer(json, 64, true).filter(|_| !matches!(json, Json::Bool(_)))?.into(),
        Ty::Float(bits) => float(json, *bits)?.into(),
        Ty::Decimal { precision, scale } => Number::read(json.scalar()?)?
            .cut(*scale)
            .filter(|cut| cut.whole_digits() <= precision - scale)?
            .to_string()
            .into(),
        Ty::Bool => boolean(json)?.to_string().into(),
        Ty::String => hex(spelt(json)?.as_bytes()).into(),
        Ty::Fixed(bytes) => {
            let mut value = spelt(json)?.into_bytes();
            if value.len() > *bytes {
                return None;
            }
            value.resize(*bytes, 0);
            hex(&value).into()
        }
        Ty::Uuid => uuid(json)?.into(),
        Ty::Ipv4 => u32::from(string(json)?.parse::<Ipv4Addr>().ok()?).to_string().into(),
        Ty::Ipv6 => {
            let parsed = string(json)?.parse::<Ipv6Addr>().ok();
            let mapped = || string(json)?.parse::<Ipv4Addr>().ok().map(|address| address.to_ipv6_mapped());
            hex(&parsed.or_else(mapped)?.octets()).into()
        }
        Ty::Enum(_, values) => enumeration(json, values)?.to_string().into(),
        Ty::Date => time::days(json, 0..=65_535)?.to_string().into(),
        Ty::Date32 => time::days(json, -25_567..=120_529)?.to_string().into(),
        Ty::DateTime(zone) => time::date_time(json, zone, server)?.to_string().into(),
        Ty::DateTime64(scale, zone) => time::date_time64(json, *scale, zone, server)?.to_string().into(),
        Ty::Time => time::of_day(json, 0)?.into(),
        Ty::Time64(scale) => time::of_day(json, *scale)?.into(),
        Ty::Nullable(_) if *json == Json::Null => Value::Null,
        Ty::Nullable(inner) | Ty::LowCardinality(inner) | Ty::Named(_, inner) => {
            meaning(inner, json, server)?
        }
        Ty::Array(inner) => all(items(json)?.iter().map(|item| meaning(inner, item, server)))?,
        Ty::Map(key, value) => all(pairs(json)?.iter().map(|(name, item)| {
            Some(json!([meaning(key, &Json::Text(name.clone()), server)?, meaning(value, item, server)?]))
        }))?,
        Ty::Tuple(elements) => tuple(elements, json, server)?,
        Ty::Nested(elements) => all(items(json)?.iter().map(|item| tuple(elements, item, server)))?,
        Ty::Variant(_) | Ty::Geometry | Ty::Dynamic => json_value(json)?,
        Ty::Json => matches!(json, Json::Object(_)).then(|| json_value(json))??,
    })
}

fn all(items: impl Iterator<Item = Option<Value>>) -> Option<Value> {
    items.collect::<Option<Vec<_>>>().map(Value::from)
}

fn items(json: &Json) -> Option<&[Json]> {
    if let Json::Array(items) = json { Some(items) } else { None }
}

fn pairs(json: &Json) -> Option<&[(Text, Json)]> {
    if let Json::Object(pairs) = json { Some(pairs) } else { None }
}

fn string(json: &Json) -> Option<&str> {
    if let Json::Text(text) = json { Some(&text.value) } else { None }
}

/// All elements, each once; those that can be null may be missing.
fn tuple(elements: &[(Option<&'static str>, Ty)], json: &Json, server: &Server) -> Option<Value> {
    let is_named = elements.iter().any(|(name, _)| name.is_some());
    if !is_named {
        let items = items(json)?;
        let each = || elements.iter().zip(items).map(|((_, ty), item)| meaning(ty, item, server));
        return (items.len() == elements.len()).then(|| all(each()))?;
    }
    let pairs = pairs(json)?;
    let known = pairs.iter().all(|(key, _)| elements.iter().any(|(name, _)| *name == Some(&key.value)));
    let once =
        pairs.iter().all(|(key, _)| pairs.iter().filter(|(other, _)| other.value == key.value).count() == 1);
    let each = || {
        elements.iter().map(|(name, ty)| {
            match pairs.iter().find(|(key, _)| Some(key.value.as_str()) == *name) {
                Some((_, item)) => meaning(ty, item, server),
                None => matches!(ty, Ty::Nullable(_)).then_some(Value::Null),
            }
        })
    };
    (known && once).then(|| all(each()))?
}

fn integer(json: &Json, bits: u32, signed: bool) -> Option<String> {
    let number = match json {
        Json::Bool(value) => Number::read(if *value { "1" } else { "0" })?,
        _ => Number::read(json.scalar()?)?,
    };
    number.fits_integer(bits, signed).then(|| number.to_string())
}

/// The bits of the nearest value; texts may also name what JSON has no numbers for.
fn float(json: &Json, bits: u32) -> Option<String> {
    let written = match json {
        Json::Bool(value) => {
            if *value {
                "1"
            } else {
                "0"
            }
        }
        _ => json.scalar()?,
    };
    let bare = written.trim_start_matches(['+', '-']).to_ascii_lowercase();
    let special = matches!(json, Json::Text(_)) && ["nan", "inf", "infinity"].contains(&bare.as_str());
    if !special {
        Number::read(written)?;
    }
    let (wide, narrow) = (written.parse::<f64>().ok()?, written.parse::<f32>().ok()?);
    let value = if bits == 64 { wide } else { f64::from(narrow) };
    if value.is_nan() {
        return Some("nan".to_owned());
    }
    if value.is_infinite() && !special {
        return None;
    }
    Some(match bits {
        64 => wide.to_bits().to_string(),
        32 => narrow.to_bits().to_string(),
        // The upper half of a Float32: digits are cut, not rounded.
        _ => (narrow.to_bits() >> 16).to_string(),
    })
}

fn boolean(json: &Json) -> Option<bool> {
    match json {
        Json::Bool(value) => Some(*value),
        _ => match json.scalar()? {
            "1" | "true" => Some(true),
            "0" | "false" => Some(false),
            _ => None,
        },
    }
}

/// A string's text, or the spelling of anything else but null.
fn spelt(json: &Json) -> Option<String> {
    match json {
        Json::Null | Json::Broken(_) => None,
        Json::Text(text) => Some(text.value.clone()),
        other => Some(other.written()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn uuid(json: &Json) -> Option<String> {
    let text = string(json)?.to_ascii_lowercase();
    let digits: String = match text.len() {
        36 if [8, 13, 18, 23].iter().all(|&at| text.as_bytes()[at] == b'-') => text.replace('-', ""),
        _ => text,
    };
    let right = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let part = |from: usize, to: usize| &digits[from..to];
    right.then(|| [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-"))
}

fn enumeration(json: &Json, values: &[(&str, i16)]) -> Option<i16> {
    let by_name = string(json).and_then(|name| values.iter().find(|value| value.0 == name));
    let by_number = || {
        let number = Number::read(json.scalar()?)?.to_string();
        values.iter().find(|value| value.1.to_string() == number)
    };
    by_name.or_else(by_number).map(|value| value.1)
}

/// The value as another parser sees it.
fn json_value(json: &Json) -> Option<Value> {
    Some(match json {
        Json::Null => Value::Null,
        Json::Bool(value) => (*value).into(),
        Json::Number(digits) => serde_json::from_str(digits).unwrap_or_else(|_| digits.clone().into()),
        Json::Text(text) => text.value.clone().into(),
        Json::Array(items) => all(items.iter().map(json_value))?,
        Json::Object(pairs) => {
            let mut object = serde_json::Map::new();
            for (key, item) in pairs {
                if object.insert(key.value.clone(), json_value(item)?).is_some() {
                    return None;
                }
            }
            object.into()
        }
        Json::Broken(_) => return None,
    })
}
