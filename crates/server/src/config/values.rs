//! Reads single values: from the text of a variable or a node of the file to what a key holds. Each reader answers with
//! what it expected when the value is something else.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value as Tree;

use super::layers::Value;

/// What was expected in place of a value.
pub(crate) type Expected = String;

pub(crate) fn text(value: &Value) -> Result<String, Expected> {
    match value {
        Value::Text(text) | Value::Tree(Tree::String(text)) => Ok(text.clone()),
        Value::Tree(_) => Err("a text; numbers and words such as true need quotes in the file".to_owned()),
    }
}

pub(crate) fn full_text(value: &Value) -> Result<String, Expected> {
    let text = text(value)?.trim().to_owned();
    if text.is_empty() { Err("a text that is not blank".to_owned()) } else { Ok(text) }
}

pub(crate) fn switch(value: &Value) -> Result<bool, Expected> {
    match value {
        Value::Tree(Tree::Bool(on)) => Ok(*on),
        Value::Text(text) | Value::Tree(Tree::String(text)) if text == "true" => Ok(true),
        Value::Text(text) | Value::Tree(Tree::String(text)) if text == "false" => Ok(false),
        _ => Err("true or false".to_owned()),
    }
}

pub(crate) fn whole(value: &Value, min: u64, max: u64) -> Result<u64, Expected> {
    let number = match value {
        Value::Text(text) | Value::Tree(Tree::String(text)) => digits(text.trim()),
        Value::Tree(Tree::Number(number)) => number.as_u64(),
        Value::Tree(_) => None,
    };
    number
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("a whole number from {min} to {max}"))
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Units of a number of bytes.
const UNITS: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

pub(crate) fn bytes(value: &Value, min: u64, max: u64) -> Result<u64, Expected> {
    let number = match value {
        Value::Text(text) | Value::Tree(Tree::String(text)) => byte_text(text.trim()),
        Value::Tree(Tree::Number(number)) => number.as_u64(),
        Value::Tree(_) => None,
    };
    number.filter(|number| (min..=max).contains(number)).ok_or_else(|| {
        let at_most =
            if max == u64::MAX { String::new() } else { format!(" and at most {}", show_bytes(max)) };
        format!("a number of bytes such as 67108864 or 64MiB, at least {}{at_most}", show_bytes(min))
    })
}

fn byte_text(text: &str) -> Option<u64> {
    for (unit, factor) in UNITS {
        if let Some(count) = text.strip_suffix(unit) {
            return digits(count.trim()).and_then(|count| count.checked_mul(factor));
        }
    }
    digits(text)
}

/// A number of bytes as a person writes it: in the largest unit that divides it.
pub(crate) fn show_bytes(count: u64) -> String {
    for (unit, factor) in UNITS.iter().rev() {
        if count >= *factor && count.is_multiple_of(*factor) {
            return format!("{}{unit}", count / factor);
        }
    }
    count.to_string()
}

pub(crate) fn span(value: &Value) -> Result<Duration, Expected> {
    let expected = || "a length of time above zero, such as 250ms, 5s or 1m30s".to_owned();
    let text = text(value).map_err(|_| expected())?;
    let span = wavehouse_topology::parse_duration(text.trim()).map_err(|_| expected())?;
    if span.is_zero() { Err(expected()) } else { Ok(span) }
}

pub(crate) fn list(value: &Value) -> Result<Vec<String>, Expected> {
    let expected = || "a list of texts, none blank; in a variable separated by commas".to_owned();
    let items: Vec<String> = match value {
        Value::Text(text) if text.trim().is_empty() => Vec::new(),
        Value::Text(text) => text.split(',').map(|item| item.trim().to_owned()).collect(),
        Value::Tree(Tree::Array(nodes)) => nodes
            .iter()
            .map(|node| node.as_str().map(|item| item.trim().to_owned()).ok_or_else(expected))
            .collect::<Result<_, _>>()?,
        Value::Tree(_) => return Err(expected()),
    };
    if items.iter().any(String::is_empty) { Err(expected()) } else { Ok(items) }
}

pub(crate) fn map(value: &Value) -> Result<BTreeMap<String, String>, Expected> {
    let expected = || "names with texts; in a variable Name=text, separated by commas".to_owned();
    match value {
        Value::Text(text) if text.trim().is_empty() => Ok(BTreeMap::new()),
        Value::Text(text) => text
            .split(',')
            .map(|pair| {
                pair.split_once('=').map(|(name, text)| (name.trim().to_owned(), text.trim().to_owned()))
            })
            .map(|pair| pair.ok_or_else(expected))
            .collect(),
        Value::Tree(Tree::Object(fields)) => fields
            .iter()
            .map(|(name, node)| {
                node.as_str().map(|text| (name.clone(), text.to_owned())).ok_or_else(expected)
            })
            .collect(),
        Value::Tree(_) => Err(expected()),
    }
}

/// A value as a finding quotes it.
pub(crate) fn quote(value: &Value) -> String {
    let text = match value {
        Value::Text(text) => format!("{text:?}"),
        Value::Tree(tree) => tree.to_string(),
    };
    /// Longest value that is quoted whole.
    const QUOTE_CHARS_MAX: usize = 80;
    if text.chars().count() > QUOTE_CHARS_MAX {
        text.chars().take(QUOTE_CHARS_MAX).chain("…".chars()).collect()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn byte_counts() {
        for (text, count) in [("1", 1), ("8MiB", 8 << 20), ("2 GiB", 2 << 30), ("1TiB", 1 << 40)] {
            assert_eq!(bytes(&given(text), 1, u64::MAX), Ok(count), "{text}");
        }
        for bad in ["", "8MB", "-1", "1.5GiB", "99999999999999TiB", "MiB", "0"] {
            assert!(bytes(&given(bad), 1, u64::MAX).is_err(), "{bad}");
        }
        for (count, text) in [(0, "0"), (1023, "1023"), (8 << 20, "8MiB"), ((1 << 30) + 1, "1073741825")] {
            assert_eq!(show_bytes(count), text);
        }
    }

    #[test]
    fn spans() {
        for (text, span_ms) in [("250ms", 250), ("5s", 5_000), (" 1m30s ", 90_000)] {
            assert_eq!(span(&given(text)), Ok(Duration::from_millis(span_ms)), "{text}");
        }
        for bad in ["", "5", "0s", "-1s", "soon"] {
            assert!(span(&given(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_and_maps() {
        assert_eq!(list(&given("a, b")), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(list(&given("")), Ok(vec![]));
        assert!(list(&given("a,,b")).is_err());
        assert_eq!(map(&given("X-A=1, X-B=a=b")).map(|map| map.len()), Ok(2));
        assert!(map(&given("X-A")).is_err());
    }
}
