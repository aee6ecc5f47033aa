//! Values of one of several types. The server tries the members in an order of its own and reads generously, so a value is
//! taken if some member takes it and none would take it for something else.

use super::{Judge, Why};
use crate::scan::{Cursor, Syntax, Token};
use crate::types::ColumnType;

impl Judge<'_> {
    pub(super) fn variant(&mut self, cursor: &mut Cursor<'_>, members: &[ColumnType]) -> Result<(), Syntax> {
        let start = cursor.at;
        cursor.skip()?;
        let value = cursor.bytes().get(start..cursor.at).unwrap_or_default();
        if value == b"null" {
            return Ok(());
        }
        let before = (self.flaw.take(), self.in_variant);
        let (mut fits, mut guessed) = (false, false);
        for member in members {
            match self.member_takes(value, member) {
                true => fits = true,
                false => guessed |= may_guess(value, member),
            }
        }
        (self.flaw, self.in_variant) = before;
        if guessed || !fits {
            self.refuse(cursor, start, if guessed { Why::Guessed } else { Why::NoMember });
        }
        Ok(())
    }

    /// Of a map's key, which is a text.
    #[cold]
    pub(super) fn judge_members(&self, members: &[ColumnType], token: &Token<'_>) -> Result<(), Why> {
        let fits = members.iter().any(|member| self.judge(member, token).is_ok());
        if fits { Ok(()) } else { Err(Why::NoMember) }
    }

    fn member_takes(&mut self, value: &[u8], member: &ColumnType) -> bool {
        // A decimal is read only where it is the whole value, and without quotes.
        self.in_variant = !matches!(member.bare(), ColumnType::Decimal { .. }) || value.starts_with(b"\"");
        // A cursor of its own, so that what it notices is noticed once.
        let mut cursor = Cursor::new(value, usize::MAX, false);
        let read = self.value(&mut cursor, member);
        read.is_ok() && self.flaw.take().is_none()
    }
}

/// Whether the server may store something for a value that the member does not take.
fn may_guess(value: &[u8], member: &ColumnType) -> bool {
    let text = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let is =
        |words: &[&[u8]]| text.is_some_and(|text| words.iter().any(|word| text.eq_ignore_ascii_case(word)));
    let has_digit = text.is_some_and(|text| text.iter().any(u8::is_ascii_digit));
    match member.bare() {
        ColumnType::Int { .. } | ColumnType::Interval => is(&[b"", b"true", b"false"]),
        ColumnType::Float(_) => is(&[b"true", b"false"]),
        ColumnType::Date | ColumnType::Date32 => has_digit || matches!(value, b"true" | b"false"),
        ColumnType::DateTime(_) | ColumnType::DateTime64 { .. } => has_digit,
        ColumnType::Time | ColumnType::Time64 { .. } => {
            has_digit || value.first().is_some_and(u8::is_ascii_digit)
        }
        ColumnType::Ipv4 | ColumnType::Ipv6 => {
            text.is_some_and(|text| {
                text.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':'))
            }) && has_digit
        }
        ColumnType::Map(..) | ColumnType::Json => value.starts_with(b"{"),
        ColumnType::Tuple(elements) if elements.iter().any(|element| element.name.is_some()) => {
            value.starts_with(b"{")
        }
        ColumnType::Array(_) | ColumnType::Tuple(_) | ColumnType::Nested(_) => {
            value.starts_with(b"[") && may_guess_inside(value, member)
        }
        _ => false,
    }
}

/// The same of an array: only what is written as a plain number is never guessed.
fn may_guess_inside(value: &[u8], member: &ColumnType) -> bool {
    let has = |word: &[u8]| memchr::memmem::find(value, word).is_some();
    has(b"null") || has(b"true") || has(b"false") || has(b"{") || (has(b"\"") && !holds_floats(member))
}

/// Whether there is nothing but floats in it, which are read from quotes as they are without.
fn holds_floats(ty: &ColumnType) -> bool {
    match ty {
        ColumnType::Float(_) => true,
        ColumnType::Array(inner) => holds_floats(inner),
        ColumnType::Tuple(elements) => elements.iter().all(|element| holds_floats(&element.ty)),
        _ => false,
    }
}
