//! `wavehouse mq provision`: makes what must exist on message servers, with the operator's credentials, for those who have
//! no controller for it. It deletes nothing, and of what is there it changes little: see [`plan`](super::plan).

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use wavehouse_core::{FaultKind, PartitionId};
use wavehouse_nats::{CallError, JetStream, found};
use wavehouse_topology::{ConsumerConfig, Desired, StreamConfig, TopologyInput, TopologySpec};

use super::flags::ManifestsArgs;
use super::plan::{self, Compared, Difference};
use super::servers::{ServerFlags, connect, failed};
use super::{FINDINGS, Refusal, Said, Surroundings, check, refusal};
use crate::config::Queue;

/// Between two tries of a request that servers could not take yet.
const RETRY_MS: u64 = 250;

#[derive(Debug, Args)]
pub(super) struct ProvisionArgs {
    #[command(flatten)]
    objects: ManifestsArgs,
    #[command(flatten)]
    servers: ServerFlags,
    /// JetStream domain that requests are sent to, if any.
    #[arg(long, value_name = "TOKEN")]
    js_domain: Option<String>,
    /// Tells what would be done and does nothing.
    #[arg(long)]
    dry_run: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// What became of one object.
#[derive(Debug, Serialize)]
struct Done {
    object: String,
    #[serde(flatten)]
    what: What,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
enum What {
    /// It was not there.
    Created,
    /// It is as it should be.
    Kept,
    /// Something was changed, or left, or both.
    Differs { changed: Vec<Difference>, left: Vec<Difference> },
    /// Another object is in its place, which is for the operator.
    InTheWay { found: String },
}

pub(super) async fn run(args: ProvisionArgs, around: &Surroundings<'_>) -> Result<Said, Refusal> {
    let input = TopologyInput { js_domain: args.js_domain.clone(), ..args.objects.input() };
    let spec = check(input)?;
    let desired = Desired::new(&spec).map_err(|error| refusal(format!("mq provision: {error}")))?;
    if args.servers.servers.is_empty() {
        let text = "mq provision: name the servers with --server nats://host:4222".to_owned();
        return Err(Refusal { text, code: super::USAGE });
    }
    refuse_serving_user(&args.servers, around)?;
    let options = args.servers.options(args.js_domain.clone(), "_INBOX".to_owned());
    let connection = connect(&options, args.servers.wait).await?;
    let maker = Maker {
        jetstream: connection.jetstream(),
        spec: &spec,
        dry_run: args.dry_run,
        give_up: Instant::now() + args.servers.wait,
    };
    let done = maker.everything(&desired).await;
    connection.close().await;
    report(&done?, &args)
}

/// The user that WaveHouse serves as must not be able to do this, and is not asked to.
fn refuse_serving_user(flags: &ServerFlags, around: &Surroundings<'_>) -> Result<(), Refusal> {
    let Ok(config) = (around.config)() else { return Ok(()) };
    let Queue::Nats(serving) = config.queue else { return Ok(()) };
    let serving = serving.connect;
    let same = (flags.user.is_some() && flags.user == serving.user)
        || (flags.creds.is_some() && flags.creds == serving.creds_file)
        || (flags.nkey_seed_file.is_some() && flags.nkey_seed_file == serving.nkey_seed_file);
    if same { Err(refusal(format!("{NOT_SERVING}: these are the credentials of mq.nats"))) } else { Ok(()) }
}

const NOT_SERVING: &str = "mq provision: connect as the operator, not as the user that WaveHouse serves as";

struct Maker<'a> {
    jetstream: JetStream,
    spec: &'a TopologySpec,
    dry_run: bool,
    give_up: Instant,
}

impl Maker<'_> {
    async fn everything(&self, desired: &Desired) -> Result<Vec<Done>, Refusal> {
        self.may_create(desired).await?;
        let mut done = Vec::new();
        for (partition, (stream, durables)) in (0_u16..).zip(&desired.partitions) {
            let subject = self.spec.prefix().partition_filter(PartitionId(partition));
            let (name, what) = self.found_by_subject(stream, &subject).await?;
            let there = !matches!(what, What::InTheWay { .. });
            done.push(Done { object: format!("stream {name}"), what });
            for durable in durables.iter().filter(|_| there) {
                done.push(self.durable(&name, durable).await?);
            }
        }
        done.push(self.named(&desired.history).await?);
        let letters = self.spec.prefix().dead_letter_filter();
        let (name, what) = self.found_by_subject(&desired.dead_letters, &letters).await?;
        done.push(Done { object: format!("stream {name}"), what });
        let mut bucket = self.named(&desired.bucket.stream()).await?;
        bucket.object = format!("kv bucket {}", desired.bucket.bucket);
        done.push(bucket);
        Ok(done)
    }

    /// Asks for a stream that cannot be, since its name is not its subject's: a user who may create is told so, any other
    /// is refused.
    async fn may_create(&self, desired: &Desired) -> Result<(), Refusal> {
        let request = format!("STREAM.CREATE.{}", desired.history.name);
        let asked = self.patiently(async || {
            let answer = self.jetstream.call::<Value>(&request, Bytes::from_static(b"{}")).await;
            match answer {
                Err(error) if error.fault() == FaultKind::Reject => Ok(()),
                answer => answer.map(drop),
            }
        });
        match asked.await {
            Err(CallError::Refused { subject }) => {
                Err(refusal(format!("{NOT_SERVING}: this one may not publish to {subject}")))
            }
            asked => asked.map_err(|error| failed(&error)),
        }
    }

    /// A stream that may have any name, as long as it holds the subject.
    async fn found_by_subject(
        &self,
        wanted: &StreamConfig,
        subject: &str,
    ) -> Result<(String, What), Refusal> {
        let holders = self.patiently(async || self.jetstream.stream_names(Some(subject)).await);
        let mut holders = holders.await.map_err(|error| failed(&error))?;
        match (holders.pop(), holders.is_empty()) {
            (Some(holder), true) => {
                let what = self.stream(&holder, wanted).await?;
                Ok((holder, what))
            }
            (Some(holder), false) => {
                let found = format!("{}, {holder} hold {subject}; exactly one may", holders.join(", "));
                Ok((wanted.name.clone(), What::InTheWay { found }))
            }
            (None, _) => {
                let what = self.stream(&wanted.name, wanted).await?;
                Ok((wanted.name.clone(), what))
            }
        }
    }

    async fn named(&self, wanted: &StreamConfig) -> Result<Done, Refusal> {
        let what = self.stream(&wanted.name, wanted).await?;
        Ok(Done { object: format!("stream {}", wanted.name), what })
    }

    async fn stream(&self, name: &str, wanted: &StreamConfig) -> Result<What, Refusal> {
        let asked = self.patiently(async || found(self.jetstream.stream_info(name).await));
        let Some(found) = asked.await.map_err(|error| failed(&error))?.map(|info| info.config) else {
            let request = format!("STREAM.CREATE.{name}");
            return self.send(&request, &json!(wanted)).await.map(|()| What::Created);
        };
        let compared =
            plan::stream(wanted, &found).map_err(|error| refusal(format!("mq: stream {name}: {error}")))?;
        let body = compared.config.clone();
        self.change(compared, &format!("STREAM.UPDATE.{name}"), &body).await
    }

    async fn durable(&self, stream: &str, wanted: &ConsumerConfig) -> Result<Done, Refusal> {
        let name = &wanted.durable_name;
        let object = format!("consumer {stream}/{name}");
        let request = format!("CONSUMER.CREATE.{stream}.{name}");
        let asked = self.patiently(async || found(self.jetstream.consumer_info(stream, name).await));
        let Some(found) = asked.await.map_err(|error| failed(&error))?.map(|info| info.config) else {
            let mut config = json!(wanted);
            config["name"] = name.as_str().into();
            let request = format!("{request}.{}", wanted.filter_subject);
            let body = json!({"stream_name": stream, "config": config, "action": "create"});
            self.send(&request, &body).await?;
            return Ok(Done { object, what: What::Created });
        };
        let compared =
            plan::durable(wanted, &found).map_err(|error| refusal(format!("mq: {object}: {error}")))?;
        let filter = found["filter_subject"].as_str().filter(|filter| !filter.is_empty());
        let request = filter.map_or_else(|| request.clone(), |filter| format!("{request}.{filter}"));
        let body = json!({"stream_name": stream, "config": compared.config, "action": "update"});
        let what = self.change(compared, &request, &body).await?;
        Ok(Done { object, what })
    }

    async fn change(&self, compared: Compared, request: &str, body: &Value) -> Result<What, Refusal> {
        let Compared { changed, left, .. } = compared;
        if !changed.is_empty() {
            self.send(request, body).await?;
        }
        Ok(if changed.is_empty() && left.is_empty() { What::Kept } else { What::Differs { changed, left } })
    }

    async fn send(&self, request: &str, body: &Value) -> Result<(), Refusal> {
        if self.dry_run {
            return Ok(());
        }
        let body = Bytes::from(body.to_string());
        let sent = self.patiently(async || self.jetstream.call::<Value>(request, body.clone()).await);
        sent.await.map(drop).map_err(|error| failed(&error))
    }

    /// Tries again for as long as servers elect leaders or place streams. Every request may be sent twice: what is there
    /// already as it was asked for is no error.
    async fn patiently<T>(&self, call: impl AsyncFn() -> Result<T, CallError>) -> Result<T, CallError> {
        loop {
            match call().await {
                Err(error) if is_passing(&error) && Instant::now() < self.give_up => {
                    sleep(Duration::from_millis(RETRY_MS)).await;
                }
                answer => return answer,
            }
        }
    }
}

/// JetStream's number for servers that cannot be found for a stream's replicas, as while a cluster comes up.
const NO_PEERS: u32 = 10_005;

/// Whether an error may be gone in a moment.
fn is_passing(error: &CallError) -> bool {
    let full = [wavehouse_nats::codes::STORAGE_EXCEEDED, wavehouse_nats::codes::INSUFFICIENT_RESOURCES];
    match error {
        CallError::Refused { .. } => false,
        CallError::JetStream { code, .. } if full.contains(code) => false,
        _ => error.code() == Some(NO_PEERS) || matches!(error.fault(), FaultKind::Retry { .. }),
    }
}

fn report(done: &[Done], args: &ProvisionArgs) -> Result<Said, Refusal> {
    let differs = |what: &What| match what {
        What::Created | What::Kept => false,
        What::Differs { left, .. } => !left.is_empty(),
        What::InTheWay { .. } => true,
    };
    let code = if done.iter().any(|done| differs(&done.what)) { FINDINGS } else { 0 };
    let text = if args.json {
        let body = json!({"dry_run": args.dry_run, "objects": done});
        serde_json::to_string_pretty(&body).map_err(|error| refusal(error.to_string()))? + "\n"
    } else {
        as_text(done, args.dry_run)
    };
    Ok(Said { text, code })
}

fn as_text(done: &[Done], dry_run: bool) -> String {
    let (create, change) = if dry_run { ("would create", "would change") } else { ("created", "changed") };
    let mut text = String::new();
    let mut line = |verb: &str, what: String| {
        // Writing into a string cannot fail.
        let _written = writeln!(text, "{verb:13} {what}");
    };
    let mut kept = 0;
    for Done { object, what } in done {
        match what {
            What::Created => line(create, object.clone()),
            What::Kept => kept += 1,
            What::InTheWay { found } => line("left", format!("{object}: {found}")),
            What::Differs { changed, left } => {
                for Difference { field, found, wanted } in changed {
                    line(change, format!("{object}: {field}: {found} to {wanted}"));
                }
                for Difference { field, found, wanted } in left {
                    line("left", format!("{object}: {field}: is {found}, not {wanted}"));
                }
            }
        }
    }
    if kept > 0 {
        line("as it should", format!("{kept} of {} objects", done.len()));
    }
    text
}
