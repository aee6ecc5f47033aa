//! Where copies in the history come from: the partition streams, each of which is a log from its creation on.
//!
//! A copy says the name of its stream and when it was stored there. A stream that was deleted and made again keeps its
//! name, so a copy belongs to the newest creation that is not after it. What is known is learned again when a stream is
//! not known, when its numbers go backwards, and whenever somebody looks at the partitions anyway.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wavehouse_core::{LogId, PartitionId, Sequence, Timestamp};
use wavehouse_nats::{CallError, JetStream, StreamInfo};
use wavehouse_topology::TopologySpec;

use crate::logs::log_id;

/// By how much the clocks of two servers may differ.
const CLOCKS_APART: Duration = Duration::from_secs(10);
/// Most creations of one stream that are remembered; the oldest is forgotten first.
const CREATIONS_MAX: usize = 16;

/// One creation of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Creation {
    at: Timestamp,
    text: String,
    log: LogId,
}

/// A partition stream at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Its name.
    pub(crate) stream: String,
    /// The log that it is.
    pub(crate) log: LogId,
    /// Its newest sequence so far, whether or not it is still there.
    pub(crate) last: Sequence,
    /// When that was stored; the epoch when nothing ever was.
    pub(crate) last_at: Timestamp,
}

#[derive(Default)]
struct Known {
    creations: HashMap<String, Vec<Creation>>,
    names: HashMap<PartitionId, String>,
    /// The highest sequence that was seen of a stream's newest creation, and when it was stored.
    highest: HashMap<String, (u64, Timestamp)>,
}

/// The partition streams of a deployment, as last seen.
pub struct Origins {
    jetstream: JetStream,
    spec: Arc<TopologySpec>,
    known: Mutex<Known>,
}

impl Origins {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(jetstream: JetStream, spec: Arc<TopologySpec>) -> Self {
        Self { jetstream, spec, known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what a stream said of itself.
    pub fn learn(&self, stream: &str, info: &StreamInfo) {
        let at = Timestamp::parse_rfc3339(&info.created).unwrap_or_default();
        let log = log_id(stream, &info.created);
        let mut known = self.lock();
        let creations = known.creations.entry(stream.to_owned()).or_default();
        if creations.iter().any(|creation| creation.log == log) {
            return;
        }
        creations.push(Creation { at, text: info.created.clone(), log });
        creations.sort_by_key(|creation| creation.at);
        if creations.len() > CREATIONS_MAX {
            creations.remove(0);
        }
        known.highest.remove(stream);
    }

    /// The log of a copy, from what is known; `None` when its stream must be looked at first.
    pub(crate) fn log_of(&self, stream: &str, sequence: u64, stored: Timestamp) -> Option<LogId> {
        let mut known = self.lock();
        let log = pick(stream, known.creations.get(stream)?, stored);
        let highest = known.highest.entry(stream.to_owned()).or_insert((sequence, stored));
        let backwards = sequence <= highest.0 && stored > highest.1;
        if backwards {
            return None;
        }
        if sequence > highest.0 {
            *highest = (sequence, stored);
        }
        Some(log)
    }

    /// The log of a copy, looking at its stream if need be.
    pub(crate) async fn find_log(
        &self,
        stream: &str,
        sequence: u64,
        stored: Timestamp,
    ) -> Result<LogId, CallError> {
        if let Some(log) = self.log_of(stream, sequence, stored) {
            return Ok(log);
        }
        match self.jetstream.stream_info(stream).await {
            Ok(info) => self.learn(stream, &info),
            // What a removed partition left behind is a log of its own.
            Err(error) if error.is_stream_gone() => return Ok(log_id(stream, "gone")),
            Err(error) => return Err(error),
        }
        let mut known = self.lock();
        known.highest.insert(stream.to_owned(), (sequence, stored));
        let creations = known.creations.get(stream).map(Vec::as_slice).unwrap_or_default();
        Ok(pick(stream, creations, stored))
    }

    /// Whether a log is, or was, one of the streams that are known.
    pub(crate) fn stream_of(&self, log: LogId) -> Option<String> {
        let known = self.lock();
        let found = known
            .creations
            .iter()
            .find(|(_, creations)| creations.iter().any(|creation| creation.log == log));
        found.map(|(stream, _)| stream.clone())
    }

    /// Looks at a partition; `None` when no stream holds it.
    pub(crate) async fn snapshot(&self, partition: PartitionId) -> Result<Option<Snapshot>, CallError> {
        let cached = self.lock().names.get(&partition).cloned();
        if let Some(name) = cached {
            match self.jetstream.stream_info(&name).await {
                Ok(info) => return Ok(Some(self.seen(name, &info))),
                Err(error) if error.is_stream_gone() => {}
                Err(error) => return Err(error),
            }
        }
        self.lock().names.remove(&partition);
        let probe = self.spec.prefix().partition_probe(partition);
        let Some(name) = self.jetstream.stream_names(Some(&probe)).await?.into_iter().next() else {
            return Ok(None);
        };
        match self.jetstream.stream_info(&name).await {
            Ok(info) => {
                self.lock().names.insert(partition, name.clone());
                Ok(Some(self.seen(name, &info)))
            }
            Err(error) if error.is_stream_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn seen(&self, stream: String, info: &StreamInfo) -> Snapshot {
        self.learn(&stream, info);
        let log = log_id(&stream, &info.created);
        let last_at = Timestamp::parse_rfc3339(&info.state.last_ts).unwrap_or_default();
        Snapshot { stream, log, last: Sequence(info.state.last_seq), last_at }
    }
}

/// The creation that a copy belongs to: the newest that is not after it.
fn pick(stream: &str, creations: &[Creation], stored: Timestamp) -> LogId {
    if let Some(creation) = creations.iter().rev().find(|creation| creation.at <= stored) {
        return creation.log;
    }
    match creations.first() {
        Some(first) if first.at.since(stored) <= CLOCKS_APART => first.log,
        // Of a time before all that is known: every process that knows as much calls it the same.
        Some(first) => log_id(stream, &format!("before {}", first.text)),
        None => log_id(stream, "gone"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn creation(second: u64) -> Creation {
        let at = Timestamp(second * 1_000_000_000);
        Creation { at, text: at.to_string(), log: log_id("S", &at.to_string()) }
    }

    #[test]
    fn a_copy_belongs_to_the_newest_creation_before_it() {
        let creations = [creation(100), creation(200)];
        let of = |second: u64| pick("S", &creations, Timestamp(second * 1_000_000_000));
        assert_eq!((of(100), of(199)), (creations[0].log, creations[0].log));
        assert_eq!((of(200), of(500)), (creations[1].log, creations[1].log));
        assert_eq!(of(95), creations[0].log, "clocks differ a little");
        let before = of(50);
        assert!(creations.iter().all(|creation| creation.log != before), "a log that is no more");
        assert_eq!(before, of(10));
    }
}
