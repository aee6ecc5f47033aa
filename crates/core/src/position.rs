//! Where a row stands in the queue. A position survives restarts and names one row for ever: it is the id of a live
//! event and of a dead letter.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The random id a queue gets when its directory or stream is created. Sequences of two logs never compare.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LogId(pub u64);

/// The number of a block in its log, ascending within a table. Where the log numbers each table by itself it runs from 1
/// without gaps; where several tables share the numbers, a table's sequences have gaps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The first sequence that a log hands out.
    pub const FIRST: Self = Self(1);

    /// The one after this.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One row: its log, the sequence of its block in its table, and its place in the block, from 0.
///
/// `stored_ms` only helps to find the row again: it is no part of what the position names, so two positions that differ
/// in it alone are equal.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// The log that numbered the block.
    pub log: LogId,
    /// The block's sequence in its table.
    pub sequence: Sequence,
    /// The row in the block, from 0.
    pub row: u32,
    /// When the block was stored, by the clock of the log, in milliseconds since 1970; 0 where the log finds its rows
    /// without it.
    pub stored_ms: u64,
}

impl Position {
    /// A row of a log that finds its rows without knowing when they were stored.
    #[must_use]
    pub fn new(log: LogId, sequence: Sequence, row: u32) -> Self {
        Self { log, sequence, row, stored_ms: 0 }
    }

    fn named(self) -> (LogId, Sequence, u32) {
        (self.log, self.sequence, self.row)
    }
}

impl PartialEq for Position {
    fn eq(&self, other: &Self) -> bool {
        self.named() == other.named()
    }
}

impl Eq for Position {}

impl Hash for Position {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.named().hash(state);
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> Ordering {
        self.named().cmp(&other.named())
    }
}

/// A text that is no position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("position {0:?} is not of the form <16 hex digits>-<sequence>-<row>[-<milliseconds>]")]
pub struct PositionError(pub String);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.log, self.sequence, self.row)?;
        if self.stored_ms == 0 { Ok(()) } else { write!(f, "-{}", self.stored_ms) }
    }
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || PositionError(text.to_owned());
        let mut parts = text.splitn(4, '-');
        let (Some(log), Some(sequence), Some(row)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong());
        };
        if log.len() != 16 {
            return Err(wrong());
        }
        Ok(Self {
            log: LogId(u64::from_str_radix(log, 16).map_err(|_| wrong())?),
            sequence: Sequence(sequence.parse().map_err(|_| wrong())?),
            row: row.parse().map_err(|_| wrong())?,
            stored_ms: parts.next().map_or(Ok(0), str::parse).map_err(|_| wrong())?,
        })
    }
}

impl Serialize for Position {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Position {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let position = Position::new(LogId(0xab), Sequence(7), 3);
        assert_eq!(position.to_string(), "00000000000000ab-7-3");
        assert_eq!("00000000000000ab-7-3".parse(), Ok(position));
        for bad in ["", "7", "ab-7-3", "00000000000000ab-7", "00000000000000ab-x-1", "00000000000000ab-1-1-x"]
        {
            assert!(bad.parse::<Position>().is_err(), "{bad}");
        }
        let dated = Position { stored_ms: 1_700_000_000_123, ..position };
        assert_eq!(dated.to_string(), "00000000000000ab-7-3-1700000000123");
        let parsed: Position = dated.to_string().parse().unwrap();
        assert_eq!((parsed, parsed.stored_ms), (position, dated.stored_ms));
    }
}
