//! What a row is: ClickHouse types, splitting bodies into rows, and checking each row against its table. Pure.
//!
//! The way of a body: [`check::check_body`] finds the records ([`check`]), walks each one byte by byte
//! (`record`, over `scan`), judges every value against its column's type (`value`), and copies the bytes
//! of the rows that pass. Nothing is parsed into a tree and nothing is written anew: what a client sent
//! is what the queue keeps.

pub mod check;
mod record;
mod scan;
pub mod schema;
pub mod types;
mod value;

pub use check::{BodyError, CheckOptions, Checked, DEPTH_MAX, Framing, RECORDS_MAX, RowError, check_body};
pub use schema::{Column, DefaultKind, RECEIPT_COLUMN, ServerFacts, TableSchema};
pub use types::ColumnType;
