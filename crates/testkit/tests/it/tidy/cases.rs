//! The contract on message servers has numbered cases, and a page says which test holds each of them: every case has its
//! line, every named test is there and carries the number, and no line says that there is no test where there is one.

use std::collections::{BTreeMap, BTreeSet};

use super::{assert_none, files, read, root};

const PAGE: &str = "docs/reference/nats-cases.md";
/// Highest number of a case.
const LAST: u32 = 117;
/// Numbers that no case has.
const UNUSED: [u32; 7] = [57, 64, 70, 71, 78, 105, 106];
/// How a line begins that names no test.
const REASONS: [&str; 3] = ["superseded: ", "not yet: ", "no test yet"];

/// What the page says of each case.
fn page() -> BTreeMap<u32, String> {
    let text = read(&root().join(PAGE));
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let number = cells.next()?.parse().ok()?;
        let _what = cells.next()?;
        Some((number, cells.next()?.trim_end_matches('|').trim().to_owned()))
    });
    let rows: Vec<(u32, String)> = rows.collect();
    let lines = rows.len();
    let page: BTreeMap<_, _> = rows.into_iter().collect();
    assert_eq!(page.len(), lines, "a case has two lines");
    page
}

/// Tests that a line names, as file and function.
fn tests(line: &str) -> Vec<(&str, &str)> {
    line.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::")).collect()
}

/// The numbers of `case_7_...` or `case_7_and_8_...`.
fn numbers_in_name(name: &str) -> BTreeSet<u32> {
    let words = name.strip_prefix("case_").unwrap_or_default().split('_');
    words
        .map_while(|word| if word == "and" { Some(None) } else { word.parse().ok().map(Some) })
        .flatten()
        .collect()
}

/// The numbers of `// Case 7.` or `// Cases 7, 8.`.
fn numbers_in_comment(line: &str) -> BTreeSet<u32> {
    let line = line.trim();
    let list = line.strip_prefix("// Cases ").or_else(|| line.strip_prefix("// Case "));
    let list = list.and_then(|list| list.strip_suffix('.')).unwrap_or_default();
    list.split(", ").filter_map(|number| number.parse().ok()).collect()
}

/// The name of a test that is defined on this line: a function, or a line of a conformance suite.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim();
    let after_fn = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
    if let Some(name) = after_fn {
        return name.split('(').next();
    }
    let mut words = line.split(' ');
    let (promise, case, sentence) = (words.next()?, words.next()?, words.next()?);
    let is_case = promise.starts_with(char::is_uppercase) && sentence.starts_with('"');
    is_case.then_some(case)
}

/// Every test of a source that carries numbers.
fn numbered(source: &str) -> BTreeMap<String, BTreeSet<u32>> {
    let mut found = BTreeMap::new();
    let mut said = BTreeSet::new();
    for line in source.lines() {
        if let Some(name) = defined(line) {
            said.append(&mut numbers_in_name(name));
            if !said.is_empty() {
                found.insert(name.to_owned(), std::mem::take(&mut said));
            }
        } else if line.trim().starts_with("//") {
            said.append(&mut numbers_in_comment(line));
        } else if !line.trim().starts_with("#[") {
            said.clear();
        }
    }
    found
}

#[test]
fn every_case_has_its_line_and_every_named_test_its_number() {
    let mut findings = Vec::new();
    let page = page();
    let expected: BTreeSet<u32> = (1..=LAST).filter(|number| !UNUSED.contains(number)).collect();
    let told: BTreeSet<u32> = page.keys().copied().collect();
    findings.extend(expected.symmetric_difference(&told).map(|number| format!("{number}: one line, please")));

    let sources = files("crates", "rs").into_iter();
    let sources: BTreeMap<String, _> =
        sources.map(|path| (path.display().to_string(), numbered(&read(&root().join(&path))))).collect();
    let mut held = BTreeSet::new();
    for (number, line) in &page {
        let tests = tests(line);
        if tests.is_empty() && !REASONS.iter().any(|reason| line.starts_with(reason)) {
            findings.push(format!("{number}: neither a test nor a reason"));
        }
        for (file, name) in tests {
            held.insert(*number);
            let numbers = sources.get(file).and_then(|tests| tests.get(name));
            if !numbers.is_some_and(|numbers| numbers.contains(number)) {
                findings.push(format!("{number}: {file} has no test {name} with that number"));
            }
        }
    }
    for (file, tests) in &sources {
        for (name, numbers) in tests {
            let untold = numbers.iter().filter(|number| !held.contains(number));
            findings.extend(untold.map(|number| format!("{number}: held by {name} in {file}, untold")));
        }
    }
    assert_none(PAGE, &findings);
}

#[test]
fn numbers_are_read() {
    let source = "// Cases 1, 22.\n/// What.\n#[test]\nfn plain() {}\nfn case_3_and_4_five_6() {}\nfn other() {}\n\
                  // Case 7.\n    Promise case \"words\";\n// Case 8.\n\nfn far() {}\n";
    let found: Vec<_> = numbered(source).into_iter().collect();
    let expected = [("case", vec![7]), ("case_3_and_4_five_6", vec![3, 4]), ("plain", vec![1, 22])];
    let expected = expected.map(|(name, numbers)| (name.to_owned(), numbers.into_iter().collect()));
    assert_eq!(found, expected);
}
