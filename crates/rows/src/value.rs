//! Whether a JSON value can go into a column: accepted if the server stores what was written (at most with
//! less precision), refused if the server would refuse it or store something else.

mod free;
mod nested;
mod number;
mod text;
mod time;
mod variant;
mod why;

pub(crate) use why::Why;

use crate::scan::{Cursor, Syntax, Token, decode};
use crate::schema::Server;
use crate::types::ColumnType;

/// This much of a refused value is quoted in the answer.
const QUOTED_BYTES_MAX: usize = 48;

/// Why a value was refused, and its beginning.
#[derive(Debug)]
pub(crate) struct Flaw {
    pub(crate) why: Why,
    pub(crate) got: String,
}

/// Judges values of one table's columns; keeps the first flaw until it is taken.
#[derive(Debug)]
pub(crate) struct Judge<'t> {
    server: &'t Server,
    flaw: Option<Flaw>,
    /// Inside a variant, where the server reads some types more narrowly.
    in_variant: bool,
    /// The length of the array read last, the outermost of several.
    pub(crate) array_length: usize,
}

impl<'t> Judge<'t> {
    pub(crate) fn new(server: &'t Server) -> Self {
        Self { server, flaw: None, in_variant: false, array_length: 0 }
    }

    pub(crate) fn take_flaw(&mut self) -> Option<Flaw> {
        self.flaw.take()
    }

    /// Reads one value to its end. A value that the type does not take leaves a flaw, not an error, so that
    /// the record is read to its end all the same.
    pub(crate) fn value(&mut self, cursor: &mut Cursor<'_>, ty: &ColumnType) -> Result<(), Syntax> {
        match ty {
            ColumnType::Nullable(_) if cursor.peek() == b'n' => cursor.literal(b"null"),
            ColumnType::Nullable(inner) | ColumnType::LowCardinality(inner) => self.value(cursor, inner),
            ColumnType::Array(inner) => self.array(cursor, inner),
            ColumnType::Map(key, value) => self.map(cursor, key, value),
            ColumnType::Tuple(elements) => self.tuple(cursor, elements),
            ColumnType::Nested(elements) => self.nested(cursor, elements),
            ColumnType::Variant(members) => self.variant(cursor, members),
            ColumnType::Dynamic => self.free(cursor, free::Kind::Dynamic),
            ColumnType::Json => self.json(cursor),
            ColumnType::Opaque(_) if cursor.peek() != b'n' => cursor.skip(),
            _ => self.scalar(cursor, ty),
        }
    }

    #[inline]
    fn scalar(&mut self, cursor: &mut Cursor<'_>, ty: &ColumnType) -> Result<(), Syntax> {
        let start = cursor.at;
        let token = cursor.token()?;
        if matches!(token, Token::Object | Token::Array) {
            cursor.skip()?;
        }
        if let Err(why) = self.judge(ty, &token) {
            self.refuse(cursor, start, why);
        }
        Ok(())
    }

    /// Whether the type takes the scalar (or the container, of which only the kind matters here).
    fn judge(&self, ty: &ColumnType, token: &Token<'_>) -> Result<(), Why> {
        match (ty, *token) {
            (_, Token::Null) => Err(Why::Null),
            (ColumnType::String | ColumnType::Dynamic, _) => Ok(()),
            (ColumnType::Variant(members), token) => self.judge_members(members, &token),
            (ColumnType::Int { bits, signed }, token) => number::int(*bits, *signed, token),
            (ColumnType::Interval, Token::Bool(_)) => Err(Why::NotWhole),
            (ColumnType::Interval, token) => number::int(64, true, token),
            (ColumnType::Float(kind), token) => number::float(*kind, token),
            (ColumnType::Decimal { .. }, _) if self.in_variant => Err(Why::NotNumber),
            (ColumnType::Decimal { precision, scale }, token) => number::decimal(*precision, *scale, token),
            (ColumnType::Bool, token) => number::boolean(token),
            (ColumnType::FixedString(length), Token::Text(text)) => text::fixed(*length, text),
            (ColumnType::FixedString(_), _) => Err(Why::NotText),
            (ColumnType::Uuid, token) => text::uuid(token),
            (ColumnType::Ipv4, token) => text::ipv4(token),
            (ColumnType::Ipv6, token) => text::ipv6(token),
            (ColumnType::Enum(values), token) => text::enumeration(values, token),
            (ColumnType::Date, token) => time::date(token, time::DATE_DAYS),
            (ColumnType::Date32, token) => time::date(token, time::DATE32_DAYS),
            (ColumnType::DateTime(zone), token) => time::date_time(token, zone, self.server),
            (ColumnType::DateTime64 { scale, zone }, token) => {
                time::date_time64(token, *scale, zone, self.server)
            }
            (ColumnType::Time, token) => time::time(token),
            (ColumnType::Time64 { scale }, token) => time::time64(token, *scale),
            (ColumnType::Nullable(inner) | ColumnType::LowCardinality(inner), _) => self.judge(inner, token),
            (ColumnType::Opaque(_), _) => Ok(()),
            (ColumnType::Json, _) => Err(Why::NotObject),
            (ColumnType::Map(..), _) => Err(Why::NotObject),
            (ColumnType::Array(_) | ColumnType::Tuple(_) | ColumnType::Nested(_), _) => Err(Why::NotArray),
        }
    }

    fn json(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Syntax> {
        match cursor.peek() {
            b'{' => self.free(cursor, free::Kind::Json),
            _ => self.skip_flawed(cursor, Why::NotObject),
        }
    }

    /// A value whose type the server finds by itself.
    fn free(&mut self, cursor: &mut Cursor<'_>, kind: free::Kind) -> Result<(), Syntax> {
        let start = cursor.at;
        cursor.skip()?;
        let value = cursor.bytes().get(start..cursor.at).unwrap_or_default();
        if let Err(why) = free::check(value, kind) {
            self.refuse(cursor, start, why);
        }
        Ok(())
    }

    /// Skips a value that cannot be right whatever is in it.
    fn skip_flawed(&mut self, cursor: &mut Cursor<'_>, why: Why) -> Result<(), Syntax> {
        let start = cursor.at;
        let why = if cursor.peek() == b'n' { Why::Null } else { why };
        cursor.skip()?;
        self.refuse(cursor, start, why);
        Ok(())
    }

    /// Keeps the flaw of the value from `start` to the cursor, unless there is one already.
    #[cold]
    fn refuse(&mut self, cursor: &Cursor<'_>, start: usize, why: Why) {
        if self.flaw.is_none() {
            let got = cursor.bytes().get(start..cursor.at).unwrap_or_default();
            self.flaw = Some(Flaw { why, got: quote(got) });
        }
    }
}

/// The beginning of a value, for a message: one line, at most [`QUOTED_BYTES_MAX`] bytes of it.
pub(crate) fn quote(value: &[u8]) -> String {
    let mut end = value.len();
    if end > QUOTED_BYTES_MAX {
        end = QUOTED_BYTES_MAX;
        while end > 0 && value[end] & 0xC0 == 0x80 {
            end -= 1;
        }
    }
    let mut text = String::from_utf8_lossy(&value[..end]).replace(|c: char| c.is_control(), " ");
    if end < value.len() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
