//! Looks at the data directory before anything else is opened: can the queue live there?

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::finding::Finding;

/// The user that the container image runs as.
const IMAGE_UID: u32 = 65_532;

/// Tries the data directory by writing and removing a file in it, or in the nearest folder above that exists. Creates
/// nothing that stays.
pub(crate) fn probe_data_dir(dir: &Path) -> Option<Finding> {
    let finding =
        |found: String, expected: &str, fix: String| Some(Finding::new("data_dir", found, expected, fix));
    let nearest = match nearest_existing(dir) {
        Ok(nearest) => nearest,
        Err((path, error)) => {
            let fix = match error.kind() {
                io::ErrorKind::PermissionDenied => chown_hint(&path),
                _ => format!("remove {} or point data_dir elsewhere", path.display()),
            };
            return finding(
                format!("{} cannot be looked at: {error}", path.display()),
                "a directory on a disk that stays",
                fix,
            );
        }
    };
    if !nearest.is_dir() {
        let fix = "point data_dir at a directory".to_owned();
        return finding(
            format!("{} is not a directory", nearest.display()),
            "a directory on a disk that stays",
            fix,
        );
    }
    let probe = nearest.join(format!(".wavehouse-probe-{}", std::process::id()));
    let written = fs::write(&probe, b"").and_then(|()| fs::remove_file(&probe));
    match written {
        Ok(()) => None,
        Err(error) => finding(
            format!("{} cannot be written to: {error}", nearest.display()),
            "a directory that this user may write to",
            chown_hint(&nearest),
        ),
    }
}

/// The directory itself or the nearest ancestor that is there. A link that leads nowhere is an error: something was
/// meant to be there, such as a volume that is not mounted.
fn nearest_existing(dir: &Path) -> Result<PathBuf, (PathBuf, io::Error)> {
    for path in dir.ancestors() {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_symlink() => {
                return match fs::metadata(path) {
                    Ok(_) => Ok(path.to_owned()),
                    Err(error) => Err((path.to_owned(), error)),
                };
            }
            Ok(_) => return Ok(path.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            Err(error) => return Err((path.to_owned(), error)),
        }
    }
    Ok(PathBuf::from("."))
}

fn chown_hint(path: &Path) -> String {
    let uid = rustix::process::geteuid().as_raw();
    let image = if uid == IMAGE_UID { " (the container image's user)" } else { "" };
    format!("chown -R {uid}:{uid} {}   # this process runs as UID {uid}{image}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_hold_data() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        assert_eq!(probe_data_dir(dir.path()), None);
        assert_eq!(probe_data_dir(&dir.path().join("not/yet/there")), None);
        assert_eq!(fs::read_dir(dir.path())?.count(), 0, "nothing stays");

        let file = dir.path().join("file");
        fs::write(&file, b"x")?;
        for bad in [file.clone(), file.join("below")] {
            assert!(
                probe_data_dir(&bad).is_some_and(|finding| finding.found.contains("not a directory")),
                "{bad:?}"
            );
        }
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("nowhere"), &link)?;
        for bad in [link.clone(), link.join("below")] {
            assert!(
                probe_data_dir(&bad).is_some_and(|finding| finding.found.contains("cannot be looked at")),
                "{bad:?}"
            );
        }
        Ok(())
    }
}
