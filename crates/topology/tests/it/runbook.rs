//! The operator's page of findings, made from the rules, so that each rule has an entry and each entry is true.

use std::fmt::Write;
use std::path::Path;

use wavehouse_topology::{Mend, RULES, Rule, Severity};

/// What the rules are grouped by: the first word of a rule's name, and what to call it.
const OBJECTS: &[(&str, &str, &str)] = &[
    (
        "server",
        "Servers",
        "`server` in a finding. Every server that answers is looked at, not only the connected one.",
    ),
    ("partition", "Partition streams", "`ingest partition <p>` while there is none, then `stream <name>`."),
    ("stream", "Any stream", "`stream <name>`."),
    ("durable", "Shard durables", "`consumer <stream>/<durable>`."),
    (
        "extra",
        "What earlier counts left",
        "A stream or a durable beyond the configured counts. Never stops a start.",
    ),
    ("history", "History", "The stream that live clients read, `WH_HISTORY` unless named otherwise."),
    ("dlq", "Dead letters", "`dead-letter stream` while there is none, then `stream <name>`."),
    ("bucket", "Lease bucket", "`kv bucket <name>`. Looked at where `coord.backend` is `nats`."),
    (
        "permission",
        "Permissions",
        "What the connecting user may not do. Asked with requests that change nothing.",
    ),
];

const HEAD: &str = "\
<!-- Made from crates/topology/src/rules.rs; UPDATE_DOCS=1 cargo test -p wavehouse-topology writes it anew. -->
# Findings, and what to do about each

`wavehouse mq verify` prints findings; so does a start that is refused, and the log of a process whose servers changed
under it. A finding names its rule in brackets, the object, the field, what was found and what it should be, and the
command that mends it. A **required** one stops a start and drops `wavehouse_mq_topology_ok` to 0 in a running process; a
**recommended** one is a warning.

WaveHouse never changes an object that it runs on. You do, with the operator's credentials.

## The ways to mend

**Apply.** Make what is missing and change what may be changed:

```sh
wavehouse mq manifests --partitions N --shards V | kubectl apply -f -   # with nack; the finding has the whole command
wavehouse mq provision --partitions N --shards V --dry-run              # without; then again without --dry-run
```

`mq provision` makes what is missing, and of what exists it changes metadata, the duplicate window, larger byte limits, the
history's age and `max_ack_pending`. Everything else it leaves and tells: change that by hand, with
`nats stream edit <stream>` or `nats consumer edit <stream> <durable>`.

**Make it anew.** JetStream cannot change the field. Stop the `api` processes, or let them refuse for a while; wait until
`wavehouse mq status` shows nothing pending in the stream; then

```sh
nats stream rm <stream>            # refused rows wait with their clients; rows that are pending would be lost
wavehouse mq provision --partitions N --shards V
```

**Make the durable anew.** As above, without the wait: a partition keeps its rows without the durable. Stop the `ingest`
processes first, since a durable that goes ends them.

```sh
nats consumer rm <stream> <durable>
wavehouse mq provision --partitions N --shards V
```

Blocks that were delivered and not yet acked come again. Where a table has a deduplication window they are stored once.

**Permit.** Give the user what `wavehouse mq permissions --shards V` prints, and reload the servers' configuration
(`nats-server --signal reload`). With a JetStream domain add `--js-domain`.
";

fn way(mend: Mend) -> String {
    match mend {
        Mend::Apply => "Apply.".to_owned(),
        Mend::Rebuild => "Make it anew.".to_owned(),
        Mend::RebuildDurable => "Make the durable anew.".to_owned(),
        Mend::Permissions => "Permit.".to_owned(),
        Mend::Say(what) => sentence(what),
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn of(object: &str) -> impl Iterator<Item = &'static Rule> {
    RULES.iter().filter(move |rule| rule.id.split('-').next() == Some(object))
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (object, title, about) in OBJECTS {
        let _written =
            write!(page, "\n## {title}\n\n{about}\n\n| rule | | field | what it is for | what to do |\n");
        page.push_str("| --- | --- | --- | --- | --- |\n");
        for rule in of(object) {
            let must = if rule.severity == Severity::Required { "required" } else { "recommended" };
            let Rule { id, field, why, mend, .. } = rule;
            let _written =
                writeln!(page, "| `{id}` | {must} | `{field}` | {} | {} |", sentence(why), way(*mend));
        }
    }
    page
}

#[test]
fn every_rule_has_an_entry_in_the_operators_page() {
    for rule in RULES {
        let object = rule.id.split('-').next();
        assert!(OBJECTS.iter().any(|(known, ..)| object == Some(known)), "{} belongs nowhere", rule.id);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating/findings.md");
    let page = page();
    #[expect(clippy::disallowed_methods, reason = "asks whoever runs the tests whether to write the page")]
    if std::env::var("UPDATE_DOCS").is_ok() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/operating/findings.md is old: UPDATE_DOCS=1 cargo test -p wavehouse-topology"
    );
}
