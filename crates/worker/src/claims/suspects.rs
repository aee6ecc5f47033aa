//! Who is no longer there although its lease still counts. A member that has not renewed for a while is asked, twice; if
//! the servers say both times that nobody listens, it is suspected until its lease changes.
//!
//! A suspicion may be wrong. What follows from it is safe all the same, since a former owner can record no batch.

use std::collections::{BTreeSet, HashMap};

use wavehouse_broker::Revision;

use super::members::Seen;
use crate::lease::LeaseTimings;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    Asking,
    Nobody,
    /// It answered, or nothing is known.
    There,
}

/// A question to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) session: String,
    pub(crate) live: String,
    pub(crate) revision: Revision,
    /// Whether it is asked because of its name, and not because it is silent.
    pub(crate) namesake: bool,
}

/// What is known of each session that was asked.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// At the revision of its lease.
    found: HashMap<String, (Revision, Finding)>,
    /// Those who were asked although they were not silent; once is enough.
    met: BTreeSet<String>,
}

impl Suspects {
    /// Whom to ask now. `me`: this process's session; `namesake`: ask those of this holder name at once, as this process
    /// may be their successor.
    pub(crate) fn questions(
        &mut self,
        seen: &[Seen],
        me: &str,
        namesake: Option<&str>,
        timings: LeaseTimings,
    ) -> Vec<Question> {
        self.found.retain(|session, (revision, _)| {
            seen.iter().any(|seen| seen.value.session == *session && seen.revision == *revision)
        });
        self.met.retain(|session| seen.iter().any(|seen| seen.value.session == *session));
        let mut questions = Vec::new();
        for seen in seen.iter().filter(|seen| seen.value.session != me && !seen.lapsed()) {
            let Some(live) = seen.value.live.clone() else { continue };
            let known = self.found.get(&seen.value.session).map(|(_, finding)| *finding);
            let silent = seen.unchanged >= timings.ask_after();
            let eager =
                namesake == Some(seen.value.holder.as_str()) && !self.met.contains(&seen.value.session);
            let open = matches!(known, None | Some(Finding::There));
            if open && (silent || eager) {
                let session = seen.value.session.clone();
                self.met.insert(session.clone());
                self.found.insert(session.clone(), (seen.revision, Finding::Asking));
                questions.push(Question { session, live, revision: seen.revision, namesake: eager });
            }
        }
        questions
    }

    /// What a question brought: whether twice there was nobody. Forgotten if the lease has changed meanwhile.
    pub(crate) fn answered(&mut self, question: &Question, nobody: bool) {
        let finding = if nobody { Finding::Nobody } else { Finding::There };
        let entry =
            self.found.get_mut(&question.session).filter(|(revision, _)| *revision == question.revision);
        if let Some(entry) = entry {
            entry.1 = finding;
        }
    }

    /// Whether it is to be treated as gone.
    pub(crate) fn suspected(&self, seen: &Seen) -> bool {
        self.found.get(&seen.value.session) == Some(&(seen.revision, Finding::Nobody))
    }

    /// The sessions that are suspected.
    pub(crate) fn gone(&self) -> BTreeSet<String> {
        let gone = self.found.iter().filter(|(_, (_, finding))| *finding == Finding::Nobody);
        gone.map(|(session, _)| session.clone()).collect()
    }

    /// The sessions that were asked once and whose answer is not awaited.
    pub(crate) fn met(&self) -> BTreeSet<String> {
        let awaited = |session: &&String| {
            self.found.get(*session).is_some_and(|(_, finding)| *finding == Finding::Asking)
        };
        self.met.iter().filter(|session| !awaited(session)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wavehouse_core::MemberSlot;

    use super::*;
    use crate::lease::LeaseValue;

    fn seen(session: &str, revision: u64, unchanged: u64, live: bool) -> Seen {
        let value = LeaseValue {
            holder: format!("host of {session}"),
            duration: Duration::from_secs(15),
            session: session.to_owned(),
            view: None,
            version: None,
            live: live.then(|| session.to_owned()),
            held: BTreeSet::new(),
        };
        let unchanged = Duration::from_secs(unchanged);
        Seen { slot: MemberSlot(0), value, revision: Revision(revision), unchanged }
    }

    fn asked(suspects: &mut Suspects, seen: &Seen, namesake: Option<&str>) -> Option<Question> {
        let all = std::slice::from_ref(seen);
        suspects.questions(all, "me", namesake, LeaseTimings::default()).pop()
    }

    #[test]
    fn who_is_asked() {
        let cases = [
            (seen("a", 1, 3, true), None, false),
            (seen("a", 1, 4, true), None, true),
            (seen("a", 1, 4, false), None, false),
            (seen("a", 1, 15, true), None, false),
            (seen("me", 1, 9, true), None, false),
            (seen("a", 1, 0, true), Some("host of a"), true),
            (seen("a", 1, 0, true), Some("host of b"), false),
        ];
        for (number, (seen, namesake, expected)) in cases.iter().enumerate() {
            let question = asked(&mut Suspects::default(), seen, *namesake);
            assert_eq!(question.is_some(), *expected, "{number}");
            assert!(question.is_none_or(|question| question.namesake == namesake.is_some()), "{number}");
        }
    }

    #[test]
    fn a_suspicion_lasts_until_the_lease_changes() {
        let mut suspects = Suspects::default();
        let silent = seen("a", 1, 5, true);
        let question = asked(&mut suspects, &silent, None).unwrap();
        assert!(suspects.met().is_empty() && !suspects.suspected(&silent));
        assert_eq!(asked(&mut suspects, &silent, None), None, "asked once at a time");
        suspects.answered(&question, false);
        assert!(suspects.met().contains("a") && !suspects.suspected(&silent));
        let question = asked(&mut suspects, &silent, None).unwrap();
        suspects.answered(&question, true);
        assert!(suspects.suspected(&silent));
        assert_eq!(asked(&mut suspects, &silent, None), None, "nothing more to ask");
        let renewed = seen("a", 2, 0, true);
        assert_eq!(asked(&mut suspects, &renewed, None), None);
        assert!(!suspects.suspected(&renewed));
        suspects.answered(&question, true);
        assert!(!suspects.suspected(&renewed), "a late answer to an old question");
        assert_eq!(asked(&mut suspects, &renewed, Some("host of a")), None, "a namesake is met once");
    }
}
