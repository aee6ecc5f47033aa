//! The truth about values: what the checker says of thousands of values, type by type, held against what the engine does
//! with the same bytes, and what the engine stored against what the client meant.
//!
//! A value that the checker takes must be stored as it was meant. One that it refuses may be refused by the engine too,
//! or a rule says why it is refused; `docs/types.md` lists the rules.

mod alike;
mod decimal;
mod generate;
mod json;
mod meaning;
mod rules;
mod time;
mod trial;
mod types;

use std::collections::BTreeMap;

use wavehouse_rows::{Column, Framing, ServerFacts, TableSchema, check_body};

use crate::kit::House;
use generate::{Random, value};
use json::Json;
use meaning::Server;
use rules::Rule;
use trial::{Case, OPTIONS, Trial};
use types::{Ty, families};

/// Unless `WAVEHOUSE_DIFF_SEED` says otherwise.
const SEED: u64 = 20_260_131;
/// Values of each family, unless `WAVEHOUSE_DIFF_CASES` says otherwise.
const CASES: u64 = 1_500;
/// So many values of a kind of failure are shown.
const SHOWN_MAX: usize = 10;

#[expect(clippy::disallowed_methods, reason = "a test that can be told to look elsewhere or longer")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str, default: u64) -> u64 {
    setting(name).map_or(default, |text| text.parse().unwrap())
}

/// What was found, by kind.
#[derive(Default)]
struct Report {
    failures: BTreeMap<String, Vec<String>>,
    /// Values on which both agreed, and those under a rule.
    agreed: usize,
    ruled: usize,
}

impl Report {
    fn fail(&mut self, kind: String, what: String) {
        self.failures.entry(kind).or_default().push(what);
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for (kind, all) in &self.failures {
            out.push_str(&format!("{kind}: {} values\n", all.len()));
            out.extend(all.iter().take(SHOWN_MAX).map(|one| format!("    {one}\n")));
        }
        out
    }
}

#[tokio::test]
async fn the_checker_and_the_engine_agree() {
    let (seed, count) = (number("WAVEHOUSE_DIFF_SEED", SEED), number("WAVEHOUSE_DIFF_CASES", CASES));
    println!("WAVEHOUSE_DIFF_SEED={seed} WAVEHOUSE_DIFF_CASES={count}");
    let house = House::new(&[]).await;
    let mut random = Random::new(seed);
    let mut trials = Vec::new();
    for (family, types) in families() {
        let share = usize::try_from(count).unwrap().div_ceil(types.len());
        for ty in types {
            let values = (0..share).map(|_| value(&mut random, &ty)).collect();
            trials.push(Trial::create(&house, trials.len(), (family, ty), values).await);
        }
    }
    for rule in rules::RULES {
        let (ty, json) = (rule.example)();
        trials.push(Trial::create(&house, trials.len(), (rules::family(&ty), ty), vec![json]).await);
    }
    let facts = house.connection.catalog.refresh().await.unwrap().server.clone();
    let server = Server { version: facts.version, zone: facts.time_zone.clone() };
    let mut report = Report::default();
    for trial in &mut trials {
        for refused in trial.run(&house, &server).await {
            report.fail(format!("{}: taken here, refused by the engine", trial.family), refused);
        }
        for note in &trial.notes {
            println!("{}: {note}", trial.ty.sql());
        }
        for case in &trial.cases {
            judge(trial, case, &facts, &server, &mut report);
        }
    }
    let examples = trials.len() - rules::RULES.len();
    for (rule, trial) in rules::RULES.iter().zip(&trials[examples..]) {
        let ruled = judge(trial, &trial.cases[0], &facts, &server, &mut Report::default());
        if !ruled.is_some_and(|ruled| std::ptr::eq(ruled, rule)) {
            report.fail("a rule that its own example does not fall under".to_owned(), rule.values.to_owned());
        }
    }
    println!("{} values agreed, {} fell under a rule", report.agreed, report.ruled);
    assert!(report.failures.is_empty(), "\n{}", report.text());
}

/// Puts a value into the report; its rule, if it has one.
fn judge(
    trial: &Trial,
    case: &Case,
    facts: &ServerFacts,
    server: &Server,
    report: &mut Report,
) -> Option<&'static Rule> {
    let same = trial.is_same(case, server);
    if case.stored.is_none() || (same && case.refused.is_none()) {
        report.agreed += 1;
        return None;
    }
    let (meant, stored) = (&case.meant, &case.stored);
    let what = format!("{} {} meant {meant:?} stored {stored:?}", trial.ty.sql(), case.json.written());
    if case.refused.is_none() {
        if !rules::is_exception(&trial.ty, &case.json) {
            report.fail(format!("{}: taken here, stored as another value", trial.family), what);
        }
        return None;
    }
    let (ty, json, message) = blame(&trial.ty, &case.json, facts);
    let rule = rules::rule(&ty, &message, same);
    if rule.is_some() {
        report.ruled += 1;
    } else {
        let stores = if same { "the same" } else { "another value" };
        let kind = format!("{}: refused here, engine stores {stores}, no rule", rules::family(&ty));
        report.fail(kind, format!("{what} for {}: {message}", json.written()));
    }
    rule
}

/// Why the checker refuses one value of a type; `None` if it takes it.
fn refusal(ty: &Ty, json: &Json, facts: &ServerFacts) -> Option<String> {
    let table = TableSchema::new("t".to_owned(), vec![Column::new("v", ty.sql(), 1)], facts.clone());
    let body = format!("{{\"v\":{}}}", json.written());
    let checked = check_body(body.as_bytes(), Framing::Auto, &table, &OPTIONS).unwrap();
    checked.refused.into_iter().next().map(|(_, error)| error.message)
}

/// The part of a refused value that is to blame, and why.
fn blame(ty: &Ty, json: &Json, facts: &ServerFacts) -> (Ty, Json, String) {
    let bad = ty.parts(json).into_iter().find(|(ty, json)| refusal(ty, json, facts).is_some());
    match bad {
        Some((ty, json)) => blame(ty, &json, facts),
        None => (ty.clone(), json.clone(), refusal(ty, json, facts).unwrap_or_default()),
    }
}

#[test]
fn the_document_lists_the_rules() {
    const BEGIN: &str = "<!-- Made from crates/clickhouse/tests/it/differential/rules.rs; UPDATE_DOCS=1 cargo test -p \
                         wavehouse-clickhouse writes it anew. -->\n";
    const END: &str = "<!-- End of what is made. -->\n";
    let path = wavehouse_testkit::deps::root().join("docs/types.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (front, rest) = page.split_once(BEGIN).expect("the table's beginning is marked");
    let (_, back) = rest.split_once(END).expect("the table's end is marked");
    let wanted = format!("{front}{BEGIN}{}{END}{back}", rules::table());
    if setting("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == wanted, "docs/types.md is old: UPDATE_DOCS=1 cargo test -p wavehouse-clickhouse");
}
