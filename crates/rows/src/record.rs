//! One row: its keys against the table's columns, its values against their types.

use crate::check::RowError;
use crate::scan::{Cursor, Syntax, decode};
use crate::schema::TableSchema;
use crate::value::{Judge, quote};

/// The server's exception code for fields that are unknown or come twice (INCORRECT_DATA).
const INCORRECT_DATA: u32 = 117;
/// The server's exception code for arrays of one nested structure that differ in length.
const SIZES_OF_ARRAYS_DONT_MATCH: u32 = 190;

/// What became of a record that is JSON.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It can be stored.
    Row {
        /// Whether the receipt time is to be added.
        add_receipt_time: bool,
        /// Whether it has no field at all.
        is_empty: bool,
    },
    /// It cannot.
    Refused(RowError),
}

/// Reads records of one table. Rows mostly repeat the keys of the row before them in the same order, so behind
/// each column the reader expects the one that followed it last time, and only looks a name up where it errs.
#[derive(Debug)]
pub(crate) struct RecordReader<'t> {
    table: &'t TableSchema,
    judge: Judge<'t>,
    adds_receipt_time: bool,
    /// Behind each column, the column that followed it last; the last entry is the first column of a row.
    followers: Vec<usize>,
    seen: Vec<u64>,
    /// Of nested structures: the first column's index, which array of it was read first, and its length.
    lengths: Vec<(usize, usize, usize)>,
    error: Option<RowError>,
}

impl<'t> RecordReader<'t> {
    pub(crate) fn new(table: &'t TableSchema, adds_receipt_time: bool) -> Self {
        Self {
            table,
            judge: Judge::new(table.server()),
            adds_receipt_time,
            followers: followers(table),
            seen: vec![0; table.required().len()],
            lengths: Vec::new(),
            error: None,
        }
    }

    /// Reads the object at the cursor, to its end unless the grammar breaks.
    pub(crate) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<Verdict, Syntax> {
        self.seen.fill(0);
        self.lengths.clear();
        self.error = None;
        // The record before may have ended in the middle of a value that was judged already.
        drop(self.judge.take_flaw());
        cursor.begin_record();
        cursor.enter()?;
        let is_empty = cursor.is_empty(b'}');
        if !is_empty {
            let mut before = self.table.columns.len();
            loop {
                before = self.field(cursor, before)?;
                if !cursor.goes_on(b'}')? {
                    break;
                }
            }
        }
        Ok(self.verdict(cursor, is_empty))
    }

    fn verdict(&mut self, cursor: &Cursor<'_>, is_empty: bool) -> Verdict {
        let mut add_receipt_time = false;
        if let (true, Some(receipt)) = (self.adds_receipt_time, self.table.receipt()) {
            add_receipt_time = !self.see(receipt);
        }
        if self.error.is_none() {
            if cursor.too_deep {
                self.refuse(RowError::new("nested too deeply"));
            } else if cursor.lone_surrogate {
                self.refuse(RowError::new("a string holds half of a surrogate pair"));
            } else {
                self.require_all();
            }
        }
        match self.error.take() {
            Some(error) => Verdict::Refused(error),
            None => Verdict::Row { add_receipt_time, is_empty },
        }
    }

    /// Reads one key and its value; the column, to be told when the next field is read.
    #[inline]
    fn field(&mut self, cursor: &mut Cursor<'_>, before: usize) -> Result<usize, Syntax> {
        let Some(index) = self.column(cursor, before)? else { return cursor.skip().map(|()| before) };
        let column = &self.table.columns[index];
        if self.see(index) {
            self.refuse_field("Duplicate", column.name.as_bytes());
            return cursor.skip().map(|()| index);
        }
        if cursor.peek() == b'n' {
            cursor.literal(b"null")?;
            if !self.table.keys()[index].takes_null {
                self.refuse(RowError::new(format!("null value for non-nullable column \"{}\"", column.name)));
            }
            return Ok(index);
        }
        self.judge.value(cursor, &column.ty)?;
        if let Some(flaw) = self.judge.take_flaw() {
            let (name, ty) = (&column.name, &column.type_text);
            let message = format!("type mismatch for column \"{name}\" ({ty}): {} {}", flaw.got, flaw.why);
            self.refuse(RowError::new(message));
        } else if let Some(sibling) = self.table.keys()[index].sibling {
            self.compare_length(index, sibling);
        }
        Ok(index)
    }

    /// The arrays of one nested structure must be of one length.
    fn compare_length(&mut self, index: usize, sibling: usize) {
        let length = self.judge.array_length;
        match self.lengths.iter().find(|entry| entry.0 == sibling) {
            None => self.lengths.push((sibling, index, length)),
            Some(&(_, _, first)) if first == length => {}
            Some(&(_, first, _)) => {
                let (first, this) = (&self.table.columns[first].name, &self.table.columns[index].name);
                let structure = this.split('.').next().unwrap_or_default();
                let message = format!(
                    "Elements '{first}' and '{this}' of Nested data structure '{structure}' (Array columns) \
                     have different array sizes"
                );
                self.refuse(RowError { message, exception_code: Some(SIZES_OF_ARRAYS_DONT_MATCH) });
            }
        }
    }

    /// Reads a key and its colon; the column, or `None` after noting that no row may name it.
    #[inline]
    fn column(&mut self, cursor: &mut Cursor<'_>, before: usize) -> Result<Option<usize>, Syntax> {
        let index = self.followers[before];
        if let Some(key) = self.table.keys().get(index)
            && !key.quoted.is_empty()
            && cursor.peek() == b'"'
            && cursor.rest()[1..].starts_with(&key.quoted)
        {
            cursor.at += 1 + key.quoted.len();
            cursor.colon()?;
            return Ok(Some(index));
        }
        self.column_by_name(cursor, before)
    }

    fn column_by_name(&mut self, cursor: &mut Cursor<'_>, before: usize) -> Result<Option<usize>, Syntax> {
        let key = cursor.key()?;
        let decoded = if key.escaped { Some(decode(key.raw)) } else { None };
        let name = decoded.as_deref().unwrap_or(key.raw);
        let index = self.table.index_of(name).filter(|&index| self.table.keys()[index].insertable);
        match index {
            Some(index) => self.followers[before] = index,
            None => self.refuse_field("Unknown", name),
        }
        Ok(index)
    }

    /// Marks a column as named; true if it was already.
    #[inline]
    fn see(&mut self, index: usize) -> bool {
        let (word, bit) = (index / 64, 1u64 << (index % 64));
        let before = self.seen[word] & bit != 0;
        self.seen[word] |= bit;
        before
    }

    fn require_all(&mut self) {
        let missing = self.table.required().iter().zip(&self.seen).map(|(required, seen)| required & !seen);
        let first = missing.enumerate().find(|(_, missing)| *missing != 0);
        if let Some((word, missing)) = first {
            let index = word * 64 + missing.trailing_zeros() as usize;
            let name = &self.table.columns[index].name;
            self.refuse(RowError::new(format!("missing required column \"{name}\"")));
        }
    }

    /// In the server's own words, which clients of the JSON formats know.
    #[cold]
    fn refuse_field(&mut self, what: &str, name: &[u8]) {
        let name = quote(name);
        self.refuse(RowError {
            message: format!("{what} field found while parsing JSONEachRow format: {name}"),
            exception_code: Some(INCORRECT_DATA),
        });
    }

    /// Keeps the record's first error.
    #[cold]
    fn refuse(&mut self, error: RowError) {
        self.error.get_or_insert(error);
    }
}

/// Before the first row: the order of declaration, without the columns that rows seldom or never name.
fn followers(table: &TableSchema) -> Vec<usize> {
    let count = table.columns.len();
    let mut followers = vec![count; count + 1];
    let mut before = count;
    for &index in table.wire() {
        followers[before] = index;
        before = index;
    }
    followers
}
