//! Watching keys: since when, by this process's own clock, each has had the revision that it has.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use wavehouse_broker::{LeaseEntry, Revision};

use super::LeaseValue;

/// When each key was first seen at its revision. As many as there are keys.
#[derive(Debug, Default)]
pub(crate) struct Sightings<K>(HashMap<K, (Revision, Instant)>);

impl<K: std::hash::Hash + Eq + Copy> Sightings<K> {
    pub(crate) fn new() -> Self {
        Self(HashMap::new())
    }

    /// Notes what a key is at now; `None` if it holds nothing. Seeing the same again changes nothing.
    pub(crate) fn see(&mut self, key: K, revision: Option<Revision>, now: Instant) {
        match revision {
            None => {
                self.0.remove(&key);
            }
            Some(revision) => {
                let seen = self.0.entry(key).or_insert((revision, now));
                if seen.0 != revision {
                    *seen = (revision, now);
                }
            }
        }
    }

    /// How long the key has been seen unchanged at that revision; zero if it was never seen so.
    pub(crate) fn unchanged(&self, key: K, revision: Revision, now: Instant) -> Duration {
        let seen = self.0.get(&key).filter(|(seen, _)| *seen == revision);
        seen.map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(*since))
    }
}

/// How a key can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// There is none: create it.
    Create,
    /// It is one's own write, or its holder is gone: write over this revision.
    Over(Revision),
    /// Somebody has it.
    Held,
}

/// How the key with this entry can be taken by `session`. `unchanged`: how long it has been seen so. `gone`: its holder is
/// known to be gone before the time is up.
pub(crate) fn way(
    entry: Option<(&LeaseEntry, &LeaseValue)>,
    session: &str,
    unchanged: Duration,
    gone: bool,
) -> Way {
    match entry {
        None => Way::Create,
        Some((entry, value)) if value.session == session => Way::Over(entry.revision),
        Some((entry, value)) if gone || unchanged >= value.duration => Way::Over(entry.revision),
        Some(_) => Way::Held,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn lease(session: &str, revision: u64) -> (LeaseEntry, LeaseValue) {
        let text = format!(r#"{{"holder":"h","duration_ms":15000,"session":"{session}"}}"#);
        let value = LeaseValue::parse(text.as_bytes(), 15 * S);
        (LeaseEntry { value: Bytes::from(text), revision: Revision(revision) }, value)
    }

    #[test]
    fn cases() {
        let (theirs, value) = lease("them", 7);
        let (ours, our_value) = lease("me", 8);
        let cases = [
            (None, 0, false, Way::Create),
            (Some((&ours, &our_value)), 0, false, Way::Over(Revision(8))),
            (Some((&theirs, &value)), 0, false, Way::Held),
            (Some((&theirs, &value)), 14, false, Way::Held),
            (Some((&theirs, &value)), 15, false, Way::Over(Revision(7))),
            (Some((&theirs, &value)), 1, true, Way::Over(Revision(7))),
        ];
        for (number, (entry, unchanged, gone, expected)) in cases.into_iter().enumerate() {
            assert_eq!(way(entry, "me", unchanged * S, gone), expected, "{number}");
        }
    }

    #[test]
    fn only_a_change_starts_the_clock_anew() {
        let (start, mut seen) = (Instant::now(), Sightings::new());
        let unchanged =
            |seen: &Sightings<u8>, revision, at: u32| seen.unchanged(1, Revision(revision), start + at * S);
        seen.see(1, Some(Revision(5)), start);
        seen.see(1, Some(Revision(5)), start + 9 * S);
        assert_eq!(unchanged(&seen, 5, 10), 10 * S);
        assert_eq!(unchanged(&seen, 6, 10), Duration::ZERO, "another revision was not seen yet");
        seen.see(1, Some(Revision(6)), start + 10 * S);
        assert_eq!(unchanged(&seen, 6, 12), 2 * S);
        seen.see(1, None, start + 13 * S);
        seen.see(1, Some(Revision(6)), start + 14 * S);
        assert_eq!(unchanged(&seen, 6, 15), S, "gone in between");
    }
}
