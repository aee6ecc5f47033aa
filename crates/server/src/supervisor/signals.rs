//! The signals that end the process, as a channel.

use std::fmt;
use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// A signal that asks the process to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Sent by supervisors.
    Terminate,
    /// Ctrl-C.
    Interrupt,
    /// The terminal was closed.
    HangUp,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
            Self::HangUp => "SIGHUP",
        })
    }
}

/// Signals that may wait to be seen. More than two mean no more than two.
const SIGNALS_WAITING_MAX: usize = 4;

/// Begins to catch signals. `hang_up_stops` says whether SIGHUP stops the process; otherwise it is caught and passed
/// over, since operators know it as "reload".
///
/// # Errors
/// When the operating system refuses the handlers.
pub(crate) fn listen(hang_up_stops: bool, tasks: &mut JoinSet<()>) -> io::Result<mpsc::Receiver<Signal>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let (send, receive) = mpsc::channel(SIGNALS_WAITING_MAX);
    tasks.spawn(async move {
        loop {
            let signal = tokio::select! {
                _ = terminate.recv() => Signal::Terminate,
                _ = interrupt.recv() => Signal::Interrupt,
                _ = hang_up.recv() => Signal::HangUp,
            };
            if signal == Signal::HangUp && !hang_up_stops {
                tracing::info!(
                    "SIGHUP: nothing is reloaded in this version; restart to change the configuration"
                );
                continue;
            }
            if send.send(signal).await.is_err() {
                return;
            }
        }
    });
    Ok(receive)
}
