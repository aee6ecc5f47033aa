//! Finds the engine's program and library.

use std::path::{Path, PathBuf};

use crate::config::{Engine, Finding};

use super::{Files, missing};

const PROGRAM: &str = "wavehouse-clickhouse";
const LIBRARY: &str = ".deps/chdb/libchdb.so";

/// The program: as configured, else beside our own. The library: as configured, else where `scripts/deps` puts it, in
/// the current folder or one above it, or above our own program, so that it is found from anywhere in a clone.
///
/// # Errors
/// What is missing, each as a finding.
pub(crate) fn find(engine: &Engine, own_program: &Path, current_dir: &Path) -> Result<Files, Vec<Finding>> {
    let mut findings = Vec::new();
    let beside = own_program.with_file_name(PROGRAM);
    let bin = engine.bin.clone().unwrap_or(beside);
    if !bin.is_file() {
        let looked = bin.display().to_string();
        findings.push(missing("the engine's program", "engine.bin", "WH_ENGINE_BIN", &looked));
    }
    let lib = match &engine.lib {
        Some(lib) => lib.is_file().then(|| lib.clone()).ok_or_else(|| lib.display().to_string()),
        None => upwards(current_dir)
            .or_else(|| upwards(own_program))
            .ok_or_else(|| format!("{LIBRARY} in {} and above", current_dir.display())),
    };
    match lib {
        Ok(lib) if findings.is_empty() => return Ok(Files { bin, lib }),
        Ok(_) => {}
        Err(looked) => findings.push(missing("the engine's library", "engine.lib", "WH_ENGINE_LIB", &looked)),
    }
    Err(findings)
}

fn upwards(from: &Path) -> Option<PathBuf> {
    from.ancestors().map(|dir| dir.join(LIBRARY)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn found_beside_and_above_or_told() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let own = dir.path().join("target/debug/wavehouse");
        let deep = dir.path().join("a/b");
        let engine = Engine { bin: None, lib: None, port: None, memory_bytes_max: 1 };
        fs::create_dir_all(&deep)?;
        assert_eq!(find(&engine, &own, &deep).map_err(|findings| findings.len()), Err(2));

        fs::create_dir_all(dir.path().join("target/debug"))?;
        fs::create_dir_all(dir.path().join(".deps/chdb"))?;
        fs::write(dir.path().join("target/debug/wavehouse-clickhouse"), b"")?;
        fs::write(dir.path().join(LIBRARY), b"")?;
        let found = Files { bin: own.with_file_name(PROGRAM), lib: dir.path().join(LIBRARY) };
        assert_eq!(find(&engine, &own, &deep), Ok(found.clone()));
        assert_eq!(find(&engine, &own, Path::new("/")), Ok(found), "above our own program");

        let wrong = Engine { lib: Some(deep.join("none.so")), ..engine };
        assert!(find(&wrong, &own, &deep).is_err_and(|findings| findings[0].subject == "engine.lib"));
        Ok(())
    }
}
