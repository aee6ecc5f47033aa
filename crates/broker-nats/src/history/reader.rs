//! A reader: a task that pulls copies, lets the cursor decide, and goes on behind its place when its consumer is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{HistoryError, HistoryEvent};
use wavehouse_core::TableRef;
use wavehouse_nats::{CallError, Delivered, JetStream, StreamInfo};
use wavehouse_topology::TopologySpec;

use super::consumer::{Came, Consumer};
use super::copy::{Copy, CopyHead, Unreadable};
use super::cursor::{Cursor, Verdict};
use super::place::{Past, Place, Seen};
use super::{History, HistoryCounts, Origins};
use crate::shared::wall_clock;

/// Wait before something that failed is tried again; doubles up to [`RETRY_MS_MAX`].
const RETRY_MS: u64 = 100;
const RETRY_MS_MAX: u64 = 5_000;
/// Wait before the servers are asked a second time whether nothing is left, where more than one keeps the history.
const AGAIN_MS: u64 = 100;

/// Which copies are asked for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// Of this table alone.
    pub(super) table: Option<TableRef>,
    /// The subjects.
    pub(super) filters: Vec<String>,
}

/// Where events go; it is over when nobody takes them any more.
type Events = mpsc::Sender<Result<HistoryEvent, HistoryError>>;

/// Nobody takes the events any more.
struct Over;

pub(super) struct Reader {
    jetstream: JetStream,
    spec: Arc<TopologySpec>,
    stream: String,
    origins: Arc<Origins>,
    counts: Arc<HistoryCounts>,
    wanted: Wanted,
    cursor: Cursor,
    place: Place,
    /// The history's number up to which there is something to catch up with; none for a live reader.
    end: Option<u64>,
    caught_up: bool,
    consumer: Option<Consumer>,
    /// The copy that must come next.
    first: Option<Seen>,
    /// Nothing was left when the consumer was made.
    nothing_left: bool,
}

impl Reader {
    pub(super) fn new(
        history: &History,
        wanted: Wanted,
        cursor: Cursor,
        place: Place,
        end: Option<u64>,
    ) -> Self {
        Self {
            jetstream: history.jetstream.clone(),
            spec: Arc::clone(&history.spec),
            stream: history.spec.history_stream(),
            origins: Arc::clone(&history.origins),
            counts: Arc::clone(&history.counts),
            wanted,
            cursor,
            place,
            end,
            caught_up: false,
            consumer: None,
            first: None,
            nothing_left: false,
        }
    }

    /// Makes the first consumer.
    pub(super) async fn started(mut self) -> Result<Self, CallError> {
        let start = self.place.begin();
        self.start(start).await?;
        Ok(self)
    }

    async fn start(&mut self, start: wavehouse_nats::StartAt) -> Result<(), CallError> {
        let (consumer, pending) =
            Consumer::make(&self.jetstream, &self.stream, &self.wanted.filters, start).await?;
        self.consumer = Some(consumer);
        self.nothing_left = pending == 0;
        Ok(())
    }

    /// Reads until nobody takes the events any more or the queue is closed, then lets the consumer go.
    pub(super) async fn run(mut self, events: Events, closed: CancellationToken) {
        tokio::select! {
            () = closed.cancelled() => {}
            () = events.closed() => {}
            Over = self.read(&events) => {}
        }
        if let Some(consumer) = self.consumer.take() {
            consumer.delete().await;
        }
    }

    async fn read(&mut self, events: &Events) -> Over {
        match self.read_on(events).await {
            Err(over) => over,
            Ok(never) => match never {},
        }
    }

    async fn read_on(&mut self, events: &Events) -> Result<std::convert::Infallible, Over> {
        if self.end.is_none() {
            self.say_caught_up(events).await?;
        }
        loop {
            if self.nothing_left && !self.caught_up {
                self.nothing_came(events).await?;
            }
            let catching_up = !self.caught_up;
            let came = match &mut self.consumer {
                Some(consumer) => consumer.next(catching_up).await,
                None => Came::Lost("it was not made".to_owned()),
            };
            match came {
                Came::Copy(message) => self.on_copy(&message, events).await?,
                Came::Nothing => self.nothing_came(events).await?,
                Came::Lost(why) => self.go_on(&why, false).await,
            }
        }
    }

    async fn on_copy(&mut self, message: &Delivered, events: &Events) -> Result<(), Over> {
        let (history, left) = (message.address.stream_sequence, message.address.pending);
        match CopyHead::read(self.spec.prefix(), message) {
            Ok(head) => {
                let copy = self.copy_of(head, message).await;
                let original = (copy.log, copy.head.sequence);
                let seen = Seen { history, original };
                if let Some(first) = self.first.take()
                    && first != seen
                {
                    self.go_on("the end of the history was lost", true).await;
                    return Ok(());
                }
                self.place.took(seen, copy.head.copied);
                if let Verdict::Tell(told) = self.cursor.take(copy) {
                    for event in told {
                        self.tell(event, events).await?;
                    }
                }
            }
            Err(why) => self.pass_over(message, &why),
        }
        if self.caught_up {
            return Ok(());
        }
        if self.end.is_some_and(|end| history >= end) {
            return self.reached_end(events).await;
        }
        if left == 0 { self.nothing_came(events).await } else { Ok(()) }
    }

    /// The copy with its log and rows.
    async fn copy_of(&self, head: CopyHead, message: &Delivered) -> Copy {
        let block = match head.block(&message.payload) {
            Ok(block) => Some(block),
            Err(why) => {
                self.pass_over(message, &why);
                None
            }
        };
        let mut wait_ms = RETRY_MS;
        loop {
            match self.origins.find_log(&head.stream, head.sequence.0, head.stored).await {
                Ok(log) => return Copy { head, log, block },
                Err(error) => {
                    tracing::debug!(%error, stream = head.stream, "a partition is looked at again");
                    wait_ms = wait(wait_ms).await;
                }
            }
        }
    }

    fn pass_over(&self, message: &Delivered, why: &Unreadable) {
        HistoryCounts::count(&self.counts.unreadable);
        let sequence = message.address.stream_sequence;
        let why = wavehouse_core::chain(why);
        tracing::warn!(subject = message.subject, sequence, why, "a message of the history is passed over");
    }

    /// Nothing is left, as far as the consumer's server knows; where that is so, reading has caught up.
    async fn nothing_came(&mut self, events: &Events) -> Result<(), Over> {
        self.nothing_left = false;
        if !self.caught_up && !self.is_drained().await {
            return Ok(());
        }
        self.place.drained(wall_clock());
        if self.caught_up { Ok(()) } else { self.reached_end(events).await }
    }

    /// Everything that was stored when the reader was opened has come.
    async fn reached_end(&mut self, events: &Events) -> Result<(), Over> {
        if self.cursor.is_searching() {
            let Some(table) = self.wanted.table.clone() else { return Ok(()) };
            self.cursor.give_up_search(&table);
            self.place.rewind(self.place.begin());
            self.go_on("the row to begin after is not there", false).await;
            return Ok(());
        }
        self.say_caught_up(events).await
    }

    /// Whether the history's leader is there and the consumer has nothing left to send.
    async fn is_drained(&self) -> bool {
        let Some(consumer) = &self.consumer else { return false };
        let Ok(info) = self.jetstream.stream_info(&self.stream).await else { return false };
        let replicas = info.config.get("num_replicas").and_then(serde_json::Value::as_u64).unwrap_or(1);
        if replicas > 1 {
            // The consumer's server may lag behind the leader by a moment.
            tokio::time::sleep(Duration::from_millis(AGAIN_MS)).await;
        }
        let drained = consumer.info().await;
        drained.is_ok_and(|info| info.num_pending == 0 && info.delivered.consumer_seq <= consumer.received())
    }

    async fn say_caught_up(&mut self, events: &Events) -> Result<(), Over> {
        for hole in self.cursor.take_holes() {
            self.tell(hole, events).await?;
        }
        self.caught_up = true;
        self.tell(HistoryEvent::CaughtUp, events).await
    }

    async fn tell(&self, event: HistoryEvent, events: &Events) -> Result<(), Over> {
        if matches!(event, HistoryEvent::Hole { .. }) {
            HistoryCounts::count(&self.counts.holes);
        }
        events.send(Ok(event)).await.map_err(|_| Over)
    }

    /// Makes a consumer anew, as often as it takes. `again` when the copy that had to come first did not.
    async fn go_on(&mut self, why: &str, again: bool) {
        tracing::debug!(why, stream = self.stream, "a reader of the history goes on with a new consumer");
        HistoryCounts::count(&self.counts.resumed);
        if let Some(consumer) = self.consumer.take() {
            consumer.delete().await;
        }
        let mut wait_ms = RETRY_MS;
        let mut said = false;
        loop {
            self.jetstream.connection().connected().await;
            match self.try_go_on(again).await {
                Ok(()) => return,
                Err(error) => {
                    if !std::mem::replace(&mut said, true) {
                        tracing::warn!(%error, stream = self.stream, "the history cannot be read now");
                    }
                    wait_ms = wait(wait_ms).await;
                }
            }
        }
    }

    async fn try_go_on(&mut self, again: bool) -> Result<(), CallError> {
        let info: StreamInfo = self.jetstream.stream_info(&self.stream).await?;
        let mut place = self.place.clone();
        let Past { start, lost, first } = place.resume(&info, again);
        self.start(start).await?;
        self.place = place;
        self.first = first;
        match (lost, &self.wanted.table) {
            (None, _) => {}
            (Some(_), None) => self.cursor.open_hole_everywhere(),
            (Some(since), Some(table)) => self.cursor.open_hole(&table.clone(), Some(since)),
        }
        Ok(())
    }
}

async fn wait(wait_ms: u64) -> u64 {
    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    (wait_ms * 2).min(RETRY_MS_MAX)
}
