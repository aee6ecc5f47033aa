//! The index at the end of a sealed log file.
//!
//! ```text
//! … records │ entries, by table and sequence │ directory, one row a stretch │ … │ trailer (last bytes of the file)
//! ```
//!
//! A *stretch* is a run of blocks of one table with consecutive sequences. Only the directory is read at boot; an entry
//! is read when its block is. Entries carry no checksum of their own: whoever follows one finds the record's head, which
//! names table and sequence, and the block, which has its checksum.

use std::io;

use crate::codec::{Fields, Put, len_u32};
use crate::files::{LogFile, read_vec};

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 36;
/// Bytes of a row of the directory.
pub(crate) const STRETCH_BYTES: usize = 44;
/// Bytes of the trailer.
pub(crate) const TRAILER_BYTES: usize = 48;
const MAGIC: [u8; 8] = *b"WHFOOT01";

/// Where a block stands in its file, and enough about it to count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) sequence: u64,
    /// Of the record.
    pub(crate) offset: u32,
    /// Of the encoded block.
    pub(crate) bytes: u32,
    pub(crate) rows: u32,
    /// Receipt time of the first segment and latest receipt time.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

/// Blocks of one table with consecutive sequences in one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) table: u32,
    pub(crate) first: u64,
    pub(crate) count: u32,
    /// Of the encoded blocks.
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    /// Where in the file the first entry stands.
    pub(crate) entries_at: u32,
    pub(crate) last_ns: u64,
}

/// The trailer's say about the whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// Where the records end and the entries begin.
    pub(crate) entries_at: u32,
    pub(crate) entries: u32,
    pub(crate) stretches: u32,
    pub(crate) last_ns: u64,
    crc: u32,
    file: u32,
}

impl Trailer {
    fn directory_at(&self) -> u64 {
        u64::from(self.entries_at) + u64::from(self.entries) * ENTRY_BYTES as u64
    }
}

/// A footer ready to be written: entries and directory for the place where the records end, the trailer for the end of
/// the file.
pub(crate) struct Footer {
    pub(crate) index: Vec<u8>,
    pub(crate) trailer: Vec<u8>,
    pub(crate) stretches: Vec<Stretch>,
}

/// Bytes of a footer.
pub(crate) fn footer_bytes(entries: usize, stretches: usize) -> usize {
    entries * ENTRY_BYTES + stretches * STRETCH_BYTES + TRAILER_BYTES
}

/// Makes the footer of log file number `file` from its entries, ordered by table and sequence.
pub(crate) fn build<'a>(
    file: u32,
    entries_at: u32,
    entries: impl Iterator<Item = (u32, &'a Entry)>,
) -> Footer {
    let (mut index, mut stretches, mut count, mut latest) = (Vec::new(), Vec::<Stretch>::new(), 0_u32, 0);
    for (table, entry) in entries {
        let at = entries_at + len_u32(index.len());
        match stretches.last_mut() {
            Some(last) if last.table == table && last.first + u64::from(last.count) == entry.sequence => {
                last.count += 1;
                last.bytes += u64::from(entry.bytes);
                last.rows += u64::from(entry.rows);
                last.last_ns = last.last_ns.max(entry.last_ns);
            }
            _ => stretches.push(Stretch {
                table,
                first: entry.sequence,
                count: 1,
                bytes: u64::from(entry.bytes),
                rows: u64::from(entry.rows),
                entries_at: at,
                last_ns: entry.last_ns,
            }),
        }
        latest = latest.max(entry.last_ns);
        count += 1;
        put_entry(&mut index, entry);
    }
    let directory = index.len();
    for stretch in &stretches {
        put_stretch(&mut index, stretch);
    }
    let crc = crc32c::crc32c(index.get(directory..).unwrap_or_default());
    let mut trailer = Vec::with_capacity(TRAILER_BYTES);
    trailer.extend_from_slice(&MAGIC);
    trailer.put_u32(entries_at);
    trailer.put_u32(count);
    trailer.put_u32(len_u32(stretches.len()));
    trailer.put_u32(crc);
    trailer.put_u64(latest);
    trailer.put_u32(file);
    trailer.resize(TRAILER_BYTES - 4, 0);
    let crc = crc32c::crc32c(&trailer);
    trailer.put_u32(crc);
    Footer { index, trailer, stretches }
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    out.put_u64(entry.sequence);
    out.put_u32(entry.offset);
    out.put_u32(entry.bytes);
    out.put_u32(entry.rows);
    out.put_u64(entry.first_ns);
    out.put_u64(entry.last_ns);
}

fn put_stretch(out: &mut Vec<u8>, stretch: &Stretch) {
    out.put_u32(stretch.table);
    out.put_u32(stretch.count);
    out.put_u64(stretch.first);
    out.put_u64(stretch.bytes);
    out.put_u64(stretch.rows);
    out.put_u32(stretch.entries_at);
    out.put_u64(stretch.last_ns);
}

fn take_entry(fields: &mut Fields<'_>) -> Option<Entry> {
    Some(Entry {
        sequence: fields.u64()?,
        offset: fields.u32()?,
        bytes: fields.u32()?,
        rows: fields.u32()?,
        first_ns: fields.u64()?,
        last_ns: fields.u64()?,
    })
}

fn take_stretch(fields: &mut Fields<'_>) -> Option<Stretch> {
    let (table, count) = (fields.u32()?, fields.u32()?);
    Some(Stretch {
        table,
        first: fields.u64()?,
        count,
        bytes: fields.u64()?,
        rows: fields.u64()?,
        entries_at: fields.u32()?,
        last_ns: fields.u64()?,
    })
}

/// The trailer of log file `number`; none when the file has not been sealed since it got that number, or the trailer is
/// damaged.
pub(crate) fn read_trailer(file: &dyn LogFile, number: u32, file_bytes: u64) -> io::Result<Option<Trailer>> {
    let Some(at) = file_bytes.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let bytes = read_vec(file, at, TRAILER_BYTES)?;
    Ok(parse_trailer(&bytes).filter(|trailer| {
        trailer.file == number
            && trailer.directory_at() + u64::from(trailer.stretches) * STRETCH_BYTES as u64 <= at
    }))
}

fn parse_trailer(bytes: &[u8]) -> Option<Trailer> {
    let (front, crc) = bytes.split_at_checked(TRAILER_BYTES - 4)?;
    if Fields::new(crc).u32()? != crc32c::crc32c(front) {
        return None;
    }
    let mut fields = Fields::new(front);
    if fields.take(MAGIC.len())? != MAGIC {
        return None;
    }
    let (entries_at, entries, stretches) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let crc = fields.u32()?;
    Some(Trailer { entries_at, entries, stretches, crc, last_ns: fields.u64()?, file: fields.u32()? })
}

/// The directory of a file; none when it is damaged.
pub(crate) fn read_directory(file: &dyn LogFile, trailer: &Trailer) -> io::Result<Option<Vec<Stretch>>> {
    let bytes = read_vec(file, trailer.directory_at(), trailer.stretches as usize * STRETCH_BYTES)?;
    if crc32c::crc32c(&bytes) != trailer.crc {
        return Ok(None);
    }
    let mut fields = Fields::new(&bytes);
    Ok((0..trailer.stretches).map(|_| take_stretch(&mut fields)).collect())
}

/// `count` entries from `at` in a file.
pub(crate) fn read_entries(file: &dyn LogFile, at: u64, count: usize) -> io::Result<Vec<Entry>> {
    let bytes = read_vec(file, at, count * ENTRY_BYTES)?;
    let mut fields = Fields::new(&bytes);
    Ok(std::iter::from_fn(|| take_entry(&mut fields)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Files, Layout, RealFiles};

    fn entry(sequence: u64, at: u64) -> Entry {
        Entry { sequence, offset: 9, bytes: 100, rows: 2, first_ns: at, last_ns: at + 1 }
    }

    #[test]
    fn stretches_are_runs_of_one_table() {
        let rows = [(1, entry(3, 10)), (1, entry(4, 20)), (1, entry(7, 30)), (2, entry(8, 5))];
        let footer = build(5, 1000, rows.iter().map(|(table, entry)| (*table, entry)));
        let told: Vec<_> =
            footer.stretches.iter().map(|s| (s.table, s.first, s.count, s.rows, s.last_ns)).collect();
        assert_eq!(told, [(1, 3, 2, 4, 21), (1, 7, 1, 2, 31), (2, 8, 1, 2, 6)]);
        assert_eq!(footer_bytes(4, 3), footer.index.len() + footer.trailer.len());

        let dir = tempfile::tempdir().unwrap();
        let file = RealFiles::new(dir.path()).create("f", 4096, Layout::Zeroed).unwrap();
        assert_eq!(read_trailer(&*file, 5, 4096).unwrap(), None);
        file.write_at(&footer.index, 1000).unwrap();
        file.write_at(&footer.trailer, 4096 - TRAILER_BYTES as u64).unwrap();
        let trailer = read_trailer(&*file, 5, 4096).unwrap().unwrap();
        assert_eq!(read_trailer(&*file, 6, 4096).unwrap(), None, "left over from a recycled file");
        assert_eq!((trailer.entries_at, trailer.entries, trailer.last_ns), (1000, 4, 31));
        assert_eq!(read_directory(&*file, &trailer).unwrap().unwrap(), footer.stretches);
        let at = u64::from(footer.stretches[0].entries_at);
        assert_eq!(read_entries(&*file, at, 2).unwrap(), [entry(3, 10), entry(4, 20)]);

        file.write_at(b"x", u64::from(trailer.entries_at) + 4 * ENTRY_BYTES as u64).unwrap();
        assert_eq!(read_directory(&*file, &trailer).unwrap(), None);
        file.write_at(b"x", 4096 - 9).unwrap();
        assert_eq!(read_trailer(&*file, 5, 4096).unwrap(), None);
    }
}
