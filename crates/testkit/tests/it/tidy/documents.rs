//! What documents keep to: links that lead somewhere, words that are in the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{assert_none, files, read, root};

/// Words that the glossary must have.
const WORDS: [&str; 17] = [
    "row",
    "block",
    "segment",
    "tenant",
    "table",
    "scope",
    "sequence",
    "position",
    "unit",
    "delivery",
    "settle",
    "cut",
    "split",
    "insert token",
    "history",
    "hole",
    "dead letter",
];

/// The documents that are kept by hand.
fn documents() -> Vec<PathBuf> {
    let mut found = files("docs", "md");
    found.extend(files("crates", "md"));
    let top = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(PathBuf::from);
    found.extend(top.into_iter().filter(|path| root().join(path).is_file()));
    found
}

/// A document without its code, in fences or inline, where links are not links.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            kept.extend(line.split('`').step_by(2));
            kept.push('\n');
        }
    }
    kept
}

/// The targets of `[text](target)` in a document.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(|target| target.split(' ').next().unwrap_or_default().to_owned()).collect()
}

/// The anchors that a page makes of its headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if !fenced && line.starts_with('#') {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
            found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    found
}

fn broken(document: &Path, text: &str) -> Vec<String> {
    let folder = root().join(document.parent().unwrap_or(Path::new("")));
    let mut found = Vec::new();
    for link in links(text).iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
        let (path, anchor) =
            link.split_once('#').map_or((link.as_str(), None), |(path, at)| (path, Some(at)));
        let target = if path.is_empty() { root().join(document) } else { folder.join(path) };
        if path.starts_with('/') || !target.exists() {
            found.push(format!("{}: {link} is not there", document.display()));
        } else if let Some(anchor) = anchor.filter(|_| target.extension().is_some_and(|found| found == "md"))
            && !anchors(&read(&target)).contains(anchor)
        {
            found.push(format!("{}: {link} has no such heading", document.display()));
        }
    }
    found
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    assert!(documents.len() > 3, "the documents are found");
    let found: Vec<_> = documents.iter().flat_map(|path| broken(path, &read(&root().join(path)))).collect();
    assert_none("relative links resolve", &found);
}

#[test]
fn a_broken_link_is_found() {
    let text = "# A title: here\n[a](GLOSSARY.md) [b](gone.md) `[c](gone.md)`\n```\n[d](gone.md)\n```\n[e](#a-title-here) [f](#gone)";
    assert_eq!(links(text), ["GLOSSARY.md", "gone.md", "#a-title-here", "#gone"]);
    assert_eq!(anchors(text), BTreeSet::from(["a-title-here".to_owned()]));
    assert_eq!(
        broken(Path::new("docs/GLOSSARY.md"), "[b](gone.md)"),
        ["docs/GLOSSARY.md: gone.md is not there"]
    );
}

/// The rows of the glossary: the word, and the names in the code.
fn glossary() -> Vec<(String, Vec<String>)> {
    let text = read(&root().join("docs/GLOSSARY.md"));
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = text.lines().filter(|line| line.starts_with('|')).map(cells);
    let rows = rows.filter(|cells| cells.len() == 4 && cells[0] != "word" && !cells[0].starts_with("---"));
    rows.map(|cells| {
        let names = cells[2].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (cells[0].clone(), names)
    })
    .collect()
}

#[test]
fn the_glossary_has_the_words() {
    let words: Vec<_> = glossary().into_iter().map(|(word, _)| word).collect();
    let missing = WORDS.iter().filter(|word| !words.iter().any(|found| found == *word));
    assert_none("in docs/GLOSSARY.md", &missing.map(|word| (*word).to_owned()).collect::<Vec<_>>());
    let unique: BTreeSet<_> = words.iter().collect();
    assert_eq!(unique.len(), words.len(), "each word is explained once");
}

#[test]
fn words_of_the_glossary_are_in_the_code() {
    let mut names = BTreeSet::new();
    for path in files("crates", "rs") {
        let text = read(&root().join(path));
        names.extend(text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned));
    }
    let mut found = Vec::new();
    for (word, used) in glossary() {
        let parts = used.iter().flat_map(|name| name.split("::"));
        let unknown = parts.map(|part| part.trim_end_matches("()")).filter(|part| !names.contains(*part));
        found.extend(unknown.map(|name| format!("{word}: {name} is in no source")));
    }
    assert_none("what docs/GLOSSARY.md names", &found);
}
