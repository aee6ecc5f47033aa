//! The letters of one tenant: a file that is appended to, and its index in memory.
//!
//! A letter is dropped by one byte where it stands. When most of the file is dropped letters, those that are kept are
//! written to a new file that takes its place.

mod load;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use wavehouse_broker::{DeadLetter, LetterCounts, LetterCursor, LetterError, LetterFilter, LetterPage};
use wavehouse_core::{Position, TableName, TenantId, Timestamp};

use super::record::{DROPPED, STATE_AT, read, write};
use super::{LETTERS_DIR, Make, Place};
use crate::files::{Layout, LogFile, is_full, read_vec};

/// Most letters of a tenant. Each takes some memory.
const LETTERS_MAX: usize = 250_000;
/// Dropped letters that are not worth a new file.
const WASTE_BYTES_MAX: u64 = 4 << 20;

type Key = (TableName, Position);

/// Where a letter stands, and what it is searched by.
#[derive(Debug, Clone, Copy)]
struct Slip {
    offset: u64,
    bytes: usize,
    code: Option<u32>,
    buried_at: Timestamp,
}

/// See the module.
pub(super) struct Shelf {
    place: Place,
    tenant: TenantId,
    file: Arc<dyn LogFile>,
    /// Where the file ends.
    end: u64,
    slips: BTreeMap<Key, Slip>,
    /// The letters in the order of their burial.
    by_age: BTreeMap<u64, Key>,
    kept_bytes: u64,
    /// Something in the file cannot be read, so that it is left as it is.
    damaged: bool,
    /// Why nothing is written any more.
    failed: Option<String>,
}

impl Shelf {
    /// Opens a tenant's file; none when there is none and none is to be made.
    pub(super) fn open(place: Place, make: Make) -> io::Result<Option<Self>> {
        let path = format!("{LETTERS_DIR}/{}", place.name);
        let found = place.files.list(LETTERS_DIR)?.into_iter().find(|found| found.name == place.name);
        let (file, bytes) = match (&found, make) {
            (Some(found), _) => (place.files.open(&path)?, found.bytes),
            (None, Make::Never) => return Ok(None),
            (None, Make::IfMissing) => {
                let file = place.files.create(&path, 0, Layout::Zeroed)?;
                place.files.sync_dir(LETTERS_DIR)?;
                (file, 0)
            }
        };
        let tenant =
            place.name.strip_suffix(".wh").and_then(|id| TenantId::parse(id).ok()).unwrap_or_default();
        let mut shelf = Self {
            place,
            tenant,
            file,
            end: 0,
            slips: BTreeMap::new(),
            by_age: BTreeMap::new(),
            kept_bytes: 0,
            damaged: false,
            failed: None,
        };
        shelf.load(bytes)?;
        Ok(Some(shelf))
    }

    fn note(&mut self, letter: &DeadLetter, offset: u64, bytes: usize) {
        let key = (letter.table.table.clone(), letter.position);
        let slip = Slip { offset, bytes, code: letter.code, buried_at: letter.buried_at };
        self.forget(&key);
        self.slips.insert(key.clone(), slip);
        self.by_age.insert(offset, key);
        self.kept_bytes += bytes as u64;
    }

    fn forget(&mut self, key: &Key) -> Option<Slip> {
        let slip = self.slips.remove(key)?;
        self.by_age.remove(&slip.offset);
        self.kept_bytes -= slip.bytes as u64;
        Some(slip)
    }

    fn check(&self) -> Result<(), LetterError> {
        self.failed.as_ref().map_or(Ok(()), |reason| Err(LetterError::Unavailable { reason: reason.clone() }))
    }

    fn fault(&mut self, error: &io::Error) -> LetterError {
        if is_full(error) {
            return LetterError::Full;
        }
        let reason = error.to_string();
        tracing::error!(reason, file = self.place.name, "dead letters cannot be written");
        self.failed = Some(reason.clone());
        LetterError::Unavailable { reason }
    }

    /// Keeps letters, durably. Returns how many older ones were given up for them.
    pub(super) fn bury(&mut self, letters: &[DeadLetter], budget: u64) -> Result<u64, LetterError> {
        self.check()?;
        let (mut bytes, mut new) = (Vec::new(), BTreeMap::new());
        for letter in letters {
            let key = (letter.table.table.clone(), letter.position);
            if self.slips.contains_key(&key) || new.contains_key(&key) {
                continue;
            }
            let start = bytes.len();
            write(letter, &mut bytes);
            new.insert(key, (letter, start, bytes.len() - start));
        }
        if new.is_empty() {
            return Ok(0);
        }
        if bytes.len() as u64 > budget || new.len() > LETTERS_MAX {
            return Err(LetterError::Full);
        }
        let dropped = self.make_room(bytes.len() as u64, new.len(), budget)?;
        self.append(&bytes)?;
        let start = self.end;
        for (letter, at, length) in new.into_values() {
            self.note(letter, start + at as u64, length);
        }
        self.end += bytes.len() as u64;
        Ok(dropped)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), LetterError> {
        let mut written = self.file.write_at(bytes, self.end);
        if written.as_ref().is_err_and(is_full) && self.compact().is_ok() {
            written = self.file.write_at(bytes, self.end);
        }
        if let Err(error) = written {
            if let Err(error) = self.file.set_len(self.end) {
                tracing::warn!(%error, "cannot cut a file of dead letters to what it holds");
            }
            return Err(self.fault(&error));
        }
        self.file.sync().map_err(|error| self.fault(&error))
    }

    /// Gives up the oldest letters until new ones fit.
    fn make_room(&mut self, bytes: u64, count: usize, budget: u64) -> Result<u64, LetterError> {
        let (mut left, mut kept) = (self.slips.len(), self.kept_bytes);
        let mut oldest = Vec::new();
        for key in self.by_age.values() {
            if kept + bytes <= budget && left + count <= LETTERS_MAX {
                break;
            }
            kept -= self.slips.get(key).map_or(0, |slip| slip.bytes as u64);
            left -= 1;
            oldest.push(key.clone());
        }
        self.remove(&oldest)
    }

    /// Removes letters, durably. Returns how many there were.
    fn remove(&mut self, keys: &[Key]) -> Result<u64, LetterError> {
        let mut removed = 0;
        for key in keys {
            let Some(slip) = self.slips.get(key).copied() else { continue };
            let written = self.file.write_at(&[DROPPED], slip.offset + STATE_AT);
            written.map_err(|error| self.fault(&error))?;
            self.forget(key);
            removed += 1;
        }
        if removed > 0 {
            self.file.sync().map_err(|error| self.fault(&error))?;
            let waste = self.end - self.kept_bytes;
            if (waste > WASTE_BYTES_MAX && waste > self.kept_bytes || self.slips.is_empty())
                && let Err(error) = self.compact()
            {
                tracing::warn!(%error, file = self.place.name, "cannot rewrite a file of dead letters; tried again later");
            }
        }
        Ok(removed)
    }

    /// Writes the letters that are kept to a new file, in the order of their burial.
    fn compact(&mut self) -> io::Result<()> {
        if self.damaged || self.end == self.kept_bytes {
            return Err(io::Error::other("nothing can be given back"));
        }
        if self.slips.is_empty() {
            self.file.set_len(0)?;
            self.end = 0;
            return self.file.sync();
        }
        let draft = format!("{LETTERS_DIR}/{}.new", self.place.name);
        let file = self.place.files.create(&draft, 0, Layout::Zeroed)?;
        let mut moved = Vec::with_capacity(self.slips.len());
        let mut end = 0;
        for key in self.by_age.values() {
            let Some(slip) = self.slips.get(key) else { continue };
            let bytes = read_vec(&*self.file, slip.offset, slip.bytes)?;
            if let Err(error) = file.write_at(&bytes, end) {
                self.place.files.remove(&draft)?;
                return Err(error);
            }
            moved.push((key.clone(), Slip { offset: end, ..*slip }));
            end += slip.bytes as u64;
        }
        file.sync()?;
        self.place.files.rename(&draft, &format!("{LETTERS_DIR}/{}", self.place.name))?;
        self.place.files.sync_dir(LETTERS_DIR)?;
        self.file = file;
        self.end = end;
        self.by_age = moved.iter().map(|(key, slip)| (slip.offset, key.clone())).collect();
        self.slips = moved.into_iter().collect();
        Ok(())
    }

    pub(super) fn drop_letters(
        &mut self,
        table: &TableName,
        positions: &[Position],
    ) -> Result<u64, LetterError> {
        self.check()?;
        let keys: Vec<Key> = positions.iter().map(|position| (table.clone(), *position)).collect();
        self.remove(&keys)
    }

    pub(super) fn counts(&self) -> LetterCounts {
        let mut counts = LetterCounts::default();
        for (table, _) in self.slips.keys() {
            *counts.tables.entry(table.clone()).or_default() += 1;
        }
        counts
    }

    pub(super) fn page(
        &self,
        filter: &LetterFilter,
        after: Option<&LetterCursor>,
        limit: usize,
    ) -> Result<LetterPage, LetterError> {
        let wanted = |(key, slip): &(&Key, &Slip)| {
            filter.table.as_ref().is_none_or(|table| *table == key.0)
                && filter.code.is_none_or(|code| slip.code == Some(code))
                && filter.from.is_none_or(|from| slip.buried_at >= from)
                && filter.until.is_none_or(|until| slip.buried_at < until)
                && after.is_none_or(|after| (&key.0, key.1) > (&after.table, after.position))
        };
        let mut page = LetterPage::default();
        for (_, slip) in self.slips.iter().filter(wanted) {
            if page.letters.len() == limit {
                page.more = true;
                break;
            }
            let bytes = read_vec(&*self.file, slip.offset, slip.bytes)
                .map_err(|error| LetterError::Unavailable { reason: error.to_string() })?;
            match read(&self.tenant, &bytes) {
                Some((letter, _)) => page.letters.push(letter),
                None => {
                    self.place.damage.inc();
                    tracing::error!(file = self.place.name, at = slip.offset, "a dead letter cannot be read");
                }
            }
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prometheus_client::metrics::counter::Counter;
    use wavehouse_core::{LogId, Sequence, TableRef};

    use super::*;
    use crate::files::{Files, RealFiles};

    fn letter(sequence: u64, bytes: usize) -> DeadLetter {
        DeadLetter {
            table: TableRef::new(TenantId::default(), TableName::parse("t").unwrap()),
            position: Position::new(LogId(1), Sequence(sequence), 0),
            received_at: Timestamp(1),
            buried_at: Timestamp(sequence),
            code: None,
            reason: "no".to_owned(),
            line: Bytes::from(vec![b'x'; bytes]),
        }
    }

    fn open(dir: &std::path::Path) -> Shelf {
        let files = Arc::new(RealFiles::new(dir));
        files.create_dir(LETTERS_DIR).unwrap();
        let place = Place { files, name: "0.wh".to_owned(), damage: Counter::default() };
        Shelf::open(place, Make::IfMissing).unwrap().unwrap()
    }

    fn sequences(shelf: &Shelf) -> Vec<u64> {
        let filter =
            LetterFilter { tenant: TenantId::default(), table: None, code: None, from: None, until: None };
        let page = shelf.page(&filter, None, usize::MAX).unwrap();
        page.letters.iter().map(|letter| letter.position.sequence.0).collect()
    }

    #[test]
    fn the_oldest_go_when_the_budget_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let mut shelf = open(dir.path());
        for sequence in [5, 1, 2] {
            assert_eq!(shelf.bury(&[letter(sequence, 100)], 600).unwrap(), 0);
        }
        assert_eq!(shelf.bury(&[letter(9, 300)], 600).unwrap(), 2);
        assert_eq!(sequences(&shelf), [2, 9]);
        assert_eq!(shelf.bury(&[letter(10, 900)], 600), Err(LetterError::Full));
        drop(shelf);
        assert_eq!(sequences(&open(dir.path())), [2, 9]);
    }

    #[test]
    fn a_file_of_dropped_letters_is_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let mut shelf = open(dir.path());
        let letters: Vec<_> = (0..80).map(|sequence| letter(sequence, 100 << 10)).collect();
        shelf.bury(&letters, 1 << 30).unwrap();
        let full = shelf.end;
        let positions: Vec<_> = (0..60).map(|sequence| letter(sequence, 0).position).collect();
        let table = letters[0].table.table.clone();
        assert_eq!(shelf.drop_letters(&table, &positions).unwrap(), 60);
        assert!(shelf.end < full / 3, "{} of {full}", shelf.end);
        assert_eq!(sequences(&shelf), (60..80).collect::<Vec<_>>());
        shelf.bury(&[letter(7, 10)], 1 << 30).unwrap();
        drop(shelf);
        let mut shelf = open(dir.path());
        assert_eq!(sequences(&shelf).len(), 21);
        let positions: Vec<_> = (0..80).map(|sequence| letter(sequence, 0).position).collect();
        assert_eq!(shelf.drop_letters(&table, &positions).unwrap(), 21);
        assert_eq!(shelf.end, 0, "an empty shelf takes no room");
    }

    #[test]
    fn torn_ends_are_cut_and_damage_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut shelf = open(dir.path());
        for sequence in 1..=3 {
            shelf.bury(&[letter(sequence, 10)], 1 << 20).unwrap();
        }
        let (end, file) = (shelf.end, Arc::clone(&shelf.file));
        file.write_at(b"WHD\x01half a letter", end).unwrap();
        assert_eq!(sequences(&open(dir.path())), [1, 2, 3]);
        let second = *shelf.by_age.keys().nth(1).unwrap();
        file.write_at(b"?", second + 20).unwrap();
        let mut shelf = open(dir.path());
        assert_eq!((sequences(&shelf), shelf.place.damage.get()), (vec![1, 3], 1));
        shelf.bury(&[letter(4, 10)], 1 << 20).unwrap();
        assert_eq!(sequences(&open(dir.path())), [1, 3, 4]);
    }
}
