//! A reader's place in the history, and where it goes on after its consumer was lost: pure.

use wavehouse_core::{LogId, Sequence, Timestamp};
use wavehouse_nats::{StartAt, StreamInfo};

use super::SLACK;

/// How full a bounded history may be, in percent, until it may have dropped copies for want of room.
const FULL_PERCENT: u64 = 90;

/// The last copy that was taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its number in the history.
    pub(super) history: u64,
    /// The log and sequence of its original.
    pub(super) original: (LogId, Sequence),
}

/// Where a reader is.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Where it began, as long as nothing has come.
    begin: StartAt,
    /// When the history that it reads was made.
    created: String,
    seen: Option<Seen>,
    /// Up to this moment everything was read.
    read_to: Timestamp,
}

/// Where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Past {
    /// From there.
    pub(super) start: StartAt,
    /// Copies may have gone unread, since this moment.
    pub(super) lost: Option<Timestamp>,
    /// The copy that must come first, when the one at its number is asked for again.
    pub(super) first: Option<Seen>,
}

/// RFC 3339 as the servers write it; the epoch for their year 1, which means never.
pub(super) fn time_of(text: &str) -> Timestamp {
    Timestamp::parse_rfc3339(text).unwrap_or_default()
}

impl Place {
    pub(super) fn new(begin: StartAt, info: &StreamInfo, now: Timestamp) -> Self {
        Self { begin, created: info.created.clone(), seen: None, read_to: now }
    }

    pub(super) fn begin(&self) -> StartAt {
        self.begin
    }

    /// A copy was taken in.
    pub(super) fn took(&mut self, seen: Seen, copied: Timestamp) {
        self.seen = Some(seen);
        self.read_to = self.read_to.max(copied);
    }

    /// Nothing was left to read at this moment.
    pub(super) fn drained(&mut self, now: Timestamp) {
        self.read_to = self.read_to.max(now);
    }

    /// Begins anew with everything that is kept since the beginning.
    pub(super) fn rewind(&mut self, begin: StartAt) {
        self.begin = begin;
        self.seen = None;
    }

    /// Where to go on in the history as it is now. `again` when the copy that must come first was not there: the end of
    /// the history was lost and has been written over.
    pub(super) fn resume(&mut self, info: &StreamInfo, again: bool) -> Past {
        let same = self.created == info.created;
        let read = match (self.seen, self.begin) {
            (Some(seen), _) => seen.history,
            (None, StartAt::Sequence(first)) => first.saturating_sub(1),
            (None, _) => 0,
        };
        let shrunk = info.state.last_seq < read;
        let remade = !same;
        self.created.clone_from(&info.created);
        if remade || shrunk || again {
            self.seen = None;
            let start = StartAt::Time(self.read_to.saturating_sub(SLACK));
            self.begin = start;
            // A history that lost its end lost what was read already.
            return Past { start, lost: remade.then_some(self.read_to), first: None };
        }
        let Some(seen) = self.seen else {
            let lost = match self.begin {
                StartAt::Sequence(first) => self.dropped_unread(info, first),
                _ => None,
            };
            return Past { start: self.begin, lost, first: None };
        };
        let lost = self.dropped_unread(info, seen.history.saturating_add(1));
        // The last one is asked for again, to see that it is the one that was read.
        let kept = info.state.first_seq <= seen.history;
        Past { start: StartAt::Sequence(seen.history), lost, first: kept.then_some(seen) }
    }

    /// Since when copies from this number on may have left the history unread.
    fn dropped_unread(&self, info: &StreamInfo, next: u64) -> Option<Timestamp> {
        if info.state.first_seq <= next {
            return None;
        }
        let until = oldest(info);
        (until > self.read_to.saturating_sub(SLACK)).then_some(self.read_to)
    }
}

/// All copies before this moment may have left.
fn oldest(info: &StreamInfo) -> Timestamp {
    let kept = if info.state.messages > 0 { &info.state.first_ts } else { &info.state.last_ts };
    time_of(kept)
}

/// Up to when copies may have left the history; `None` when it has everything that it ever had.
pub(super) fn lost_until(info: &StreamInfo, now: Timestamp) -> Option<Timestamp> {
    if info.state.first_seq <= 1 {
        return None;
    }
    let number = |field: &str| info.config.get(field).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let (bytes_max, age_ns) = (number("max_bytes"), number("max_age"));
    let full =
        bytes_max > 0 && info.state.bytes.saturating_mul(100) >= bytes_max.saturating_mul(FULL_PERCENT);
    if full || age_ns == 0 {
        return Some(oldest(info));
    }
    Some(Timestamp(now.0.saturating_sub(age_ns)).min(oldest(info)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wavehouse_nats::StreamState;

    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp(second * 1_000_000_000)
    }

    fn info(created: &str, first_seq: u64, last_seq: u64, first_s: u64) -> StreamInfo {
        StreamInfo {
            config: json!({"max_bytes": 1000, "max_age": 60_000_000_000_u64}),
            created: created.to_owned(),
            state: StreamState {
                messages: last_seq + 1 - first_seq,
                first_seq,
                last_seq,
                first_ts: at(first_s).to_string(),
                last_ts: at(first_s + 5).to_string(),
                ..StreamState::default()
            },
            cluster: None,
            ts: String::new(),
        }
    }

    fn seen(history: u64) -> Seen {
        Seen { history, original: (LogId(1), Sequence(history)) }
    }

    #[test]
    fn the_last_copy_is_asked_for_again() {
        let mut place = Place::new(StartAt::Sequence(5), &info("a", 1, 4, 100), at(100));
        let past = place.resume(&info("a", 1, 9, 100), false);
        assert_eq!(past, Past { start: StartAt::Sequence(5), lost: None, first: None });
        place.took(seen(7), at(200));
        let past = place.resume(&info("a", 1, 9, 100), false);
        assert_eq!(past, Past { start: StartAt::Sequence(7), lost: None, first: Some(seen(7)) });
        let past = place.resume(&info("a", 9, 12, 150), false);
        assert_eq!(past, Past { start: StartAt::Sequence(7), lost: None, first: None }, "what left was read");
        let past = place.resume(&info("a", 9, 12, 201), false);
        assert_eq!(past.lost, Some(at(200)), "what left may not have been read");
        place.drained(at(300));
        assert_eq!(place.resume(&info("a", 9, 12, 201), false).lost, None, "it was: nothing was left at 300");
    }

    #[test]
    fn a_history_made_anew_is_read_by_time() {
        let mut place = Place::new(StartAt::First, &info("a", 1, 4, 100), at(100));
        place.took(seen(7), at(200));
        let past = place.resume(&info("b", 1, 2, 400), false);
        assert_eq!(past, Past { start: StartAt::Time(at(170)), lost: Some(at(200)), first: None });
        assert_eq!(place.resume(&info("b", 1, 2, 400), false).lost, None, "told once");
    }

    #[test]
    fn a_history_that_lost_its_end_is_read_by_time_without_a_hole() {
        let mut place = Place::new(StartAt::First, &info("a", 1, 4, 100), at(100));
        place.took(seen(7), at(200));
        let by_time = Past { start: StartAt::Time(at(170)), lost: None, first: None };
        assert_eq!(place.clone().resume(&info("a", 1, 6, 100), false), by_time);
        assert_eq!(place.resume(&info("a", 1, 9, 100), true), by_time, "another copy stands at its number");
    }

    #[test]
    fn what_may_have_left() {
        assert_eq!(lost_until(&info("a", 1, 9, 100), at(500)), None, "nothing ever did");
        assert_eq!(lost_until(&info("a", 5, 9, 480), at(500)), Some(at(440)), "by age alone");
        assert_eq!(lost_until(&info("a", 5, 9, 430), at(500)), Some(at(430)), "the server is slow to drop");
        let mut full = info("a", 5, 9, 480);
        full.state.bytes = 950;
        assert_eq!(lost_until(&full, at(500)), Some(at(480)), "for want of room");
    }
}
