//! YAML as far as it is needed: mappings in a fixed order, sequences of texts, two spaces a level.

use std::fmt::Write;

/// What stands at a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    /// A duration: never quoted, since it is no number and no word of YAML's.
    Bare(String),
    Number(i64),
    Bool(bool),
    List(Vec<String>),
    Map(Vec<(&'static str, Value)>),
}

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Whether it is zero, false or empty, so that a key that may be left out is.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) | Self::Bare(text) => text.is_empty(),
            Self::Number(number) => *number == 0,
            Self::Bool(set) => !set,
            Self::List(items) => items.is_empty(),
            Self::Map(entries) => entries.is_empty(),
        }
    }
}

/// Writes a mapping.
pub(crate) fn mapping(entries: &[(&'static str, Value)]) -> String {
    let mut out = String::new();
    write_map(&mut out, entries, 0);
    out
}

fn write_map(out: &mut String, entries: &[(&'static str, Value)], level: usize) {
    for (key, value) in entries {
        let _written = write!(out, "{}{key}:", "  ".repeat(level));
        match value {
            Value::Text(text) => line(out, &scalar(text)),
            Value::Bare(text) => line(out, text),
            Value::Number(number) => line(out, &number.to_string()),
            Value::Bool(set) => line(out, &set.to_string()),
            Value::List(items) => {
                out.push('\n');
                for item in items {
                    let _written = writeln!(out, "{}- {}", "  ".repeat(level + 1), scalar(item));
                }
            }
            Value::Map(entries) => {
                out.push('\n');
                write_map(out, entries, level + 1);
            }
        }
    }
}

fn line(out: &mut String, text: &str) {
    out.push(' ');
    out.push_str(text);
    out.push('\n');
}

/// Words that some reader of YAML takes for something other than a text.
const RESERVED: [&str; 11] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan"];

/// A text plain where that is safe, else in double quotes.
fn scalar(text: &str) -> String {
    let plain_byte = |c: u8| c.is_ascii_alphanumeric() || b"_-.$*>/".contains(&c);
    let first = text.as_bytes().first().copied().unwrap_or_default();
    // A letter that no number has makes a text of what begins with a digit.
    let may_be_number = first.is_ascii_digit()
        && !text.bytes().any(|c| c.is_ascii_alphabetic() && !b"abcdefxoABCDEFXO".contains(&c));
    let reserved = RESERVED.contains(&text.to_ascii_lowercase().as_str());
    let plain = (first.is_ascii_alphanumeric() || first == b'_' || first == b'$')
        && text.bytes().all(plain_byte)
        && !may_be_number
        && !reserved;
    if plain { text.to_owned() } else { format!("{text:?}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_texts_that_could_be_misread_are_quoted() {
        for plain in [
            "wh.ingest.0.>",
            "wh.ingest.0.*.>",
            "$KV.b.lease.>",
            "_INBOX_wh.>",
            "WH_INGEST_0",
            "0.ingest.0.>",
        ] {
            assert_eq!(scalar(plain), plain);
        }
        for quoted in [
            "0",
            "12",
            "1_000",
            "1e5",
            "0x1F",
            "2001-01-01",
            "yes",
            "NULL",
            "True",
            "-a",
            "*",
            ">",
            "",
            "a b",
            "a: b",
        ] {
            assert_eq!(scalar(quoted), format!("\"{quoted}\""));
        }
    }

    proptest! {
        #[test]
        fn texts_come_back_as_texts(text in "[A-Za-z0-9_.*>$/-]{0,12}") {
            let yaml = mapping(&[("key", Value::text(text.clone())), ("list", Value::List(vec![text.clone()]))]);
            let read: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
            prop_assert_eq!(read, serde_json::json!({"key": text.clone(), "list": [text]}));
        }
    }
}
