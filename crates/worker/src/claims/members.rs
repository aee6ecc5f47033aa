//! Who shares the units: reading the slots that are taken, and taking the lowest free one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::Instant;
use wavehouse_broker::{LeaseBucket, LeaseEntry, LeaseError, Revision};
use wavehouse_core::{LeaseKey, MEMBERS_MAX, MemberSlot};

use crate::lease::{LeaseTimings, LeaseValue, Sightings, Term, Way, take, way};

/// How the keys of all slots begin.
const SLOTS: &str = "lease.ingest.m";

/// A slot that somebody has, as it was just read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) slot: MemberSlot,
    pub(crate) value: LeaseValue,
    pub(crate) revision: Revision,
    /// For how long this process has seen it so.
    pub(crate) unchanged: Duration,
}

impl Seen {
    /// Whether its holder may no longer count on it.
    pub(crate) fn lapsed(&self) -> bool {
        self.unchanged >= self.value.duration
    }
}

/// What one look at the slots brought.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) seen: Vec<Seen>,
    /// The slot that was taken now.
    pub(crate) joined: Option<(MemberSlot, Term)>,
    /// Whose slot that was.
    pub(crate) replaced: Option<Box<Seen>>,
}

/// Which slots may be taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// Whether a slot is wanted at all.
    pub(crate) join: bool,
    /// Sessions whose process is surely gone although their lease has not lapsed.
    pub(crate) gone: BTreeSet<String>,
    /// Sessions that have been asked whether they are there.
    pub(crate) met: BTreeSet<String>,
}

/// One process's view of the slots.
pub(crate) struct Membership {
    bucket: Arc<dyn LeaseBucket>,
    timings: LeaseTimings,
    /// How many slots this process knows.
    slots: u16,
    value: LeaseValue,
    sightings: Sightings<MemberSlot>,
}

impl Membership {
    /// `units`: how many units are configured; more members than that would have nothing to do.
    pub(crate) fn new(
        bucket: Arc<dyn LeaseBucket>,
        timings: LeaseTimings,
        units: usize,
        value: LeaseValue,
    ) -> Self {
        let slots = u16::try_from(units).unwrap_or(u16::MAX).clamp(1, MEMBERS_MAX);
        Self { bucket, timings, slots, value, sightings: Sightings::new() }
    }

    /// Reads every slot, and takes the lowest free one if one is wanted.
    ///
    /// # Errors
    /// [`LeaseError`]: nothing may be concluded from a part of the slots.
    pub(crate) async fn look(&mut self, wanted: &Wanted) -> Result<Look, LeaseError> {
        let entries = self.read().await?;
        let now = Instant::now();
        for slot in (0..MEMBERS_MAX).map(MemberSlot) {
            let found = entries.iter().find(|(there, _)| *there == slot);
            self.sightings.see(slot, found.map(|(_, entry)| entry.revision), now);
        }
        let mut look = Look { seen: Vec::with_capacity(entries.len()), joined: None, replaced: None };
        for (slot, entry) in &entries {
            look.seen.push(self.seen(*slot, entry, now));
        }
        if wanted.join && !self.must_ask_first(&look.seen, wanted) {
            self.join(&entries, &mut look, wanted).await?;
        }
        Ok(look)
    }

    fn seen(&self, slot: MemberSlot, entry: &LeaseEntry, now: Instant) -> Seen {
        let unchanged = self.sightings.unchanged(slot, entry.revision, now);
        let value = LeaseValue::parse(&entry.value, self.timings.duration());
        Seen { slot, value, revision: entry.revision, unchanged }
    }

    async fn read(&self) -> Result<Vec<(MemberSlot, LeaseEntry)>, LeaseError> {
        let keys = self.bucket.list(SLOTS).await?;
        let slots = keys.iter().filter_map(|key| match LeaseKey::parse(key) {
            Some(LeaseKey::Member(slot)) if slot.0 < MEMBERS_MAX => Some(slot),
            _ => None,
        });
        let get = |slot| async move {
            let key = LeaseKey::Member(slot).to_string();
            Ok::<_, LeaseError>(self.bucket.get(&key).await?.map(|entry| (slot, entry)))
        };
        Ok(try_join_all(slots.map(get)).await?.into_iter().flatten().collect())
    }

    /// Tries the free slots from the lowest on, so that many processes that start at once all find one in their first
    /// look.
    async fn join(
        &self,
        entries: &[(MemberSlot, LeaseEntry)],
        look: &mut Look,
        wanted: &Wanted,
    ) -> Result<(), LeaseError> {
        // A slot of one's own, from a write whose answer was lost, before any other.
        let own = look.seen.iter().find(|seen| seen.value.session == self.value.session);
        let own = own.map(|seen| seen.slot).filter(|slot| slot.0 < self.slots);
        for slot in own.into_iter().chain((0..self.slots).map(MemberSlot)) {
            let found = entries.iter().find(|(there, _)| *there == slot).map(|(_, entry)| entry);
            let seen = look.seen.iter().position(|seen| seen.slot == slot);
            let entry = found.zip(seen.map(|at| &look.seen[at].value));
            let unchanged = seen.map_or(Duration::ZERO, |at| look.seen[at].unchanged);
            let gone = entry.is_some_and(|(_, value)| self.may_replace(value, wanted));
            let way = way(entry, &self.value.session, unchanged, gone);
            if way == Way::Held {
                continue;
            }
            let key = LeaseKey::Member(slot).to_string();
            if let Some(term) = take(&*self.bucket, key, &self.value, way).await? {
                look.replaced = seen.map(|at| Box::new(look.seen.swap_remove(at)));
                let (value, revision) = (self.value.clone(), term.token);
                look.seen.push(Seen { slot, value, revision, unchanged: Duration::ZERO });
                look.joined = Some((slot, term));
                return Ok(());
            }
        }
        Ok(())
    }

    /// One of the same name may be this process's former life, or another process that was given the name by mistake.
    /// Which of them is found out before a slot is taken.
    fn must_ask_first(&self, seen: &[Seen], wanted: &Wanted) -> bool {
        let unmet = |seen: &&Seen| {
            seen.value.holder == self.value.holder
                && seen.value.session != self.value.session
                && seen.value.live.is_some()
                && !seen.lapsed()
                && !wanted.met.contains(&seen.value.session)
        };
        seen.iter().any(|seen| unmet(&seen))
    }

    /// A slot of a process that is gone is taken before its time only by one that is its successor by name.
    fn may_replace(&self, value: &LeaseValue, wanted: &Wanted) -> bool {
        value.holder == self.value.holder && wanted.gone.contains(&value.session)
    }
}

#[cfg(test)]
mod tests;
