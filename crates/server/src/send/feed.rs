//! Reads the file on a thread of its own and cuts it into batches; at most [`BATCHES_AHEAD`] wait.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use thiserror::Error;
use tokio::sync::mpsc;

use super::scan::{Problem, Record, ScanError, Scanner, Shape};

/// Most bytes of rows in one request; a longer row travels alone.
pub(super) const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most rows in one request: below the 10,000 results that an answer names.
pub(super) const BATCH_ROWS_MAX: usize = 5_000;
/// Batches that are read ahead of the one being sent.
pub(super) const BATCHES_AHEAD: usize = 2;
/// How much is read from the file at once, in bytes.
const READ_BYTES: usize = 256 * 1024;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Which record of the file it is, from 1.
    pub(super) number: u64,
    /// Where its line begins and ends in the body, the line feed not counted.
    pub(super) from: usize,
    /// See `from`.
    pub(super) to: usize,
}

/// A record that is not sent at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsendable {
    /// Which record of the file it is, from 1.
    pub(super) number: u64,
    /// Why.
    pub(super) problem: Problem,
}

/// What goes into one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    /// The rows as NDJSON.
    pub(super) body: Bytes,
    /// Where each row is.
    pub(super) rows: Vec<Row>,
    /// Records found on the way that cannot be sent.
    pub(super) unsendable: Vec<Unsendable>,
    /// Where reading goes on after this batch.
    pub(super) mark: Mark,
}

/// A place in the file between two records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Mark {
    /// Layout of the file; none before the first record.
    pub(super) shape: Option<Shape>,
    /// Bytes of the (unpacked) file before this place.
    pub(super) offset: u64,
    /// Records before this place.
    pub(super) records: u64,
}

/// What to read.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A file, which can be read again after an interrupt.
    File(PathBuf),
    /// Standard input, which cannot.
    Stdin,
}

/// Why reading ended early. Batches handed out before are whole.
#[derive(Debug, Error)]
pub(super) enum FeedError {
    /// The file cannot be opened, read or unpacked.
    #[error("cannot read {name}")]
    Read {
        /// File name, or `standard input`.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// Its content is not cut any further.
    #[error("{name} is not read to its end")]
    Scan {
        /// File name, or `standard input`.
        name: String,
        /// What was found, and where.
        source: ScanError,
    },
}

impl Source {
    /// `-` is standard input.
    pub(super) fn parse(text: &str) -> Self {
        if text == "-" { Self::Stdin } else { Self::File(PathBuf::from(text)) }
    }

    /// The file's path, if it is one.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Stdin => None,
        }
    }

    /// How messages call it.
    pub(super) fn name(&self) -> String {
        self.path().map_or_else(|| "standard input".to_owned(), |path| path.display().to_string())
    }

    fn open(&self, from: &Mark, read_bytes: Arc<AtomicU64>) -> io::Result<Box<dyn Read>> {
        let (mut raw, is_file): (Box<dyn Read>, bool) = match self {
            Self::Stdin => (Box::new(io::stdin()), false),
            Self::File(path) => (Box::new(File::open(path)?), true),
        };
        let mut head = Vec::with_capacity(GZIP_MAGIC.len());
        raw.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut head)?;
        if let (false, Self::File(path), true) = (head == GZIP_MAGIC, self, is_file) {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(from.offset))?;
            read_bytes.store(from.offset, Ordering::Relaxed);
            return Ok(Box::new(Counted { inner: file, read_bytes }));
        }
        let packed = head == GZIP_MAGIC;
        let counted = Counted { inner: io::Cursor::new(head).chain(raw), read_bytes };
        let mut reader: Box<dyn Read> = if packed {
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, counted)))
        } else {
            Box::new(counted)
        };
        let passed = io::copy(&mut reader.by_ref().take(from.offset), &mut io::sink())?;
        if passed < from.offset {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than it was"));
        }
        Ok(reader)
    }
}

struct Counted<R> {
    inner: R,
    read_bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Reads `source` from `from` to its end. Blocks when the receiver is behind; ends at once when it is gone.
/// `read_bytes` follows the bytes taken from the file as it lies on disk.
pub(super) fn feed(
    source: &Source,
    from: Mark,
    read_bytes: Arc<AtomicU64>,
    batches: &mpsc::Sender<Batch>,
) -> Result<(), FeedError> {
    let name = source.name();
    let broken = |error| FeedError::Read { name: name.clone(), source: error };
    let mut reader = source.open(&from, read_bytes).map_err(broken)?;
    let mut scanner = from.shape.map_or_else(Scanner::new, |shape| Scanner::resume(shape, from.offset));
    let mut packer = Packer { next_record: from.records + 1, mark: from, ..Packer::default() };
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                packer.flush(scanner.shape());
                let _gone = packer.hand_over(batches);
                return Err(broken(error));
            }
        };
        let ended = count == 0;
        let scanned = if ended {
            scanner.finish(&mut |record| packer.add(&record))
        } else {
            scanner.feed(&buffer[..count], &mut |record| packer.add(&record))
        };
        packer.see(scanner.shape());
        if ended || scanned.is_err() {
            packer.flush(scanner.shape());
        }
        let received = packer.hand_over(batches);
        scanned.map_err(|error| FeedError::Scan { name: name.clone(), source: error })?;
        if ended || received.is_err() {
            return Ok(());
        }
    }
}

/// Collects records into batches.
#[derive(Default)]
struct Packer {
    body: Vec<u8>,
    rows: Vec<Row>,
    unsendable: Vec<Unsendable>,
    next_record: u64,
    mark: Mark,
    ready: Vec<Batch>,
}

impl Packer {
    fn add(&mut self, record: &Record<'_>) {
        if self.body.len() + record.line.len() > BATCH_BYTES_MAX && !self.rows.is_empty() {
            self.close();
        }
        let number = self.next_record;
        self.next_record += 1;
        if let Some(problem) = record.problem {
            self.unsendable.push(Unsendable { number, problem });
        } else {
            let from = self.body.len();
            self.body.extend_from_slice(record.line);
            self.rows.push(Row { number, from, to: self.body.len() });
            self.body.push(b'\n');
        }
        self.mark.offset = record.end;
        self.mark.records = number;
        if self.rows.len() + self.unsendable.len() >= BATCH_ROWS_MAX || self.body.len() >= BATCH_BYTES_MAX {
            self.close();
        }
    }

    /// The shape shows only after the first records: closed batches get it before they leave.
    fn see(&mut self, shape: Option<Shape>) {
        self.mark.shape = shape;
        for batch in &mut self.ready {
            batch.mark.shape = shape;
        }
    }

    fn flush(&mut self, shape: Option<Shape>) {
        if !self.rows.is_empty() || !self.unsendable.is_empty() {
            self.close();
        }
        self.see(shape);
    }

    fn close(&mut self) {
        self.ready.push(Batch {
            body: Bytes::from(std::mem::take(&mut self.body)),
            rows: std::mem::take(&mut self.rows),
            unsendable: std::mem::take(&mut self.unsendable),
            mark: self.mark,
        });
    }

    fn hand_over(&mut self, batches: &mpsc::Sender<Batch>) -> Result<(), ()> {
        for batch in self.ready.drain(..) {
            batches.blocking_send(batch).map_err(|_gone| ())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn batches(source: &Source, from: Mark) -> (Vec<Batch>, Result<(), FeedError>) {
        let (sender, mut receiver) = mpsc::channel(1_000);
        let result = feed(source, from, Arc::default(), &sender);
        drop(sender);
        let mut all = Vec::new();
        while let Ok(batch) = receiver.try_recv() {
            all.push(batch);
        }
        (all, result)
    }

    fn file(bytes: &[u8]) -> (tempfile::NamedTempFile, Source) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let source = Source::File(file.path().to_owned());
        (file, source)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn batches_keep_to_both_limits_and_lose_no_row() {
        let small: String = (0..12_001).map(|n| format!("{{\"n\":{n}}}\n")).collect();
        let (_keep, source) = file(small.as_bytes());
        let (all, result) = batches(&source, Mark::default());
        result.unwrap();
        assert_eq!(all.iter().map(|batch| batch.rows.len()).collect::<Vec<_>>(), [5_000, 5_000, 2_001]);
        let joined: Vec<u8> = all.iter().flat_map(|batch| batch.body.to_vec()).collect();
        assert_eq!(joined, small.as_bytes());
        assert_eq!(
            all[2].mark,
            Mark { shape: Some(Shape::Lines), offset: small.len() as u64, records: 12_001 }
        );

        let large = format!("[\"{0}\",\"{0}\",\"{1}\"]", "x".repeat(3_000_000), "y".repeat(5_000_000));
        let (_keep, source) = file(large.as_bytes());
        let (all, result) = batches(&source, Mark::default());
        result.unwrap();
        assert_eq!(all.iter().map(|batch| batch.rows.len()).collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn gzip_is_seen_by_its_content_and_both_forms_resume() {
        let text: String = (0..11_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
        let mut twice = gzip(&text.as_bytes()[..5_000]);
        twice.extend(gzip(&text.as_bytes()[5_000..]));
        for bytes in [text.as_bytes().to_vec(), twice] {
            let (_keep, source) = file(&bytes);
            let (all, result) = batches(&source, Mark::default());
            result.unwrap();
            let (rest, result) = batches(&source, all[0].mark);
            result.unwrap();
            assert_eq!(rest.len(), 2);
            assert_eq!(rest[0].rows[0].number, 5_001);
            assert_eq!((&rest[0].body, &rest[1].body), (&all[1].body, &all[2].body));
        }
    }

    #[test]
    fn a_torn_archive_delivers_what_it_held_and_says_so() {
        let text: String = (0..50_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
        let packed = gzip(text.as_bytes());
        let (_keep, source) = file(&packed[..packed.len() / 2]);
        let (all, result) = batches(&source, Mark::default());
        assert!(matches!(result, Err(FeedError::Read { .. })));
        assert!(!all.is_empty());
        let joined: Vec<u8> = all.iter().flat_map(|batch| batch.body.to_vec()).collect();
        assert!(text.as_bytes().starts_with(&joined));
    }

    #[test]
    fn a_broken_array_delivers_what_stands_before_the_break() {
        let (_keep, source) = file(br#"[{"a":1},{"a":2} {"a":3}]"#);
        let (all, result) = batches(&source, Mark::default());
        assert!(matches!(result, Err(FeedError::Scan { .. })));
        assert_eq!(all[0].body, Bytes::from_static(b"{\"a\":1}\n{\"a\":2}\n"));
    }
}
