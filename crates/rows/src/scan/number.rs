//! Numbers: the grammar, and the magnitude of short whole ones on the way.

use super::{Cursor, Syntax};

/// A number as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number<'a> {
    /// The text.
    pub(crate) raw: &'a [u8],
    /// What it is made of.
    pub(crate) kind: NumberKind,
    /// Whether it begins with a minus.
    pub(crate) negative: bool,
    /// The value without sign of a whole number of at most 19 digits.
    pub(crate) magnitude: Option<u64>,
}

/// What a number is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberKind {
    /// Digits only.
    Whole,
    /// Digits with a point.
    Fraction,
    /// With an exponent.
    Exponent,
}

/// Whole numbers up to this many digits fit a `u64` whatever the digits are.
const DIGITS_OF_U64: usize = 19;

impl<'a> Cursor<'a> {
    /// Reads a number; the cursor stands on `-` or a digit.
    #[inline(always)]
    pub(crate) fn number(&mut self) -> Result<Number<'a>, Syntax> {
        let start = self.at;
        let negative = self.peek() == b'-';
        self.at += usize::from(negative);
        let first = self.at;
        let mut magnitude = 0u64;
        loop {
            let digit = self.peek().wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            magnitude = magnitude.wrapping_mul(10).wrapping_add(u64::from(digit));
            self.at += 1;
        }
        let digits = self.at - first;
        if digits == 0 {
            return self.error("expected a digit");
        }
        let bytes = self.bytes();
        if digits > 1 && bytes[first] == b'0' {
            self.at = first + 1;
            return self.error("a number may not begin with 0");
        }
        let kind = match self.peek() {
            b'.' | b'e' | b'E' => self.fraction()?,
            _ => NumberKind::Whole,
        };
        let short = kind == NumberKind::Whole && digits <= DIGITS_OF_U64;
        Ok(Number { raw: &bytes[start..self.at], kind, negative, magnitude: short.then_some(magnitude) })
    }

    fn fraction(&mut self) -> Result<NumberKind, Syntax> {
        let mut kind = NumberKind::Fraction;
        if self.peek() == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            kind = NumberKind::Exponent;
            self.at += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(kind)
    }

    fn digits(&mut self) -> Result<(), Syntax> {
        let count = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { self.error("expected a digit") } else { Ok(()) }
    }
}
