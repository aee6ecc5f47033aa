//! Acks on their way: sent at once, asked to be confirmed, and sent again until they are.
//!
//! An ack that is only sent may be lost with a connection or an election, and its block would come again.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::{Instant, MissedTickBehavior, interval};
use wavehouse_nats::Subscriber;

use super::Unit;
use crate::shared::lock;

/// An ack that is not confirmed by then is sent again.
const RESEND_AFTER: Duration = Duration::from_secs(2);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Acks that wait for their confirmation; the others wait to be sent.
const WINDOW: usize = 2_048;

/// Acks that are not confirmed.
#[derive(Default)]
pub(super) struct Acks {
    /// To be sent.
    queue: VecDeque<u64>,
    /// The number of each block's ack.
    numbers: HashMap<u64, u64>,
    /// Numbers that are not confirmed.
    open: BTreeSet<u64>,
    /// When each was sent last.
    sent: BTreeMap<u64, Instant>,
    next: u64,
}

impl Acks {
    /// A block is acked.
    pub(super) fn push(&mut self, sequence: u64) {
        if !self.numbers.contains_key(&sequence) {
            self.numbers.insert(sequence, self.next);
            self.open.insert(self.next);
            self.next += 1;
        }
        self.queue.push_back(sequence);
    }

    /// Where the acks up to now end.
    pub(super) fn mark(&self) -> u64 {
        self.next
    }

    /// Whether all acks before a mark are confirmed.
    pub(super) fn is_confirmed(&self, mark: u64) -> bool {
        self.open.first().is_none_or(|first| *first >= mark)
    }

    fn confirm(&mut self, sequence: u64) {
        if let Some(number) = self.numbers.remove(&sequence) {
            self.open.remove(&number);
        }
        self.sent.remove(&sequence);
    }

    /// What is to be sent now.
    fn due(&mut self, now: Instant) -> Vec<u64> {
        let mut due = Vec::new();
        while self.sent.len() < WINDOW
            && let Some(sequence) = self.queue.pop_front()
        {
            if self.numbers.contains_key(&sequence) {
                self.sent.insert(sequence, now);
                due.push(sequence);
            }
        }
        due
    }

    /// What has waited for its confirmation for too long.
    fn overdue(&mut self, now: Instant) -> Vec<u64> {
        let late = self.sent.iter_mut().filter(|(_, at)| **at + RESEND_AFTER <= now);
        late.map(|(sequence, at)| {
            *at = now;
            *sequence
        })
        .collect()
    }

    /// Nobody was there for it; it is sent again at the next look.
    fn unheard(&mut self, sequence: u64) {
        if let Some(at) = self.sent.get_mut(&sequence) {
            *at = at.checked_sub(RESEND_AFTER).unwrap_or(*at);
        }
    }
}

/// Sends acks and takes their confirmations, until it is dropped.
pub(super) async fn run(unit: Arc<Unit>, inbox: String, mut confirmed: Subscriber) {
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = unit.acked.notified() => {}
            message = confirmed.next() => {
                let Some(message) = message else { return };
                let sequence = message.subject.rsplit('.').next().and_then(|token| token.parse().ok());
                if let Some(sequence) = sequence {
                    unit.ack_answered(sequence, message.status.is_none());
                }
                // More acks are sent when the window has room again.
                if !unit.has_acks_to_send() {
                    continue;
                }
            }
            _ = look.tick() => {
                let late = lock(&unit.inner).acks.overdue(Instant::now());
                send(&unit, &inbox, &late).await;
            }
        }
        let due = lock(&unit.inner).acks.due(Instant::now());
        send(&unit, &inbox, &due).await;
    }
}

async fn send(unit: &Unit, inbox: &str, sequences: &[u64]) {
    for sequence in sequences {
        let reply = lock(&unit.inner).shelf.reply(*sequence).map(str::to_owned);
        let Some(reply) = reply else {
            lock(&unit.inner).acks.confirm(*sequence);
            continue;
        };
        let answer = format!("{inbox}.{sequence}");
        let connection = &unit.shared.connection;
        if let Err(error) = connection.publish_with_reply(&reply, &answer, Bytes::from_static(b"+ACK")).await
        {
            tracing::debug!(%error, "an ack waits for the connection");
            return;
        }
    }
}

impl Unit {
    fn has_acks_to_send(&self) -> bool {
        let inner = lock(&self.inner);
        !inner.acks.queue.is_empty() && inner.acks.sent.len() < WINDOW
    }

    fn ack_answered(&self, sequence: u64, is_done: bool) {
        let mut inner = lock(&self.inner);
        if !is_done {
            inner.acks.unheard(sequence);
            return;
        }
        inner.acks.confirm(sequence);
        inner.shelf.confirmed(sequence);
        drop(inner);
        self.confirmed.notify_waiters();
    }

    /// Waits until every ack given so far is confirmed; false when that takes too long.
    pub(super) async fn flush_acks(&self, wait: Duration) -> bool {
        let mark = lock(&self.inner).acks.mark();
        let all = async {
            loop {
                let confirmed = self.confirmed.notified();
                tokio::pin!(confirmed);
                confirmed.as_mut().enable();
                if lock(&self.inner).acks.is_confirmed(mark) {
                    return;
                }
                confirmed.await;
            }
        };
        tokio::time::timeout(wait, all).await.is_ok()
    }
}
