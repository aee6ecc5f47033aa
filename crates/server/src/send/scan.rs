//! Cuts a stream of bytes into records without understanding them.
//!
//! Three shapes are told apart by the first bytes: a JSON array, lines (one record a line), and values one after
//! another (objects printed over several lines). Only brackets and strings are tracked, so that a file of any
//! size is read in the memory of one record, and a record keeps the bytes that the file has. A broken record is
//! not repaired: it goes to the server as it is, which says what is wrong with it.

use thiserror::Error;

/// Longest record that is kept, in bytes. The server takes no request beyond this either; a longer record is
/// reported as refused and its bytes are passed over.
pub(super) const RECORD_BYTES_MAX: usize = 16 * 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How the records are laid out in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Shape {
    /// `[{…}, {…}]`
    Array,
    /// One record a line; blank lines are skipped.
    Lines,
    /// Objects one after another, each over as many lines as it likes.
    Values,
}

/// Why a record cannot be sent at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// Longer than [`RECORD_BYTES_MAX`]; its bytes were dropped.
    TooLarge,
    /// A line break inside a string, which is not JSON and would tear the record in two.
    LineBreakInString,
}

impl Problem {
    /// The reason as the refusals file tells it.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::TooLarge => "not sent: the record is larger than 16777216 bytes",
            Self::LineBreakInString => "not sent: a string holds a raw line break",
        }
    }
}

/// One record as found.
#[derive(Debug)]
pub(super) struct Record<'a> {
    /// Its bytes on one line, without the line's end.
    pub(super) line: &'a [u8],
    /// Where the next record begins to be looked for: a byte offset in the (unpacked) file.
    pub(super) end: u64,
    /// Set when the record must not be sent.
    pub(super) problem: Option<Problem>,
}

/// The file cannot be cut any further. Everything before was delivered.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum ScanError {
    /// Between two elements of an array stands something else than a comma.
    #[error("at byte {offset}: expected a comma or the end of the array, found {found:?}")]
    NoComma {
        /// Where, from the start of the unpacked file.
        offset: u64,
        /// What stands there.
        found: char,
    },
    /// A comma or a bracket where a record should be.
    #[error("at byte {offset}: expected a record, found {found:?}")]
    NoRecord {
        /// Where, from the start of the unpacked file.
        offset: u64,
        /// What stands there.
        found: char,
    },
    /// Something stands after the end of the array.
    #[error("at byte {offset}: something stands after the end of the array")]
    AfterArray {
        /// Where, from the start of the unpacked file.
        offset: u64,
    },
    /// The file ends before its last record does.
    #[error("the file ends inside a record")]
    CutRecord,
    /// The file ends before the array does.
    #[error("the file ends before the array is closed")]
    CutArray,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing but a byte-order mark and white space so far.
    Start,
    /// Lines or values: which of them shows at the end of the first line.
    FirstLine,
    /// Array: after the bracket.
    Opened,
    /// Array: after a comma.
    Comma,
    /// Array: after an element. Values: between two.
    Between,
    /// Inside a value or a line.
    Inside,
    /// Array: after the closing bracket.
    Closed,
}

/// The nesting inside one value.
#[derive(Clone, Copy, Debug, Default)]
struct Nesting {
    depth: u32,
    string: bool,
    escape: bool,
}

/// The cutter. Feed it chunks in order, then call [`Scanner::finish`].
#[derive(Debug)]
pub(super) struct Scanner {
    shape: Option<Shape>,
    place: Place,
    nesting: Nesting,
    record: Vec<u8>,
    problem: Option<Problem>,
    offset: u64,
    record_bytes_max: usize,
}

impl Scanner {
    /// A scanner at the start of a file.
    pub(super) fn new() -> Self {
        Self {
            shape: None,
            place: Place::Start,
            nesting: Nesting::default(),
            record: Vec::new(),
            problem: None,
            offset: 0,
            record_bytes_max: RECORD_BYTES_MAX,
        }
    }

    /// A scanner that goes on behind a record which ended at `offset`.
    pub(super) fn resume(shape: Shape, offset: u64) -> Self {
        let place = if shape == Shape::Lines { Place::Inside } else { Place::Between };
        Self { shape: Some(shape), place, offset, ..Self::new() }
    }

    /// The shape, once the first line has shown it.
    pub(super) fn shape(&self) -> Option<Shape> {
        self.shape
    }

    /// Takes the next bytes of the file and hands out each record that ends in them.
    pub(super) fn feed(
        &mut self,
        mut chunk: &[u8],
        out: &mut dyn FnMut(Record<'_>),
    ) -> Result<(), ScanError> {
        while !chunk.is_empty() {
            let used = match (self.place, self.shape) {
                (Place::Start, _) => self.start(chunk),
                (Place::FirstLine, _) => self.first_line(chunk, out)?,
                (Place::Inside, Some(Shape::Lines)) => self.line(chunk, out),
                (Place::Inside, _) => self.value(chunk, out),
                (_, Some(Shape::Values)) => self.between_values(chunk),
                _ => self.between_elements(chunk)?,
            };
            chunk = &chunk[used..];
        }
        Ok(())
    }

    /// The file has ended: hands out what the last line held, or says that something is missing.
    pub(super) fn finish(&mut self, out: &mut dyn FnMut(Record<'_>)) -> Result<(), ScanError> {
        if self.place == Place::FirstLine {
            self.decide_shape(out)?;
        }
        match (self.shape, self.place) {
            (Some(Shape::Array), Place::Closed) | (None, _) => Ok(()),
            (Some(Shape::Array), _) => Err(ScanError::CutArray),
            (Some(Shape::Lines), _) => {
                self.hand_out(out);
                Ok(())
            }
            (Some(Shape::Values), Place::Inside) if self.nesting.depth == 0 && !self.nesting.string => {
                self.hand_out(out); // a bare number or word ends with the file
                Ok(())
            }
            (Some(Shape::Values), Place::Inside) => Err(ScanError::CutRecord),
            (Some(Shape::Values), _) => Ok(()),
        }
    }

    fn start(&mut self, chunk: &[u8]) -> usize {
        let byte = chunk[0];
        // A mark may come in pieces: `record` holds the bytes of it seen so far.
        if self.offset as usize == self.record.len() && BYTE_ORDER_MARK.get(self.record.len()) == Some(&byte)
        {
            self.record.push(byte);
            self.offset += 1;
            if self.record.len() == BYTE_ORDER_MARK.len() {
                self.record.clear();
            }
            return 1;
        }
        let is_blank = byte.is_ascii_whitespace();
        if !self.record.is_empty() || (!is_blank && byte != b'[') {
            self.place = Place::FirstLine;
            return 0;
        }
        if !is_blank {
            (self.shape, self.place) = (Some(Shape::Array), Place::Opened);
        }
        self.offset += 1;
        1
    }

    fn first_line(&mut self, chunk: &[u8], out: &mut dyn FnMut(Record<'_>)) -> Result<usize, ScanError> {
        let end = memchr::memchr(b'\n', chunk);
        let used = end.map_or(chunk.len(), |at| at + 1);
        self.record.extend_from_slice(&chunk[..used]);
        self.offset += used as u64;
        if end.is_some() || self.record.len() > self.record_bytes_max {
            self.decide_shape(out)?;
        }
        Ok(used)
    }

    /// A first line whose brackets close is one of many lines; one that stays open belongs to a printed object.
    fn decide_shape(&mut self, out: &mut dyn FnMut(Record<'_>)) -> Result<(), ScanError> {
        let line = std::mem::take(&mut self.record);
        self.offset -= line.len() as u64;
        let shape = if closes(&line) { Shape::Lines } else { Shape::Values };
        self.shape = Some(shape);
        self.place = if shape == Shape::Lines { Place::Inside } else { Place::Between };
        self.feed(&line, out)
    }

    fn line(&mut self, chunk: &[u8], out: &mut dyn FnMut(Record<'_>)) -> usize {
        let end = memchr::memchr(b'\n', chunk);
        self.keep(&chunk[..end.unwrap_or(chunk.len())]);
        let used = end.map_or(chunk.len(), |at| at + 1);
        self.offset += used as u64;
        if end.is_some() {
            self.hand_out(out);
            self.place = Place::Inside;
        }
        used
    }

    fn between_values(&mut self, chunk: &[u8]) -> usize {
        if chunk[0].is_ascii_whitespace() {
            self.offset += 1;
            return 1;
        }
        self.open_value(chunk[0])
    }

    fn between_elements(&mut self, chunk: &[u8]) -> Result<usize, ScanError> {
        let (byte, offset) = (chunk[0], self.offset);
        if byte.is_ascii_whitespace() {
            self.offset += 1;
            return Ok(1);
        }
        match (self.place, byte) {
            (Place::Opened | Place::Between, b']') => self.place = Place::Closed,
            (Place::Between, b',') => self.place = Place::Comma,
            (Place::Between, _) => return Err(ScanError::NoComma { offset, found: char::from(byte) }),
            (Place::Closed, _) => return Err(ScanError::AfterArray { offset }),
            (_, b',' | b']' | b'}') => return Err(ScanError::NoRecord { offset, found: char::from(byte) }),
            _ => return Ok(self.open_value(byte)),
        }
        self.offset += 1;
        Ok(1)
    }

    fn open_value(&mut self, byte: u8) -> usize {
        self.place = Place::Inside;
        self.nesting =
            Nesting { depth: u32::from(matches!(byte, b'{' | b'[')), string: byte == b'"', escape: false };
        self.keep(&[byte]);
        self.offset += 1;
        1
    }

    fn value(&mut self, chunk: &[u8], out: &mut dyn FnMut(Record<'_>)) -> usize {
        if self.nesting.string {
            return self.string(chunk, out);
        }
        for (at, &byte) in chunk.iter().enumerate() {
            let ends = match byte {
                b'"' => {
                    self.nesting.string = true;
                    self.keep_flat(&chunk[..=at]);
                    self.offset += at as u64 + 1;
                    return at + 1;
                }
                b',' | b']' | b'}' if self.nesting.depth == 0 => Some(at), // a bare word ends before it
                _ if byte.is_ascii_whitespace() && self.nesting.depth == 0 => Some(at),
                b'{' | b'[' => {
                    self.nesting.depth += 1;
                    None
                }
                b'}' | b']' => {
                    self.nesting.depth -= 1;
                    (self.nesting.depth == 0).then_some(at + 1)
                }
                _ => None,
            };
            if let Some(end) = ends {
                self.keep_flat(&chunk[..end]);
                self.offset += end as u64;
                self.hand_out(out);
                return end;
            }
        }
        self.keep_flat(chunk);
        self.offset += chunk.len() as u64;
        chunk.len()
    }

    fn string(&mut self, chunk: &[u8], out: &mut dyn FnMut(Record<'_>)) -> usize {
        if self.nesting.escape {
            self.nesting.escape = false;
            self.keep(&chunk[..1]);
            self.offset += 1;
            return 1;
        }
        let Some(at) = memchr::memchr3(b'"', b'\\', b'\n', chunk) else {
            self.keep(chunk);
            self.offset += chunk.len() as u64;
            return chunk.len();
        };
        self.keep(&chunk[..=at]);
        self.offset += at as u64 + 1;
        match chunk[at] {
            b'"' => {
                self.nesting.string = false;
                if self.nesting.depth == 0 {
                    self.hand_out(out);
                }
            }
            b'\\' => self.nesting.escape = true,
            _ => self.problem = self.problem.or(Some(Problem::LineBreakInString)),
        }
        at + 1
    }

    /// Keeps bytes that stand outside strings: line breaks there are white space, and become spaces.
    fn keep_flat(&mut self, bytes: &[u8]) {
        let from = self.record.len();
        self.keep(bytes);
        for byte in &mut self.record[from..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.problem == Some(Problem::TooLarge) {
            return;
        }
        if self.record.len() + bytes.len() > self.record_bytes_max {
            self.problem = Some(Problem::TooLarge);
            self.record = Vec::new();
            return;
        }
        self.record.extend_from_slice(bytes);
    }

    fn hand_out(&mut self, out: &mut dyn FnMut(Record<'_>)) {
        self.place = Place::Between;
        let problem = self.problem.take();
        let line = self.record.trim_ascii_end();
        if problem.is_some() || !line.trim_ascii_start().is_empty() {
            out(Record { line, end: self.offset, problem });
        }
        self.record.clear();
    }
}

/// Whether every bracket and string opened on this line is closed on it.
fn closes(line: &[u8]) -> bool {
    let mut nesting = Nesting::default();
    for &byte in line {
        match byte {
            _ if nesting.escape => nesting.escape = false,
            b'\\' if nesting.string => nesting.escape = true,
            b'"' => nesting.string = !nesting.string,
            b'{' | b'[' if !nesting.string => nesting.depth += 1,
            b'}' | b']' if !nesting.string => nesting.depth = nesting.depth.saturating_sub(1),
            _ => {}
        }
    }
    nesting.depth == 0 && !nesting.string
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
