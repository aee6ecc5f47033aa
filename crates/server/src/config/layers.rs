//! Brings the file, the variables and the flags together: for each key the value that wins and where it came from.
//! Names that nobody knows are findings here; what the values are worth is decided in `resolve`.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value as Tree;

use super::finding::{Finding, nearest};
use super::keys::{self, KEYS, LONE_VARIABLES};
use super::{inert, links};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody set it.
    Default,
    /// The configuration file.
    File,
    /// A variable.
    Env(&'static str),
    /// `--set`.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File => f.write_str("file"),
            Self::Env(name) => f.write_str(name),
            Self::Flag => f.write_str("--set"),
        }
    }
}

/// A value as it was given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// From a variable, a flag or the table of defaults.
    Text(String),
    /// From the file.
    Tree(Tree),
}

/// The value that a key was given, and by whom.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Given {
    /// The value.
    pub(crate) value: Value,
    /// Who gave it.
    pub(crate) origin: Origin,
}

/// What was given for each key, by dotted path.
pub(crate) type Layers = BTreeMap<&'static str, Given>;

/// Applies file, variables and flags in that order; a later one wins whole.
pub(crate) fn collect(
    file: Option<&Tree>,
    env: &BTreeMap<String, String>,
    flags: &[String],
    findings: &mut Vec<Finding>,
) -> Layers {
    let mut layers = Layers::new();
    if let Some(tree) = file {
        from_tree(tree, "", &mut layers, findings);
    }
    from_env(env, &mut layers, findings);
    for flag in flags {
        from_flag(flag, &mut layers, findings);
    }
    layers
}

fn from_tree(tree: &Tree, path: &str, layers: &mut Layers, findings: &mut Vec<Finding>) {
    if let Some(key) = keys::by_path(path) {
        layers.insert(key.path, Given { value: Value::Tree(tree.clone()), origin: Origin::File });
        return;
    }
    if let Some(inert) = inert::by_path(path) {
        findings.push(Finding::new(
            format!("{path} (file)"),
            "is set",
            format!("nothing; {}", inert.why),
            inert.fix,
        ));
        return;
    }
    let block = path.is_empty() || keys::is_block(path);
    match tree {
        Tree::Object(fields) if block || !fields.is_empty() => {
            for (name, below) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                from_tree(below, &path, layers, findings);
            }
        }
        Tree::Null if block => {}
        _ if block => findings.push(Finding::new(
            format!("{} (file)", if path.is_empty() { "the file" } else { path }),
            "is a single value",
            "a block of keys",
            "write its keys below it, indented",
        )),
        _ => findings.push(unknown_key(path, "file")),
    }
}

fn unknown_key(path: &str, origin: &str) -> Finding {
    let fix = match nearest(path, KEYS.iter().map(|key| key.path)) {
        Some(near) => format!("did you mean {near}? Otherwise remove it"),
        None => "remove it; `wavehouse config keys` shows every key".to_owned(),
    };
    Finding::new(format!("{path} ({origin})"), "is no key", "a key of this program", fix)
}

fn from_env(env: &BTreeMap<String, String>, layers: &mut Layers, findings: &mut Vec<Finding>) {
    for (name, text) in env.iter().filter(|(name, _)| name.starts_with("WH_")) {
        if let Some(key) = keys::by_env(name) {
            if links::is_link_value(text) {
                findings.push(shadowed(name));
            } else {
                layers.insert(
                    key.path,
                    Given { value: Value::Text(text.clone()), origin: Origin::Env(key.env) },
                );
            }
        } else if let Some(inert) = inert::by_env(name) {
            findings.push(Finding::new(name, "is set", format!("nothing; {}", inert.why), inert.fix));
        } else if !LONE_VARIABLES.iter().any(|(known, _)| known == name)
            && !links::is_service_link(name, text)
        {
            findings.push(unknown_variable(name));
        }
    }
}

fn unknown_variable(name: &str) -> Finding {
    let known = KEYS.iter().map(|key| key.env).chain(LONE_VARIABLES.iter().map(|(name, _)| *name));
    let fix = match nearest(name, known) {
        Some(near) => format!("did you mean {near}? Otherwise unset it"),
        None => "unset it; `wavehouse config keys` shows every variable".to_owned(),
    };
    Finding::new(name, "is no variable of this program", "a known name, since WH_ names are all ours", fix)
}

fn shadowed(name: &str) -> Finding {
    Finding::new(
        name,
        "holds an address as Kubernetes gives it for a service",
        "a setting; a service of that name hides it",
        "set `enableServiceLinks: false` in the pod, or rename the service",
    )
}

fn from_flag(flag: &str, layers: &mut Layers, findings: &mut Vec<Finding>) {
    let Some((path, text)) = flag.split_once('=') else {
        findings.push(Finding::new("--set", "has no `=`", "KEY=VALUE", "write --set server.port=8080"));
        return;
    };
    if let Some(key) = keys::by_path(path) {
        layers.insert(key.path, Given { value: Value::Text(text.to_owned()), origin: Origin::Flag });
    } else if let Some(inert) = inert::by_path(path) {
        findings.push(Finding::new(
            format!("{path} (--set)"),
            "is set",
            format!("nothing; {}", inert.why),
            inert.fix,
        ));
    } else {
        findings.push(unknown_key(path, "--set"));
    }
}
