//! `config print`: the configuration in effect as a file that could be used, with who gave each value. Secrets are masked.

use serde_json::Value as Tree;

use super::keys::{KEYS, Key, Kind};
use super::layers::{Layers, Origin, Value};
use super::resolve::default_of;
use super::{Mode, values};

/// What stands in place of a secret.
const MASK: &str = "***";

/// The whole configuration as YAML, in the order of the reference page.
pub(crate) fn print(layers: &Layers, mode: Mode) -> String {
    let mut text = String::new();
    let mut open: Vec<&str> = Vec::new();
    for key in KEYS {
        let mut parts: Vec<&str> = key.path.split('.').collect();
        let name = parts.pop().unwrap_or(key.path);
        let shared = open.iter().zip(&parts).take_while(|(a, b)| a == b).count();
        for (depth, block) in parts.iter().enumerate().skip(shared) {
            text.push_str(&format!("{}{block}:\n", "  ".repeat(depth)));
        }
        text.push_str(&line(key, name, layers, mode, parts.len()));
        open = parts;
    }
    text
}

fn line(key: &Key, name: &str, layers: &Layers, mode: Mode, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    let origin = layers.get(key.path).map_or(&Origin::Default, |given| &given.origin);
    let given = layers.get(key.path).map(|given| given.value.clone());
    let value = given.or_else(|| default_of(key, mode).map(|text| Value::Text(text.to_owned())));
    match value {
        Some(value) => format!("{indent}{name}: {}  # {} ({origin})\n", scalar(key.kind, &value), key.env),
        None => format!("{indent}# {name}: not set  # {}\n", key.env),
    }
}

/// A value as YAML on one line; JSON is YAML.
fn scalar(kind: Kind, value: &Value) -> Tree {
    let plain = || match value {
        Value::Text(text) => Tree::from(text.as_str()),
        Value::Tree(tree) => tree.clone(),
    };
    match kind {
        Kind::Secret => match plain() {
            Tree::String(text) if text.is_empty() => Tree::from(""),
            _ => Tree::from(MASK),
        },
        Kind::Switch => values::switch(value).map_or_else(|_| plain(), Tree::from),
        Kind::Whole { min, max } => values::whole(value, min, max).map_or_else(|_| plain(), Tree::from),
        Kind::Bytes { min, max } => {
            values::bytes(value, min, max).map_or_else(|_| plain(), |count| values::show_bytes(count).into())
        }
        Kind::List => values::list(value).map_or_else(|_| plain(), Tree::from),
        Kind::Map => values::map(value).map_or_else(
            |_| plain(),
            |map| Tree::Object(map.into_keys().map(|name| (name, Tree::from(MASK))).collect()),
        ),
        Kind::Text | Kind::AnyText | Kind::Path | Kind::Word(..) | Kind::Address | Kind::Span => plain(),
    }
}
