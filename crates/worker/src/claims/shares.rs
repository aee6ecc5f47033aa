//! Which units: doing what the plan says, one task a unit, and telling the others which units this process has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use wavehouse_broker::SharingError;
use wavehouse_core::{UnitId, chain};

use super::holding::{HoldEnd, Holding, Wish};
use super::plan::{Member, World, plan};
use super::{Claims, Done, SAY, Unit};
use crate::lease::LeaseValue;

/// How often one process counts the units that nobody reads, and how long that may take.
const COUNT_EVERY: Duration = Duration::from_secs(15);
const COUNT: Duration = Duration::from_secs(10);

impl Claims {
    pub(super) fn act(&mut self, members: &[Member]) {
        let wished = |wish: Wish| {
            let such = self
                .units
                .iter()
                .filter(move |(_, unit)| (*unit.wish.borrow() == Wish::Hold) == (wish == Wish::Hold));
            such.map(|(unit, _)| *unit).collect::<BTreeSet<UnitId>>()
        };
        let (held, leaving, extras) = (wished(Wish::Hold), wished(Wish::GiveUp), self.sharing.extras());
        let world = World {
            view: self.view,
            extras: &extras,
            members,
            former: &self.former,
            session: &self.options.session,
            held: &held,
            leaving: &leaving,
        };
        let decided = plan(&mut self.memory, &world, &|unit| self.sharing.unit_name(unit));
        for unit in decided.give_up {
            self.wish(unit, Wish::GiveUp);
        }
        for (unit, take_over) in decided.take {
            let (sender, wish) = watch::channel(Wish::Hold);
            let late = Arc::<AtomicBool>::default();
            self.units.insert(unit, Unit { wish: sender, late: Arc::clone(&late) });
            let holding = Holding { unit, take_over, wish, late, means: Arc::clone(&self.means) };
            self.jobs.spawn(async move { Done::Unit(unit, holding.run().await) });
        }
        if !decided.claim.is_empty() {
            self.next_look = self.next_look.min(Instant::now() + SAY);
        }
        self.claimed = decided.claim;
        self.say_units();
        if self.lowest && !decided.lowest {
            self.metrics.shards_unowned(None);
        }
        self.lowest = decided.lowest;
    }

    pub(super) fn wish(&self, unit: UnitId, wish: Wish) {
        if let Some(unit) = self.units.get(&unit) {
            unit.wish.send_if_modified(|before| {
                let more = wish > *before;
                *before = (*before).max(wish);
                more
            });
        }
    }

    /// Lets the others know which units this process has.
    pub(super) fn say_units(&self) {
        let Some(value) = &self.value else { return };
        let late = |unit: &Unit| unit.late.load(Ordering::Relaxed);
        let had = self.units.iter().filter(|(_, unit)| !late(unit)).map(|(unit, _)| unit);
        let held = had.chain(&self.claimed).copied().collect();
        let value = LeaseValue { held, ..value.clone() };
        let bytes = value.to_bytes();
        self.said.send_if_modified(|said| {
            let new = *said != bytes;
            *said = bytes;
            new
        });
    }

    pub(super) fn unit_ended(&mut self, unit: UnitId, end: &HoldEnd) -> Option<UnitId> {
        self.units.remove(&unit);
        self.say_units();
        // Whoever waits for the unit finds it free.
        self.nudge(SAY);
        match end {
            HoldEnd::Released => {}
            HoldEnd::Lost => self.memory.lost(unit),
            HoldEnd::Gone if self.configured.contains(&unit) => return Some(unit),
            HoldEnd::Gone => {
                tracing::info!(%unit, "unit beside the configured ones does not exist any more");
                self.refresh_extras();
            }
            HoldEnd::Closed => tracing::debug!(%unit, "queue is closed"),
        }
        None
    }

    pub(super) fn count(&mut self) {
        self.counting = true;
        self.next_count = Instant::now() + COUNT_EVERY;
        let mut units = self.configured.clone();
        units.extend(self.sharing.extras());
        let sharing = Arc::clone(&self.sharing);
        self.jobs.spawn(async move {
            let counted: Option<Result<Vec<UnitId>, SharingError>> =
                timeout(COUNT, sharing.unread(&units)).await.ok();
            match counted {
                Some(Ok(unread)) => return Done::Counted(Some(unread.len())),
                Some(Err(error)) => {
                    tracing::warn!(error = %chain(&error), "units that nobody reads cannot be counted");
                }
                None => tracing::warn!("units that nobody reads could not be counted in time"),
            }
            Done::Counted(None)
        });
    }
}
