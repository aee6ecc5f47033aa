//! Stops queries whose client has gone. The engine cannot be told through the connection that runs the query, so
//! one thread with a connection of its own sends `KILL QUERY` for them, again until they have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use crate::engine::Engine;

/// Cancels that may wait for the thread; past that a query runs to its end, which harms nobody but itself.
const CANCELS_MAX: usize = 1_024;
/// A query is killed again after this long: it may not have begun at the first try.
const RETRY_MS: u64 = 50;

/// One request's query, as others see it.
pub(crate) struct Running {
    /// The log comment its query carries.
    pub(crate) mark: String,
    finished: AtomicBool,
    cancelled: AtomicBool,
}

impl Running {
    /// A query that has not begun.
    pub(crate) fn new(mark: String) -> Self {
        Self { mark, finished: AtomicBool::new(false), cancelled: AtomicBool::new(false) }
    }

    /// The query has ended, however it did.
    pub(crate) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    /// Whether its client has gone.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}

/// Where cancels are handed in.
pub(crate) struct Canceller {
    sender: SyncSender<Arc<Running>>,
}

impl Canceller {
    /// Starts the thread; it ends with the process.
    pub(crate) fn start(engine: Arc<Engine>) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(CANCELS_MAX);
        std::thread::Builder::new().name("cancel".into()).spawn(move || work(&engine, &receiver))?;
        Ok(Self { sender })
    }

    /// Cancels `running` unless it has ended.
    pub(crate) fn cancel(&self, running: &Arc<Running>) {
        if running.finished.load(Ordering::Acquire) {
            return;
        }
        running.cancelled.store(true, Ordering::Release);
        if self.sender.try_send(Arc::clone(running)).is_err() {
            tracing::warn!(query = running.mark, "too many cancels at once; the query runs to its end");
        }
    }
}

/// Kills every query of the engine.
pub(crate) fn kill_all(engine: &Engine) {
    kill(engine, "KILL QUERY WHERE 1 ASYNC");
}

fn kill(engine: &Engine, sql: &str) {
    let Ok(connection) = engine.connect() else { return };
    if let Some(error) = connection.run(sql.as_bytes(), "Null", &[]).error() {
        tracing::warn!(error, "a query could not be killed");
    }
}

fn work(engine: &Engine, receiver: &Receiver<Arc<Running>>) {
    let mut pending: Vec<Arc<Running>> = Vec::new();
    loop {
        let next = if pending.is_empty() {
            receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            receiver.recv_timeout(Duration::from_millis(RETRY_MS))
        };
        match next {
            Ok(running) => pending.push(running),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        pending.extend(receiver.try_iter());
        pending.retain(|running| !running.finished.load(Ordering::Acquire));
        if pending.is_empty() {
            continue;
        }
        // Marks are ours: letters, digits and dashes.
        let marks: Vec<String> = pending.iter().map(|running| format!("'{}'", running.mark)).collect();
        let list = marks.join(", ");
        kill(engine, &format!("KILL QUERY WHERE Settings['log_comment'] IN ({list}) ASYNC"));
    }
}
