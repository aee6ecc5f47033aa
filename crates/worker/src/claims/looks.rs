//! Who is there: each look at the members, what it means for the claims, and the questions to those who are silent.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{Answer, TakeOver};
use wavehouse_core::{MemberSlot, chain};

use super::members::{Look, Seen, Wanted};
use super::plan::{Former, Member};
use super::{Claims, Done, LOOK, OwnSlot};
use crate::lease::{Term, View, hold};

/// Between the two questions to one that may be gone.
const ASK_AGAIN: Duration = Duration::from_secs(1);

impl Claims {
    pub(super) fn look(&mut self) {
        self.next_look = Instant::now() + self.options.timings.renew_every();
        let Some(mut membership) = self.membership.take() else { return };
        let (gone, met) = (self.suspects.gone(), self.suspects.met());
        let wanted = Wanted { join: self.own.is_none(), gone, met };
        self.jobs.spawn(async move {
            let look = match timeout(LOOK, membership.look(&wanted)).await {
                Ok(Ok(look)) => Some(look),
                Ok(Err(error)) => {
                    tracing::warn!(error = %chain(&error), "members cannot be read, nothing is moved");
                    None
                }
                Err(_elapsed) => {
                    tracing::warn!("members could not be read in time, nothing is moved");
                    None
                }
            };
            Done::Looked(membership, look)
        });
    }

    /// Works out who is there, and what follows.
    pub(super) fn looked(&mut self, look: Look) {
        let Look { seen, joined, replaced } = look;
        self.former.clear();
        if let Some(replaced) = replaced.filter(|seen| seen.value.session != self.options.session) {
            self.gone(&replaced);
        }
        if let Some((slot, term)) = joined {
            self.joined(slot, term);
        }
        self.ask(&seen);
        let mut members = Vec::with_capacity(seen.len());
        for seen in &seen {
            let mine = seen.value.session == self.options.session;
            let current = self.own.as_ref().is_some_and(|own| own.slot == seen.slot);
            if mine && !current {
                continue;
            }
            if mine || !(seen.lapsed() || self.suspects.suspected(seen)) {
                members.push(member(seen));
            } else {
                self.gone(seen);
            }
        }
        self.metrics.shard_members(members.len());
        self.see_views(&members);
        self.act(&members);
    }

    /// One whose slot still stands, or stood until now, but who is not there any more.
    fn gone(&mut self, seen: &Seen) {
        let how = if seen.lapsed() { TakeOver::Lapsed } else { TakeOver::Suspected };
        self.former.push(Former { member: member(seen), how });
    }

    pub(super) fn joined(&mut self, slot: MemberSlot, term: Term) {
        tracing::info!(slot = slot.0, token = term.token.0, "this process shares the queue's units");
        let resign = CancellationToken::new();
        self.say_units();
        let (bucket, timings, stop) = (self.sharing.leases(), self.options.timings, resign.clone());
        let mut said = self.said.subscribe();
        said.mark_changed();
        self.jobs.spawn(async move { Done::Term(hold(bucket, term, said, timings, stop).await) });
        self.own = Some(OwnSlot { slot, resign });
        self.nudge(Duration::ZERO);
    }

    /// Asks those who have been silent for a while; and at once those whose successor this process may be, before it
    /// takes another slot.
    fn ask(&mut self, seen: &[Seen]) {
        let namesake = self.own.is_none().then_some(self.options.instance_id.as_str());
        let questions = self.suspects.questions(seen, &self.options.session, namesake, self.options.timings);
        for question in questions {
            let sharing = Arc::clone(&self.sharing);
            self.jobs.spawn(async move {
                let mut nobody = sharing.ask(&question.live).await == Answer::Nobody;
                if nobody {
                    sleep(ASK_AGAIN).await;
                    nobody = sharing.ask(&question.live).await == Answer::Nobody;
                }
                Done::Asked(question, nobody)
            });
        }
    }

    /// Members that see the queue otherwise: what they leave behind is looked for at once.
    fn see_views(&mut self, members: &[Member]) {
        let mut views: Vec<View> = Vec::new();
        for view in members.iter().map(|member| member.view.unwrap_or(self.view)) {
            if !views.contains(&view) {
                views.push(view);
            }
        }
        if views != self.views {
            self.views = views;
            self.refresh_extras();
        }
    }
}

fn member(seen: &Seen) -> Member {
    Member {
        slot: seen.slot,
        session: seen.value.session.clone(),
        view: seen.value.view,
        held: seen.value.held.clone(),
    }
}
