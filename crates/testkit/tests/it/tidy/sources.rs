//! What every source file keeps to: a head that tells its story, a size, exceptions with reasons.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{assert_none, files, read, root};

/// Longest file, in lines. Longer is a split.
const LINES_MAX: usize = 500;
/// From here on a file is a question, which is printed.
const LINES_ASKED: usize = 400;

/// What `core`, `rows` and `topology` may not touch: they read no clock and do no I/O.
const IMPURE: [&str; 8] = [
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::env",
    "std::process",
    "std::thread",
    "SystemTime::now",
    "Instant::now",
];

#[test]
fn every_file_tells_its_story_first() {
    let silent =
        files("crates", "rs").into_iter().filter(|path| !read(&root().join(path)).starts_with("//! "));
    assert_none("opens with `//! `", &silent.map(|path| path.display().to_string()).collect::<Vec<_>>());
}

#[test]
fn files_stay_small() {
    let mut found = Vec::new();
    for path in files("crates", "rs") {
        let lines = read(&root().join(&path)).lines().count();
        let line = format!("{} has {lines} lines", path.display());
        if lines > LINES_MAX {
            found.push(line);
        } else if lines > LINES_ASKED {
            println!("a question: {line}");
        }
    }
    assert_none(&format!("at most {LINES_MAX} lines"), &found);
}

#[test]
fn modules_lie_beside_their_folders() {
    let found = files("crates", "rs").into_iter().filter(|path| path.ends_with("mod.rs"));
    assert_none(
        "`name.rs` beside `name/`, no `mod.rs`",
        &found.map(|p| p.display().to_string()).collect::<Vec<_>>(),
    );
}

/// Attributes that lift a lint and do not say why, as line numbers.
fn lifted_without_reason(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for word in ["allow(", "expect("] {
        for (at, _) in text.match_indices(word) {
            let before = text.get(..at).unwrap_or_default();
            let line = before.rsplit('\n').next().unwrap_or_default().trim_start();
            let is_attribute = ["#[", "#!["].contains(&line)
                || ["#[cfg_attr(", "#![cfg_attr("].iter().any(|open| line.starts_with(open));
            let attribute = text.get(at..).unwrap_or_default().split(")]").next().unwrap_or_default();
            if is_attribute && !attribute.contains("reason") {
                found.push(before.lines().count().max(1));
            }
        }
    }
    found
}

#[test]
fn lints_are_lifted_with_a_reason() {
    let mut found = Vec::new();
    for path in files("crates", "rs") {
        for line in lifted_without_reason(&read(&root().join(&path))) {
            found.push(format!("{}:{line}", path.display()));
        }
    }
    assert_none("`reason = \"…\"` on every lifted lint", &found);
}

#[test]
fn a_lint_lifted_without_a_reason_is_found() {
    let bare = "fn a() {}\n#[allow(dead_code)]\nfn b() {}\n#![expect(clippy::x)]\n";
    assert_eq!(lifted_without_reason(bare), [2, 4]);
    let fine = "#[expect(\n    clippy::x,\n    reason = \"why\"\n)]\nlet x = y.expect(\"z\");\n";
    assert_eq!(lifted_without_reason(fine), [] as [usize; 0]);
}

#[test]
fn nothing_is_left_for_later() {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
    let mut found = Vec::new();
    for path in files("crates", "rs").into_iter().chain(files("docs", "md")) {
        for (number, line) in (1..).zip(read(&root().join(&path)).lines()) {
            let mut said = line.split(|c: char| !c.is_ascii_alphanumeric());
            if let Some(word) = said.find(|said| words.contains(said)) {
                found.push(format!("{}:{number} says {word}", path.display()));
            }
        }
    }
    assert_none("do it or write an issue", &found);
}

#[test]
fn pure_crates_touch_no_machine() {
    let mut found = Vec::new();
    for path in
        ["core", "rows", "topology"].iter().flat_map(|name| files(&format!("crates/{name}/src"), "rs"))
    {
        let text = read(&root().join(&path));
        let used = IMPURE.iter().filter(|name| text.contains(*name));
        found.extend(used.map(|name| format!("{} uses {name}", path.display())));
    }
    assert_none("core, rows and topology do no I/O and read no clock", &found);
}

#[test]
fn one_test_binary_a_crate() {
    let mut found = Vec::new();
    for path in files("crates", "toml").into_iter().filter(|path| path.ends_with("Cargo.toml")) {
        let tests = root().join(path.parent().unwrap_or(Path::new(""))).join("tests");
        let Ok(entries) = fs::read_dir(&tests) else { continue };
        let loose = entries.filter_map(Result::ok).map(|entry| entry.path());
        let loose = loose.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
        found.extend(loose.map(|path| path.display().to_string()));
        if tests.exists() && !tests.join("it/main.rs").is_file() {
            found.push(format!("{} has no it/main.rs", tests.display()));
        }
    }
    assert_none("integration tests are `tests/it/main.rs` and its modules", &found);
}

#[test]
fn every_module_file_is_used() {
    let mut declared = BTreeSet::new();
    let all = files("crates", "rs");
    for path in &all {
        let text = read(&root().join(path));
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let parent = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let folder = if ["main", "lib", "build"].contains(&stem.as_str()) {
            parent.clone()
        } else {
            parent.join(&stem)
        };
        for line in text.lines().map(str::trim) {
            let line = line.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
            let line = line.trim_start_matches("pub ");
            if let Some(name) = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
                declared.insert(folder.join(format!("{name}.rs")));
            }
            if let Some(name) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
                declared.extend([parent.join(name), folder.join(name)]);
            }
        }
    }
    let is_root = |path: &Path| {
        let text = path.to_string_lossy();
        ["/src/lib.rs", "/src/main.rs", "/tests/it/main.rs", "/build.rs"]
            .iter()
            .any(|end| text.ends_with(end))
            || ["/examples/", "/benches/", "/src/bin/"].iter().any(|part| text.contains(part))
    };
    let dead = all.iter().filter(|path| !is_root(path) && !declared.contains(*path));
    assert_none(
        "a file that no module names is dead",
        &dead.map(|p| p.display().to_string()).collect::<Vec<_>>(),
    );
}
