//! What happens to the connection on its own: it comes, goes, and is told of refusals.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::{ClientError, Event, ServerError};
use tokio::sync::watch;

use super::refusals::Refusals;

/// Between two rounds of attempts to reach the servers, in milliseconds.
pub const RECONNECT_WAIT_MS: u64 = 2_000;
/// Up to so much is added, so that processes do not come back all at once.
const JITTER_MS: u64 = 500;
/// The same with encryption, which costs a server more.
const JITTER_TLS_MS: u64 = 2_000;
/// A closed connection that still looks for a server waits for so long, which is for ever.
const AFTER_CLOSE: Duration = Duration::from_secs(365 * 86_400);

/// Whether a server is connected, and for which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// A server is connected.
    pub connected: bool,
    /// How often one has been connected so far; a request of an earlier time is never answered.
    pub times: u64,
    /// The connection was closed by us and stays so.
    pub closed: bool,
}

/// What the connection's own tasks and its users share.
pub(super) struct Shared {
    pub(super) link: watch::Sender<Link>,
    pub(super) refusals: Refusals,
    pub(super) closing: AtomicBool,
    /// Servers to choose among, at the least.
    pub(super) servers: AtomicUsize,
    tls: bool,
    /// An outage is told of once.
    said_unreachable: AtomicBool,
    /// Why the last attempt to connect failed.
    trouble: Mutex<Option<String>>,
}

impl Shared {
    pub(super) fn new(record_refusals_of: Vec<String>, servers: usize, tls: bool) -> Self {
        Self {
            link: watch::Sender::new(Link::default()),
            refusals: Refusals::new(record_refusals_of),
            closing: AtomicBool::new(false),
            servers: AtomicUsize::new(servers),
            tls,
            said_unreachable: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.last_trouble().clone()
    }

    fn last_trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    pub(super) fn on(&self, event: Event) {
        match event {
            Event::Connected => {
                let mut first = false;
                self.link.send_modify(|link| {
                    first = link.times == 0;
                    link.connected = true;
                    link.times += 1;
                });
                self.said_unreachable.store(false, Ordering::Relaxed);
                *self.last_trouble() = None;
                tracing::info!(
                    "{}",
                    if first { "message server connected" } else { "message server reconnected" }
                );
            }
            Event::Disconnected => {
                self.link.send_modify(|link| link.connected = false);
                if !self.is_closing() {
                    tracing::warn!("message server lost; looking for one");
                }
            }
            Event::Closed => self.link.send_modify(|link| {
                link.connected = false;
                link.closed = true;
            }),
            Event::ServerError(ServerError::Other(text)) => self.on_error(&text),
            Event::ServerError(error) => tracing::warn!(%error, "message server says"),
            Event::ClientError(ClientError::Other(error)) => {
                *self.last_trouble() = Some(error.clone());
                if !self.is_closing() && !self.said_unreachable.swap(true, Ordering::Relaxed) {
                    tracing::warn!(error, "no message server takes the connection; trying on");
                }
            }
            Event::ClientError(error) => tracing::warn!(%error, "message client says"),
            Event::SlowConsumer(subscription) => {
                tracing::warn!(subscription, "messages dropped: they came faster than they were read");
            }
            Event::LameDuckMode => tracing::info!("message server is about to stop"),
            Event::Draining => {}
        }
    }

    fn on_error(&self, text: &str) {
        // A refusal is told of once a subject; the others are seen by whoever asked.
        if self.refusals.record(text) || !text.to_ascii_lowercase().contains("permissions violation") {
            tracing::warn!(error = text, "message server says");
        } else {
            tracing::debug!(error = text, "message server says");
        }
    }

    /// How long to wait before this attempt, counted from 1 since the last success.
    pub(super) fn delay(&self, attempt: usize) -> Duration {
        if self.is_closing() {
            return AFTER_CLOSE;
        }
        delay(attempt, self.servers.load(Ordering::Relaxed), self.tls, random())
    }
}

/// Each server is tried at once; then comes a wait, and each is tried again.
fn delay(attempt: usize, servers: usize, tls: bool, random: u64) -> Duration {
    if attempt <= 1 || !(attempt - 1).is_multiple_of(servers.max(1)) {
        return Duration::ZERO;
    }
    let jitter_ms = if tls { JITTER_TLS_MS } else { JITTER_MS };
    Duration::from_millis(RECONNECT_WAIT_MS + random % (jitter_ms + 1))
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness there is no jitter, which only makes it less fair.
    match getrandom::fill(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_is_tried_before_a_wait() {
        let waits =
            |servers| (1..8).map(|attempt| delay(attempt, servers, false, 0).as_millis()).collect::<Vec<_>>();
        assert_eq!(waits(1), [0, 2000, 2000, 2000, 2000, 2000, 2000]);
        assert_eq!(waits(3), [0, 0, 0, 2000, 0, 0, 2000]);
        assert_eq!(waits(0), waits(1));
    }

    #[test]
    fn jitter_stays_in_bounds() {
        for random in [0, 1, 500, 501, 2000, 2001, u64::MAX] {
            let plain = delay(2, 1, false, random).as_millis();
            let tls = delay(2, 1, true, random).as_millis();
            assert!((2000..=2500).contains(&plain) && (2000..=4000).contains(&tls), "{plain} {tls}");
        }
        assert_eq!(delay(2, 1, true, 2000).as_millis(), 4000);
    }

    #[test]
    fn a_closed_connection_stops_looking() {
        let shared = Shared::new(Vec::new(), 1, false);
        assert_eq!(shared.delay(1), Duration::ZERO);
        shared.closing.store(true, Ordering::Relaxed);
        assert_eq!(shared.delay(1), AFTER_CLOSE);
    }

    #[test]
    fn the_link_counts_its_times() {
        let shared = Shared::new(Vec::new(), 1, false);
        shared.on(Event::Connected);
        shared.on(Event::Disconnected);
        shared.on(Event::Connected);
        assert_eq!(*shared.link.borrow(), Link { connected: true, times: 2, closed: false });
        shared.on(Event::Closed);
        assert_eq!(*shared.link.borrow(), Link { connected: false, times: 2, closed: true });
    }
}
