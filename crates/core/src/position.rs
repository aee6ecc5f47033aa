//! Where a row stands in the queue. A position survives restarts and names one row for ever: it is the id of a live
//! event and of a dead letter.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The random id a queue gets when its directory or stream is created. Sequences of two logs never compare.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LogId(pub u64);

/// The number of a block in its log and table, from 1, without gaps.
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
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Position {
    /// The log that numbered the block.
    pub log: LogId,
    /// The block's sequence in its table.
    pub sequence: Sequence,
    /// The row in the block, from 0.
    pub row: u32,
}

/// A text that is no position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("position {0:?} is not of the form <16 hex digits>-<sequence>-<row>")]
pub struct PositionError(pub String);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.log, self.sequence, self.row)
    }
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || PositionError(text.to_owned());
        let mut parts = text.splitn(3, '-');
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
        let position = Position { log: LogId(0xab), sequence: Sequence(7), row: 3 };
        assert_eq!(position.to_string(), "00000000000000ab-7-3");
        assert_eq!("00000000000000ab-7-3".parse(), Ok(position));
        for bad in ["", "7", "ab-7-3", "00000000000000ab-7", "00000000000000ab-x-1", "00000000000000ab-1-1-1"]
        {
            assert!(bad.parse::<Position>().is_err(), "{bad}");
        }
    }
}
