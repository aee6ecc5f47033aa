//! Walks through a letter file without holding all of it.

use std::io;

use memchr::memmem;

use super::record::{HEAD_BYTES, MAGIC, content_bytes};
use crate::files::LogFile;

/// So much is read at a time, but for one larger letter.
const WINDOW_BYTES: usize = 1 << 20;

/// A stretch of a file in memory.
pub(super) struct Window<'a> {
    file: &'a dyn LogFile,
    file_bytes: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub(super) fn new(file: &'a dyn LogFile, file_bytes: u64) -> Self {
        Self { file, file_bytes, start: 0, bytes: Vec::new() }
    }

    /// `count` bytes at `at`; none past the end of the file.
    fn get(&mut self, at: u64, count: usize) -> io::Result<Option<&[u8]>> {
        if at.saturating_add(count as u64) > self.file_bytes {
            return Ok(None);
        }
        let held = at >= self.start && at + count as u64 <= self.start + self.bytes.len() as u64;
        if !held {
            let rest = usize::try_from(self.file_bytes - at).unwrap_or(usize::MAX);
            self.bytes.resize(count.max(WINDOW_BYTES).min(rest), 0);
            self.file.read_at(&mut self.bytes, at)?;
            self.start = at;
        }
        let from = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        Ok(self.bytes.get(from..from.saturating_add(count)))
    }

    /// The whole record at `at`, if its head is one and it does not pass the end of the file.
    pub(super) fn record(&mut self, at: u64) -> io::Result<Option<&[u8]>> {
        let Some(count) = self.get(at, HEAD_BYTES)?.and_then(content_bytes) else { return Ok(None) };
        self.get(at, HEAD_BYTES.saturating_add(count))
    }

    /// Where the next record may begin, at `from` or later.
    pub(super) fn next_magic(&mut self, mut from: u64) -> io::Result<Option<u64>> {
        loop {
            let left = usize::try_from(self.file_bytes.saturating_sub(from)).unwrap_or(usize::MAX);
            let count = left.min(WINDOW_BYTES);
            if count < MAGIC.len() {
                return Ok(None);
            }
            let Some(bytes) = self.get(from, count)? else { return Ok(None) };
            if let Some(found) = memmem::find(bytes, &MAGIC) {
                return Ok(Some(from + found as u64));
            }
            // The magic may lie across the border.
            from += (count - MAGIC.len() + 1) as u64;
        }
    }
}
