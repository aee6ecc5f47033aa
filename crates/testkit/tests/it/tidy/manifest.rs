//! As much of a crate's `Cargo.toml` as the rules need: the names in its dependency tables.

use std::collections::BTreeSet;
use std::path::Path;

use super::{read, root};

/// What every package of ours is called, before the name of its folder.
pub(super) const OURS: &str = "wavehouse-";

pub(super) struct Manifest {
    /// The folder's name.
    pub(super) name: String,
    /// Dependencies of the product, build scripts and targets included.
    pub(super) normal: BTreeSet<String>,
    /// Dependencies of tests.
    pub(super) dev: BTreeSet<String>,
    /// The package's name as it says itself.
    pub(super) package: String,
    pub(super) workspace_lints: bool,
}

pub(super) fn all() -> Vec<Manifest> {
    let mut crates: Vec<_> = std::fs::read_dir(root().join("crates"))
        .expect("the crates can be listed")
        .map(|entry| entry.expect("an entry can be read").path())
        .filter(|path| path.join("Cargo.toml").is_file())
        .map(|path| load(&path))
        .collect();
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    crates
}

fn load(folder: &Path) -> Manifest {
    let name = folder.file_name().expect("a crate's folder has a name").to_string_lossy().into_owned();
    parse(name, &read(&folder.join("Cargo.toml")))
}

fn parse(name: String, text: &str) -> Manifest {
    let mut manifest = Manifest {
        name,
        normal: BTreeSet::new(),
        dev: BTreeSet::new(),
        package: String::new(),
        workspace_lints: false,
    };
    let mut section = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_matches(['[', ']']).to_owned();
            if let Some((_, dependency)) = section.rsplit_once("dependencies.") {
                manifest.insert(&section.clone(), dependency);
            }
            continue;
        }
        let key = line.split(['.', '=', ' ']).next().unwrap_or_default().trim_matches('"');
        if section.ends_with("dependencies") {
            manifest.insert(&section.clone(), key);
        }
        let value = line.split_once('=').map(|(_, value)| value.trim().trim_matches('"'));
        match (section.as_str(), key, value) {
            ("package", "name", Some(package)) => manifest.package = package.to_owned(),
            ("lints", "workspace", Some("true")) => manifest.workspace_lints = true,
            _ => {}
        }
    }
    manifest
}

impl Manifest {
    fn insert(&mut self, section: &str, dependency: &str) {
        let table = if section.contains("dev-dependencies") { &mut self.dev } else { &mut self.normal };
        table.insert(dependency.to_owned());
    }
}

#[test]
fn dependencies_are_found_in_every_form() {
    let text = r#"
        [package]
        name = "wavehouse-x"
        [dependencies]
        # comment
        wavehouse-core.workspace = true
        hyper = { workspace = true, features = ["server"] }
        "quoted" = "1"
        [target.'cfg(unix)'.dependencies]
        rustix.workspace = true
        [build-dependencies]
        cc = "1"
        [dependencies.long]
        version = "1"
        [dev-dependencies]
        proptest.workspace = true
        [dev-dependencies.odd]
        version = "1"
        [lints]
        workspace = true
    "#;
    let manifest = parse("x".to_owned(), text);
    let names = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(names(&manifest.normal), "cc hyper long quoted rustix wavehouse-core");
    assert_eq!(names(&manifest.dev), "odd proptest");
    assert_eq!((manifest.package.as_str(), manifest.workspace_lints), ("wavehouse-x", true));
}
