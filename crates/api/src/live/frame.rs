//! The bytes of a stream. Pure.

use wavehouse_broker::StoredBlock;
use wavehouse_core::Timestamp;

/// The first bytes of every stream.
pub(crate) const CONNECTED: &[u8] = b": connected\n\n";
/// Sent when a stream has been quiet.
pub(crate) const KEEPALIVE: &[u8] = b":\n\n";
/// Sent to a subscriber that did not keep up, before it is closed. Its reconnect resumes after the last row it saw.
pub(crate) const LAGGED: &[u8] = b": lagged\nretry: 1000\n\n";
/// Sent to every subscriber when the server stops.
pub(crate) const STOPPING: &[u8] = b": stopping\nretry: 1000\n\n";

/// Appends a frame for each row of a block from `from_row` on. `table` is the table's name as JSON text; `digits` is
/// the width of the fraction of receipt times, the same as in the table's own column.
pub(crate) fn put_rows(out: &mut Vec<u8>, stored: &StoredBlock, from_row: u32, table: &str, digits: usize) {
    let block = &stored.block;
    out.reserve(block.lines.len() + block.rows() as usize * (table.len() + 140));
    let mut segments = block.segments.iter();
    let (mut left, mut received_at) = (0, String::new());
    for (row, line) in (0_u32..).zip(block.lines()) {
        while left == 0 {
            let Some(segment) = segments.next() else { return };
            left = segment.rows;
            received_at = segment.received_at.to_rfc3339(digits);
        }
        left -= 1;
        if row < from_row {
            continue;
        }
        let id = stored.position(row).to_string();
        for part in [
            "id: ",
            &id,
            "\ndata: {\"table_name\":",
            table,
            ",\"received_timestamp\":\"",
            &received_at,
            "\",\"data\":",
        ] {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(line);
        out.extend_from_slice(b"}\n\n");
    }
}

/// Appends the comment that rows which were asked for are no longer kept.
pub(crate) fn put_hole(out: &mut Vec<u8>, from: Option<Timestamp>, to: Option<Timestamp>) {
    let text =
        |moment: Option<Timestamp>| moment.map_or_else(|| "?".to_owned(), |moment| moment.to_rfc3339(3));
    out.extend_from_slice(format!(": hole from {} to {}\n\n", text(from), text(to)).as_bytes());
}

#[cfg(test)]
mod tests {
    use wavehouse_core::{LogId, RowBlock, Scope, Segment, Sequence, TableName, TableRef, TenantId};

    use super::*;

    fn stored() -> StoredBlock {
        let table = TableRef::new(TenantId::default(), TableName::parse("t").unwrap());
        let segment = |ms, rows| Segment {
            received_at: Timestamp::from_millis(ms),
            scope: Scope::default(),
            rows,
            bytes: 0,
        };
        let segments = vec![segment(1, 1), segment(2, 0), segment(1_500, 2)];
        let block = RowBlock { table, segments, lines: "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n".into() };
        StoredBlock { log: LogId(1), sequence: Sequence(9), stored_ms: 0, block }
    }

    #[test]
    fn each_row_is_a_frame_with_its_own_id_and_time() {
        let mut out = Vec::new();
        put_rows(&mut out, &stored(), 0, "\"t\"", 3);
        let text = String::from_utf8(out).unwrap();
        let frames: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(
            frames[0],
            "id: 0000000000000001-9-0\ndata: {\"table_name\":\"t\",\"received_timestamp\":\"1970-01-01T00:00:00.001Z\",\"data\":{\"a\":1}}"
        );
        assert!(frames[2].starts_with("id: 0000000000000001-9-2\n"), "{}", frames[2]);
        assert!(frames[2].contains("00:00:01.500Z\",\"data\":{\"a\":3}}"), "{}", frames[2]);
        assert_eq!(frames.len(), 3);
    }

    #[test]
    fn a_resumed_block_begins_inside() {
        let mut out = Vec::new();
        put_rows(&mut out, &stored(), 2, "\"t\"", 3);
        assert!(String::from_utf8(out).unwrap().starts_with("id: 0000000000000001-9-2\n"));
    }

    #[test]
    fn a_hole_says_from_when_to_when() {
        let mut out = Vec::new();
        put_hole(&mut out, None, Some(Timestamp::from_millis(1)));
        assert_eq!(out, b": hole from ? to 1970-01-01T00:00:00.001Z\n\n");
    }
}
