//! One message of the history: a copy of a message of a partition, with what the server noted of the original.

use bytes::Bytes;
use wavehouse_core::{
    BlockError, LogId, RowBlock, Sequence, Subject, SubjectPrefix, TableRef, Timestamp, TopicKey,
    decode_block,
};
use wavehouse_nats::{Delivered, HeaderMap};

/// What a copy says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CopyHead {
    /// Its number in the history.
    pub(super) history: u64,
    /// When the history stored it.
    pub(super) copied: Timestamp,
    /// The stream of the original.
    pub(super) stream: String,
    /// The original's subject.
    pub(super) subject: String,
    /// The original's sequence.
    pub(super) sequence: Sequence,
    /// When the original was stored.
    pub(super) stored: Timestamp,
    /// The original before it under the same subject, if that was still in its stream; 0 when it was not.
    pub(super) before: Sequence,
    /// The table.
    pub(super) table: TableRef,
}

/// Why a message of the history is passed over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    /// It lacks a header that the servers write, so it is no copy.
    #[error("it is no copy of a stored message: {0} is missing or odd")]
    NoCopy(&'static str),
    /// Its subject names no table.
    #[error("its subject names no table")]
    NoTable,
    /// Its content is no block.
    #[error("its content is no block")]
    Garbled(#[source] BlockError),
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, Unreadable> {
    headers.get(name).map(AsRef::as_ref).ok_or(Unreadable::NoCopy(name))
}

fn number(headers: &HeaderMap, name: &'static str) -> Result<u64, Unreadable> {
    text(headers, name)?.parse().map_err(|_| Unreadable::NoCopy(name))
}

impl CopyHead {
    /// Reads what a message says of itself.
    pub(super) fn read(prefix: &SubjectPrefix, message: &Delivered) -> Result<Self, Unreadable> {
        let headers = &message.headers;
        let stored = text(headers, "Nats-Time-Stamp")?;
        let Some(Subject::History(TopicKey::Known(topic))) = prefix.parse_subject(&message.subject) else {
            return Err(Unreadable::NoTable);
        };
        Ok(Self {
            history: message.address.stream_sequence,
            copied: message.address.time,
            stream: text(headers, "Nats-Stream")?.to_owned(),
            subject: text(headers, "Nats-Subject")?.to_owned(),
            sequence: Sequence(number(headers, "Nats-Sequence")?),
            stored: Timestamp::parse_rfc3339(stored).map_err(|_| Unreadable::NoCopy("Nats-Time-Stamp"))?,
            before: Sequence(number(headers, "Nats-Last-Sequence").unwrap_or_default()),
            table: topic.table,
        })
    }

    /// Reads the rows.
    pub(super) fn block(&self, payload: &Bytes) -> Result<RowBlock, Unreadable> {
        decode_block(self.table.clone(), payload).map_err(Unreadable::Garbled)
    }
}

/// A copy that is understood, with the log that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) head: CopyHead,
    pub(super) log: LogId,
    /// The rows; none when they cannot be read.
    pub(super) block: Option<RowBlock>,
}
