//! Whether a stored value still says what was meant, where the server found the type by itself: it may write numbers
//! with less precision and times in its own form, and keep anything as its text, but not say something else.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::json::text;
use super::meaning::Server;
use super::time;

/// Distance of two floats, of their size, that counts as less precision.
const CLOSE: f64 = 1e-14;

pub(super) fn alike(meant: &Value, stored: &Value, server: &Server) -> bool {
    if meant == stored {
        return true;
    }
    match (meant, stored) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN));
            (a - b).abs() <= a.abs() * CLOSE
        }
        (Value::Bool(meant), Value::Number(stored)) => stored.as_i64() == Some(i64::from(*meant)),
        (Value::String(meant), Value::Number(stored)) => {
            let (a, b) = (meant.parse().unwrap_or(f64::NAN), stored.as_f64().unwrap_or(f64::NAN));
            (a - b).abs() <= a.abs() * CLOSE
        }
        // Written so where JSON has no number for it.
        (Value::String(meant), Value::Null) => {
            ["nan", "inf", "infinity"].contains(&meant.trim_start_matches(['+', '-']).to_lowercase().as_str())
        }
        (Value::String(meant), Value::String(stored)) => {
            let instant = |text: &str| time::instant(text, "", server);
            let same_uuid = meant.replace('-', "").eq_ignore_ascii_case(&stored.replace('-', ""));
            (instant(meant).is_some() && instant(meant) == instant(stored))
                || (meant.len() >= 32 && same_uuid)
        }
        (Value::Number(meant), Value::String(stored)) if stored.len() == 10 && stored.contains('-') => {
            time::days(&text(stored), 0..=65_535) == meant.as_i64().map(i128::from)
        }
        (_, Value::String(stored)) => {
            serde_json::from_str::<Value>(stored).is_ok_and(|stored| alike(meant, &stored, server))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b, server))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same =
                |(key, value): (&String, &Value)| b.get(key).is_some_and(|other| alike(value, other, server));
            a.len() == b.len() && a.iter().all(same) || alike_paths(a, b, server)
        }
        _ => false,
    }
}

/// A JSON column keeps paths: neither nulls nor empty objects are any.
fn alike_paths(a: &Map<String, Value>, b: &Map<String, Value>, server: &Server) -> bool {
    let paths = |object| {
        let mut paths = BTreeMap::new();
        gather("", object, &mut paths);
        paths
    };
    let (a, b) = (paths(a), paths(b));
    a.len() == b.len()
        && a.iter().all(|(path, value)| b.get(path).is_some_and(|other| alike(value, other, server)))
}

fn gather<'a>(prefix: &str, object: &'a Map<String, Value>, paths: &mut BTreeMap<String, &'a Value>) {
    for (key, value) in object {
        let path = format!("{prefix}{key}");
        match value {
            Value::Null => {}
            Value::Object(inner) => gather(&format!("{path}."), inner, paths),
            other => drop(paths.insert(path, other)),
        }
    }
}
