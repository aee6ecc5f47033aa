//! Where records begin and end: an array, objects one after another, or lines.

use super::{BodyError, Checker, Framing, RowError, Stop};
use crate::scan::Syntax;

/// What to return to when a line turns out to be broken.
struct Mark {
    at: usize,
    lines: usize,
    rows: u32,
    refused: usize,
    total: u64,
}

impl Checker<'_> {
    pub(super) fn run(&mut self, framing: Framing) -> Result<(), BodyError> {
        self.cursor.space();
        match (framing, self.cursor.peek()) {
            (Framing::Auto, _) if self.cursor.is_at_end() => Err(BodyError::Empty),
            (Framing::Lines, _) if self.cursor.is_at_end() => Err(BodyError::EmptyLines),
            (_, b'[') => self.array(),
            (Framing::Auto, b'{') => self.objects(),
            (Framing::Auto, _) => {
                Err(BodyError::InvalidJson("expected an object or an array of objects".to_owned()))
            }
            (Framing::Lines, _) => self.all_lines(),
        }
    }

    fn array(&mut self) -> Result<(), BodyError> {
        self.elements().map_err(|stop| match stop {
            Stop::Syntax(syntax) if self.is_cut_off(syntax) => BodyError::UnterminatedArray,
            Stop::Syntax(syntax) => BodyError::InvalidJson(describe(syntax, 0)),
            Stop::Body(error) => error,
        })?;
        self.cursor.space();
        if self.cursor.is_at_end() {
            return Ok(());
        }
        let rest = Syntax { at: self.cursor.at, what: "unexpected data after the array" };
        Err(BodyError::InvalidJson(describe(rest, 0)))
    }

    fn elements(&mut self) -> Result<(), Stop> {
        self.cursor.expect(b'[', "expected [")?;
        self.cursor.space();
        if self.cursor.is_empty(b']') {
            return Ok(());
        }
        loop {
            self.record()?;
            if !self.cursor.goes_on(b']')? {
                return Ok(());
            }
        }
    }

    /// One object is a single row. Several, one after another, are a batch: none is dropped in silence.
    fn objects(&mut self) -> Result<(), BodyError> {
        while !self.cursor.is_at_end() {
            let read = match self.cursor.peek() {
                b'{' => self.object(),
                _ => {
                    Err(Stop::Syntax(Syntax { at: self.cursor.at, what: "unexpected data after the object" }))
                }
            };
            read.map_err(|stop| match stop {
                Stop::Syntax(syntax) if self.is_cut_off(syntax) => {
                    BodyError::InvalidJson("the object does not end".to_owned())
                }
                Stop::Syntax(syntax) => BodyError::InvalidJson(describe(syntax, 0)),
                Stop::Body(error) => error,
            })?;
            self.cursor.space();
        }
        self.out.single = self.out.total == 1;
        Ok(())
    }

    fn all_lines(&mut self) -> Result<(), BodyError> {
        loop {
            self.cursor.space();
            if self.cursor.is_at_end() {
                return Ok(());
            }
            let mark = self.mark();
            match self.line() {
                Ok(()) => {}
                Err(Stop::Syntax(syntax)) => self.refuse_line(&mark, syntax)?,
                Err(Stop::Body(error)) => return Err(error),
            }
        }
    }

    /// Reads the records that begin on one line.
    fn line(&mut self) -> Result<(), Stop> {
        self.record()?;
        loop {
            self.cursor.begin_record();
            self.cursor.space();
            if self.cursor.broken || self.cursor.is_at_end() {
                return Ok(());
            }
            if self.cursor.peek() != b'{' {
                return Ok(self.cursor.error("unexpected data after the row")?);
            }
            self.object()?;
        }
    }

    /// A line that is not JSON is one refused record, also where a row stood before the breach: its client
    /// can send the line again as a whole. Reading resumes with the next line.
    #[cold]
    fn refuse_line(&mut self, mark: &Mark, syntax: Syntax) -> Result<(), BodyError> {
        self.restore(mark);
        let rest = self.cursor.rest();
        let length = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let line_is_utf8 = self.is_utf8 || std::str::from_utf8(&rest[..length]).is_ok();
        self.cursor.at += length;
        match self.count() {
            Err(Stop::Body(error)) => return Err(error),
            Err(Stop::Syntax(_)) | Ok(()) => {}
        }
        let message = match line_is_utf8 {
            true => format!("invalid json: {}", describe(syntax, mark.at)),
            false => "invalid UTF-8 in a row".to_owned(),
        };
        self.refuse(RowError::new(message));
        Ok(())
    }

    fn mark(&self) -> Mark {
        Mark {
            at: self.cursor.at,
            lines: self.out.lines.len(),
            rows: self.out.rows,
            refused: self.out.refused.len(),
            total: self.out.total,
        }
    }

    fn restore(&mut self, mark: &Mark) {
        self.cursor.at = mark.at;
        self.out.lines.truncate(mark.lines);
        self.out.ends.truncate(self.out.ends.len() - (self.out.rows - mark.rows) as usize);
        self.out.rows = mark.rows;
        self.out.refused.truncate(mark.refused);
        self.out.total = mark.total;
    }

    /// Whether the body just ends where something had to come.
    fn is_cut_off(&self, syntax: Syntax) -> bool {
        syntax.at >= self.cursor.bytes().len()
    }
}

/// What is wrong and where, counted from 1 at `start`.
fn describe(syntax: Syntax, start: usize) -> String {
    format!("{} at byte {}", syntax.what, syntax.at.saturating_sub(start) + 1)
}
