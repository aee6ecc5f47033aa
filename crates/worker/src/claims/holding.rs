//! One unit in this process's hands, from fencing its former owner off to giving it up. One task a unit, so that a unit
//! that is slow to come or to go keeps no other waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{
    Broker, OpenUnit, OpenUnitError, RowBudget, SharingError, TakeOver, UnitControl, UnitSharing,
};
use wavehouse_core::{UnitId, chain};

use super::command::{Command, UnitEnd};
use crate::metrics::WorkerMetrics;

/// A former owner that seems to read on is waited for so long; then the unit is opened, and the fence decides.
const TAKE_OVER_WAIT: Duration = Duration::from_secs(30);
/// How long rows in hand may take to be written when the unit goes to another process.
const HANDOVER: Duration = Duration::from_secs(60);
/// How long giving a unit up may take.
const RELEASE: Duration = Duration::from_secs(5);
/// A unit that cannot be opened for so long is an error in the log.
const OPEN_PATIENCE: Duration = Duration::from_secs(60);

/// What becomes of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// Work on it.
    Hold,
    /// Write what is in hand, then give it up.
    GiveUp,
    /// The process stops: what is in hand is written by the worker's loop, nothing new is begun.
    Stop,
    /// It may be another's.
    Disown,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    /// Given up, or never opened.
    Released,
    /// Delivery ended by itself, or another process took it, or it was disowned.
    Lost,
    /// There is no such unit.
    Gone,
    /// The queue is closed.
    Closed,
}

/// What every holding works with.
pub(crate) struct Means {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) sharing: Arc<dyn UnitSharing>,
    pub(crate) metrics: WorkerMetrics,
    pub(crate) commands: mpsc::Sender<Command>,
    /// What a unit may hold until the worker's loop knows better.
    pub(crate) budget: RowBudget,
    /// Wait between attempts.
    pub(crate) retry: Duration,
    /// The process stops.
    pub(crate) stop: CancellationToken,
}

/// One unit.
pub(crate) struct Holding {
    pub(crate) unit: UnitId,
    pub(crate) take_over: Option<TakeOver>,
    pub(crate) wish: watch::Receiver<Wish>,
    /// Set when giving it up takes too long.
    pub(crate) late: Arc<AtomicBool>,
    pub(crate) means: Arc<Means>,
}

/// Counts a unit as owned for as long as it lives.
struct Owned(WorkerMetrics);

impl Owned {
    fn new(metrics: &WorkerMetrics) -> Self {
        metrics.shards_owned(1);
        Self(metrics.clone())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.shards_owned(-1);
    }
}

impl Holding {
    /// Holds the unit until it is wished away or lost.
    pub(crate) async fn run(mut self) -> HoldEnd {
        let opened = match self.open().await {
            Ok(Some(opened)) => opened,
            Ok(None) => return HoldEnd::Released,
            Err(end) => return end,
        };
        let metrics = self.means.metrics.clone();
        metrics.shard_event("taken");
        let owned = Owned::new(&metrics);
        let control = Arc::clone(&opened.control);
        let (since, end) = self.work(opened).await;
        drop(owned);
        self.release(&*control).await;
        let disowned = *self.wish.borrow() == Wish::Disown;
        if let Some(since) = since {
            metrics.handover(since.elapsed());
        }
        match end.lost {
            Some(reason) => {
                tracing::warn!(unit = %self.unit, %reason, "unit is no longer read here");
                metrics.shard_event("lost");
                HoldEnd::Lost
            }
            None if disowned => {
                metrics.shard_event("lost");
                HoldEnd::Lost
            }
            None => {
                metrics.shard_event("released");
                HoldEnd::Released
            }
        }
    }

    /// Opens the unit, whoever had it before; `None` if it is wished away meanwhile.
    async fn open(&mut self) -> Result<Option<OpenUnit>, HoldEnd> {
        if !self.fence().await? {
            return Ok(None);
        }
        let since = Instant::now();
        while *self.wish.borrow() == Wish::Hold {
            // Not cancelled: a unit that was opened must be released.
            match self.means.broker.open_unit(self.unit, self.means.budget).await {
                Ok(opened) => return Ok(Some(opened)),
                Err(OpenUnitError::Unknown(_)) => return Err(HoldEnd::Gone),
                Err(OpenUnitError::Closed) => return Err(HoldEnd::Closed),
                Err(error) => self.cannot_open(&chain(&error), since),
            }
            self.pause().await;
        }
        Ok(None)
    }

    fn cannot_open(&self, error: &str, since: Instant) {
        self.means.metrics.shard_event("bind_failed");
        if since.elapsed() < OPEN_PATIENCE {
            tracing::warn!(unit = %self.unit, %error, "unit cannot be opened yet");
        } else {
            let seconds = since.elapsed().as_secs();
            tracing::error!(unit = %self.unit, seconds, %error, "unit still cannot be opened, its rows wait");
        }
    }

    /// Fences a former owner off that is gone. `false` if the unit is wished away meanwhile.
    async fn fence(&mut self) -> Result<bool, HoldEnd> {
        let Some(how) = self.take_over else { return Ok(*self.wish.borrow() == Wish::Hold) };
        let until = Instant::now() + TAKE_OVER_WAIT;
        while *self.wish.borrow() == Wish::Hold {
            match self.means.sharing.take_over(self.unit, how).await {
                Ok(held) => {
                    if held {
                        self.means.metrics.shard_event("reset");
                    }
                    return Ok(true);
                }
                Err(SharingError::Gone { .. }) => return Err(HoldEnd::Gone),
                Err(error) if Instant::now() >= until => {
                    let error = chain(&error);
                    tracing::warn!(unit = %self.unit, %error, "former owner of unit still reads it, opened all the same");
                    return Ok(true);
                }
                Err(error @ SharingError::Held { .. }) => {
                    tracing::debug!(unit = %self.unit, error = %chain(&error), "unit is waited for");
                }
                Err(error) => {
                    tracing::warn!(unit = %self.unit, error = %chain(&error), "former owner of unit cannot be fenced off yet");
                }
            }
            self.pause().await;
        }
        Ok(false)
    }

    /// Waits a while, or until something else is wished.
    async fn pause(&mut self) {
        tokio::select! {
            () = sleep(self.means.retry) => {}
            _gone = self.wish.changed() => {}
        }
    }

    /// Lets the worker's loop work on the unit until it has nothing of it in hand; with when giving it up began.
    async fn work(&mut self, opened: OpenUnit) -> (Option<Instant>, UnitEnd) {
        let (ended, mut end) = oneshot::channel();
        let (unit, control) = (self.unit, Arc::clone(&opened.control));
        let mut since = None;
        if self.means.commands.send(Command::TakeOn { unit, opened, ended }).await.is_err() {
            return (since, UnitEnd::default());
        }
        let mut told = Wish::Hold;
        loop {
            let wished = *self.wish.borrow_and_update();
            if wished > told {
                told = wished;
                since = since.or(Some(Instant::now()));
                let command = match wished {
                    Wish::GiveUp => Some(Command::GiveUp { unit, until: Instant::now() + HANDOVER }),
                    Wish::Disown => {
                        control.disown();
                        Some(Command::Disown { unit })
                    }
                    Wish::Hold | Wish::Stop => None,
                };
                if let Some(command) = command {
                    let _ended = self.means.commands.send(command).await;
                }
            }
            tokio::select! {
                biased;
                end = &mut end => {
                    let end = end.unwrap_or_default();
                    self.tell_unsettled(&end, told);
                    return (since.filter(|_| told == Wish::GiveUp), end);
                }
                // Nobody wishes any more: the loop above is ending too.
                changed = self.wish.changed() => if changed.is_err() {
                    return (None, end.await.unwrap_or_default());
                },
            }
        }
    }

    fn tell_unsettled(&self, end: &UnitEnd, told: Wish) {
        if told == Wish::GiveUp && end.unsettled_rows > 0 && end.lost.is_none() {
            let rows = end.unsettled_rows;
            tracing::warn!(unit = %self.unit, rows, "unit is handed over with rows that could not be written in time");
            self.means.metrics.shard_event("handover_timeout");
        }
    }

    /// Gives the unit up. One that takes too long is no longer told to be had, so that others fence it off; but as it may
    /// still be open here, it is waited for, unless the process stops.
    async fn release(&self, control: &dyn UnitControl) {
        let release = control.release();
        tokio::pin!(release);
        if timeout(RELEASE, &mut release).await.is_ok() {
            return;
        }
        tracing::warn!(unit = %self.unit, "unit could not be given up in time, it is left to lapse");
        self.late.store(true, Ordering::Relaxed);
        tokio::select! {
            () = release => {}
            () = async { self.means.stop.cancelled().await; sleep(RELEASE).await } => {}
        }
    }
}
