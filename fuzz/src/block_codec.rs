//! Blocks: any bytes are answered, and what is read is what was written.

use bytes::Bytes;
use wavehouse_core::{
    RowBlock, Scope, TableName, TableRef, TenantId, Timestamp, decode_block, encode_block, encode_merged,
};

use crate::first;

fn table() -> TableRef {
    TableRef::new(TenantId::default(), TableName::parse("events").expect("a name"))
}

/// The first byte chooses: bytes as they are, bytes behind a right checksum, or rows to write and read.
pub fn block(data: &[u8]) {
    let (choice, data) = first(data);
    match choice % 3 {
        0 => read(data.to_vec()),
        1 => {
            let mut bytes = b"WB\x01\x00".to_vec();
            bytes.extend(checksum(data).to_le_bytes());
            bytes.extend(data);
            read(bytes);
        }
        _ => round_trip(data),
    }
}

/// CRC-32C, bit by bit: not by the code under test.
fn checksum(data: &[u8]) -> u32 {
    let bit = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
    !data.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| bit(crc)))
}

fn read(bytes: Vec<u8>) {
    let bytes = Bytes::from(bytes);
    let Ok(block) = decode_block(table(), &bytes) else { return };
    assert_eq!(block.encoded_len(), bytes.len());
    assert!(block.rows() as usize <= block.lines.len(), "a row has a line break at least");
    assert!(block.lines().count() <= block.rows() as usize);
    let _latest = block.received_at();
    let mut again = Vec::new();
    encode_block(&block, &mut again);
    // The reserved byte carries no meaning.
    assert_eq!(again[4..], bytes[4..], "the same block is written anew");
}

/// Pieces of the data become blocks: a byte each for scope and receipt time, then lines.
fn round_trip(data: &[u8]) {
    let blocks: Vec<RowBlock> = data
        .split(|&byte| byte == 0)
        .map(|piece| {
            let (scope, piece) = first(piece);
            let (at, lines) = first(piece);
            let mut lines = lines.to_vec();
            if lines.last().is_some_and(|&last| last != b'\n') {
                lines.push(b'\n');
            }
            let rows = lines.iter().filter(|&&byte| byte == b'\n').count();
            let scope = Scope::parse(&"x".repeat(usize::from(scope))).expect("a scope");
            let rows = u32::try_from(rows).expect("few rows");
            RowBlock::new(table(), Timestamp(u64::from(at) << 40), scope, rows, lines.into())
        })
        .collect();
    let mut bytes = b"before".to_vec();
    encode_merged(&blocks.iter().collect::<Vec<_>>(), &mut bytes);
    let merged = decode_block(table(), &Bytes::from(bytes).slice(6..)).expect("what was written is read");
    let segments: Vec<_> = blocks.iter().flat_map(|block| block.segments.clone()).collect();
    let lines: Vec<u8> = blocks.iter().flat_map(|block| block.lines.to_vec()).collect();
    assert!(merged.segments == segments && merged.lines == lines);
    assert_eq!(merged.rows() as usize, merged.lines().count());
}
