//! Whole loads against a server that misbehaves on cue.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use clap::Parser;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::state::StateFile;
use super::{SendArgs, run};

/// What the server does with the next request; without a cue it takes everything.
#[derive(Clone, Debug)]
enum Cue {
    /// Takes the rows and loses the answer.
    TakeAndHang,
    /// Refuses with this status and `Retry-After`.
    Busy(u16, &'static str),
    /// Says that the body is too large if it has more than this many rows.
    TooLarge(usize),
    /// Refuses the rows whose text holds this.
    RefuseRowsWith(&'static str),
}

#[derive(Default)]
struct Server {
    cues: VecDeque<Cue>,
    taken: Vec<String>,
    requests: usize,
    keys: Vec<String>,
}

type Shared = Arc<Mutex<Server>>;

async fn ingest(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let rows: Vec<String> = std::str::from_utf8(&body).unwrap().lines().map(ToOwned::to_owned).collect();
    let mut server = shared.lock().unwrap();
    server.requests += 1;
    server.keys.extend(headers.get("x-operator-key").map(|key| key.to_str().unwrap().to_owned()));
    let cue = server.cues.pop_front();
    let bad = match cue {
        Some(Cue::Busy(status, retry_after)) => {
            let status = StatusCode::from_u16(status).unwrap();
            return (status, [("retry-after", retry_after)], r#"{"error":"service unavailable"}"#)
                .into_response();
        }
        Some(Cue::TooLarge(most)) if rows.len() > most => {
            server.cues.push_front(Cue::TooLarge(most));
            return StatusCode::PAYLOAD_TOO_LARGE.into_response();
        }
        Some(Cue::RefuseRowsWith(text)) => text,
        Some(Cue::TakeAndHang) => {
            server.taken.extend(rows);
            return (StatusCode::BAD_GATEWAY, "upstream went away").into_response();
        }
        Some(cue @ Cue::TooLarge(_)) => {
            server.cues.push_front(cue);
            "\u{0}"
        }
        None => "\u{0}",
    };
    let (mut results, mut succeeded) = (Vec::new(), 0);
    for (index, row) in (1..).zip(&rows) {
        if row.contains(bad) {
            results
                .push(serde_json::json!({"index": index, "error": "no such column", "exception_code": 117}));
        } else {
            succeeded += 1;
            server.taken.push(row.clone());
        }
    }
    let failed = results.len();
    let answer = serde_json::json!({
        "total": rows.len(), "succeeded": succeeded, "failed": failed, "duplicates": 0, "results": results
    });
    axum::Json(answer).into_response()
}

struct Bench {
    shared: Shared,
    url: String,
    dir: tempfile::TempDir,
    _serving: JoinSet<()>,
}

impl Bench {
    async fn new(cues: impl IntoIterator<Item = Cue>) -> Self {
        let shared = Shared::default();
        shared.lock().unwrap().cues.extend(cues);
        let routes = Router::new().route("/v1/ingest", post(ingest)).with_state(Arc::clone(&shared));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async { axum::serve(listener, routes).await.unwrap() });
        Self { shared, url, dir: tempfile::tempdir().unwrap(), _serving: serving }
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("rows");
        std::fs::write(&path, text).unwrap();
        path
    }

    async fn send(&self, file: &Path, more: &[&str]) -> bool {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: SendArgs,
        }
        let url: &[&str] = if more.contains(&"--url") { &[] } else { &["--url", &self.url] };
        let words = ["send", "--table", "t"].into_iter().chain(url.iter().chain(more).copied());
        let mut args = Line::parse_from(words.chain([file.to_str().unwrap()])).args;
        args.operator_key = Some("from the environment".into());
        let code = run(args).await.unwrap();
        format!("{code:?}") == format!("{:?}", std::process::ExitCode::SUCCESS)
    }

    fn taken(&self) -> Vec<String> {
        self.shared.lock().unwrap().taken.clone()
    }
}

fn rows(count: usize) -> (String, Vec<String>) {
    let rows: Vec<String> = (0..count).map(|n| format!("{{\"n\":{n}}}")).collect();
    (rows.join("\n") + "\n", rows)
}

#[tokio::test]
async fn every_row_arrives_once_in_order_with_the_key() {
    let bench = Bench::new([]).await;
    let (text, all) = rows(12_000);
    assert!(bench.send(&bench.file(&text), &[]).await);
    assert_eq!(bench.taken(), all);
    assert_eq!(bench.shared.lock().unwrap().keys, ["from the environment"; 3]);
    assert!(!StateFile::path_for(&bench.dir.path().join("rows")).exists(), "a complete load leaves no state");
    let array = format!("[{}]", all.join(",\n"));
    bench.shared.lock().unwrap().taken.clear();
    assert!(bench.send(&bench.file(&array), &["--parallel", "3"]).await);
    let mut taken = bench.taken();
    taken.sort_by_key(|row| row.len() * 100_000 + row[5..row.len() - 1].parse::<usize>().unwrap());
    assert_eq!(taken, all);
}

#[tokio::test]
async fn a_busy_server_is_waited_for_as_long_as_it_says() {
    let bench = Bench::new([Cue::Busy(503, "1"), Cue::Busy(429, "0")]).await;
    let (text, all) = rows(10);
    let begun = std::time::Instant::now();
    assert!(bench.send(&bench.file(&text), &[]).await);
    assert!(begun.elapsed() >= std::time::Duration::from_secs(1));
    assert_eq!((bench.taken(), bench.shared.lock().unwrap().requests), (all, 3));
}

#[tokio::test]
async fn refused_rows_are_written_with_number_reason_and_bytes() {
    let bench = Bench::new([Cue::RefuseRowsWith("bad")]).await;
    let file = bench.file("[{\"n\":1},{\"bad\": 2.0},{\"n\":3}]");
    assert!(!bench.send(&file, &[]).await, "a refusal is a failure");
    assert_eq!(bench.taken(), [r#"{"n":1}"#, r#"{"n":3}"#]);
    let refused = std::fs::read_to_string(bench.dir.path().join("rows.refused.ndjson")).unwrap();
    let line = r#"{"record":2,"error":"no such column","exception_code":117,"row":{"bad": 2.0}}"#;
    assert_eq!(refused, format!("{line}\n"));
    assert!(!StateFile::path_for(&file).exists(), "the load itself is complete");
}

#[tokio::test]
async fn too_large_batches_are_halved_and_stay_in_order() {
    let bench = Bench::new([Cue::TooLarge(700)]).await;
    let (text, all) = rows(5_000);
    assert!(bench.send(&bench.file(&text), &[]).await);
    assert_eq!(bench.taken(), all);
}

#[tokio::test]
async fn a_lost_answer_is_sent_again() {
    let bench = Bench::new([Cue::TakeAndHang]).await;
    let (text, all) = rows(3);
    assert!(bench.send(&bench.file(&text), &[]).await);
    assert_eq!(bench.taken(), [all.clone(), all].concat(), "at least once");
}

#[tokio::test]
async fn a_load_that_gave_up_goes_on_behind_what_was_acknowledged() {
    let bench = Bench::new([]).await;
    let (text, all) = rows(12_000);
    let file = bench.file(&text);
    let more = [Cue::RefuseRowsWith("{\"n\":4999}"), Cue::Busy(503, "30")];
    bench.shared.lock().unwrap().cues.extend(more);
    assert!(!bench.send(&file, &["--patience", "1"]).await);
    assert!(StateFile::path_for(&file).exists());
    assert_eq!(bench.taken(), all[..4_999]);

    assert!(!bench.send(&file, &["--patience", "1"]).await, "the refusal of the first run still counts");
    let expected: Vec<String> = all.iter().filter(|row| *row != "{\"n\":4999}").cloned().collect();
    assert_eq!(bench.taken(), expected, "no row of the first batch is sent again");
    let refused = std::fs::read_to_string(bench.dir.path().join("rows.refused.ndjson")).unwrap();
    assert_eq!(refused.lines().count(), 1);
    assert!(!StateFile::path_for(&file).exists());
}

#[tokio::test]
async fn a_server_that_is_not_there_ends_the_load_and_keeps_its_place() {
    let bench = Bench::new([]).await;
    let (text, _all) = rows(3);
    let file = bench.file(&text);
    assert!(!bench.send(&file, &["--url", "http://127.0.0.1:9", "--patience", "1"]).await);
    assert!(bench.taken().is_empty());
}
