//! Walks the repository as it lies on disk: manifests, sources and documents.

mod arrows;
mod cases;
mod documents;
mod manifest;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that are made, not written.
const MADE: [&str; 6] = ["target", ".git", ".deps", "node_modules", "data", "snapshots"];

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the crate lies two folders below the root").to_path_buf()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file below a folder that has this extension, sorted, as paths from the root.
fn files(below: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(below)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("an entry can be read").path();
            let made = path.file_name().is_some_and(|name| MADE.iter().any(|made| name == *made));
            if path.is_dir() && !made {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path.strip_prefix(root()).expect("below the root").to_path_buf());
            }
        }
    }
    found.sort();
    found
}

/// Fails with all findings at once.
fn assert_none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}
