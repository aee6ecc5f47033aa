//! Strings: where they end, and what their escapes mean.

use super::{Cursor, Syntax};

/// A string as written, without its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text<'a> {
    /// The bytes between the quotes.
    pub(crate) raw: &'a [u8],
    /// Whether a backslash is among them.
    pub(crate) escaped: bool,
}

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Of eight bytes (little endian), the high bit of each that ends a plain run: a quote, a backslash or a
/// control character. Exact for the lowest such byte, which is the only one asked for.
#[inline]
fn stops(chunk: u64) -> u64 {
    let quote = chunk ^ (LOW_BITS * b'"' as u64);
    let backslash = chunk ^ (LOW_BITS * b'\\' as u64);
    let control = chunk.wrapping_sub(LOW_BITS * 0x20) & !chunk;
    let zero = |word: u64| word.wrapping_sub(LOW_BITS) & !word;
    (zero(quote) | zero(backslash) | control) & HIGH_BITS
}

impl<'a> Cursor<'a> {
    /// Reads a string; the cursor stands on its opening quote.
    #[inline(always)]
    pub(crate) fn string(&mut self) -> Result<Text<'a>, Syntax> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.plain_run();
            let end = self.at;
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(Text { raw: &self.bytes()[start..end], escaped });
                }
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                _ if self.is_at_end() => return self.error("a string does not end"),
                _ => return self.error("a control character in a string"),
            }
        }
    }

    /// Moves to the next quote, backslash, control character, or the end.
    #[inline(always)]
    fn plain_run(&mut self) {
        let mut rest = self.rest();
        while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
            let found = stops(u64::from_le_bytes(*chunk));
            if found != 0 {
                self.at = self.bytes().len() - rest.len() + (found.trailing_zeros() / 8) as usize;
                return;
            }
            rest = tail;
        }
        let run = rest.iter().take_while(|&&b| b >= b' ' && b != b'"' && b != b'\\').count();
        self.at = self.bytes().len() - rest.len() + run;
    }

    fn escape(&mut self) -> Result<(), Syntax> {
        self.at += 1;
        match self.peek() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.at += 1;
                Ok(())
            }
            b'u' => self.unicode_escape(),
            _ => self.error("an unknown escape in a string"),
        }
    }

    fn unicode_escape(&mut self) -> Result<(), Syntax> {
        let unit = self.hex_unit()?;
        match unit {
            0xD800..=0xDBFF if self.rest().starts_with(b"\\u") => {
                let before = self.at;
                self.at += 1;
                if !(0xDC00..=0xDFFF).contains(&self.hex_unit()?) {
                    self.lone_surrogate = true;
                    self.at = before;
                }
            }
            0xD800..=0xDFFF => self.lone_surrogate = true,
            _ => {}
        }
        Ok(())
    }

    /// Reads `uXXXX`.
    fn hex_unit(&mut self) -> Result<u32, Syntax> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let Some(digit) = char::from(self.peek()).to_digit(16) else {
                return self.error("expected four hexadecimal digits");
            };
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }
}

/// What a string that passed the grammar means. Half a surrogate pair becomes U+FFFD (such rows are refused).
pub(crate) fn decode(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let code = rest.get(at + 1).copied().unwrap_or_default();
        rest = rest.get(at + 2..).unwrap_or_default();
        match code {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let (character, tail) = decode_unicode(rest);
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = tail;
            }
            other => out.push(other),
        }
    }
    out.extend_from_slice(rest);
    out
}

fn decode_unicode(rest: &[u8]) -> (char, &[u8]) {
    let (high, tail) = decode_unit(rest);
    if let Some(character) = char::from_u32(high) {
        return (character, tail);
    }
    if let Some(next) = tail.strip_prefix(b"\\u") {
        let (low, after) = decode_unit(next);
        if (0xD800..0xDC00).contains(&high) && (0xDC00..0xE000).contains(&low) {
            let code = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
            return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), after);
        }
    }
    (char::REPLACEMENT_CHARACTER, tail)
}

fn decode_unit(rest: &[u8]) -> (u32, &[u8]) {
    let (digits, tail) = rest.split_at(rest.len().min(4));
    let unit = digits.iter().fold(0, |unit, &b| unit * 16 + char::from(b).to_digit(16).unwrap_or(0));
    (unit, tail)
}
