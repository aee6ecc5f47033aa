//! A block: rows of one table, as they travel and as they are stored.
//!
//! ```text
//! offset  size  field
//!      0     2  magic "WB"
//!      2     1  version (1)
//!      3     1  reserved, 0
//!      4     4  crc32c of everything after this field
//!      8     4  number of segments
//!     12     4  bytes of lines
//!     16     …  segments: received_at u64 ns, rows u32, bytes u32, scope length u16, scope
//!      …     …  lines: JSONEachRow, each ending in \n
//! ```
//!
//! Numbers are little-endian. A segment is what one request brought, so that a broker may merge small requests into one
//! block and keep each one's receipt time and scope. A block with no segments is legal (an *empty block*): readers skip
//! it. An unknown version or a wrong checksum is never guessed at.

use bytes::Bytes;

use crate::{Scope, TableRef, Timestamp};

/// The version that this build writes, and the only one that it reads.
pub const BLOCK_VERSION: u8 = 1;
const MAGIC: [u8; 2] = *b"WB";
const HEAD_BYTES: usize = 16;
const CRC_FROM: usize = 8;
const SEGMENT_BYTES: usize = 18;

/// Rows that came in together: one request, or a part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// When the gateway took the request; the same for all of its rows.
    pub received_at: Timestamp,
    /// The scope of all of its rows.
    pub scope: Scope,
    /// How many rows.
    pub rows: u32,
    /// How many bytes of the block's lines.
    pub bytes: u32,
}

/// Rows of one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowBlock {
    /// Where the rows go.
    pub table: TableRef,
    /// The parts, in the order of their lines.
    pub segments: Vec<Segment>,
    /// JSONEachRow lines, each ending in `\n`; as many as the segments' rows add up to.
    pub lines: Bytes,
}

impl RowBlock {
    /// A block of one segment. `rows` must be the number of lines, and each line must end in `\n`.
    #[must_use]
    pub fn new(table: TableRef, received_at: Timestamp, scope: Scope, rows: u32, lines: Bytes) -> Self {
        let bytes = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        Self { table, segments: vec![Segment { received_at, scope, rows, bytes }], lines }
    }

    /// How many rows the block has.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.segments.iter().map(|segment| segment.rows).sum()
    }

    /// The latest receipt time in the block; the epoch for an empty block.
    #[must_use]
    pub fn received_at(&self) -> Timestamp {
        self.segments.iter().map(|segment| segment.received_at).max().unwrap_or_default()
    }

    /// The rows in order, each line without its `\n`.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.split(|byte| *byte == b'\n').take(self.rows() as usize)
    }

    /// Bytes of the encoded block.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        HEAD_BYTES + self.lines.len() + self.segments.iter().map(segment_len).sum::<usize>()
    }
}

fn segment_len(segment: &Segment) -> usize {
    SEGMENT_BYTES + segment.scope.as_str().len()
}

/// Why stored bytes are not a block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Too short, or a length inside does not fit.
    #[error("block is cut short or its lengths do not add up")]
    Malformed,
    /// Not a block at all.
    #[error("block does not begin with its magic bytes")]
    Magic,
    /// A newer program wrote it.
    #[error("block has version {0}, this program reads version {BLOCK_VERSION}")]
    Version(u8),
    /// The bytes changed since they were written.
    #[error("block does not match its checksum")]
    Checksum,
}

/// Appends the encoded block to `out`.
pub fn encode_block(block: &RowBlock, out: &mut Vec<u8>) {
    encode_merged(&[block], out);
}

/// Appends several blocks of one table to `out` as one block, in the order given.
pub fn encode_merged(blocks: &[&RowBlock], out: &mut Vec<u8>) {
    let start = out.len();
    let count: usize = blocks.iter().map(|block| block.segments.len()).sum();
    let line_bytes: usize = blocks.iter().map(|block| block.lines.len()).sum();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[BLOCK_VERSION, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&u32::try_from(line_bytes).unwrap_or(u32::MAX).to_le_bytes());
    for segment in blocks.iter().flat_map(|block| &block.segments) {
        let scope = segment.scope.as_str().as_bytes();
        out.extend_from_slice(&segment.received_at.0.to_le_bytes());
        out.extend_from_slice(&segment.rows.to_le_bytes());
        out.extend_from_slice(&segment.bytes.to_le_bytes());
        out.extend_from_slice(&u16::try_from(scope.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(scope);
    }
    for block in blocks {
        out.extend_from_slice(&block.lines);
    }
    let crc = crc32c::crc32c(out.get(start + CRC_FROM..).unwrap_or_default());
    if let Some(field) = out.get_mut(start + 4..start + CRC_FROM) {
        field.copy_from_slice(&crc.to_le_bytes());
    }
}

/// Reads one whole encoded block of `table`; the lines share `bytes`, nothing is copied.
///
/// # Errors
/// [`BlockError`] names why the bytes are not a block that this program can read.
pub fn decode_block(table: TableRef, bytes: &Bytes) -> Result<RowBlock, BlockError> {
    let mut fields = Fields { rest: bytes };
    if fields.take(2)? != MAGIC {
        return Err(BlockError::Magic);
    }
    let version = fields.take(2)?.first().copied().unwrap_or(0);
    if version != BLOCK_VERSION {
        return Err(BlockError::Version(version));
    }
    let crc = fields.u32()?;
    if crc32c::crc32c(fields.rest) != crc {
        return Err(BlockError::Checksum);
    }
    let (count, line_bytes) = (fields.u32()? as usize, fields.u32()? as usize);
    if count > fields.rest.len() / SEGMENT_BYTES {
        return Err(BlockError::Malformed);
    }
    let mut segments = Vec::with_capacity(count);
    for _ in 0..count {
        let (received_at, rows, length) = (Timestamp(fields.u64()?), fields.u32()?, fields.u32()?);
        // A row has a line break at least, so rows can be counted without a thought of overflow.
        if rows > length {
            return Err(BlockError::Malformed);
        }
        let scope_bytes = fields.u16()? as usize;
        let scope = std::str::from_utf8(fields.take(scope_bytes)?).map_err(|_| BlockError::Malformed)?;
        let scope = Scope::parse(scope).map_err(|_| BlockError::Malformed)?;
        segments.push(Segment { received_at, scope, rows, bytes: length });
    }
    let told: u64 = segments.iter().map(|segment| u64::from(segment.bytes)).sum();
    if fields.rest.len() != line_bytes || told != line_bytes as u64 {
        return Err(BlockError::Malformed);
    }
    let lines = bytes.slice(bytes.len() - line_bytes..);
    Ok(RowBlock { table, segments, lines })
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], BlockError> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(BlockError::Malformed)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BlockError> {
        self.take(N)?.try_into().map_err(|_| BlockError::Malformed)
    }

    fn u16(&mut self) -> Result<u16, BlockError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, BlockError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, BlockError> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{TableName, TenantId};

    fn table() -> TableRef {
        TableRef::new(TenantId::default(), TableName::parse("events").unwrap())
    }

    fn one(at: u64, scope: &str, lines: &[String]) -> RowBlock {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let scope = Scope::parse(scope).unwrap();
        RowBlock::new(table(), Timestamp(at), scope, u32::try_from(lines.len()).unwrap(), text.into())
    }

    fn block() -> impl Strategy<Value = RowBlock> {
        (any::<u64>(), "[a-z]{0,9}", prop::collection::vec("[ -~]{0,40}", 0..20))
            .prop_map(|(at, scope, lines)| one(at, &scope, &lines))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(blocks in prop::collection::vec(block(), 0..6)) {
            let mut bytes = b"before".to_vec();
            encode_merged(&blocks.iter().collect::<Vec<_>>(), &mut bytes);
            let read = decode_block(table(), &Bytes::from(bytes).slice(6..)).unwrap();
            let segments: Vec<_> = blocks.iter().flat_map(|b| b.segments.clone()).collect();
            let lines: Vec<_> = blocks.iter().flat_map(|b| b.lines().map(<[u8]>::to_vec)).collect();
            prop_assert_eq!(&read.segments, &segments);
            prop_assert_eq!(read.lines().map(<[u8]>::to_vec).collect::<Vec<_>>(), lines);
        }

        #[test]
        fn a_changed_byte_is_noticed(block in block(), at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
            let mut bytes = Vec::new();
            encode_block(&block, &mut bytes);
            prop_assert_eq!(bytes.len(), block.encoded_len());
            let index = at.index(bytes.len());
            bytes[index] ^= flip;
            // The reserved byte carries no meaning and no checksum.
            prop_assume!(index != 3);
            prop_assert!(decode_block(table(), &bytes.into()).is_err());
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _outcome = decode_block(table(), &bytes.into());
        }
    }

    #[test]
    fn more_rows_than_bytes_are_no_block() {
        let mut block = one(1, "", &["{}".into()]);
        block.segments = vec![
            Segment { rows: u32::MAX, bytes: 0, ..block.segments[0].clone() },
            block.segments[0].clone(),
        ];
        let mut bytes = Vec::new();
        encode_block(&block, &mut bytes);
        assert_eq!(decode_block(table(), &bytes.into()), Err(BlockError::Malformed));
    }

    #[test]
    fn an_unknown_version_is_named() {
        let mut bytes = Vec::new();
        encode_block(&one(1, "", &["{}".into()]), &mut bytes);
        bytes[2] = 9;
        assert_eq!(decode_block(table(), &bytes.into()), Err(BlockError::Version(9)));
    }
}
