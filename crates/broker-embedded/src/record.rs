//! The records that a log file is made of.
//!
//! ```text
//! offset  size  field
//!      0     3  magic "WHL"
//!      3     1  kind
//!      4     4  bytes of content after this head
//!      8     4  crc32c of everything but this field
//!     12     4  number of the log file
//!     16     4  run: random, new with each opening of the queue
//!     20     4  where in the file the commit began that this record belongs to
//!     24     4  table id, 0 where none is meant
//!     28     8  sequence, 0 where none is meant
//!     36     …  content
//! ```
//!
//! The number of the file tells records from what a recycled file held before. The run tells them from what a torn
//! commit left behind: a run begins with a checkpoint or an `Open` record, and a record of another run ends the log. The
//! beginning of the commit tells a torn commit, which nobody was told of, from damage to what was durable: a commit is
//! begun only when the one before is durable, so a broken record with a later commit behind it was durable once.

use wavehouse_broker::{Cut, InsertToken};
use wavehouse_core::{Sequence, TableName, TableRef, TenantId};

use crate::codec::{Fields, Put, len_u32};

/// Bytes before a record's content.
pub(crate) const HEAD_BYTES: usize = 36;
/// What every record begins with.
pub(crate) const MAGIC: [u8; 3] = *b"WHL";
const CRC_AT: usize = 8;
const CRC_END: usize = 12;

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The state of every table; first in every log file.
    Checkpoint = 1,
    /// A new run begins.
    Open = 2,
    /// A table id gets its tenant and name.
    Table = 3,
    /// A block.
    Block = 4,
    /// A block that stood in an older file.
    Moved = 5,
    /// Blocks that are settled.
    Settle = 6,
    /// A recorded cut.
    Cut = 7,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Checkpoint,
            2 => Self::Open,
            3 => Self::Table,
            4 => Self::Block,
            5 => Self::Moved,
            6 => Self::Settle,
            7 => Self::Cut,
            _ => return None,
        })
    }
}

/// Where a record stands and to what it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: u32,
    pub(crate) run: u32,
    pub(crate) commit: u32,
}

/// A record's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
    pub(crate) place: Place,
    pub(crate) table: u32,
    pub(crate) sequence: u64,
}

impl Head {
    /// Bytes of the whole record.
    pub(crate) fn record_bytes(&self) -> usize {
        HEAD_BYTES + self.bytes as usize
    }

    /// The head that `bytes` begin with; says nothing about the checksum.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(bytes.get(..HEAD_BYTES)?);
        if fields.take(MAGIC.len())? != MAGIC {
            return None;
        }
        Some(Self {
            kind: Kind::from_byte(fields.u8()?)?,
            bytes: fields.u32()?,
            crc: fields.u32()?,
            place: Place { file: fields.u32()?, run: fields.u32()?, commit: fields.u32()? },
            table: fields.u32()?,
            sequence: fields.u64()?,
        })
    }
}

/// A whole record whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) head: Head,
    pub(crate) content: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record that `bytes` begin with, if they do begin with a whole one that is unchanged.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let head = Head::read(bytes)?;
        let whole = bytes.get(..head.record_bytes())?;
        (checksum(whole) == head.crc).then_some(Self { head, content: whole.get(HEAD_BYTES..)? })
    }
}

/// Appends a record; `content` appends its content.
pub(crate) fn write(
    out: &mut Vec<u8>,
    kind: Kind,
    place: Place,
    (table, sequence): (u32, u64),
    content: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.put_u8(kind as u8);
    out.put_u64(0);
    out.put_u32(place.file);
    out.put_u32(place.run);
    out.put_u32(place.commit);
    out.put_u32(table);
    out.put_u64(sequence);
    content(out);
    let bytes = len_u32(out.len() - start - HEAD_BYTES);
    let Some(record) = out.get_mut(start..) else { return };
    set_u32(record, 4, bytes);
    let crc = checksum(record);
    set_u32(record, CRC_AT, crc);
}

fn set_u32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

fn checksum(record: &[u8]) -> u32 {
    let front = crc32c::crc32c(record.get(..CRC_AT).unwrap_or_default());
    crc32c::crc32c_append(front, record.get(CRC_END..).unwrap_or_default())
}

/// The content of a [`Kind::Table`] record.
pub(crate) fn put_table(out: &mut Vec<u8>, table: &TableRef) {
    out.put_text(table.tenant.as_str());
    out.put_text(table.table.as_str());
}

/// Reads what [`put_table`] wrote.
pub(crate) fn take_table(fields: &mut Fields<'_>) -> Option<TableRef> {
    let tenant = TenantId::parse(fields.text()?).ok()?;
    Some(TableRef::new(tenant, TableName::parse(fields.text()?).ok()?))
}

/// A range of settled sequences, both ends included.
pub(crate) type Range = (u64, u64);

/// Settled ranges, the content of a [`Kind::Settle`] record.
pub(crate) fn put_ranges(out: &mut Vec<u8>, ranges: impl ExactSizeIterator<Item = Range>) {
    out.put_u32(len_u32(ranges.len()));
    for (first, last) in ranges {
        out.put_u64(first);
        out.put_u64(last);
    }
}

/// Reads what [`put_ranges`] wrote.
pub(crate) fn take_ranges(fields: &mut Fields<'_>) -> Option<Vec<Range>> {
    let count = fields.u32()?;
    (0..count).map(|_| Some((fields.u64()?, fields.u64()?))).collect()
}

/// Bytes of a settle record of so many ranges.
pub(crate) fn settle_bytes(ranges: usize) -> usize {
    HEAD_BYTES + 4 + 16 * ranges
}

/// The content of a [`Kind::Cut`] record; its table stands in the head.
pub(crate) fn put_cut(out: &mut Vec<u8>, cut: &Cut) {
    out.put_u64(cut.first.0);
    out.put_u64(cut.last.0);
    out.put_u32(cut.done_rows);
    out.put_u128(cut.token.0);
    out.put_u32(len_u32(cut.splits.len()));
    for split in &cut.splits {
        out.put_u32(*split);
    }
}

/// Reads what [`put_cut`] wrote.
pub(crate) fn take_cut(fields: &mut Fields<'_>, table: TableRef) -> Option<Cut> {
    let (first, last) = (Sequence(fields.u64()?), Sequence(fields.u64()?));
    let (done_rows, token) = (fields.u32()?, InsertToken(fields.u128()?));
    let count = fields.u32()?;
    let splits = (0..count).map(|_| fields.u32()).collect::<Option<_>>()?;
    // Sequences of this log have no gaps.
    let blocks = u32::try_from((last.0 + 1).checked_sub(first.0)?).ok()?;
    Some(Cut { table, first, last, blocks, splits, done_rows, token })
}

/// Bytes of a cut record.
pub(crate) fn cut_bytes(cut: &Cut) -> usize {
    HEAD_BYTES + 40 + 4 * cut.splits.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLACE: Place = Place { file: 7, run: 0xfeed, commit: 4096 };

    fn table() -> TableRef {
        TableRef::new(TenantId::default(), TableName::parse("events").unwrap())
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(content in prop::collection::vec(any::<u8>(), 0..99), more in 0..9_usize) {
            let mut bytes = Vec::new();
            write(&mut bytes, Kind::Block, PLACE, (3, 9), |out| out.extend_from_slice(&content));
            let length = bytes.len();
            bytes.extend(std::iter::repeat_n(0, more));
            let record = Record::read(&bytes).unwrap();
            prop_assert_eq!(record.content, &content[..]);
            prop_assert_eq!(record.head.record_bytes(), length);
            let head = record.head;
            prop_assert_eq!((head.kind, head.place, head.table, head.sequence), (Kind::Block, PLACE, 3, 9));
        }

        #[test]
        fn a_changed_byte_is_noticed(at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
            let mut bytes = Vec::new();
            write(&mut bytes, Kind::Settle, PLACE, (3, 9), |out| put_ranges(out, [(1, 2), (4, 4)].into_iter()));
            prop_assert_eq!(bytes.len(), settle_bytes(2));
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(Record::read(&bytes).is_none());
        }

        #[test]
        fn a_record_that_is_cut_short_is_none(keep in any::<prop::sample::Index>()) {
            let mut bytes = Vec::new();
            write(&mut bytes, Kind::Table, PLACE, (3, 0), |out| put_table(out, &table()));
            prop_assert!(Record::read(&bytes[..keep.index(bytes.len())]).is_none());
        }
    }

    #[test]
    fn contents_come_back() {
        let mut bytes = Vec::new();
        put_table(&mut bytes, &table());
        assert_eq!(take_table(&mut Fields::new(&bytes)), Some(table()));
        let cut = Cut {
            table: table(),
            first: Sequence(4),
            last: Sequence(9),
            blocks: 6,
            splits: vec![1, 5],
            done_rows: 3,
            token: InsertToken(u128::MAX - 1),
        };
        bytes.clear();
        put_cut(&mut bytes, &cut);
        assert_eq!(bytes.len() + HEAD_BYTES, cut_bytes(&cut));
        assert_eq!(take_cut(&mut Fields::new(&bytes), table()), Some(cut));
        bytes.pop();
        assert_eq!(take_cut(&mut Fields::new(&bytes), table()), None);
    }
}
