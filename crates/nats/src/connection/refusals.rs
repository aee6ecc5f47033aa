//! What the servers did not let us do.
//!
//! A refused publish is told only on the side: the request itself is never answered. So each refusal gets a running
//! number, and whoever asked looks for one with a number past the one that stood when it asked. Subjects of acks are
//! new for every message; recording those would push out what matters, so only known kinds of subjects are recorded.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Refused subjects that are remembered, each once; more than a check of all durables can cause.
const REFUSED_MAX: usize = 8_192;

/// One refused publish or subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its running number, from 1.
    pub number: u64,
    /// The subject, as the server named it.
    pub subject: String,
    /// A subscription was refused, not a publish.
    pub subscribing: bool,
}

/// The record.
pub(super) struct Refusals {
    prefixes: Vec<String>,
    kept: Mutex<VecDeque<Refused>>,
    number: watch::Sender<u64>,
}

impl Refusals {
    /// Records publishes to JetStream, and to subjects that begin with one of `prefixes`; and all subscriptions.
    pub(super) fn new(prefixes: Vec<String>) -> Self {
        Self { prefixes, kept: Mutex::default(), number: watch::Sender::new(0) }
    }

    /// Takes the text of a server's error; true when it was a refusal that had not been recorded before.
    pub(super) fn record(&self, text: &str) -> bool {
        let Some((subscribing, subject)) = parse(text) else { return false };
        let wanted =
            subscribing || is_api(subject) || self.prefixes.iter().any(|prefix| subject.starts_with(prefix));
        if !wanted {
            return false;
        }
        let mut kept = self.kept();
        let before = kept.len();
        kept.retain(|refused| refused.subject != subject || refused.subscribing != subscribing);
        let is_new = kept.len() == before;
        if kept.len() == REFUSED_MAX {
            kept.pop_front();
        }
        let number = *self.number.borrow() + 1;
        kept.push_back(Refused { number, subject: subject.to_owned(), subscribing });
        drop(kept);
        self.number.send_replace(number);
        is_new
    }

    /// The number of the newest.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.number.subscribe()
    }

    /// Those with a greater number, oldest first.
    pub(super) fn since(&self, number: u64) -> Vec<Refused> {
        self.kept().iter().filter(|refused| refused.number > number).cloned().collect()
    }

    /// The newest refusal to publish to one of these subjects with a greater number.
    pub(super) fn publish_since(&self, number: u64, subjects: &[&str]) -> Option<Refused> {
        let kept = self.kept();
        let newer = kept.iter().rev().take_while(|refused| refused.number > number);
        newer
            .filter(|refused| !refused.subscribing)
            .find(|refused| subjects.contains(&refused.subject.as_str()))
            .cloned()
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Refused>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `$JS.API.…` or `$JS.<domain>.API.…`; not `$JS.ACK.…`.
fn is_api(subject: &str) -> bool {
    let mut tokens = subject.split('.');
    match (tokens.next(), tokens.next(), tokens.next()) {
        (Some("$JS"), Some("API"), _) => true,
        (Some("$JS"), Some(domain), Some("API")) => domain != "ACK",
        _ => false,
    }
}

/// Whether a subscription was refused, and the subject.
fn parse(text: &str) -> Option<(bool, &str)> {
    let lower = text.to_ascii_lowercase();
    let kinds = [
        ("permissions violation for publish to ", false),
        ("permissions violation for subscription to ", true),
    ];
    kinds.into_iter().find_map(|(words, subscribing)| {
        // The text is the same in either case but for ASCII letters, so places in one are places in the other.
        let at = lower.find(words)? + words.len();
        let subject = text.get(at..)?.strip_prefix('"')?.split('"').next()?;
        Some((subscribing, subject))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(subject: &str) -> String {
        format!("Permissions Violation for Publish to \"{subject}\"")
    }

    #[test]
    fn texts_are_read_in_either_case() {
        let name = "$JS.API.CONSUMER.INFO.S.C-Name";
        assert_eq!(parse(&publish(name)), Some((false, name)));
        assert_eq!(parse(&format!("'permissions violation for publish to \"{name}\"'")), Some((false, name)));
        let queue = "Permissions Violation for Subscription to \"a.>\" using queue \"q\"";
        assert_eq!(parse(queue), Some((true, "a.>")));
        assert_eq!(parse("Authorization Violation"), None);
        assert_eq!(parse("Permissions Violation for Publish to nothing"), None);
    }

    #[test]
    fn only_known_kinds_are_recorded() {
        let refusals = Refusals::new(vec!["wh.live.".to_owned()]);
        let cases = [
            ("$JS.API.STREAM.NAMES", true),
            ("$JS.hub.API.$KV.b.lease.x", true),
            ("wh.live.abc", true),
            ("$JS.ACK.S.C.1.2.3.4.5", false),
            ("$JS.ACK.API.C.1.2.3.4.5", false),
            ("wh.ingest.0.0.0.t", false),
        ];
        for (subject, recorded) in cases {
            assert_eq!(refusals.record(&publish(subject)), recorded, "{subject}");
        }
        assert_eq!(*refusals.watch().borrow(), 3);
    }

    #[test]
    fn an_older_refusal_never_counts() {
        let refusals = Refusals::new(Vec::new());
        let subject = "$JS.API.STREAM.NAMES";
        assert!(refusals.record(&publish(subject)));
        let number = *refusals.watch().borrow();
        assert_eq!(refusals.publish_since(number, &[subject]), None);
        assert_eq!(refusals.publish_since(number - 1, &[subject]).map(|refused| refused.number), Some(1));
        assert!(!refusals.record(&publish(subject)), "it is known");
        assert_eq!(
            refusals.publish_since(number, &["$JS.API.INFO", subject]).map(|refused| refused.number),
            Some(2)
        );
        assert_eq!(refusals.since(0).len(), 1, "each subject once");
    }

    #[test]
    fn the_record_is_bounded() {
        let refusals = Refusals::new(Vec::new());
        for number in 0..REFUSED_MAX + 5 {
            refusals.record(&publish(&format!("$JS.API.{number}")));
        }
        let kept = refusals.since(0);
        assert_eq!((kept.len(), kept.first().map(|refused| refused.number)), (REFUSED_MAX, Some(6)));
    }
}
