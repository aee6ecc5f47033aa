//! History: what live streams read, from the copies that partitions republish into one stream.
//!
//! Each reader is a task with a short-lived consumer of its own: in memory, on one server, acking nothing. Its place is the
//! number of the last copy in the history, so that a consumer that is lost (a server restarted, a leader elected, a link
//! cut) is made anew behind it, with no gap and no twin. What went missing meanwhile is told as a hole:
//!
//! - copies that left the history before they were read;
//! - originals that never reached it, where the copy after them names them (see `cursor`);
//! - everything between, when the history itself was made anew.
//!
//! Rows of a table are named by the log (the partition's stream and when it was created) and sequence of their *original*,
//! so all processes name them alike and a recreated history changes no name. A position says when its original was
//! stored, and reading resumes a little before that moment.
//!
//! A reader is caught up only when the history's leader says that nothing is left of what was stored when it was opened,
//! never because nothing came for a while.
//!
//! What this cannot do: a row whose copy the history refused (full, or electing a leader at that moment) is in ClickHouse
//! and not here; it is told as a hole only where a later copy of the same table and scope names it. A position whose copy
//! has left the history is answered with a hole even if no row of its table followed it.

mod consumer;
mod copy;
mod cursor;
mod origins;
mod place;
mod reader;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{HistoryError, HistoryEvent, HistoryFilter, HistoryStart, HistoryStream};
use wavehouse_core::{PartitionId, Position, Timestamp, Topic};
use wavehouse_nats::{CallError, JetStream, StartAt, StreamInfo};
use wavehouse_topology::TopologySpec;

pub use origins::Origins;

use crate::shared::wall_clock;
use cursor::{Begin, Cursor};
use origins::Snapshot;
use place::Place;
use reader::{Reader, Wanted};

/// Events that wait for one reader's caller.
const EVENTS_MAX: usize = 8;
/// By how much the clocks of servers may differ, and a copy come later than its original.
const SLACK: Duration = Duration::from_secs(30);
/// Longest wait for the history to have what was stored before it was opened, in milliseconds.
const BEHIND_MS_MAX: u64 = 500;
/// Between two looks at it, in milliseconds.
const BEHIND_LOOK_MS: u64 = 5;

/// What has become of the messages of the history so far.
#[derive(Debug, Default)]
pub struct HistoryCounts {
    /// Copies that were no rows of any table and were passed over.
    pub unreadable: AtomicU64,
    /// Holes told.
    pub holes: AtomicU64,
    /// Consumers made anew.
    pub resumed: AtomicU64,
}

/// The history of one deployment: opens readers and ends them all when the queue is closed.
pub struct History {
    jetstream: JetStream,
    spec: Arc<TopologySpec>,
    origins: Arc<Origins>,
    counts: Arc<HistoryCounts>,
    closed: CancellationToken,
    readers: Mutex<JoinSet<()>>,
}

impl History {
    /// The history that `spec` names. Readers end when `closed` is cancelled.
    #[must_use]
    pub fn new(jetstream: JetStream, spec: Arc<TopologySpec>, closed: CancellationToken) -> Self {
        let origins = Arc::new(Origins::new(jetstream.clone(), Arc::clone(&spec)));
        Self { jetstream, spec, origins, counts: Arc::default(), closed, readers: Mutex::default() }
    }

    /// The partition streams as last seen. Whoever looks at one may tell it what was found.
    #[must_use]
    pub fn origins(&self) -> &Arc<Origins> {
        &self.origins
    }

    /// What has been counted so far.
    #[must_use]
    pub fn counts(&self) -> &Arc<HistoryCounts> {
        &self.counts
    }

    /// Opens a reader.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub async fn open(
        &self,
        start: HistoryStart,
        filter: HistoryFilter,
    ) -> Result<Box<dyn HistoryStream>, HistoryError> {
        if self.closed.is_cancelled() {
            return Err(HistoryError::Closed);
        }
        let opened = tokio::select! {
            () = self.closed.cancelled() => return Err(HistoryError::Closed),
            opened = self.begin(start, &filter) => opened?,
        };
        let (events, received) = mpsc::channel(EVENTS_MAX);
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        while readers.try_join_next().is_some() {}
        readers.spawn(opened.run(events, self.closed.clone()));
        Ok(Box::new(Stream { received, closed: self.closed.clone() }))
    }

    /// Waits until every reader has let its consumer go; `closed` was cancelled before.
    pub async fn finish(&self) {
        let mut readers = std::mem::take(&mut *self.readers.lock().unwrap_or_else(PoisonError::into_inner));
        while readers.join_next().await.is_some() {}
    }

    /// Works out where reading begins and makes the first consumer.
    async fn begin(&self, start: HistoryStart, filter: &HistoryFilter) -> Result<Reader, HistoryError> {
        let wanted = self.wanted(filter);
        let before = self.info().await?;
        let snapshots = self.snapshots(filter).await?;
        let (info, begin, at) = match start {
            HistoryStart::Live => {
                let floors = snapshots.iter().map(|snapshot| (snapshot.log, snapshot.last)).collect();
                let at = StartAt::Sequence(before.state.last_seq.saturating_add(1));
                (before, Begin::Past(floors), at)
            }
            HistoryStart::Since(since) => {
                let info = self.info_with(before, &snapshots).await?;
                let end = info.state.last_seq;
                (info, Begin::Since { since, end }, StartAt::Time(since.saturating_sub(SLACK)))
            }
            HistoryStart::After(position) => {
                let HistoryFilter::Table(_) = filter else {
                    let reason = "a position needs a filter on its table".to_owned();
                    return Err(HistoryError::Unreadable { reason });
                };
                let info = self.info_with(before, &snapshots).await?;
                let (begin, at) = self.after(position, &snapshots).await?;
                (info, begin, at)
            }
        };
        let live = matches!(start, HistoryStart::Live);
        let mut cursor = Cursor::new(begin);
        self.open_holes(&mut cursor, start, filter, &info);
        let end = (!live).then_some(info.state.last_seq);
        let reader = Reader::new(self, wanted, cursor, Place::new(at, &info, wall_clock()), end);
        reader.started().await.map_err(unreadable)
    }

    /// Holes that are known before anything is read.
    fn open_holes(
        &self,
        cursor: &mut Cursor,
        start: HistoryStart,
        filter: &HistoryFilter,
        info: &StreamInfo,
    ) {
        let HistoryFilter::Table(table) = filter else { return };
        match start {
            HistoryStart::Since(since) => {
                let lost = place::lost_until(info, wall_clock());
                if lost.is_some_and(|until| since < until) {
                    cursor.open_hole(table, Some(since));
                }
            }
            HistoryStart::After(position) if !cursor.is_searching() => {
                let from = (position.stored_ms > 0).then(|| Timestamp::from_millis(position.stored_ms));
                cursor.open_hole(table, from);
            }
            _ => {}
        }
    }

    /// Where reading after a row begins: a little before it was stored, or with everything when it cannot be.
    async fn after(
        &self,
        position: Position,
        snapshots: &[Snapshot],
    ) -> Result<(Begin, StartAt), HistoryError> {
        let own = snapshots.iter().find(|snapshot| snapshot.log == position.log);
        let can_be = match own {
            Some(snapshot) => position.sequence <= snapshot.last,
            // A table may have been moved here from another partition.
            None => self.is_log(position).await?,
        };
        if !can_be {
            return Ok((Begin::Everything, StartAt::First));
        }
        let at = match position.stored_ms {
            0 => StartAt::First,
            ms => StartAt::Time(Timestamp::from_millis(ms).saturating_sub(SLACK)),
        };
        Ok((Begin::After(position), at))
    }

    async fn is_log(&self, position: Position) -> Result<bool, HistoryError> {
        if self.origins.stream_of(position.log).is_some() {
            return Ok(true);
        }
        self.snapshots(&HistoryFilter::All).await?;
        Ok(self.origins.stream_of(position.log).is_some())
    }

    fn wanted(&self, filter: &HistoryFilter) -> Wanted {
        let prefix = self.spec.prefix();
        match filter {
            HistoryFilter::All => Wanted { table: None, filters: vec![prefix.history_filter()] },
            HistoryFilter::Table(table) => {
                let topic = Topic { table: table.clone(), scope: wavehouse_core::Scope::default() };
                let bare = prefix.history(&topic);
                let scoped = format!("{bare}.*");
                Wanted { table: Some(table.clone()), filters: vec![bare, scoped] }
            }
        }
    }

    /// The partitions whose rows are asked for, now.
    async fn snapshots(&self, filter: &HistoryFilter) -> Result<Vec<Snapshot>, HistoryError> {
        let placement = self.spec.placement();
        let partitions = match filter {
            HistoryFilter::Table(table) => vec![placement.unit_for(table).partition],
            HistoryFilter::All => (0..placement.partitions()).map(PartitionId).collect(),
        };
        let mut snapshots = Vec::new();
        for partition in partitions {
            snapshots.extend(self.origins.snapshot(partition).await.map_err(unreadable)?);
        }
        Ok(snapshots)
    }

    async fn info(&self) -> Result<StreamInfo, HistoryError> {
        self.jetstream.stream_info(&self.spec.history_stream()).await.map_err(unreadable)
    }

    /// What the history says once it has what the partitions had stored, or has had time enough to get it.
    async fn info_with(&self, first: StreamInfo, of: &[Snapshot]) -> Result<StreamInfo, HistoryError> {
        let newest = of.iter().map(|snapshot| snapshot.last_at).max().unwrap_or_default();
        let begun = tokio::time::Instant::now();
        let (mut info, mut wait_ms) = (first, BEHIND_LOOK_MS);
        while place::time_of(&info.state.last_ts) < newest
            && begun.elapsed() < Duration::from_millis(BEHIND_MS_MAX)
        {
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            wait_ms *= 2;
            info = self.info().await?;
        }
        Ok(info)
    }
}

/// What an open reader's caller holds. Dropping it ends the reader.
struct Stream {
    received: mpsc::Receiver<Result<HistoryEvent, HistoryError>>,
    closed: CancellationToken,
}

#[async_trait]
impl HistoryStream for Stream {
    async fn next(&mut self) -> Result<HistoryEvent, HistoryError> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(HistoryError::Closed),
            event = self.received.recv() => event.unwrap_or(Err(HistoryError::Closed)),
        }
    }
}

fn unreadable(error: CallError) -> HistoryError {
    HistoryError::Unreadable { reason: error.to_string() }
}

impl HistoryCounts {
    fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
