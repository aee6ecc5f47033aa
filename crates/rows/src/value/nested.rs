//! Arrays, maps, tuples and nested tables: element by element.

use super::{Judge, Why};
use crate::scan::{Cursor, Syntax, Token};
use crate::types::{ColumnType, Element};

impl Judge<'_> {
    pub(super) fn array(&mut self, cursor: &mut Cursor<'_>, inner: &ColumnType) -> Result<(), Syntax> {
        if cursor.peek() != b'[' {
            return self.skip_flawed(cursor, Why::NotArray);
        }
        cursor.enter()?;
        let mut length = 0;
        if !cursor.is_empty(b']') {
            loop {
                self.value(cursor, inner)?;
                length += 1;
                if !cursor.goes_on(b']')? {
                    break;
                }
            }
        }
        self.array_length = length;
        Ok(())
    }

    pub(super) fn map(
        &mut self,
        cursor: &mut Cursor<'_>,
        key: &ColumnType,
        value: &ColumnType,
    ) -> Result<(), Syntax> {
        if cursor.peek() != b'{' {
            return self.skip_flawed(cursor, Why::NotObject);
        }
        cursor.enter()?;
        if cursor.is_empty(b'}') {
            return Ok(());
        }
        loop {
            let start = cursor.at;
            let text = cursor.key()?;
            if let Err(why) = self.judge(key, &Token::Text(text)) {
                self.refuse(cursor, start, why);
            }
            self.value(cursor, value)?;
            if !cursor.goes_on(b'}')? {
                return Ok(());
            }
        }
    }

    /// The server takes named tuples as objects alone and unnamed ones as arrays alone.
    pub(super) fn tuple(&mut self, cursor: &mut Cursor<'_>, elements: &[Element]) -> Result<(), Syntax> {
        if elements.iter().any(|element| element.name.is_some()) {
            self.named_tuple(cursor, elements)
        } else {
            self.unnamed_tuple(cursor, elements)
        }
    }

    pub(super) fn nested(&mut self, cursor: &mut Cursor<'_>, elements: &[Element]) -> Result<(), Syntax> {
        if cursor.peek() != b'[' {
            return self.skip_flawed(cursor, Why::NotArray);
        }
        cursor.enter()?;
        if cursor.is_empty(b']') {
            return Ok(());
        }
        loop {
            self.named_tuple(cursor, elements)?;
            if !cursor.goes_on(b']')? {
                return Ok(());
            }
        }
    }

    fn unnamed_tuple(&mut self, cursor: &mut Cursor<'_>, elements: &[Element]) -> Result<(), Syntax> {
        if cursor.peek() != b'[' {
            return self.skip_flawed(cursor, Why::NotArray);
        }
        let start = cursor.at;
        cursor.enter()?;
        let mut count = 0;
        if !cursor.is_empty(b']') {
            loop {
                match elements.get(count) {
                    Some(element) => self.value(cursor, &element.ty)?,
                    None => cursor.skip()?,
                }
                count += 1;
                if !cursor.goes_on(b']')? {
                    break;
                }
            }
        }
        if count != elements.len() {
            self.refuse(cursor, start, Why::TupleLength);
        }
        Ok(())
    }

    fn named_tuple(&mut self, cursor: &mut Cursor<'_>, elements: &[Element]) -> Result<(), Syntax> {
        if cursor.peek() != b'{' {
            return self.skip_flawed(cursor, Why::NotObject);
        }
        let start = cursor.at;
        let mut seen = vec![false; elements.len()];
        cursor.enter()?;
        if !cursor.is_empty(b'}') {
            loop {
                self.element(cursor, elements, &mut seen)?;
                if !cursor.goes_on(b'}')? {
                    break;
                }
            }
        }
        // The server would store the zero of a type that has no null.
        if elements.iter().zip(&seen).any(|(element, seen)| !seen && !element.ty.takes_null()) {
            self.refuse(cursor, start, Why::ElementMissing);
        }
        Ok(())
    }

    fn element(
        &mut self,
        cursor: &mut Cursor<'_>,
        elements: &[Element],
        seen: &mut [bool],
    ) -> Result<(), Syntax> {
        let start = cursor.at;
        let key = cursor.key()?;
        let named = |element: &Element| element.name.as_deref().is_some_and(|n| n.as_bytes() == key.raw);
        let found = elements.iter().position(named);
        let why = match found {
            // The server compares such a name undecoded, does not find it, and drops the value in silence.
            _ if key.escaped => Why::ElementEscaped,
            None => Why::ElementUnknown,
            Some(at) if seen[at] => Why::ElementTwice,
            Some(at) => {
                seen[at] = true;
                return self.value(cursor, &elements[at].ty);
            }
        };
        self.refuse(cursor, start, why);
        cursor.skip()
    }
}
