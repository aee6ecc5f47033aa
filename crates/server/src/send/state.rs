//! What was acknowledged, kept beside the file so that an interrupted load goes on where it stopped.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::feed::Mark;

/// Format of the state file; another one is refused.
const STATE_VERSION: u32 = 1;

/// Counts of a load, over all its runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Records taken by the server.
    pub(super) accepted: u64,
    /// Records refused, by the server or before sending.
    pub(super) refused: u64,
    /// Records that the server knew already.
    pub(super) duplicates: u64,
    /// Records sent again after an answer was lost: each of them may be stored twice.
    pub(super) sent_twice: u64,
}

impl Counts {
    /// Records dealt with.
    pub(super) fn records(&self) -> u64 {
        self.accepted + self.refused + self.duplicates
    }

    /// Adds those of one batch.
    pub(super) fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.duplicates += other.duplicates;
        self.sent_twice += other.sent_twice;
    }
}

/// The file as it was when the load began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fingerprint {
    /// Length in bytes.
    len_bytes: u64,
    /// Time of the last change, in nanoseconds since 1970.
    changed_ns: u64,
}

impl Fingerprint {
    /// Reads it from the file system.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        let changed = meta.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self { len_bytes: meta.len(), changed_ns: u64::try_from(changed.as_nanos()).unwrap_or(u64::MAX) })
    }

    /// Length in bytes.
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
}

/// Content of the state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    version: u32,
    /// Where the rows go: server and table.
    target: String,
    file: Fingerprint,
    /// Everything before it was answered.
    pub(super) mark: Mark,
    /// Counts up to `mark`.
    pub(super) counts: Counts,
}

/// Why a load cannot go on from its state file.
#[derive(Debug, Error)]
pub(super) enum StateError {
    /// It is there and cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The state file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The state file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not a state file of this version.
    #[error("{path} is not a state file of this version; remove it, or start over with --restart")]
    Unknown {
        /// The state file.
        path: PathBuf,
    },
    /// It belongs to another load.
    #[error("{path} belongs to a load into {target}; finish that one, or start over with --restart")]
    OtherTarget {
        /// The state file.
        path: PathBuf,
        /// Where that load goes.
        target: String,
    },
    /// The file is not the one that the load began with.
    #[error("the file has changed since {path} was written; start over with --restart")]
    OtherFile {
        /// The state file.
        path: PathBuf,
    },
}

/// The state file of one load.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    state: State,
}

impl StateFile {
    /// Where the state of a load from `file` is kept.
    pub(super) fn path_for(file: &Path) -> PathBuf {
        let mut name = file.as_os_str().to_owned();
        name.push(".wavehouse-send");
        PathBuf::from(name)
    }

    /// Finds where to go on. `restart` forgets what was there.
    pub(super) fn open(
        source: &Path,
        file: Fingerprint,
        target: &str,
        restart: bool,
    ) -> Result<Self, StateError> {
        let path = Self::path_for(source);
        let fresh = State {
            version: STATE_VERSION,
            target: target.to_owned(),
            file,
            mark: Mark::default(),
            counts: Counts::default(),
        };
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self { path, state: fresh }),
            Err(error) => return Err(StateError::Read { path, source: error }),
            Ok(_) if restart => return Ok(Self { path, state: fresh }),
            Ok(text) => text,
        };
        let state = match serde_json::from_slice::<State>(&text) {
            Ok(state) if state.version == STATE_VERSION => state,
            _ => return Err(StateError::Unknown { path }),
        };
        if state.target != fresh.target {
            return Err(StateError::OtherTarget { path, target: state.target });
        }
        if state.file != fresh.file {
            return Err(StateError::OtherFile { path });
        }
        Ok(Self { path, state })
    }

    /// What is kept.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Keeps that everything before `mark` is answered. On disk when it returns: written beside, synced, renamed.
    pub(super) fn advance(&mut self, mark: Mark, counts: Counts) -> Result<(), StateError> {
        self.state.mark = mark;
        self.state.counts = counts;
        self.write().map_err(|source| StateError::Write { path: self.path.clone(), source })
    }

    fn write(&self) -> io::Result<()> {
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        let mut file = File::create(&beside)?;
        serde_json::to_writer(&mut file, &self.state)?;
        file.write_all(b"\n")?;
        file.sync_data()?;
        fs::rename(&beside, &self.path)?;
        let folder = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// The load is done.
    pub(super) fn remove(self) -> Result<(), StateError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StateError::Write { path: self.path, source: error })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan::Shape;
    use super::*;

    #[test]
    fn a_state_is_found_again_only_by_the_same_load_of_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("rows.json");
        fs::write(&source, "[]").unwrap();
        let print = Fingerprint::of(&source).unwrap();
        let open = |target: &str, restart| {
            StateFile::open(&source, Fingerprint::of(&source).unwrap(), target, restart)
        };

        let mark = Mark { shape: Some(Shape::Array), offset: 7, records: 2 };
        let counts = Counts { accepted: 1, refused: 1, duplicates: 0, sent_twice: 0 };
        let mut state = open("http://a t", false).unwrap();
        assert_eq!(state.state().mark, Mark::default());
        state.advance(mark, counts).unwrap();

        let again = open("http://a t", false).unwrap();
        assert_eq!((again.state().mark, again.state().counts), (mark, counts));
        assert!(matches!(open("http://b t", false), Err(StateError::OtherTarget { .. })));
        assert_eq!(open("http://b t", true).unwrap().state().mark, Mark::default());

        fs::write(&source, "[1]").unwrap();
        assert_ne!(Fingerprint::of(&source).unwrap(), print);
        assert!(matches!(open("http://a t", false), Err(StateError::OtherFile { .. })));

        fs::write(StateFile::path_for(&source), "{}").unwrap();
        assert!(matches!(open("http://a t", false), Err(StateError::Unknown { .. })));
        open("http://a t", true).unwrap().remove().unwrap();
        assert!(!StateFile::path_for(&source).exists());
    }
}
