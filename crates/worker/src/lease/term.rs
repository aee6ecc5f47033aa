//! One's own time with a name: until when it surely counts, and what follows from a renewal's outcome.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use wavehouse_broker::{LeaseEntry, Revision};

use super::{LeaseTimings, LeaseValue};

/// A name that this process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) key: String,
    /// What is written next; it may change during the term.
    pub(crate) value: Bytes,
    /// Tells one's own writes from all others.
    session: String,
    /// The revision that the term began at: its fencing token. Renewals do not change it.
    pub(crate) token: Revision,
    /// The key's last write, as far as is known.
    pub(crate) last: Revision,
    /// When the last write that is known to have succeeded was sent. Others may have seen it at that moment already.
    sent: Instant,
}

/// What a conflict means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// An answer was lost: the later write is one's own. Write over it.
    Own,
    /// Somebody else has the name.
    Lost,
}

impl Term {
    pub(crate) fn new(key: String, value: &LeaseValue, token: Revision, sent: Instant) -> Self {
        let (session, value) = (value.session.clone(), value.to_bytes());
        Self { key, value, session, token, last: token, sent }
    }

    /// Whether a write is one's own.
    pub(crate) fn is_own(&self, entry: &LeaseEntry) -> bool {
        entry.value == self.value || LeaseValue::parse(&entry.value, Duration::ZERO).session == self.session
    }

    /// When the term is over if no renewal succeeds.
    pub(crate) fn ends_at(&self, timings: LeaseTimings) -> Instant {
        self.sent + timings.renew_deadline()
    }

    /// When it is to be renewed next.
    pub(crate) fn renew_at(&self, timings: LeaseTimings) -> Instant {
        self.sent + timings.renew_every()
    }

    /// A renewal that was sent then has succeeded.
    pub(crate) fn renewed(&mut self, revision: Revision, sent: Instant) {
        self.last = revision;
        self.sent = self.sent.max(sent);
    }

    /// A write met another one; `entry` is what the key holds. The deadline stays: when the write that was found was sent
    /// is not known.
    pub(crate) fn conflicted(&mut self, entry: Option<&LeaseEntry>) -> Conflict {
        match entry {
            Some(entry) if entry.revision >= self.last && self.is_own(entry) => {
                self.last = entry.revision;
                Conflict::Own
            }
            _ => Conflict::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn term(start: Instant) -> Term {
        Term::new("lease.ingest.m0".to_owned(), &value("mine", None), Revision(5), start)
    }

    fn value(session: &str, version: Option<&str>) -> LeaseValue {
        let text = format!(r#"{{"holder":"h","duration_ms":15000,"session":"{session}"}}"#);
        let version = version.map(str::to_owned);
        LeaseValue { version, ..LeaseValue::parse(text.as_bytes(), 15 * S) }
    }

    fn entry(session: &str, version: Option<&str>, revision: u64) -> LeaseEntry {
        LeaseEntry { value: value(session, version).to_bytes(), revision: Revision(revision) }
    }

    #[test]
    fn the_deadline_counts_from_when_a_write_was_sent() {
        let (start, timings) = (Instant::now(), LeaseTimings::default());
        let mut term = term(start);
        assert_eq!(term.ends_at(timings), start + 10 * S);
        // Sent at 2 s, answered whenever.
        term.renewed(Revision(6), start + 2 * S);
        assert_eq!((term.ends_at(timings), term.renew_at(timings)), (start + 12 * S, start + 4 * S));
        assert_eq!((term.token, term.last), (Revision(5), Revision(6)));
    }

    #[test]
    fn conflicts() {
        let start = Instant::now();
        let cases = [
            (Some(entry("mine", None, 9)), Conflict::Own, 9),
            (Some(entry("mine", Some("said before"), 9)), Conflict::Own, 9),
            (Some(entry("mine", None, 5)), Conflict::Own, 5),
            (Some(entry("theirs", None, 9)), Conflict::Lost, 5),
            (Some(LeaseEntry { value: Bytes::new(), revision: Revision(9) }), Conflict::Lost, 5),
            (None, Conflict::Lost, 5),
        ];
        for (entry, expected, last) in cases {
            let mut term = term(start);
            assert_eq!(term.conflicted(entry.as_ref()), expected, "{entry:?}");
            assert_eq!(term.last, Revision(last));
            assert_eq!(term.ends_at(LeaseTimings::default()), start + 10 * S, "nothing is won by a conflict");
        }
    }
}
