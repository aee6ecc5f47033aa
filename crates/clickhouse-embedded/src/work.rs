//! Runs one request on a blocking thread: reads the statement, decides how the engine can run it, and writes the
//! result into a pipe.
//!
//! Results stream through `INTO OUTFILE '/proc/self/fd/N'`: the library's own streaming calls format every block
//! as a document of its own, so only line formats could be joined. Written to a file the engine makes one
//! document in any format, and the pipe slows it down when the client is slow.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::cancel::Running;
use crate::encoding::{self, Coding};
use crate::engine::{Engine, Format};
use crate::fault::Fault;
use crate::feed::Feed;
use crate::ffi::{Answer, Class, Connection, Stats};
use crate::params::{self, Ask};
use crate::statement::{self, Rows, Shape, Start};

/// Read from a body at once.
const READ_BYTES: usize = 64 << 10;
/// An INSERT must say within this many bytes where its rows begin.
const INSERT_HEAD_BYTES_MAX: usize = 1 << 20;
/// Text of a statement that is not followed by streamed rows.
const STATEMENT_BYTES_MAX: u64 = 64 << 20;
/// `VALUES` up to this size are checked for a second statement behind them (ClickHouse's `max_query_size`).
const VALUES_CHECKED_BYTES_MAX: usize = 256 << 10;

const SYNTAX_ERROR: u32 = 62;

/// One request for the engine.
pub(crate) struct Job {
    pub(crate) engine: Arc<Engine>,
    pub(crate) ask: Ask,
    /// The body's encoding.
    pub(crate) coding: Option<Coding>,
    pub(crate) feed: Feed,
    /// Where the result goes; its end is the end of the result.
    pub(crate) out: OwnedFd,
    /// Told the result's format before the first byte.
    pub(crate) head: Option<oneshot::Sender<Format>>,
    /// Told how it ended, before `out` closes.
    pub(crate) tail: oneshot::Sender<Tail>,
    pub(crate) running: Arc<Running>,
    /// The place among the running queries, given back at the end.
    pub(crate) place: OwnedSemaphorePermit,
}

/// How a request ended.
pub(crate) type Tail = Result<Stats, Fault>;

/// Runs `job` to its end.
pub(crate) fn run(mut job: Job) {
    let tail = execute(&mut job);
    job.running.finish();
    // A client that has gone does not ask how it ended.
    job.tail.send(tail).ok();
    drop(job.out);
    drop(job.place);
}

fn execute(job: &mut Job) -> Tail {
    let connection = job.engine.connect()?;
    for sql in params::preamble(&job.ask, &job.running.mark) {
        checked(&connection.run(sql.as_bytes(), "Null", &[]))?;
    }
    let feed = std::mem::replace(&mut job.feed, crate::feed::feed().1);
    let mut body = encoding::reader(feed, job.coding).map_err(|error| body_fault(&error))?;
    let mut text = job.ask.query.clone().into_bytes();
    if !text.is_empty() {
        text.push(b'\n');
    }
    let mut whole = false;
    let start = loop {
        match statement::start(&text, whole) {
            Start::Unclear if text.len() > INSERT_HEAD_BYTES_MAX => {
                return Err(Fault::new(
                    SYNTAX_ERROR,
                    "The INSERT does not say where its rows begin. (SYNTAX_ERROR)",
                ));
            }
            Start::Unclear => whole = read_more(&mut body, &mut text)? == 0,
            start => break start,
        }
    };
    match start {
        Start::InsertRows(rows) => insert(job, &connection, text, rows, &mut body),
        Start::InsertInfile => Err(Fault::new(1, "FROM INFILE is not allowed. (UNSUPPORTED_METHOD)")),
        Start::InsertSelect => {
            read_rest(&mut body, &mut text)?;
            if statement::takes_input(&text) {
                return Err(Fault::unsupported("INSERT … SELECT FROM input()"));
            }
            let (statements, _) = connection.classify(&text);
            if statements > 1 {
                return Err(several(&text, text.len()));
            }
            buffered(job, &connection, &text)
        }
        Start::Query | Start::Unclear => {
            read_rest(&mut body, &mut text)?;
            query(job, &connection, &text)
        }
    }
}

fn read_more(body: &mut impl Read, text: &mut Vec<u8>) -> Result<usize, Fault> {
    let before = text.len();
    text.resize(before + READ_BYTES, 0);
    let read = body.read(&mut text[before..]).map_err(|error| body_fault(&error));
    text.truncate(before + *read.as_ref().unwrap_or(&0));
    read
}

fn read_rest(body: &mut impl Read, text: &mut Vec<u8>) -> Result<(), Fault> {
    body.take(STATEMENT_BYTES_MAX).read_to_end(text).map_err(|error| body_fault(&error))?;
    if text.len() as u64 >= STATEMENT_BYTES_MAX {
        return Err(Fault::new(223, format!("More than {STATEMENT_BYTES_MAX} bytes. (QUERY_IS_TOO_LARGE)")));
    }
    Ok(())
}

fn body_fault(error: &std::io::Error) -> Fault {
    match error.kind() {
        ErrorKind::ConnectionAborted => Fault::new(209, "The request's body broke off. (SOCKET_TIMEOUT)"),
        _ => Fault::new(271, format!("The request's body cannot be decoded: {error}. (CANNOT_DECOMPRESS)")),
    }
}

fn checked(answer: &Answer) -> Tail {
    match answer.error() {
        Some(error) => Err(Fault::from_engine(error)),
        None => Ok(answer.stats()),
    }
}

fn several(text: &[u8], at: usize) -> Fault {
    let rest = String::from_utf8_lossy(&text[at..]);
    let rest: String = rest.chars().take(60).collect();
    let what = "Syntax error (Multi-statements are not allowed): failed at position";
    Fault::new(SYNTAX_ERROR, format!("{what} {} (end of query): {rest}. (SYNTAX_ERROR)", at + 1))
}

/// Streams rows into an INSERT, from the text already read and then from the body.
fn insert(job: &Job, connection: &Connection, mut text: Vec<u8>, rows: Rows, body: &mut impl Read) -> Tail {
    let mut whole = false;
    if rows.format.is_none() {
        while !whole && text.len() <= VALUES_CHECKED_BYTES_MAX {
            whole = read_more(body, &mut text)? == 0;
        }
        // The engine's reader of VALUES stops at a semicolon and would drop what follows without a word.
        if whole && connection.classify(&text).0 > 1 {
            return Err(several(&text, rows.rows_start));
        }
    }
    let format = rows.format.as_deref().unwrap_or("Values");
    let statement = &text[..rows.statement_end];
    let mut insert = connection.insert(statement, format, &job.ask.params).map_err(Fault::from_engine)?;
    if text.len() > rows.rows_start {
        insert.append(&text[rows.rows_start..]).map_err(Fault::from_engine)?;
    }
    let mut piece = vec![0; READ_BYTES];
    while !whole {
        let bytes = body.read(&mut piece).map_err(|error| body_fault(&error))?;
        whole = bytes == 0;
        if bytes > 0 && insert.append(&piece[..bytes]).is_err() {
            // The reason comes with the end.
            break;
        }
    }
    checked(&insert.finish())
}

/// Runs anything that is not an INSERT with rows.
fn query(job: &mut Job, connection: &Connection, text: &[u8]) -> Tail {
    let engine = Arc::clone(&job.engine);
    let shape = statement::shape(text, |word| engine.format(word).is_some());
    if shape.empty {
        return Err(Fault::new(SYNTAX_ERROR, "Syntax error: Empty query. (SYNTAX_ERROR)"));
    }
    if shape.outfile {
        return Err(Fault::new(358, "INTO OUTFILE is not allowed. (INTO_OUTFILE_NOT_ALLOWED)"));
    }
    if let Some(at) = shape.second {
        return Err(several(text, at));
    }
    let name = shape.format.as_ref().map_or(job.ask.format.as_str(), |(_, name)| name.as_str());
    let Some(format) = engine.format(name) else {
        return Err(Fault::new(73, format!("Unknown format {name}. (UNKNOWN_FORMAT)")));
    };
    if let Some(head) = job.head.take() {
        head.send(format.clone()).ok();
    }
    if job.running.is_cancelled() {
        return Err(Fault::new(394, "Query was cancelled. (QUERY_WAS_CANCELLED)"));
    }
    if connection.classify(text).1 == Class::Reads {
        let streamed = into_pipe(text, &shape, job.out.as_raw_fd(), &format.name);
        let tail = checked(&connection.run(&streamed, &format.name, &job.ask.params));
        // A syntax error means that nothing ran: the engine gets the text as it was sent, for its words about it
        // and in case the rewriting broke it.
        if !matches!(&tail, Err(fault) if fault.code == SYNTAX_ERROR) {
            return tail;
        }
    }
    buffered(job, connection, text)
}

/// The query with its result sent to a file descriptor.
fn into_pipe(text: &[u8], shape: &Shape, out: i32, format: &str) -> Vec<u8> {
    let (at, clause) = match &shape.format {
        Some((at, _)) => (*at, String::new()),
        None => (shape.end, format!(" FORMAT {format}")),
    };
    let outfile = format!(" INTO OUTFILE '/proc/self/fd/{out}' APPEND{clause} ");
    [&text[..at], outfile.as_bytes(), &text[at..]].concat()
}

/// Runs a statement whose result, if any, is small: DDL, SET, KILL, INSERT … SELECT.
fn buffered(job: &Job, connection: &Connection, text: &[u8]) -> Tail {
    let answer = connection.run(text, &job.ask.format, &job.ask.params);
    let stats = checked(&answer)?;
    let mut out = File::from(job.out.try_clone().map_err(|error| {
        Fault::new(76, format!("No file descriptor for the result: {error}. (CANNOT_OPEN_FILE)"))
    })?);
    // A broken pipe is a client that has gone; the statement is done all the same.
    out.write_all(answer.data()).ok();
    Ok(stats)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_results_to_the_pipe() {
        let rewrite = |sql: &str| {
            let shape = statement::shape(sql.as_bytes(), |word| word == "JSON");
            String::from_utf8(into_pipe(sql.as_bytes(), &shape, 7, "CSV")).unwrap()
        };
        let file = "INTO OUTFILE '/proc/self/fd/7' APPEND";
        assert_eq!(rewrite("select 1"), format!("select 1 {file} FORMAT CSV "));
        assert_eq!(
            rewrite("select 1 format JSON settings a=1"),
            format!("select 1  {file} format JSON settings a=1")
        );
        assert_eq!(rewrite("select 1; -- x"), format!("select 1 {file} FORMAT CSV ; -- x"));
    }
}
