//! From a request's body to rows: where records begin and end, which of them are rows of the table, and
//! their bytes, each row on a line of its own.

mod framing;

use crate::record::{RecordReader, Verdict};
use crate::scan::{Cursor, Syntax};
use crate::schema::{RECEIPT_COLUMN, TableSchema};

/// How deeply a record may nest, itself included, unless the caller says otherwise.
pub const DEPTH_MAX: usize = 100;

/// How many records one body may hold. A refused record costs far more bytes to answer than to send, so this
/// bounds what an answer can grow to.
pub const RECORDS_MAX: u64 = 1 << 20;

/// How to find the records of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The first byte decides: `[` begins an array of records, `{` one record (or several, one after another).
    /// What is not JSON refuses the whole body.
    Auto,
    /// One record a line (several are read too, and one that spans lines); what is not JSON refuses its line
    /// alone. An array is accepted as well, and read as `Auto` reads it.
    Lines,
}

/// What the caller decides about checking.
#[derive(Debug, Clone, Copy)]
pub struct CheckOptions<'a> {
    /// The text to store as `received_timestamp` where the table has the column and the row omits it. It goes
    /// between quotes as it is, so it holds none itself, nor backslashes, nor control characters.
    pub receipt_time: Option<&'a str>,
    /// The largest row, in bytes of its line without the line break.
    pub row_bytes_max: usize,
    /// How deeply a record may nest, itself included; usually [`DEPTH_MAX`].
    pub depth_max: usize,
}

/// Why one record was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RowError {
    /// For the client, complete.
    pub message: String,
    /// The exception code that the server would have answered, where clients look for it.
    pub exception_code: Option<u32>,
}

impl RowError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), exception_code: None }
    }
}

/// Why a whole body was refused: no record of it is accepted. The texts are those of the HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Nothing but blanks.
    #[error("empty body")]
    Empty,
    /// Nothing but blank lines, where lines were announced.
    #[error("empty ndjson body")]
    EmptyLines,
    /// The body ends before its array does.
    #[error("invalid json: unterminated json array")]
    UnterminatedArray,
    /// Not JSON, and no line to confine that to; the text tells what and where.
    #[error("invalid json: {0}")]
    InvalidJson(String),
    /// More than [`RECORDS_MAX`] records.
    #[error("more than {RECORDS_MAX} records in one request")]
    TooManyRecords,
    /// More bytes than 32-bit offsets reach.
    #[error("request body too large to take apart")]
    TooLarge,
}

/// The rows and refusals of one body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// The accepted rows in order, each on one line ending in `\n`, in the bytes that the client sent.
    pub lines: Vec<u8>,
    /// How many rows `lines` holds.
    pub rows: u32,
    /// Where each row ends in `lines`, its line break included.
    pub ends: Vec<u32>,
    /// How many records the body held, refused ones included.
    pub total: u64,
    /// Whether the body was a single object, to be answered as one; else it is a batch.
    pub single: bool,
    /// The refused records: place (from 1) and reason, in order.
    pub refused: Vec<(u64, RowError)>,
}

/// Takes a body apart into rows of `table`. Pure and total: any bytes give an answer.
pub fn check_body(
    body: &[u8],
    framing: Framing,
    table: &TableSchema,
    options: &CheckOptions<'_>,
) -> Result<Checked, BodyError> {
    if u32::try_from(body.len()).is_err() {
        return Err(BodyError::TooLarge);
    }
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let mut checker = Checker::new(body, framing, table, options);
    checker.run(framing)?;
    Ok(checker.out)
}

/// Why reading stopped: the grammar broke (which may concern one line only), or a limit was reached.
#[derive(Debug)]
enum Stop {
    Syntax(Syntax),
    Body(BodyError),
}

impl From<Syntax> for Stop {
    fn from(syntax: Syntax) -> Self {
        Self::Syntax(syntax)
    }
}

/// A body on its way to becoming [`Checked`].
struct Checker<'a> {
    cursor: Cursor<'a>,
    reader: RecordReader<'a>,
    options: &'a CheckOptions<'a>,
    is_utf8: bool,
    out: Checked,
}

impl<'a> Checker<'a> {
    fn new(body: &'a [u8], framing: Framing, table: &'a TableSchema, options: &'a CheckOptions<'a>) -> Self {
        let cursor = Cursor::new(body, options.depth_max, framing == Framing::Lines);
        let reader = RecordReader::new(table, options.receipt_time.is_some());
        let is_utf8 = simdutf8::basic::from_utf8(body).is_ok();
        let mut out = Checked::default();
        out.lines.reserve(body.len() + 1);
        Self { cursor, reader, options, is_utf8, out }
    }

    /// Reads the object at the cursor and takes it in, or notes why not.
    fn object(&mut self) -> Result<(), Stop> {
        let start = self.cursor.at;
        let verdict = self.reader.read(&mut self.cursor)?;
        let record = &self.cursor.bytes()[start..self.cursor.at];
        self.count()?;
        match verdict {
            _ if !self.is_utf8 && std::str::from_utf8(record).is_err() => {
                self.refuse(RowError::new("invalid UTF-8 in a row"));
            }
            Verdict::Refused(error) => self.refuse(error),
            Verdict::Row { add_receipt_time, is_empty } => {
                let receipt_time = self.options.receipt_time.filter(|_| add_receipt_time);
                self.append(record, receipt_time, is_empty)?;
            }
        }
        Ok(())
    }

    /// Reads the value at the cursor, whatever it is. Only an object can be a row.
    fn record(&mut self) -> Result<(), Stop> {
        let got = match self.cursor.peek() {
            b'{' => return self.object(),
            b'[' => "an array",
            b'"' => "a string",
            b't' | b'f' => "true or false",
            b'n' => "null",
            _ => "a number",
        };
        self.cursor.begin_record();
        self.cursor.skip()?;
        self.count()?;
        self.refuse(RowError::new(format!("a row must be a JSON object, not {got}")));
        Ok(())
    }

    fn count(&mut self) -> Result<(), Stop> {
        self.out.total += 1;
        if self.out.total > RECORDS_MAX { Err(Stop::Body(BodyError::TooManyRecords)) } else { Ok(()) }
    }

    #[cold]
    fn refuse(&mut self, error: RowError) {
        self.out.refused.push((self.out.total, error));
    }

    /// Puts the record behind the other rows, on one line and with the receipt time if it lacks one.
    fn append(&mut self, record: &[u8], receipt_time: Option<&str>, is_empty: bool) -> Result<(), Stop> {
        let lines = &mut self.out.lines;
        let start = lines.len();
        if self.cursor.broken {
            // No string of a valid record holds a raw line break, so all of them stand between tokens.
            lines.extend(record.iter().copied().filter(|byte| !matches!(byte, b'\n' | b'\r')));
        } else {
            lines.extend_from_slice(record);
        }
        if let Some(time) = receipt_time {
            lines.pop();
            let comma = if is_empty { "" } else { "," };
            for part in [comma, "\"", RECEIPT_COLUMN, "\":\"", time, "\"}"] {
                lines.extend_from_slice(part.as_bytes());
            }
        }
        if lines.len() - start > self.options.row_bytes_max {
            lines.truncate(start);
            let limit = self.options.row_bytes_max;
            self.refuse(RowError::new(format!("the row is larger than {limit} bytes")));
            return Ok(());
        }
        lines.push(b'\n');
        let end = u32::try_from(lines.len()).map_err(|_| Stop::Body(BodyError::TooLarge))?;
        self.out.ends.push(end);
        self.out.rows += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
