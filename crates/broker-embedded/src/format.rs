//! The file that says what a queue directory is: its format and the id of its log.

use std::io;
use std::path::Path;

use wavehouse_core::LogId;

use crate::files::{Files, read_vec, write_whole};
use crate::options::OpenError;
use crate::shared::QUEUE_DIR;

/// The format that this program writes, and the only one that it reads.
pub(crate) const FORMAT: u64 = 1;
const NAME: &str = "queue.format";
/// A format file is never longer.
const BYTES_MAX: u64 = 4096;

/// The id that the directory's log has, if it has one.
pub(crate) fn read(files: &dyn Files, dir: &Path) -> Result<Option<LogId>, OpenError> {
    let disk = |source| OpenError::Disk { dir: dir.to_owned(), what: "cannot read its format", source };
    let found = files.list(QUEUE_DIR).map_err(disk)?;
    let Some(found) = found.into_iter().find(|found| found.name == NAME) else { return Ok(None) };
    let path = format!("{QUEUE_DIR}/{NAME}");
    let wrong = || OpenError::Format { path: dir.join(&path) };
    let count = usize::try_from(found.bytes.min(BYTES_MAX)).map_err(|_| wrong())?;
    let bytes = files.open(&path).and_then(|file| read_vec(&*file, 0, count)).map_err(disk)?;
    match parse(&String::from_utf8_lossy(&bytes)).ok_or_else(wrong)? {
        (FORMAT, Some(log)) => Ok(Some(log)),
        (found, _) if found > FORMAT => {
            Err(OpenError::Newer { dir: dir.join(QUEUE_DIR), found, known: FORMAT })
        }
        _ => Err(wrong()),
    }
}

/// Writes down the id of a new log.
pub(crate) fn create(files: &dyn Files, log: LogId) -> io::Result<()> {
    write_whole(files, QUEUE_DIR, NAME, format!("wavehouse queue\nformat {FORMAT}\nlog {log}\n").as_bytes())
}

fn parse(text: &str) -> Option<(u64, Option<LogId>)> {
    let mut lines = text.lines();
    if lines.next()? != "wavehouse queue" {
        return None;
    }
    let format = lines.next()?.strip_prefix("format ")?.parse().ok()?;
    let log = lines.next().and_then(|line| u64::from_str_radix(line.strip_prefix("log ")?, 16).ok());
    Some((format, log.map(LogId)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::RealFiles;

    #[test]
    fn a_newer_format_is_refused_and_nonsense_too() {
        let dir = tempfile::tempdir().unwrap();
        let files = RealFiles::new(dir.path());
        files.create_dir(QUEUE_DIR).unwrap();
        assert!(matches!(read(&files, dir.path()), Ok(None)));
        create(&files, LogId(0xabc)).unwrap();
        assert_eq!(read(&files, dir.path()).unwrap(), Some(LogId(0xabc)));
        write_whole(&files, QUEUE_DIR, NAME, b"wavehouse queue\nformat 2\nwhatever\n").unwrap();
        let error = read(&files, dir.path()).unwrap_err();
        assert!(error.to_string().contains("has format 2, this program reads format 1"), "{error}");
        for nonsense in ["", "wavehouse queue\n", "wavehouse queue\nformat 1\n", "x"] {
            write_whole(&files, QUEUE_DIR, NAME, nonsense.as_bytes()).unwrap();
            assert!(matches!(read(&files, dir.path()), Err(OpenError::Format { .. })), "{nonsense:?}");
        }
    }
}
