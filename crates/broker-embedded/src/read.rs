//! Reads blocks from log files. Blocks of one table that stand close together are read at once.
//!
//! Whoever reads follows an index, and checks what it finds there: the record's head must name the table and the
//! sequence, and the block must match its checksum.

use std::ops::Range;

use bytes::Bytes;
use wavehouse_broker::StoredBlock;
use wavehouse_core::{LogId, Sequence, decode_block};

use crate::codec::len_u32;
use crate::cursor::Size;
use crate::files::{LogFile, read_vec};
use crate::footer::{ENTRY_BYTES, Entry, read_entries};
use crate::record::{HEAD_BYTES, Head, Kind, Record};
use crate::session::{Ahead, Wanted};
use crate::state::Spot;

/// Most bytes that one read takes, but for one larger block.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Bytes between two blocks that are rather read than jumped over.
const READ_GAP_MAX: u64 = 4 << 10;

/// A block that has been read.
#[derive(Debug, Clone)]
pub(crate) struct Fetched {
    pub(crate) table: u32,
    pub(crate) stored: StoredBlock,
    pub(crate) size: Size,
}

/// What became of a wanted block.
pub(crate) enum Got {
    /// It was read.
    Block(Box<Fetched>),
    /// It could not be, and why.
    Damaged {
        /// Its table.
        table: u32,
        /// Its sequence.
        sequence: u64,
        /// Why.
        why: String,
    },
}

impl Got {
    /// The table of the block.
    pub(crate) fn table(&self) -> u32 {
        match self {
            Self::Block(fetched) => fetched.table,
            Self::Damaged { table, .. } => *table,
        }
    }
}

/// Whether reading may have to wait for the disk: what is being written is in memory.
pub(crate) fn may_wait(plan: &[Ahead]) -> bool {
    plan.iter().flat_map(|ahead| &ahead.blocks).any(|wanted| matches!(wanted.spot, Spot::InFile(_)))
}

/// Reads what was planned, and puts one block of each table after the other. Stops early when it has read enough: what
/// is missing at the end of a table is just not read yet.
pub(crate) fn read_plan(log: LogId, plan: &[Ahead]) -> Vec<Got> {
    let enough = READ_BYTES_MAX / plan.len().max(1) as u64;
    let mut tables: Vec<_> = plan.iter().map(|ahead| read_table(log, ahead, enough).into_iter()).collect();
    let mut mixed = Vec::new();
    loop {
        let before = mixed.len();
        mixed.extend(tables.iter_mut().filter_map(Iterator::next));
        if mixed.len() == before {
            return mixed;
        }
    }
}

/// Reads blocks of one table in order until `enough` bytes are read; at least one.
pub(crate) fn read_table(log: LogId, ahead: &Ahead, enough: u64) -> Vec<Got> {
    let mut got = Vec::new();
    let mut found = Vec::with_capacity(ahead.blocks.len());
    let mut rest = ahead.blocks.as_slice();
    while let Some(first) = rest.first() {
        let count = match first.spot {
            Spot::Known(entry) => {
                found.push((first, Ok(entry)));
                1
            }
            Spot::InFile(at) => find_entries(rest, at, &mut found),
        };
        rest = rest.get(count..).unwrap_or_default();
    }
    let (mut at, mut total) = (0, 0);
    while at < found.len() && (total < enough || at == 0) {
        let run = adjacent(&found, at, enough - total.min(enough));
        total += read_run(log, ahead, found.get(run.clone()).unwrap_or_default(), &mut got);
        at = run.end;
    }
    got
}

type Found<'a> = (&'a Wanted, Result<Entry, String>);

/// Reads the entries of the wanted blocks that stand in one row in one sealed file. Returns how many.
fn find_entries<'a>(wanted: &'a [Wanted], at: u64, found: &mut Vec<Found<'a>>) -> usize {
    let Some(first) = wanted.first() else { return 0 };
    let in_row = |(k, next): &(usize, &Wanted)| {
        next.number == first.number && next.spot == Spot::InFile(at + (*k * ENTRY_BYTES) as u64)
    };
    let count = wanted.iter().enumerate().take_while(in_row).count().max(1);
    let row = wanted.iter().take(count);
    match read_entries(&*first.file, at, count) {
        Ok(entries) => found.extend(row.zip(entries).map(|(wanted, entry)| {
            let right = entry.sequence == wanted.sequence;
            (wanted, if right { Ok(entry) } else { Err("its entry names another block".to_owned()) })
        })),
        Err(error) => found.extend(row.map(|wanted| (wanted, Err(error.to_string())))),
    }
    count
}

/// The blocks from `at` on that one read takes.
fn adjacent(found: &[Found<'_>], at: usize, most: u64) -> Range<usize> {
    let Some((first, Ok(entry))) = found.get(at) else { return at..at + 1 };
    let (start, mut end, mut to) = (u64::from(entry.offset), record_end(entry), at + 1);
    while let Some((wanted, Ok(next))) = found.get(to) {
        let close = u64::from(next.offset) >= end && u64::from(next.offset) - end <= READ_GAP_MAX;
        if wanted.number != first.number || !close || record_end(next) - start > most.max(1) {
            break;
        }
        end = record_end(next);
        to += 1;
    }
    at..to
}

fn record_end(entry: &Entry) -> u64 {
    u64::from(entry.offset) + HEAD_BYTES as u64 + u64::from(entry.bytes)
}

/// Reads blocks that stand together. Returns the bytes read.
fn read_run(log: LogId, ahead: &Ahead, run: &[Found<'_>], got: &mut Vec<Got>) -> u64 {
    let span = run.iter().filter_map(|(wanted, entry)| Some((wanted, entry.as_ref().ok()?)));
    let start = span.clone().map(|(_, entry)| u64::from(entry.offset)).min().unwrap_or(0);
    let end = span.clone().map(|(_, entry)| record_end(entry)).max().unwrap_or(0);
    let bytes = match span.clone().next() {
        Some((wanted, _)) => read_bytes(&*wanted.file, start, end),
        None => Ok(Bytes::new()),
    };
    for (wanted, entry) in run {
        let outcome = match (entry, &bytes) {
            (Ok(entry), Ok(bytes)) => decode(log, ahead, wanted, (entry, start), bytes),
            (Err(why), _) | (_, Err(why)) => Err(why.clone()),
        };
        got.push(match outcome {
            Ok(fetched) => Got::Block(Box::new(fetched)),
            Err(why) => Got::Damaged { table: ahead.table, sequence: wanted.sequence, why },
        });
    }
    end - start
}

fn read_bytes(file: &dyn LogFile, start: u64, end: u64) -> Result<Bytes, String> {
    let count = usize::try_from(end - start).map_err(|error| error.to_string())?;
    read_vec(file, start, count).map(Bytes::from).map_err(|error| error.to_string())
}

fn decode(
    log: LogId,
    ahead: &Ahead,
    wanted: &Wanted,
    (entry, start): (&Entry, u64),
    bytes: &Bytes,
) -> Result<Fetched, String> {
    let from = usize::try_from(u64::from(entry.offset) - start).map_err(|error| error.to_string())?;
    let to = from + HEAD_BYTES + entry.bytes as usize;
    let head = bytes.get(from..to).and_then(Head::read).ok_or("no record is where the index says")?;
    let right = matches!(head.kind, Kind::Block | Kind::Moved)
        && (head.place.file, head.table, head.sequence, head.bytes)
            == (wanted.number, ahead.table, wanted.sequence, entry.bytes);
    if !right {
        return Err("another record is where the index says".to_owned());
    }
    let block = decode_block(ahead.name.clone(), &bytes.slice(from + HEAD_BYTES..to))
        .map_err(|error| error.to_string())?;
    let size = Size { rows: block.rows(), line_bytes: len_u32(block.lines.len()), stored_bytes: entry.bytes };
    let stored = StoredBlock { log, sequence: Sequence(wanted.sequence), stored_ms: 0, block };
    Ok(Fetched { table: ahead.table, stored, size })
}

/// The encoded block that an entry of file `number` names, checked but not decoded.
pub(crate) fn read_raw(
    file: &dyn LogFile,
    (number, table): (u32, u32),
    entry: &Entry,
) -> Result<Vec<u8>, String> {
    let count = HEAD_BYTES + entry.bytes as usize;
    let mut bytes = read_vec(file, u64::from(entry.offset), count).map_err(|error| error.to_string())?;
    let head = Record::read(&bytes)
        .map(|record| record.head)
        .ok_or("its record has changed since it was written")?;
    if (head.place.file, head.table, head.sequence, head.bytes)
        != (number, table, entry.sequence, entry.bytes)
    {
        return Err("another record is where the index says".to_owned());
    }
    Ok(bytes.split_off(HEAD_BYTES))
}
