//! One message from sealing to its outcome: the same bytes under the same id on every attempt, and in the end a question
//! that has a definite answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};
use wavehouse_broker::PublishError;
use wavehouse_core::{RowBlock, Topic, UnitId, encode_block, encode_merged};
use wavehouse_nats::{CallError, HeaderMap, PubAck};
use wavehouse_topology::limits::PUBLISH_RETRY_WAIT;

use super::lane::{Waiting, scope_of};
use super::verdict::{Verdict, judge};
use crate::shared::Shared;

const MESSAGE_ID: &str = "Nats-Msg-Id";

/// A message that will not change any more.
pub(super) struct Sealed {
    pub(super) parts: Vec<Waiting>,
    pub(super) unit: UnitId,
    subject: String,
    id: String,
    payload: Bytes,
    /// When it is given up.
    deadline: Instant,
}

impl Sealed {
    /// Seals these blocks of one table and scope under a number that no other message of this session has.
    pub(super) fn new(
        shared: &Shared,
        parts: Vec<Waiting>,
        number: u64,
        now: Instant,
        budget: Duration,
    ) -> Self {
        let blocks: Vec<&RowBlock> = parts.iter().map(|waiting| &waiting.block).collect();
        let mut payload = Vec::with_capacity(parts.iter().map(|waiting| waiting.bytes).sum());
        encode_merged(&blocks, &mut payload);
        // Parts are never none; a message of none would go nowhere and be answered by nobody.
        let first = blocks.first().map(|block| Topic { table: block.table.clone(), scope: scope_of(block) });
        let spec = shared.spec();
        let unit = first.as_ref().map_or(UnitId::WHOLE, |topic| spec.placement().unit_for(&topic.table));
        let subject = first.map(|topic| spec.prefix().ingest(unit, &topic)).unwrap_or_default();
        let oldest = parts.iter().map(|waiting| waiting.since).min().unwrap_or(now);
        // Whatever the wait before, there is time for one attempt and one question.
        let deadline = (oldest + budget).max(now + 2 * shared.options.publish_timeout);
        Self {
            unit,
            subject,
            id: format!("{}-{number}", shared.session),
            payload: payload.into(),
            deadline,
            parts,
        }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(MESSAGE_ID, self.id.as_str());
        headers
    }

    /// A message without rows, which the server drops where it has the other.
    fn question(&self) -> Bytes {
        let mut payload = Vec::new();
        if let Some(first) = self.parts.first() {
            let table = first.block.table.clone();
            encode_block(&RowBlock { table, segments: Vec::new(), lines: Bytes::new() }, &mut payload);
        }
        payload.into()
    }
}

/// Sends a message until its outcome is known or its time is over; gives back its sequence.
pub(super) async fn publish(shared: &Arc<Shared>, sealed: &Sealed) -> Result<u64, PublishError> {
    let timeout = shared.options.publish_timeout;
    let mut maybe = false;
    let mut asked_after = false;
    let last = loop {
        let error = match send(shared, sealed, sealed.payload.clone()).await {
            Ok(ack) => return stored(shared, sealed, &ack).map(|()| ack.sequence),
            Err(error) => error,
        };
        let bytes = sealed.payload.len() as u64;
        match judge(&error, bytes, shared.block_bytes_max as u64) {
            Verdict::Refused(refusal) | Verdict::Broken(refusal) if maybe => break refusal.to_string(),
            Verdict::Refused(refusal) => return Err(refusal),
            Verdict::Broken(refusal) => {
                shared.topology_fault(&refusal.to_string());
                return Err(refusal);
            }
            Verdict::Nobody if asked_after => {
                if let Some(gone) = gone(shared, sealed).await
                    && !maybe
                {
                    return Err(gone);
                }
            }
            // The first time it may be that a leader is being elected.
            Verdict::Nobody => asked_after = true,
            Verdict::NotSent => {}
            Verdict::Unanswered => maybe = true,
        }
        // What may be stored is asked after while there is time.
        let until = if maybe { sealed.deadline - timeout } else { sealed.deadline };
        if shared.is_closed() || Instant::now() + PUBLISH_RETRY_WAIT >= until {
            break error.to_string();
        }
        pause(shared).await;
    };
    if !maybe {
        let closed = shared.is_closed();
        return Err(if closed { PublishError::Closed } else { PublishError::Unavailable { reason: last } });
    }
    ask(shared, sealed, last).await
}

/// Asks what became of a message that may be stored: an empty one under the same id is dropped as a duplicate where it
/// is, and keeps it from ever being stored where it is not. A question whose own answer is lost cannot be asked again.
async fn ask(shared: &Arc<Shared>, sealed: &Sealed, mut last: String) -> Result<u64, PublishError> {
    while !shared.is_closed() {
        let sent = send(shared, sealed, sealed.question()).await;
        let unanswered = sent.as_ref().is_err_and(CallError::is_unknown);
        match sent {
            Ok(ack) if ack.duplicate => return stored(shared, sealed, &ack).map(|()| ack.sequence),
            Ok(_) => return Err(PublishError::Unavailable { reason: last }),
            Err(error) => last = error.to_string(),
        }
        if unanswered || Instant::now() + PUBLISH_RETRY_WAIT >= sealed.deadline {
            break;
        }
        pause(shared).await;
    }
    Err(PublishError::Unconfirmed { reason: last })
}

async fn send(shared: &Shared, sealed: &Sealed, payload: Bytes) -> Result<PubAck, CallError> {
    let jetstream = shared.jetstream.with_timeout(shared.options.publish_timeout);
    jetstream.publish(&sealed.subject, Some(sealed.headers()), payload).await
}

/// Waits before another attempt, but not past the closing of the queue.
async fn pause(shared: &Shared) {
    tokio::select! {
        () = shared.closed.cancelled() => {}
        () = sleep(PUBLISH_RETRY_WAIT) => {}
    }
}

/// A message is only stored in its partition's stream; no header can demand it, as its copy would carry it along.
fn stored(shared: &Shared, sealed: &Sealed, ack: &PubAck) -> Result<(), PublishError> {
    let expected = shared.partition(sealed.unit.partition).map_or("", |partition| partition.stream.as_str());
    if ack.stream == expected {
        return Ok(());
    }
    let reason = format!("stream {} took it in place of {expected}", ack.stream);
    shared.topology_fault(&reason);
    Err(PublishError::Unavailable { reason })
}

/// Whether nobody answers because the partition's stream is gone.
async fn gone(shared: &Shared, sealed: &Sealed) -> Option<PublishError> {
    let stream = &shared.partition(sealed.unit.partition)?.stream;
    let looked = shared.jetstream.with_timeout(shared.options.publish_timeout).stream_info(stream).await;
    let is_gone = looked.is_err_and(|error| error.is_stream_gone());
    is_gone.then(|| {
        let reason = format!("stream {stream} is gone");
        shared.topology_fault(&reason);
        PublishError::Unavailable { reason }
    })
}
