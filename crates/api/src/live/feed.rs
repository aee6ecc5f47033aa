//! From history into rings: one task a table that is watched. It begins with the first subscriber and ends with the last.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{Broker, HistoryEvent, HistoryFilter, HistoryStart, HistoryStream};
use wavehouse_core::TableRef;

use super::frame;
use super::ring::{Chunk, Ring};
use crate::metrics::{FrameCounters, FrameKind, Metrics};

/// How long a feed goes on without a subscriber, so that one that reconnects finds it.
const IDLE: Duration = Duration::from_secs(5);
/// Wait before a feed whose history failed begins again.
const AGAIN: Duration = Duration::from_secs(1);

/// A table that is watched.
pub(crate) struct Channel {
    ring: Mutex<Ring>,
    /// Grows with each push; what subscribers wait for.
    version: watch::Sender<u64>,
    /// The table's name as JSON text.
    pub(crate) name: String,
    /// Width of the fraction of receipt times.
    pub(crate) digits: usize,
    /// How many watch, and for how long.
    pub(crate) metrics: Metrics,
    /// Rows as they come.
    pub(crate) events: FrameCounters,
    /// Rows from history.
    pub(crate) replayed: FrameCounters,
    /// Signs of life.
    pub(crate) keepalives: FrameCounters,
    /// Ends every stream.
    pub(crate) stop: CancellationToken,
    /// What subscribers look at instead when they are woken: a look costs next to nothing.
    stopped: AtomicBool,
}

impl Channel {
    fn new(table: &TableRef, digits: usize, metrics: &Metrics, stop: &CancellationToken) -> Self {
        Self {
            ring: Mutex::default(),
            version: watch::Sender::new(0),
            name: serde_json::Value::from(table.table.as_str()).to_string(),
            digits,
            metrics: metrics.clone(),
            events: metrics.frames(FrameKind::Event),
            replayed: metrics.frames(FrameKind::Replay),
            keepalives: metrics.frames(FrameKind::Keepalive),
            stop: stop.clone(),
            stopped: AtomicBool::new(false),
        }
    }

    pub(crate) fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Whether every stream is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn push(&self, chunk: Chunk) {
        self.ring().push(chunk);
        self.wake();
    }

    fn wake(&self) {
        self.version.send_modify(|version| *version += 1);
    }
}

struct Entry {
    channel: Arc<Channel>,
    /// Told once the feed reads: what becomes durable afterwards is in the ring.
    ready: watch::Receiver<bool>,
}

/// Every table that is watched.
pub(crate) struct Hub {
    broker: Arc<dyn Broker>,
    metrics: Metrics,
    stop: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tables: HashMap<TableRef, Entry>,
    feeds: JoinSet<()>,
}

impl Hub {
    /// `stop` ends every stream.
    pub(crate) fn new(broker: Arc<dyn Broker>, metrics: Metrics, stop: CancellationToken) -> Self {
        Self { broker, metrics, stop, state: Mutex::default() }
    }

    /// The channel of a table, fed from now on at the latest.
    pub(crate) async fn join(self: &Arc<Self>, table: &TableRef, digits: usize) -> Arc<Channel> {
        let (channel, mut ready) = {
            let mut state = self.state();
            while state.feeds.try_join_next().is_some() {}
            match state.tables.get(table).filter(|entry| entry.channel.digits == digits) {
                Some(entry) => (Arc::clone(&entry.channel), entry.ready.clone()),
                None => self.begin(&mut state, table, digits),
            }
        };
        // A feed that ended instead has dropped the sender; the subscriber's own look at the ring finds nothing then, and
        // history has everything.
        let _told = ready.wait_for(|ready| *ready).await.is_ok();
        channel
    }

    fn begin(
        self: &Arc<Self>,
        state: &mut State,
        table: &TableRef,
        digits: usize,
    ) -> (Arc<Channel>, watch::Receiver<bool>) {
        let channel = Arc::new(Channel::new(table, digits, &self.metrics, &self.stop));
        let (tell, ready) = watch::channel(false);
        let entry = Entry { channel: Arc::clone(&channel), ready: ready.clone() };
        state.tables.insert(table.clone(), entry);
        state.feeds.spawn(feed_until_stop(Arc::clone(self), table.clone(), Arc::clone(&channel), tell));
        (channel, ready)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a channel that nobody watches. True if it is gone.
    fn forget_if_idle(&self, table: &TableRef, channel: &Arc<Channel>) -> bool {
        let mut state = self.state();
        // The entry and the feed hold it too.
        let watched = Arc::strong_count(channel) > 2;
        let current = state.tables.get(table).is_some_and(|entry| Arc::ptr_eq(&entry.channel, channel));
        if current && !watched {
            state.tables.remove(table);
        }
        !watched || (!current && Arc::strong_count(channel) == 1)
    }
}

/// Feeds, and at the stop wakes those who watch: one task waits for it in place of thousands.
async fn feed_until_stop(hub: Arc<Hub>, table: TableRef, channel: Arc<Channel>, ready: watch::Sender<bool>) {
    let stop = hub.stop.clone();
    tokio::select! {
        biased;
        () = stop.cancelled() => {
            channel.stopped.store(true, Ordering::Release);
            channel.wake();
        }
        () = feed(&hub, &table, &channel, &ready) => {}
    }
}

async fn feed(hub: &Hub, table: &TableRef, channel: &Arc<Channel>, ready: &watch::Sender<bool>) {
    loop {
        let opened = hub.broker.open_history(HistoryStart::Live, HistoryFilter::Table(table.clone())).await;
        match opened {
            Ok(history) => {
                if let Fed::Unwatched = pour(hub, table, channel, history, ready).await {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%table, error = %wavehouse_core::chain(&error), "history cannot be read");
            }
        }
        if hub.forget_if_idle(table, channel) {
            return;
        }
        // What was stored meanwhile is missing in the ring: whoever watches must resume from history.
        channel.ring().clear();
        channel.wake();
        tokio::time::sleep(AGAIN).await;
    }
}

enum Fed {
    Unwatched,
    Failed,
}

async fn pour(
    hub: &Hub,
    table: &TableRef,
    channel: &Arc<Channel>,
    mut history: Box<dyn HistoryStream>,
    ready: &watch::Sender<bool>,
) -> Fed {
    loop {
        let event = match tokio::time::timeout(IDLE, history.next()).await {
            Ok(Ok(event)) => event,
            Ok(Err(error)) => {
                tracing::warn!(%table, error = %wavehouse_core::chain(&error), "history broke off");
                return Fed::Failed;
            }
            Err(_quiet) if hub.forget_if_idle(table, channel) => return Fed::Unwatched,
            Err(_quiet) => continue,
        };
        let mut bytes = Vec::new();
        let (sequence, rows) = match event {
            HistoryEvent::Block { stored, from_row } => {
                frame::put_rows(&mut bytes, &stored, from_row, &channel.name, channel.digits);
                (stored.sequence.0, stored.block.rows().saturating_sub(from_row))
            }
            HistoryEvent::Hole { from, to, .. } => {
                hub.metrics.stream_holes.inc();
                frame::put_hole(&mut bytes, from, to);
                (0, 0)
            }
            HistoryEvent::CaughtUp => {
                ready.send_replace(true);
                continue;
            }
        };
        if !bytes.is_empty() {
            channel.push(Chunk { sequence, bytes: bytes.into(), rows });
        }
        if hub.forget_if_idle(table, channel) {
            return Fed::Unwatched;
        }
    }
}

#[cfg(test)]
mod tests {
    use wavehouse_broker::conformance::{MemoryBroker, MemoryOptions};
    use wavehouse_core::{TableName, TenantId};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_channel_lives_for_as_long_as_it_is_watched() {
        let broker = Arc::new(MemoryBroker::new(MemoryOptions::default()));
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let hub = Arc::new(Hub::new(broker, metrics, CancellationToken::new()));
        let table = TableRef::new(TenantId::default(), TableName::parse("t").unwrap());
        let watched = hub.join(&table, 3).await;
        tokio::time::sleep(IDLE * 3).await;
        assert!(hub.state().tables.contains_key(&table));
        drop(watched);
        tokio::time::sleep(IDLE * 3).await;
        assert!(!hub.state().tables.contains_key(&table), "nobody watches");
    }

    #[tokio::test]
    async fn all_who_watch_hear_of_the_stop() {
        let broker = Arc::new(MemoryBroker::new(MemoryOptions::default()));
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let stop = CancellationToken::new();
        let hub = Arc::new(Hub::new(broker, metrics, stop.clone()));
        let table = TableRef::new(TenantId::default(), TableName::parse("t").unwrap());
        let watched = hub.join(&table, 3).await;
        let mut version = watched.watch();
        stop.cancel();
        version.changed().await.unwrap();
        assert!(watched.is_stopped());
    }
}
