//! Holds what was found against what a deployment asks for. Nothing is repaired.

mod bucket;
mod dead_letters;
mod durable;
mod extras;
mod history;
mod partition;
mod permission;
mod server;

use std::fmt::Display;

use crate::commands::{manifests_command_in_general, permissions_command};
use crate::config::StreamConfig;
use crate::finding::Finding;
use crate::observed::TopologyObserved;
use crate::rules::{Mend, Rule, STREAM_UNKNOWN_FIELD};
use crate::spec::TopologySpec;

/// Judges everything; required findings come first, each kind in the order of the objects.
#[must_use]
pub fn verify(spec: &TopologySpec, observed: &TopologyObserved) -> Vec<Finding> {
    let mut check = Check { spec, observed, found: Vec::new() };
    check.servers();
    let streams = check.partitions();
    check.shared_streams(&streams);
    check.extras();
    check.history();
    check.dead_letters();
    if spec.input().coord_on_nats {
        check.bucket();
    }
    check.permissions();
    let mut found = check.found;
    found.sort_by_key(|finding| finding.severity);
    found
}

/// A verification under way.
struct Check<'a> {
    spec: &'a TopologySpec,
    observed: &'a TopologyObserved,
    found: Vec<Finding>,
}

/// The two rules about replicas, which three streams have.
struct Replicas {
    one: Rule,
    two: Rule,
}

impl Check<'_> {
    /// Tells a breach unless `good`.
    fn want(&mut self, good: bool, rule: Rule, object: &str, expected: impl Display, found: impl Display) {
        if good {
            return;
        }
        let apply = || {
            format!(
                "apply the output of `{}`, with your servers' --replicas and --file-store",
                manifests_command_in_general(self.spec)
            )
        };
        let mend = match rule.mend {
            Mend::Apply => apply(),
            Mend::Rebuild => format!(
                "this cannot be changed: drain the stream, remove it with operator credentials, and {}",
                apply()
            ),
            Mend::RebuildDurable => format!(
                "this cannot be changed: remove the durable with operator credentials (its rows stay in the stream) and {}",
                apply()
            ),
            Mend::Permissions => {
                format!("give the user the output of `{}`", permissions_command(self.spec))
            }
            Mend::Say(mend) => mend.to_owned(),
        };
        self.found.push(Finding {
            rule: rule.id,
            severity: rule.severity,
            object: object.to_owned(),
            field: rule.field,
            expected: expected.to_string(),
            found: format!("is {found}"),
            why: rule.why,
            mend,
        });
    }

    fn replicas(&mut self, rules: &Replicas, object: &str, stream: &StreamConfig) {
        let replicas = stream.num_replicas;
        self.want(replicas > 1, rules.one, object, "3 or more", replicas);
        self.want(replicas != 2, rules.two, object, "3 or more", replicas);
    }

    fn unknown_fields(&mut self, object: &str, stream: &StreamConfig) {
        for field in stream.unknown_fields() {
            self.want(
                false,
                STREAM_UNKNOWN_FIELD,
                object,
                "without it",
                format_args!("with an unknown {field}"),
            );
        }
    }

    /// A bound on the size of messages must let through whatever the servers do.
    fn message_size(&mut self, rule: Rule, object: &str, stream: &StreamConfig) {
        let wanted = i64::try_from(self.observed.max_payload_bytes).unwrap_or(i64::MAX);
        let size = stream.max_msg_size;
        self.want(
            size <= 0 || size >= wanted,
            rule,
            object,
            format_args!("unset or at least {wanted}"),
            size,
        );
    }
}

/// A list for reading.
fn listed<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<_> = items.iter().map(AsRef::as_ref).collect();
    format!("[{}]", items.join(", "))
}

/// A number that may be unset.
fn or_unset(number: i64) -> String {
    if number > 0 { number.to_string() } else { "unset".to_owned() }
}

/// A text that may be unset.
fn or_default(text: &str) -> &str {
    if text.is_empty() { "unset" } else { text }
}
