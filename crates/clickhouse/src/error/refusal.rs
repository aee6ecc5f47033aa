//! What a refused insert says about: a row of it, or the table.
//!
//! A refusal of the row is final for that row: it becomes a dead letter. A refusal that no row can be blamed for (the
//! table is gone, its view is broken, the server has a bug) would make dead letters of every row, so those rows wait,
//! with a back-off of the table's own, until someone repairs it.

/// Whom a `rejected` code speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A row is at fault and can be told apart from the others by splitting.
    Row,
    /// Every row would be refused.
    Table,
}

/// Codes that no row can be blamed for.
const TABLE: [u32; 36] = [
    1,    // UNSUPPORTED_METHOD: the engine takes no inserts
    10,   // NOT_FOUND_COLUMN_IN_BLOCK: a view selects what is not there
    15,   // DUPLICATE_COLUMN
    16,   // NO_SUCH_COLUMN_IN_TABLE: a view writes what its table does not have
    20,   // NUMBER_OF_COLUMNS_DOESNT_MATCH
    36,   // BAD_ARGUMENTS: of the statement or the table's settings
    42,   // NUMBER_OF_ARGUMENTS_DOESNT_MATCH
    43,   // ILLEGAL_TYPE_OF_ARGUMENT
    44,   // ILLEGAL_COLUMN
    46,   // UNKNOWN_FUNCTION
    47,   // UNKNOWN_IDENTIFIER
    48,   // NOT_IMPLEMENTED
    49,   // LOGICAL_ERROR: a bug of the server
    50,   // UNKNOWN_TYPE
    56,   // UNKNOWN_STORAGE
    60,   // UNKNOWN_TABLE
    62,   // SYNTAX_ERROR: of the statement, which rows are no part of
    63,   // UNKNOWN_AGGREGATE_FUNCTION
    73,   // UNKNOWN_FORMAT
    76,   // CANNOT_OPEN_FILE
    80,   // INCORRECT_QUERY
    81,   // UNKNOWN_DATABASE
    82,   // DATABASE_ALREADY_EXISTS, seen while a database is replaced
    107,  // FILE_DOESNT_EXIST
    115,  // UNKNOWN_SETTING
    179,  // MULTIPLE_EXPRESSIONS_FOR_ALIAS
    184,  // ILLEGAL_AGGREGATION
    215,  // NOT_AN_AGGREGATE
    218,  // TABLE_IS_DROPPED
    232,  // NO_FILE_IN_DATA_PART
    344,  // SUPPORT_IS_DISABLED
    452,  // SETTING_CONSTRAINT_VIOLATION
    456,  // UNKNOWN_QUERY_PARAMETER
    479,  // UNKNOWN_DISK
    1001, // STD_EXCEPTION
    1002, // UNKNOWN_EXCEPTION
];

/// Decides whom a `rejected` failure of an insert speaks of. A code that is not known here is blamed on a row: splitting
/// finds out, and a table that refuses a thousand rows in a row is slowed down by the worker. No code at all is a
/// refusal of the size (413) and blames no row. A row that the message names (`row`, as [`bad_row`](super::bad_row)
/// reads it) is to blame whatever the code.
#[must_use]
pub fn refusal(code: Option<u32>, row: Option<u64>) -> Scope {
    match code {
        Some(code) if row.is_some() || !TABLE.contains(&code) => Scope::Row,
        _ => Scope::Table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_row_can_be_blamed_for() {
        // Parse, type, range, constraint, date, enum, format and unknown-field refusals of a row.
        for code in [6, 26, 27, 33, 38, 41, 53, 69, 70, 72, 117, 131, 190, 321, 407, 441, 469, 636, 691] {
            assert_eq!(refusal(Some(code), None), Scope::Row, "{code}");
        }
    }

    #[test]
    fn what_no_row_can_be_blamed_for() {
        for code in [16, 36, 48, 49, 60, 62, 81, 218, 1002] {
            assert_eq!(refusal(Some(code), None), Scope::Table, "{code}");
        }
        assert_eq!(refusal(None, None), Scope::Table);
        assert_eq!(refusal(Some(36), Some(7)), Scope::Row);
        assert!(TABLE.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
