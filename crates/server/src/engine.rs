//! The ClickHouse engine beside us, as a child process: found, started, watched, started again when it dies. Its death
//! harms no one: the queue keeps the rows until it is back.

mod child;
mod find;

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::config::{Config, Engine, Finding, Secret};

pub(crate) use child::run;
pub(crate) use find::find;

/// The port that people expect a ClickHouse on.
const USUAL_PORT: u16 = 8123;
/// Bytes of randomness in a password of ours; it is written as twice as many hex digits.
const PASSWORD_BYTES: usize = 16;

/// Everything that starting the engine needs.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The program and its library.
    pub(crate) files: Files,
    /// Where its tables live.
    pub(crate) data: PathBuf,
    /// Where it answers.
    pub(crate) listen: SocketAddr,
    /// The user it knows.
    pub(crate) user: String,
    /// A file with that user's password, readable by us alone.
    pub(crate) password_file: PathBuf,
    /// Most memory.
    pub(crate) memory_bytes_max: u64,
}

/// The program and its library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Files {
    /// `wavehouse-clickhouse`.
    pub(crate) bin: PathBuf,
    /// `libchdb.so`.
    pub(crate) lib: PathBuf,
}

/// Lays out what the engine needs and returns how to start it, with the password that it will want.
///
/// # Errors
/// When the data directory cannot be written to or no port is free.
pub(crate) fn prepare(config: &Config, engine: &Engine, files: Files) -> anyhow::Result<(Program, Secret)> {
    let data = config.data_dir.join("clickhouse");
    fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
    let password_file = config.data_dir.join("clickhouse.password");
    let password = password(&password_file, &config.clickhouse.password)
        .with_context(|| format!("cannot keep the engine's password in {}", password_file.display()))?;
    let listen = free_address(engine.port).context("no port for the engine")?;
    let program = Program {
        files,
        data,
        listen,
        user: config.clickhouse.username.clone(),
        password_file,
        memory_bytes_max: engine.memory_bytes_max,
    };
    Ok((program, password))
}

/// The password that was configured, else the one of an earlier start, else a new one; in the file in any case.
fn password(file: &Path, configured: &Secret) -> io::Result<Secret> {
    if configured.is_empty()
        && let Ok(kept) = fs::read_to_string(file)
        && kept.trim().len() == PASSWORD_BYTES * 2
    {
        return Ok(Secret::new(kept.trim()));
    }
    let text = if configured.is_empty() {
        let mut random = [0; PASSWORD_BYTES];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        random.iter().map(|byte| format!("{byte:02x}")).collect()
    } else {
        configured.reveal().to_owned()
    };
    if file.exists() {
        fs::remove_file(file)?;
    }
    let mut open = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    open.write_all(text.as_bytes())?;
    Ok(Secret::new(text))
}

/// The port that was asked for; else the usual one if it is free, else any. The port is let go again for the engine to
/// take, so somebody quick could take it first; the engine would then be started again until it gets it.
fn free_address(port: Option<u16>) -> io::Result<SocketAddr> {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match port {
        Some(port) => Ok(local(port)),
        None => TcpListener::bind(local(USUAL_PORT)).or_else(|_| TcpListener::bind(local(0)))?.local_addr(),
    }
}

/// The finding for an engine that is not there.
pub(crate) fn missing(what: &str, key: &str, env: &str, looked: &str) -> Finding {
    Finding::new(
        key,
        format!("{what} is not found; looked for {looked}"),
        "the embedded engine's program and library, or a ClickHouse of your own",
        format!(
            "run `make run` in the repository, set {env} to its path, or set WH_CH_URL to use another ClickHouse"
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_password_is_made_once_kept_and_closed_to_others() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("password");
        let first = password(&file, &Secret::default())?;
        assert_eq!(first.reveal().len(), 32);
        assert_eq!(fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
        assert_eq!(password(&file, &Secret::default())?, first);
        let own = Secret::new("own");
        assert_eq!(password(&file, &own)?, own);
        assert_eq!(fs::read_to_string(&file)?, "own");
        assert_eq!(fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
        Ok(())
    }

    #[test]
    fn a_taken_port_is_passed_over() -> io::Result<()> {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, USUAL_PORT));
        let address = free_address(None)?;
        if held.is_ok() {
            assert_ne!(address.port(), USUAL_PORT);
        }
        assert_eq!(free_address(Some(7))?.port(), 7);
        Ok(())
    }
}
