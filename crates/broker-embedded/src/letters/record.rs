//! How a letter is stored.
//!
//! ```text
//! offset  size  field
//!      0     3  magic "WHD"
//!      3     1  version (1)
//!      4     4  bytes of content
//!      8     4  crc32c of all but this field and the state
//!     12     1  state: 1 kept, 0 dropped
//!     13     …  content: table, log, sequence, row, received, buried, code, reason, line
//! ```
//!
//! The state is a byte of its own so that a letter can be dropped where it stands, on a full disk too.

use bytes::Bytes;
use wavehouse_broker::{DeadLetter, REASON_BYTES_MAX};
use wavehouse_core::{LogId, Position, Sequence, TableName, TableRef, TenantId, Timestamp};

use crate::codec::{Fields, Put, len_u32};

/// What every record begins with: magic and version.
pub(super) const MAGIC: [u8; 4] = *b"WHD\x01";
/// Bytes before the content.
pub(super) const HEAD_BYTES: usize = 13;
/// Where the state stands.
pub(super) const STATE_AT: u64 = 12;
/// The state of a letter that is dropped.
pub(super) const DROPPED: u8 = 0;
const KEPT: u8 = 1;
const CRC_AT: usize = 8;

/// Bytes of the content that a record's head tells; none when it is no head.
pub(super) fn content_bytes(head: &[u8]) -> Option<usize> {
    let mut fields = Fields::new(head.get(..HEAD_BYTES)?);
    (fields.take(4)? == MAGIC).then_some(fields.u32()? as usize)
}

/// A record's letter, and whether it is kept; none when the record has changed.
pub(super) fn read(tenant: &TenantId, record: &[u8]) -> Option<(DeadLetter, bool)> {
    let count = content_bytes(record)?;
    let content = record.get(HEAD_BYTES..HEAD_BYTES + count)?;
    let (crc, state) = {
        let mut fields = Fields::new(record.get(CRC_AT..HEAD_BYTES)?);
        (fields.u32()?, fields.u8()?)
    };
    if checksum(record.get(..CRC_AT)?, content) != crc {
        return None;
    }
    let mut fields = Fields::new(content);
    let table = TableRef::new(tenant.clone(), TableName::parse(fields.text()?).ok()?);
    let log = LogId(fields.u64()?);
    let position = Position::new(log, Sequence(fields.u64()?), fields.u32()?);
    let (received_at, buried_at) = (Timestamp(fields.u64()?), Timestamp(fields.u64()?));
    let (has_code, code) = (fields.u8()?, fields.u32()?);
    let reason = fields.text()?.to_owned();
    let line_bytes = fields.u32()? as usize;
    let line = Bytes::copy_from_slice(fields.take(line_bytes)?);
    let code = (has_code == 1).then_some(code);
    Some((DeadLetter { table, position, received_at, buried_at, code, reason, line }, state == KEPT))
}

fn checksum(front: &[u8], content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(front), content)
}

/// Appends a letter. A reason that is too long is cut between characters.
pub(super) fn write(letter: &DeadLetter, out: &mut Vec<u8>) {
    let mut content = Vec::with_capacity(letter.line.len() + letter.reason.len() + 128);
    content.put_text(letter.table.table.as_str());
    content.put_u64(letter.position.log.0);
    content.put_u64(letter.position.sequence.0);
    content.put_u32(letter.position.row);
    content.put_u64(letter.received_at.0);
    content.put_u64(letter.buried_at.0);
    content.put_u8(u8::from(letter.code.is_some()));
    content.put_u32(letter.code.unwrap_or(0));
    content.put_text(cut(&letter.reason));
    content.put_u32(len_u32(letter.line.len()));
    content.extend_from_slice(&letter.line);
    let mut front = MAGIC.to_vec();
    front.put_u32(len_u32(content.len()));
    let crc = checksum(&front, &content);
    out.extend_from_slice(&front);
    out.put_u32(crc);
    out.put_u8(KEPT);
    out.extend_from_slice(&content);
}

fn cut(reason: &str) -> &str {
    let end = (0..=reason.len().min(REASON_BYTES_MAX)).rev().find(|end| reason.is_char_boundary(*end));
    reason.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(reason: &str) -> DeadLetter {
        DeadLetter {
            table: TableRef::new(TenantId::default(), TableName::parse("a b").unwrap()),
            position: Position::new(LogId(1), Sequence(2), 3),
            received_at: Timestamp(4),
            buried_at: Timestamp(5),
            code: Some(6),
            reason: reason.to_owned(),
            line: Bytes::from_static(b"{\"x\":1}"),
        }
    }

    #[test]
    fn what_is_written_is_read_until_it_changes() {
        let mut bytes = Vec::new();
        let sent = letter("no");
        write(&sent, &mut bytes);
        assert_eq!(read(&TenantId::default(), &bytes), Some((sent.clone(), true)));
        bytes[12] = DROPPED;
        assert_eq!(read(&TenantId::default(), &bytes), Some((sent, false)));
        for at in (0..bytes.len()).filter(|at| *at != 12) {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert_eq!(read(&TenantId::default(), &changed), None, "byte {at}");
        }
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let mut bytes = Vec::new();
        write(&letter(&format!("x{}", "é".repeat(REASON_BYTES_MAX))), &mut bytes);
        let (read, _) = read(&TenantId::default(), &bytes).unwrap();
        assert_eq!(read.reason, format!("x{}", "é".repeat(REASON_BYTES_MAX / 2 - 1)));
    }
}
