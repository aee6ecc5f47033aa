//! What `scripts/deps` fetched, and the programs that Cargo built.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    crates.ancestors().nth(2).unwrap_or(crates).to_owned()
}

/// A file or folder under `.deps/`, such as `chdb/libchdb.so`. Panics with what to run when it is not there.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    let path = root().join(".deps").join(name);
    assert!(path.exists(), ".deps/{name} is not there: run `make deps`");
    path
}

/// The program `name` built from crate `package` (folder `crates/<folder>`) beside this test. Panics with what to
/// run when it is not there or older than its sources.
#[must_use]
pub fn program(name: &str, package: &str, folder: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    let folder_of_test = test.parent().unwrap_or(Path::new("."));
    // Tests lie in target/<profile>/deps, programs one above.
    let beside = folder_of_test.ancestors().find(|dir| dir.join(name).is_file());
    let build = format!("run `cargo build -p {package}` (with the profile and target folder of the tests)");
    let Some(program) = beside.map(|dir| dir.join(name)) else {
        panic!("{name} is not built beside {}: {build}", folder_of_test.display());
    };
    let built = modified(&program);
    let newest = newest(&root().join("crates").join(folder).join("src"));
    assert!(built >= newest, "{} is older than its sources: {build}", program.display());
    program
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn newest(dir: &Path) -> SystemTime {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| if entry.path().is_dir() { newest(&entry.path()) } else { modified(&entry.path()) })
        .max()
        .unwrap_or(SystemTime::UNIX_EPOCH)
}
