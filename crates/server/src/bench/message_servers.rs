//! Yardsticks for a queue on message servers: a small gateway that publishes each row by itself, the bare publishing of
//! one row a message, and the bare reading of such messages.
//!
//! They connect as whoever is named, to a stream that is theirs: `--make` makes it, with a user that may.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use wavehouse_nats::{JetStream, PullRequest, Pulled, Settle};

use super::OutputArgs;
use super::event::lines;
use super::result::RunResult;
use super::yardstick::{BODY_BYTES_MAX, serve, taken};
use crate::mq::servers::{ServerFlags, connect};

/// How long a request to the servers may take, and their answer at the end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Messages of one pull.
const PULL_MESSAGES: u32 = 500;
/// The durable that the rows are read with.
const DURABLE: &str = "bench";

/// Which servers, which stream.
#[derive(clap::Args, Clone, Debug)]
struct StreamArgs {
    #[command(flatten)]
    servers: ServerFlags,
    /// The stream of the yardsticks. Rows go to `<stream>.rows`, in lower case.
    #[arg(long, default_value = "BENCH", value_name = "NAME")]
    stream: String,
    /// Makes the stream anew, empty: on disk, a work queue, with one durable.
    #[arg(long)]
    make: bool,
}

/// Arguments of `bench naive-nats-server`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct NaiveNatsArgs {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:8093")]
    listen: SocketAddr,
    #[command(flatten)]
    stream: StreamArgs,
}

/// Arguments of `bench nats-publish`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct NatsPublishArgs {
    #[command(flatten)]
    stream: StreamArgs,
    /// Messages that may be without an answer.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    window: u32,
    /// Rows in each message.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    rows_per_message: u32,
    /// Bytes of each row.
    #[arg(long, default_value_t = 256)]
    row_bytes: usize,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `bench nats-pull`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct NatsPullArgs {
    #[command(flatten)]
    stream: StreamArgs,
    /// Rows in each message, as they were published.
    #[arg(long, default_value_t = 1)]
    rows_per_message: u32,
    /// Bytes of each row.
    #[arg(long, default_value_t = 256)]
    row_bytes: usize,
    /// Seconds that are measured, unless the stream is empty before.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    #[command(flatten)]
    output: OutputArgs,
}

impl StreamArgs {
    fn subject(&self) -> String {
        format!("{}.rows", self.stream.to_lowercase())
    }

    /// Connects, and makes the stream if asked to.
    async fn open(&self) -> anyhow::Result<JetStream> {
        let options = self.servers.options(None, "_INBOX".to_owned());
        let connected = connect(&options, self.servers.wait).await;
        let connection = connected.map_err(|refused| anyhow::anyhow!(refused.text))?;
        let jetstream = connection.jetstream().with_timeout(PATIENCE);
        if self.make {
            self.make_anew(&jetstream).await.with_context(|| format!("stream {}", self.stream))?;
        }
        Ok(jetstream)
    }

    async fn make_anew(&self, jetstream: &JetStream) -> anyhow::Result<()> {
        let (stream, subject) = (&self.stream, self.subject());
        let removed = jetstream.call::<Value>(&format!("STREAM.DELETE.{stream}"), Bytes::new()).await;
        if let Err(error) = removed
            && !error.is_gone()
        {
            return Err(error.into());
        }
        let config = json!({
            "name": stream, "subjects": [subject], "retention": "workqueue", "discard": "new", "storage": "file",
            "max_bytes": 8_u64 << 30, "num_replicas": 1, "duplicate_window": 120_000_000_000_u64,
        });
        let made = jetstream.call::<Value>(&format!("STREAM.CREATE.{stream}"), text(&config)).await;
        made?;
        let durable = json!({"stream_name": stream, "action": "create", "config": {
            "durable_name": DURABLE, "ack_policy": "explicit", "ack_wait": 60_000_000_000_u64,
            "max_ack_pending": 10_000, "filter_subject": subject,
        }});
        let request = format!("CONSUMER.CREATE.{stream}.{DURABLE}.{subject}");
        jetstream.call::<Value>(&request, text(&durable)).await?;
        Ok(())
    }
}

fn text(value: &Value) -> Bytes {
    value.to_string().into()
}

/// Serves until it is killed: each row is a message, and a request is answered when all of its rows are stored.
pub(super) async fn naive(args: &NaiveNatsArgs) -> anyhow::Result<()> {
    let jetstream = args.stream.open().await?;
    let state = Arc::new((jetstream, args.stream.subject()));
    let route = post(store).layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).with_state(state);
    serve(args.listen, Router::new().fallback_service(route)).await
}

async fn store(State(state): State<Arc<(JetStream, String)>>, body: Bytes) -> Result<String, StatusCode> {
    let (jetstream, subject) = &*state;
    let mut rows = 0;
    for line in body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let row = body.slice_ref(line);
        serde_json::from_slice::<&serde_json::value::RawValue>(&row)
            .map_err(|_bad| StatusCode::BAD_REQUEST)?;
        jetstream.publish(subject, None, row).await.map_err(|_failed| StatusCode::SERVICE_UNAVAILABLE)?;
        rows += 1;
    }
    Ok(taken(rows))
}

/// Publishes as fast as answers come, and prints how many rows were answered for.
pub(super) async fn publish(args: &NatsPublishArgs) -> anyhow::Result<()> {
    let jetstream = args.stream.open().await?;
    let connection = jetstream.connection().clone();
    let subject = args.stream.subject();
    let payload = Bytes::from(lines(args.rows_per_message, args.row_bytes));
    let inbox = connection.new_inbox();
    let mut answers = connection.subscribe(&inbox).await?;
    let window = Arc::new(Semaphore::new(args.window as usize));
    let room = Arc::clone(&window);
    let begun = Instant::now();
    let end = begun + Duration::from_secs(args.seconds);
    let sending = async {
        while Instant::now() < end {
            room.acquire().await?.forget();
            connection.publish_with_reply(&subject, &inbox, payload.clone()).await?;
        }
        // All permits back: every message has its answer.
        let _all = tokio::time::timeout(PATIENCE, room.acquire_many(args.window)).await;
        room.close();
        anyhow::Ok(())
    };
    let counting = async {
        let mut stored = 0_u64;
        loop {
            tokio::select! {
                biased;
                answer = answers.next() => {
                    let Some(answer) = answer else { break };
                    let answer: Value = serde_json::from_slice(&answer.payload)?;
                    if let Some(error) = answer.get("error") {
                        bail!("the stream refuses rows: {error}");
                    }
                    stored += 1;
                    window.add_permits(1);
                }
                () = closed(&window) => break,
            }
        }
        anyhow::Ok(stored)
    };
    let (sent, stored) = tokio::join!(sending, counting);
    sent?;
    let what = format!("publishes with {} on the way, {} rows each", args.window, args.rows_per_message);
    report(&args.output, what, stored? * u64::from(args.rows_per_message), begun.elapsed(), args.row_bytes)
}

/// Until nobody waits for room any more.
async fn closed(window: &Semaphore) {
    while !window.is_closed() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Pulls and acks, each message by itself, until the time is over or nothing is left.
pub(super) async fn pull(args: &NatsPullArgs) -> anyhow::Result<()> {
    let jetstream = args.stream.open().await?;
    let connection = jetstream.connection().clone();
    let mut puller = jetstream.puller(&args.stream.stream, DURABLE).await?;
    let request = PullRequest { batch: PULL_MESSAGES, no_wait: true, ..PullRequest::default() };
    let begun = Instant::now();
    let end = begun + Duration::from_secs(args.seconds);
    let (mut read, mut left) = (0_u64, 0);
    // Two pulls are on their way, so that the next messages come while these are acked.
    puller.pull(&request).await?;
    while Instant::now() < end {
        if left <= PULL_MESSAGES / 2 {
            puller.pull(&request).await?;
            left += PULL_MESSAGES;
        }
        match tokio::time::timeout(PATIENCE, puller.next()).await.context("nothing came")? {
            Some(Pulled::Message(message)) => {
                connection.settle(&message.reply, Settle::Ack).await?;
                read += 1;
                left = left.saturating_sub(1);
            }
            Some(Pulled::Status { .. }) => break,
            None => bail!("the connection ended"),
        }
    }
    let what = format!("pulls of {PULL_MESSAGES} and an ack each, {} rows a message", args.rows_per_message);
    report(&args.output, what, read * u64::from(args.rows_per_message), begun.elapsed(), args.row_bytes)
}

/// Prints so many rows in so long.
pub(super) fn report(
    output: &OutputArgs,
    what: String,
    rows: u64,
    took: Duration,
    row_bytes: usize,
) -> anyhow::Result<()> {
    let mut result = RunResult {
        label: output.label.clone(),
        what,
        seconds: took.as_secs_f64(),
        rows,
        ..RunResult::default()
    };
    result.derive(row_bytes);
    result.print(output.json)
}
