//! One who watches a table: what was asked for from history, then live, with no gap and no twin between them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::HeaderMap;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};
use wavehouse_broker::{HistoryEvent, HistoryFilter, HistoryStart, HistoryStream};
use wavehouse_core::{Position, TableName, TableRef, Timestamp};

use super::feed::Channel;
use super::frame;
use super::ring::Taken;
use crate::error::ApiError;
use crate::ingest::receipt_digits;
use crate::shared::Shared;
use crate::tenant::{self, Query};

/// Replayed frames are gathered up to this size before they are sent, in bytes.
const REPLAY_BYTES: usize = 128 * 1024;

/// What to do next for a subscriber.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send these, in order.
    Send(Vec<Bytes>),
    /// Send this and close.
    End(&'static [u8]),
}

/// Where a subscriber is.
enum Phase {
    /// Reading history. Once `caught_up`, live takes over as soon as history has passed `bound`.
    Replay { history: Box<dyn HistoryStream>, caught_up: bool, bound: u64 },
    /// Following the ring.
    Live,
}

/// One open stream.
pub(crate) struct Subscriber {
    channel: Arc<Channel>,
    version: watch::Receiver<u64>,
    /// The place in the ring.
    place: u64,
    /// The last block that was sent from history: the ring's copies of it and of those before are passed over.
    replayed: u64,
    phase: Phase,
    keepalive: Duration,
    /// When something was last sent.
    sent_at: Instant,
    /// Goes off when the stream may have been quiet for long. It is not put forward with each row, but when it goes off.
    alarm: Pin<Box<Sleep>>,
    began: Instant,
}

/// Opens the stream that a request asks for.
///
/// # Errors
/// No table, or the history cannot be read. A table that is not known is accepted and stays silent until it is.
pub(crate) async fn open(
    shared: &Shared,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Subscriber, ApiError> {
    if shared.is_stopping() {
        return Err(ApiError::Stopping);
    }
    let tenant = tenant::of_header(headers, &shared.tenant)?;
    let name = query.get("table").filter(|name| !name.is_empty()).ok_or(ApiError::MissingStreamTable)?;
    let name = TableName::parse(name).map_err(|error| ApiError::InvalidTable(error.to_string()))?;
    let info = shared.connection.catalog.table(name.as_str());
    let digits = receipt_digits(info.as_ref().map(|info| &info.schema));
    let table = TableRef::new(tenant, name);
    // First the place in the ring, then history: what becomes durable in between is in both, and in no case in neither.
    let channel = shared.hub.join(&table, digits).await;
    let (version, place) = (channel.watch(), channel.ring().end());
    let phase = match start(query, headers) {
        None => Phase::Live,
        Some(start) => {
            let opened = shared.broker.open_history(start, HistoryFilter::Table(table)).await;
            let history = opened.map_err(|error| ApiError::QueueUnavailable(error.to_string()))?;
            Phase::Replay { history, caught_up: false, bound: 0 }
        }
    };
    shared.metrics.streams.inc();
    let (keepalive, began) = (shared.next_keepalive(), Instant::now());
    Ok(Subscriber {
        channel,
        version,
        place,
        replayed: 0,
        phase,
        keepalive,
        sent_at: began,
        alarm: Box::pin(sleep_until(began + keepalive)),
        began,
    })
}

/// What is asked for: `Last-Event-ID` wins over `since`; either may be one of our ids or a time. What is neither is
/// passed over, as clients of the reference expect.
fn start(query: &Query, headers: &HeaderMap) -> Option<HistoryStart> {
    let id = headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::trim);
    let read = |text: &str| {
        let position = text.parse::<Position>().ok().map(HistoryStart::After);
        position.or_else(|| Timestamp::parse_rfc3339(text).ok().map(HistoryStart::Since))
    };
    id.filter(|text| !text.is_empty()).and_then(read).or_else(|| query.get("since").and_then(read))
}

impl Subscriber {
    /// Waits for the next thing to send.
    pub(crate) async fn next(&mut self) -> Step {
        loop {
            let step = match self.phase {
                Phase::Live => self.live().await,
                // Boxed, as a stream is live for most of its life.
                Phase::Replay { .. } => Box::pin(self.replay_until_stop()).await,
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    async fn live(&mut self) -> Option<Step> {
        if self.channel.is_stopped() {
            return Some(Step::End(frame::STOPPING));
        }
        // Looked at before the ring, so that what is pushed after the look wakes us.
        self.version.borrow_and_update();
        let taken = self.channel.ring().take(self.place);
        match taken {
            Taken::Overtaken => {
                self.channel.metrics.streams_lagged.inc();
                Some(Step::End(frame::LAGGED))
            }
            Taken::Chunks(chunks, _) if chunks.is_empty() => {
                tokio::select! {
                    biased;
                    // The channel is ours as well, so its sender is not gone.
                    _changed = self.version.changed() => None,
                    () = self.alarm.as_mut() => self.alarmed(),
                }
            }
            Taken::Chunks(chunks, next) => {
                self.place = next;
                let fresh =
                    chunks.into_iter().filter(|chunk| chunk.sequence == 0 || chunk.sequence > self.replayed);
                let (mut rows, mut pieces) = (0, Vec::new());
                for chunk in fresh {
                    rows += u64::from(chunk.rows);
                    pieces.push(chunk.bytes);
                }
                let bytes = pieces.iter().map(Bytes::len).sum();
                self.channel.events.add(rows, bytes);
                self.sent_at = Instant::now();
                (!pieces.is_empty()).then_some(Step::Send(pieces))
            }
        }
    }

    /// A sign of life, if the stream has been quiet for long enough.
    fn alarmed(&mut self) -> Option<Step> {
        let now = Instant::now();
        let quiet = now >= self.sent_at + self.keepalive;
        if quiet {
            self.sent_at = now;
        }
        self.alarm.as_mut().reset(self.sent_at + self.keepalive);
        quiet.then(|| {
            self.channel.keepalives.add(1, frame::KEEPALIVE.len());
            Step::Send(vec![Bytes::from_static(frame::KEEPALIVE)])
        })
    }

    async fn replay_until_stop(&mut self) -> Option<Step> {
        let stop = self.channel.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => Some(Step::End(frame::STOPPING)),
            step = self.replay() => step,
        }
    }

    async fn replay(&mut self) -> Option<Step> {
        let Phase::Replay { history, caught_up, bound } = &mut self.phase else { return None };
        let (mut bytes, mut rows) = (Vec::new(), 0_u64);
        let mut event = Some(history.next().await);
        while let Some(read) = event.take() {
            match read {
                Ok(HistoryEvent::Block { stored, from_row }) => {
                    frame::put_rows(&mut bytes, &stored, from_row, &self.channel.name, self.channel.digits);
                    rows += u64::from(stored.block.rows().saturating_sub(from_row));
                    self.replayed = stored.sequence.0;
                }
                Ok(HistoryEvent::Hole { from, to, .. }) => {
                    self.channel.metrics.stream_holes.inc();
                    frame::put_hole(&mut bytes, from, to);
                }
                Ok(HistoryEvent::CaughtUp) => *caught_up = true,
                Err(error) => {
                    tracing::warn!(error = %wavehouse_core::chain(&error), "a replay broke off");
                    return Some(Step::End(frame::LAGGED));
                }
            }
            if *caught_up && self.replayed >= *bound {
                let ring = self.channel.ring();
                if matches!(ring.take(self.place), Taken::Overtaken) {
                    // The replay took longer than the ring remembers: read on, up to where the ring stands now.
                    (self.place, *bound) = (ring.end(), ring.last_sequence());
                } else {
                    drop(ring);
                    self.phase = Phase::Live;
                    break;
                }
            }
            if bytes.len() < REPLAY_BYTES {
                event = history.next().now_or_never();
            }
        }
        self.channel.replayed.add(rows, bytes.len());
        self.sent_at = Instant::now();
        (!bytes.is_empty()).then(|| Step::Send(vec![bytes.into()]))
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.channel.metrics.streams.dec();
        self.channel.metrics.stream_seconds.observe(self.began.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let of = |id: Option<&str>, since: &str| {
            let mut headers = HeaderMap::new();
            if let Some(id) = id {
                headers.insert("last-event-id", id.parse().unwrap());
            }
            start(&Query::parse(Some(since)).unwrap(), &headers)
        };
        let time = Timestamp::from_millis(1_000);
        assert_eq!(of(None, ""), None);
        assert_eq!(of(None, "since=1970-01-01T00:00:01Z"), Some(HistoryStart::Since(time)));
        let id = "00000000000000ab-7-3";
        assert_eq!(of(Some(id), "since=1970-01-01T00:00:01Z"), id.parse().ok().map(HistoryStart::After));
        assert_eq!(of(Some("1970-01-01T00:00:01Z"), ""), Some(HistoryStart::Since(time)));
        assert_eq!(of(Some("what"), "since=1970-01-01T00:00:01Z"), Some(HistoryStart::Since(time)));
        assert_eq!(of(Some(""), "since=soon"), None);
    }
}
