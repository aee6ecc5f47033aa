//! The end: of a slot that is lost, and of a process that stops.

use tokio::time::{Instant, timeout};
use wavehouse_core::chain;

use super::holding::Wish;
use super::members::Look;
use super::{Claims, Done, RESIGN};
use crate::lease::{Ended, resign};

impl Claims {
    /// The slot is lost: nothing is begun any more, and a new slot is looked for at once.
    pub(super) fn lost(&mut self, reason: &str) {
        tracing::error!(%reason, units = self.units.len(), "slot among the members is lost, every unit is given up");
        self.metrics.shard_event("lost");
        self.own = None;
        for unit in self.units.keys().copied().collect::<Vec<_>>() {
            self.wish(unit, Wish::Disown);
        }
        self.next_look = Instant::now();
    }

    /// Waits until every unit is given up, gives the slot back and tells the others. The slot is renewed until then.
    pub(super) async fn give_back(mut self) {
        self.means.stop.cancel();
        for unit in self.units.keys().copied().collect::<Vec<_>>() {
            self.wish(unit, Wish::Stop);
        }
        while !self.units.is_empty() {
            match self.jobs.join_next().await {
                Some(Ok(Done::Unit(unit, _))) => {
                    self.units.remove(&unit);
                    self.say_units();
                }
                Some(Ok(Done::Term(Ended::Lost(reason)))) => self.lost(&reason),
                // A look that took a slot just now.
                Some(Ok(Done::Looked(_, Some(Look { joined: Some((slot, term)), .. })))) => {
                    self.joined(slot, term)
                }
                Some(_) => {}
                None => break,
            }
        }
        if let Some(own) = self.own.take() {
            own.resign.cancel();
        }
        let bucket = self.sharing.leases();
        let _late = timeout(RESIGN, async {
            while let Some(done) = self.jobs.join_next().await {
                let term = match done {
                    Ok(
                        Done::Term(Ended::Told(term))
                        | Done::Looked(_, Some(Look { joined: Some((_, term)), .. })),
                    ) => term,
                    _ => continue,
                };
                if let Err(error) = resign(&*bucket, &term).await {
                    tracing::warn!(error = %chain(&error), "slot among the members is left to lapse");
                }
            }
            self.sharing.nudge().await;
        })
        .await;
        self.metrics.shards_unowned(None);
    }
}
