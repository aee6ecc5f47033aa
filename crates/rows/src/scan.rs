//! A cursor over JSON text: RFC 8259 grammar, byte by byte, with nothing built and nothing copied.
//!
//! The text is UTF-8 already or its record is refused for that, so strings are read as bytes.
//!
//! What every value goes through is always inlined: left to the compiler, it depends on how many callers there are, and a
//! fourth one made each row a quarter slower.

mod number;
mod text;

pub(crate) use number::{Number, NumberKind};
pub(crate) use text::{Text, decode};

/// Where the grammar breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Syntax {
    /// Byte offset in the body; the body's length where the text just ends.
    pub(crate) at: usize,
    /// What was expected, or what is wrong.
    pub(crate) what: &'static str,
}

/// A value's start: a whole scalar, or the opening of a container that is not entered yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Token<'a> {
    /// A string.
    Text(Text<'a>),
    /// A number.
    Number(Number<'a>),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
    /// `{`, with the cursor still on it.
    Object,
    /// `[`, with the cursor still on it.
    Array,
}

/// The reading position, and what was noticed on the way in the record at hand.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    /// The next byte to read.
    pub(crate) at: usize,
    /// A line break stood between tokens: the record is not yet one line.
    pub(crate) broken: bool,
    /// A `\u` escape named half a surrogate pair.
    pub(crate) lone_surrogate: bool,
    /// A value was nested deeper than allowed.
    pub(crate) too_deep: bool,
    depth: usize,
    depth_max: usize,
    depth_is_fatal: bool,
    open: Vec<bool>,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start. Deeper nesting than `depth_max` is noticed, or fails at once if `depth_is_fatal`:
    /// so it must be where a record may be read twice, or the second reading costs as much as the first.
    pub(crate) fn new(bytes: &'a [u8], depth_max: usize, depth_is_fatal: bool) -> Self {
        Self {
            bytes,
            at: 0,
            broken: false,
            lone_surrogate: false,
            too_deep: false,
            depth: 0,
            depth_max,
            depth_is_fatal,
            open: Vec::new(),
        }
    }

    /// All bytes, read and unread.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes not yet read.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// The next byte; 0 at the end. (A NUL that is really there fits nowhere in the grammar either.)
    #[inline]
    pub(crate) fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// A syntax error at the cursor.
    #[cold]
    pub(crate) fn error<T>(&self, what: &'static str) -> Result<T, Syntax> {
        Err(Syntax { at: self.at.min(self.bytes.len()), what })
    }

    /// Forgets what was noticed: a new record begins.
    pub(crate) fn begin_record(&mut self) {
        (self.broken, self.lone_surrogate, self.too_deep, self.depth) = (false, false, false, 0);
    }

    /// Skips blanks, noting line breaks.
    #[inline]
    pub(crate) fn space(&mut self) {
        if self.peek() <= b' ' {
            self.space_slow();
        }
    }

    fn space_slow(&mut self) {
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b' ' | b'\t' => {}
                b'\n' | b'\r' => self.broken = true,
                _ => return,
            }
            self.at += 1;
        }
    }

    /// Consumes `byte` or fails with `what`.
    #[inline]
    pub(crate) fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Syntax> {
        if self.peek() != byte {
            return self.error(what);
        }
        self.at += 1;
        Ok(())
    }

    /// Consumes `word`, one of JSON's three.
    #[inline]
    pub(crate) fn literal(&mut self, word: &'static [u8]) -> Result<(), Syntax> {
        if self.rest().starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        let same = self.rest().iter().zip(word).take_while(|(a, b)| a == b).count();
        self.at += same;
        self.error("expected true, false or null")
    }

    /// Reads a scalar whole, or sees the opening of a container.
    #[inline(always)]
    pub(crate) fn token(&mut self) -> Result<Token<'a>, Syntax> {
        match self.peek() {
            b'"' => self.string().map(Token::Text),
            b'-' | b'0'..=b'9' => self.number().map(Token::Number),
            b't' => self.literal(b"true").map(|()| Token::Bool(true)),
            b'f' => self.literal(b"false").map(|()| Token::Bool(false)),
            b'n' => self.literal(b"null").map(|()| Token::Null),
            b'{' => Ok(Token::Object),
            b'[' => Ok(Token::Array),
            _ => self.error("expected a value"),
        }
    }

    /// Opens a container: consumes its bracket and counts the depth.
    #[inline]
    pub(crate) fn enter(&mut self) -> Result<(), Syntax> {
        self.at += 1;
        self.depth += 1;
        if self.depth > self.depth_max {
            self.too_deep = true;
            if self.depth_is_fatal {
                return self.error("nested too deeply");
            }
        }
        self.space();
        Ok(())
    }

    /// Closes a container whose closing bracket is already consumed.
    #[inline]
    pub(crate) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// After an element: consumes `,` (true, at the next element) or `close` (false).
    #[inline]
    pub(crate) fn goes_on(&mut self, close: u8) -> Result<bool, Syntax> {
        self.space();
        let byte = self.peek();
        if byte == b',' {
            self.at += 1;
            self.space();
            return Ok(true);
        }
        if byte != close {
            return self.error(if close == b'}' { "expected , or }" } else { "expected , or ]" });
        }
        self.at += 1;
        self.leave();
        Ok(false)
    }

    /// Whether the container just entered is empty; consumes its closing bracket if so.
    #[inline]
    pub(crate) fn is_empty(&mut self, close: u8) -> bool {
        let empty = self.peek() == close;
        if empty {
            self.at += 1;
            self.leave();
        }
        empty
    }

    /// Reads the colon between a key and its value, with blanks around it.
    #[inline]
    pub(crate) fn colon(&mut self) -> Result<(), Syntax> {
        self.space();
        self.expect(b':', "expected : after a key")?;
        self.space();
        Ok(())
    }

    /// Reads a key and its colon.
    pub(crate) fn key(&mut self) -> Result<Text<'a>, Syntax> {
        if self.peek() != b'"' {
            return self.error("expected a key in quotes");
        }
        let key = self.string()?;
        self.colon()?;
        Ok(key)
    }

    /// Skips one value of any kind. Needs no stack of its own: depth costs one entry of `open` a level.
    pub(crate) fn skip(&mut self) -> Result<(), Syntax> {
        self.open.clear();
        loop {
            let entered = match self.token()? {
                Token::Object => !self.begin(b'}', true)?,
                Token::Array => !self.begin(b']', false)?,
                _ => false,
            };
            if !entered && !self.next_value()? {
                return Ok(());
            }
        }
    }

    /// Enters a container while skipping; true if it is empty and thus over.
    fn begin(&mut self, close: u8, is_object: bool) -> Result<bool, Syntax> {
        self.enter()?;
        if self.is_empty(close) {
            return Ok(true);
        }
        if is_object {
            self.key()?;
        }
        self.open.push(is_object);
        Ok(false)
    }

    /// After a value while skipping: moves to the next value, or tells that the skipped one is over.
    fn next_value(&mut self) -> Result<bool, Syntax> {
        while let Some(&is_object) = self.open.last() {
            if self.goes_on(if is_object { b'}' } else { b']' })? {
                if is_object {
                    self.key()?;
                }
                return Ok(true);
            }
            self.open.pop();
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
