//! The real ClickHouse engine (libchdb) behind ClickHouse's own HTTP protocol, as a program of its own.
//!
//! `main` reads the command line, opens the engine, serves, and leaves. A request goes `serve` (connections) ->
//! `handler` (one HTTP exchange) -> `work` (a blocking thread that runs it through `ffi`) -> `reply` (its result
//! as a body). `params`, `statement`, `auth`, `fault` and `encoding` decide purely.

mod auth;
mod cancel;
mod encoding;
mod engine;
mod fault;
mod feed;
mod ffi;
mod handler;
mod lexer;
mod params;
mod reply;
mod serve;
mod statement;
mod wire;
mod work;

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::auth::Account;
use crate::engine::{Engine, OpenError};
use crate::handler::{QUERIES_MAX, Server};

/// Threads for anything that blocks besides queries: name look-ups and the like.
const SPARE_THREADS: usize = 8;
/// Exit codes: another process has the directory; anything else that keeps the server from starting.
const EXIT_LOCKED: i32 = 76;
const EXIT_FAILED: i32 = 1;

/// ClickHouse, embedded: one directory, one user, ClickHouse's HTTP protocol.
#[derive(Parser)]
#[command(name = "wavehouse-clickhouse", version)]
struct Args {
    /// Directory of the data; made when it is not there
    #[arg(long, value_name = "DIR")]
    path: PathBuf,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8123")]
    listen: SocketAddr,
    /// The one user
    #[arg(long, value_name = "NAME", default_value = "default")]
    user: String,
    /// File with the user's password; its last line break does not count
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The engine's library; else .deps/chdb/libchdb.so upward from here or from the program
    #[arg(long, value_name = "FILE")]
    libchdb: Option<PathBuf>,
    /// Bytes that all queries may take together; else nine tenths of the machine's memory
    #[arg(long, value_name = "BYTES")]
    max_memory: Option<u64>,
    /// Stop when standard input ends, as it does when the parent that holds its other end dies
    #[arg(long)]
    exit_with_parent: bool,
    /// Print `listening on http://…` on standard output, too
    #[arg(long)]
    print_port: bool,
}

fn main() {
    let args = Args::parse();
    // Standard error may be a pipe to a parent that has died; to complain there about that would be a panic.
    let logs =
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).log_internal_errors(false);
    if std::io::stderr().is_terminal() {
        logs.init();
    } else {
        logs.json().flatten_event(true).with_ansi(false).init();
    }
    let code = match run(args) {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!("{error:#}");
            let locked = matches!(error.downcast_ref(), Some(OpenError::Locked { .. }));
            if locked { EXIT_LOCKED } else { EXIT_FAILED }
        }
    };
    // The engine's own exit handlers assert after heavy use, and everything is on disk by now.
    ffi::exit_now(code);
}

fn run(args: Args) -> anyhow::Result<()> {
    // The engine reads standard input when a statement lacks its rows, so it gets an empty one.
    let input = take_stdin().context("standard input cannot be set aside")?;
    let library = match args.libchdb {
        Some(path) => path,
        None => find_library()?,
    };
    let password = match &args.password_file {
        Some(file) => std::fs::read_to_string(file)
            .with_context(|| format!("the password file {} cannot be read", file.display()))?,
        None => String::new(),
    };
    let password = password.trim_end_matches(['\n', '\r']).to_owned();
    let listener = std::net::TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}; is another server there?", args.listen))?;
    listener.set_nonblocking(true)?;
    let engine = Arc::new(Engine::open(&library, &args.path, args.max_memory)?);
    if password.is_empty() && !args.listen.ip().is_loopback() {
        tracing::warn!("no password: everybody who reaches {} may read and write everything", args.listen);
    }
    let server = Arc::new(Server::new(Arc::clone(&engine), Account { user: args.user, password })?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(QUERIES_MAX + SPARE_THREADS)
        .enable_all()
        .build()?;
    let clean = runtime.block_on(async {
        let stop = stop_signal(args.exit_with_parent.then_some(input))?;
        let listener = TcpListener::from_std(listener)?;
        let line = format!("listening on http://{}", listener.local_addr()?);
        tracing::info!(version = engine.version, "{line}");
        if args.print_port {
            let mut out = std::io::stdout();
            writeln!(out, "{line}").and_then(|()| out.flush()).context("standard output is closed")?;
        }
        anyhow::Ok(serve::serve(listener, server, stop).await)
    })?;
    // Connections that killed queries still hold would make the engine wait for them.
    if clean {
        tracing::info!(engine_stopped = engine.close(), "stopped");
    } else {
        tracing::info!("stopped with queries killed");
    }
    Ok(())
}

/// Standard input as a file, with nothing left in its place.
fn take_stdin() -> std::io::Result<File> {
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(input.into())
}

/// Cancelled by SIGTERM, SIGINT, or the end of the parent's pipe.
fn stop_signal(parent: Option<File>) -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let (mut signals, stop) = (signal(kind)?, stop.clone());
        std::thread::Builder::new().name("signals".into()).spawn({
            let runtime = tokio::runtime::Handle::current();
            move || {
                runtime.block_on(signals.recv());
                stop.cancel();
            }
        })?;
    }
    if let Some(mut input) = parent {
        let stop = stop.clone();
        std::thread::Builder::new().name("parent".into()).spawn(move || {
            let mut ignored = [0; 64];
            while matches!(input.read(&mut ignored), Ok(bytes) if bytes > 0) {}
            stop.cancel();
            tracing::info!("the parent is gone; stopping");
        })?;
    }
    Ok(stop)
}

/// Looks for the library where `make deps` puts it, upward from the working directory and from the program.
fn find_library() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.parent().unwrap_or(Path::new(""));
    let places = here.ancestors().chain(beside.ancestors()).map(|dir| dir.join(".deps/chdb/libchdb.so"));
    places.chain([beside.join("libchdb.so")]).find(|path| path.is_file()).with_context(|| {
        format!(
            "the engine library libchdb.so was not found in a .deps/chdb/ upward from {} or {}; \
             in a clone run `make deps`, elsewhere give --libchdb FILE",
            here.display(),
            beside.display()
        )
    })
}
