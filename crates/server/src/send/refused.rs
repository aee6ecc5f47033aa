//! The file that keeps each refused record with its reason, so that it can be mended and sent again.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// One refused record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Which record of the source it is, from 1.
    pub(super) record: u64,
    /// The server's words, or ours.
    pub(super) error: String,
    /// ClickHouse's code, where the server gave one.
    pub(super) exception_code: Option<i64>,
    /// The record as sent; empty when it was too large to keep.
    pub(super) row: Vec<u8>,
}

/// The refusals file; made when the first refusal comes.
#[derive(Debug)]
pub(super) struct RefusedFile {
    path: PathBuf,
    append: bool,
    file: Option<File>,
    first: Option<String>,
}

impl RefusedFile {
    /// Nothing is touched yet. `append` keeps what an earlier run of the same load wrote.
    pub(super) fn new(path: PathBuf, append: bool) -> Self {
        Self { path, append, file: None, first: None }
    }

    /// Where the refusals are.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The first reason of this run, for the summary.
    pub(super) fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// Writes them all; on disk when it returns.
    pub(super) fn write(&mut self, refusals: &[Refusal]) -> io::Result<()> {
        if refusals.is_empty() {
            return Ok(());
        }
        if self.first.is_none() {
            self.first = refusals.first().map(|one| format!("record {}: {}", one.record, one.error));
        }
        let mut text = Vec::new();
        for refusal in refusals {
            render(refusal, &mut text)?;
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(
                OpenOptions::new()
                    .create(true)
                    .write(true)
                    .append(self.append)
                    .truncate(!self.append)
                    .open(&self.path)?,
            ),
        };
        file.write_all(&text)?;
        file.sync_data()
    }
}

/// One line: a record that is JSON stands there as it was, anything else as a string.
fn render(refusal: &Refusal, text: &mut Vec<u8>) -> io::Result<()> {
    write!(text, "{{\"record\":{},\"error\":{}", refusal.record, serde_json::to_string(&refusal.error)?)?;
    if let Some(code) = refusal.exception_code {
        write!(text, ",\"exception_code\":{code}")?;
    }
    if !refusal.row.is_empty() {
        text.extend_from_slice(b",\"row\":");
        if serde_json::from_slice::<serde::de::IgnoredAny>(&refusal.row).is_ok() {
            text.extend_from_slice(&refusal.row);
        } else {
            serde_json::to_writer(&mut *text, &String::from_utf8_lossy(&refusal.row))?;
        }
    }
    text.extend_from_slice(b"}\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(record: u64, row: &[u8]) -> Refusal {
        Refusal { record, error: "no \"x\"".to_owned(), exception_code: Some(117), row: row.to_vec() }
    }

    #[test]
    fn rows_keep_their_bytes_and_what_is_not_json_becomes_a_string() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.ndjson");
        let mut file = RefusedFile::new(path.clone(), false);
        file.write(&[]).unwrap();
        assert!(!path.exists());
        file.write(&[refusal(3, br#"{"a": 1.0}"#), refusal(4, b"{\"a\":")]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "{\"record\":3,\"error\":\"no \\\"x\\\"\",\"exception_code\":117,\"row\":{\"a\": 1.0}}\n\
             {\"record\":4,\"error\":\"no \\\"x\\\"\",\"exception_code\":117,\"row\":\"{\\\"a\\\":\"}\n"
        );
        RefusedFile::new(path.clone(), true).write(&[refusal(9, b"")]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
        RefusedFile::new(path.clone(), false).write(&[refusal(9, b"")]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }
}
