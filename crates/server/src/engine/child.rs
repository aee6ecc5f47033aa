//! The engine's life: start, ready, death, start again, stop.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::Program;

/// First wait before a dead engine is started again; it doubles up to [`WAIT_MAX`]. Short, since an engine that finds
/// its directory still held by the one before it ends at once.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// An engine that lived so long is not in a loop of dying; the wait begins anew.
const STEADY_AFTER: Duration = Duration::from_secs(60);
/// Between two looks whether a started engine answers.
const PING_SPACING: Duration = Duration::from_millis(25);
/// One such look.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// What a stop gives the engine to leave by itself; the supervisor gives the phase a little more.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(4500);
/// Longest line of the engine's output that is logged whole.
const LINE_BYTES_MAX: u64 = 8 * 1024;

/// Keeps an engine running until `stop`. `ready` follows whether it answers.
///
/// # Errors
/// Never for the death of an engine; only when the stop itself fails.
pub(crate) async fn run(
    program: Program,
    ready: watch::Sender<bool>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut wait = WAIT_MIN;
    loop {
        let began = Instant::now();
        match start(&program) {
            Ok(mut child) => {
                // Held for as long as the engine is to run: the end of its input tells it that we are gone. It is taken
                // out, since waiting for a child closes the input that it still has.
                let _input = child.stdin.take();
                let ended = live(&mut child, &program, &ready, &stop).await;
                ready.send_replace(false);
                match ended {
                    None => return leave(child).await,
                    Some(status) => {
                        warn!(status = told(status), lived = ?began.elapsed(), "engine ended; it is started again")
                    }
                }
            }
            Err(error) => {
                error!(program = %program.files.bin.display(), %error, "engine cannot be started; trying again")
            }
        }
        if began.elapsed() >= STEADY_AFTER {
            wait = WAIT_MIN;
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = sleep(wait) => wait = (wait * 2).min(WAIT_MAX),
        }
    }
}

fn start(program: &Program) -> io::Result<Child> {
    Command::new(&program.files.bin)
        .arg("--path")
        .arg(&program.data)
        .arg("--listen")
        .arg(program.listen.to_string())
        .arg("--user")
        .arg(&program.user)
        .arg("--password-file")
        .arg(&program.password_file)
        .arg("--libchdb")
        .arg(&program.files.lib)
        .arg("--max-memory")
        .arg(program.memory_bytes_max.to_string())
        .arg("--exit-with-parent")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Ctrl-C reaches every process of a terminal; this one is stopped by us, after the worker.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Watches a started engine; none when it is to be stopped, else how it ended.
async fn live(
    child: &mut Child,
    program: &Program,
    ready: &watch::Sender<bool>,
    stop: &CancellationToken,
) -> Option<io::Result<ExitStatus>> {
    let output = child.stderr.take();
    let mut forward = std::pin::pin!(forward(output));
    let mut answers = std::pin::pin!(answers(program));
    let (mut answered, mut silent) = (false, false);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            status = child.wait() => {
                // What it said last is why it ended.
                if !silent {
                    let _late = timeout(PING_TIMEOUT, forward.as_mut()).await;
                }
                return Some(status);
            }
            () = answers.as_mut(), if !answered => {
                answered = true;
                info!(address = %program.listen, "engine answers");
                ready.send_replace(true);
            }
            () = forward.as_mut(), if !silent => silent = true,
        }
    }
}

/// Logs what the engine says, line by line, until it says no more.
async fn forward(output: Option<ChildStderr>) {
    let Some(output) = output else { return };
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => say(line.trim_ascii_end()),
        }
    }
}

/// One line of the engine's own log, as one of ours: it writes JSON with a level, a message and more.
fn say(line: &[u8]) {
    let parsed = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line);
    let Ok(mut fields) = parsed else {
        return info!(target: "engine", "{}", String::from_utf8_lossy(line));
    };
    fields.remove("timestamp");
    let level = fields.remove("level");
    let text = fields.remove("message").and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default();
    let more =
        if fields.is_empty() { String::new() } else { format!(" {}", serde_json::Value::Object(fields)) };
    match level.as_ref().and_then(|level| level.as_str()) {
        Some("ERROR") => error!(target: "engine", "{text}{more}"),
        Some("WARN") => warn!(target: "engine", "{text}{more}"),
        _ => info!(target: "engine", "{text}{more}"),
    }
}

/// Returns once the engine answers `/ping`.
async fn answers(program: &Program) {
    while !matches!(timeout(PING_TIMEOUT, ping(program)).await, Ok(Ok(true))) {
        sleep(PING_SPACING).await;
    }
}

async fn ping(program: &Program) -> io::Result<bool> {
    let mut stream = TcpStream::connect(program.listen).await?;
    stream
        .write_all(
            format!("GET /ping HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", program.listen).as_bytes(),
        )
        .await?;
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200") && answer.windows(3).any(|part| part == b"Ok."))
}

/// Asks the engine to leave and waits for it; kills it when it takes too long.
async fn leave(mut child: Child) -> anyhow::Result<()> {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        kill_process(pid, Signal::TERM).context("cannot ask the engine to leave")?;
    }
    match timeout(LEAVE_TIMEOUT, child.wait()).await {
        Ok(status) => {
            info!(status = told(status), "engine left");
            Ok(())
        }
        Err(_) => {
            child.kill().await.context("cannot kill the engine")?;
            anyhow::bail!(
                "the engine did not leave in time and was killed; rows that it has acknowledged are on disk"
            )
        }
    }
}

fn told(status: io::Result<ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}
