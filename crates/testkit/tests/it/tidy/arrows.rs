//! Which crate may know which: the table, and what it is for.

use std::collections::BTreeSet;

use super::assert_none;
use super::manifest::{Manifest, OURS, all};

/// A crate, the crates of ours that it may use, and the external ones that it must never.
struct Rule {
    name: &'static str,
    may_use: &'static [&'static str],
    never: &'static [&'static str],
}

/// Anything that runs, waits, or touches the machine.
const MACHINE: &[&str] = &[
    "anyhow",
    "async-trait",
    "axum",
    "clap",
    "flate2",
    "futures-util",
    "getrandom",
    "http",
    "hyper",
    "hyper-util",
    "libloading",
    "prometheus-client",
    "rustix",
    "tempfile",
    "tokio",
    "tokio-util",
    "tracing",
    "zstd",
];
const HTTP: &[&str] =
    &["axum", "http", "http-body", "http-body-util", "hyper", "hyper-rustls", "hyper-util", "rustls"];
const ENGINE: &[&str] = &["libloading"];

/// Second ways of doing what the workspace does one way.
const NEVER_ANYWHERE: &[&str] = &[
    "async-std",
    "aws-lc-rs",
    "chrono",
    "lazy_static",
    "native-tls",
    "once_cell",
    "openssl",
    "reqwest",
    "sqlx",
    "tonic",
];

const RULES: &[Rule] = &[
    Rule {
        name: "api",
        may_use: &["core", "rows", "broker", "clickhouse"],
        never: &["axum", "clap", "libloading", "rustix"],
    },
    Rule { name: "broker", may_use: &["core"], never: HTTP },
    Rule { name: "broker-embedded", may_use: &["core", "broker"], never: HTTP },
    Rule {
        name: "broker-nats",
        may_use: &["core", "broker", "nats", "topology"],
        never: &["axum", "clap", "hyper", "libloading"],
    },
    Rule { name: "clickhouse", may_use: &["core", "rows"], never: &["axum", "clap", "libloading"] },
    Rule { name: "clickhouse-embedded", may_use: &[], never: &["prometheus-client"] },
    Rule { name: "core", may_use: &[], never: MACHINE },
    Rule {
        name: "nats",
        may_use: &["core"],
        never: &["axum", "clap", "hyper", "libloading", "prometheus-client"],
    },
    Rule { name: "rows", may_use: &[], never: MACHINE },
    Rule {
        name: "server",
        may_use: &[
            "core",
            "rows",
            "broker",
            "broker-embedded",
            "broker-nats",
            "clickhouse",
            "api",
            "nats",
            "topology",
            "worker",
        ],
        never: ENGINE,
    },
    Rule { name: "testkit", may_use: &[], never: ENGINE },
    Rule { name: "topology", may_use: &["core"], never: MACHINE },
    Rule { name: "worker", may_use: &["core", "broker", "clickhouse"], never: HTTP },
];

/// What tests may use beyond what the product does: testkit for all, a real queue for those who use one, real workers for
/// the queue that several of them share, itself for a crate that turns on a feature of its own.
fn dev_may_use(name: &str) -> Vec<&str> {
    match name {
        "api" | "worker" => vec!["testkit", "broker-embedded", name],
        "broker-nats" => vec!["testkit", "worker", "clickhouse", name],
        "testkit" => vec![],
        _ => vec!["testkit", name],
    }
}

fn ours(dependencies: &BTreeSet<String>) -> impl Iterator<Item = &str> {
    dependencies.iter().filter_map(|name| name.strip_prefix(OURS))
}

fn findings(manifest: &Manifest, rule: &Rule) -> Vec<String> {
    let name = &manifest.name;
    let mut found = Vec::new();
    for used in ours(&manifest.normal).filter(|used| !rule.may_use.contains(used)) {
        found.push(format!("{name} may not know {used}"));
    }
    let dev = dev_may_use(name);
    for used in ours(&manifest.dev).filter(|used| !rule.may_use.contains(used) && !dev.contains(used)) {
        found.push(format!("tests of {name} may not know {used}"));
    }
    for used in manifest.normal.iter().filter(|used| rule.never.contains(&used.as_str())) {
        found.push(format!("{name} must never see {used}"));
    }
    for used in manifest.normal.union(&manifest.dev).filter(|used| NEVER_ANYWHERE.contains(&used.as_str())) {
        found.push(format!("{name} uses {used}, which the workspace does another way"));
    }
    found
}

#[test]
fn arrows_go_where_the_table_says() {
    let mut found = Vec::new();
    let manifests = all();
    for manifest in &manifests {
        match RULES.iter().find(|rule| rule.name == manifest.name) {
            Some(rule) => found.extend(findings(manifest, rule)),
            None => found.push(format!("{} has no line in the table", manifest.name)),
        }
    }
    for rule in RULES.iter().filter(|rule| !manifests.iter().any(|manifest| manifest.name == rule.name)) {
        found.push(format!("{} is in the table and not there", rule.name));
    }
    assert_none("crates know only what they may", &found);
}

#[test]
fn a_wrong_arrow_is_found() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let manifest = Manifest {
        name: "worker".to_owned(),
        package: "wavehouse-worker".to_owned(),
        normal: names(&["wavehouse-core", "wavehouse-api", "axum", "reqwest", "tokio"]),
        dev: names(&["wavehouse-broker-embedded", "wavehouse-server"]),
        workspace_lints: true,
    };
    let rule = RULES.iter().find(|rule| rule.name == "worker").expect("worker has a line");
    let expected = [
        "worker may not know api",
        "tests of worker may not know server",
        "worker must never see axum",
        "worker uses reqwest, which the workspace does another way",
    ];
    assert_eq!(findings(&manifest, rule), expected);
}

#[test]
fn packages_are_named_after_their_folders_and_keep_the_lints() {
    let mut found = Vec::new();
    for manifest in all() {
        let expected = format!("{OURS}{}", manifest.name);
        if manifest.package != expected {
            found.push(format!("crates/{} is called {}, not {expected}", manifest.name, manifest.package));
        }
        if !manifest.workspace_lints {
            found.push(format!("crates/{} has no `[lints] workspace = true`", manifest.name));
        }
    }
    assert_none("a package", &found);
}
