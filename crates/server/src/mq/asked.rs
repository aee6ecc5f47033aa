//! Which servers are asked, and what should be there: by flags, or as the configuration here says.

use std::time::Duration;

use clap::Args;
use wavehouse_nats::{ConnectOptions, Connection};
use wavehouse_topology::{TopologyInput, TopologySpec, parse_duration};

use super::flags::{NameFlags, ObjectFlags, above_zero, at_least_one};
use super::servers::{ServerFlags, connect};
use super::{Refusal, Surroundings, USAGE, check};
use crate::config::{Queue, inbox_prefix};

/// Flags of the commands that look at servers. With `--server` the flags say everything; without it the configuration
/// does.
#[derive(Debug, Args)]
pub(super) struct LookFlags {
    #[command(flatten)]
    servers: ServerFlags,
    #[command(flatten)]
    names: NameFlags,
    #[command(flatten)]
    objects: ObjectFlags,
    /// Partitions (mq.nats.partitions) [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one)]
    partitions: Option<u32>,
    /// Shards of each partition (mq.nats.shards) [default: 32]
    #[arg(long, value_name = "V", allow_negative_numbers = true, value_parser = at_least_one)]
    shards: Option<u32>,
    /// How long a publish waits for its answer (mq.nats.publish_timeout).
    #[arg(long, default_value = "5s", value_name = "DURATION", allow_hyphen_values = true, value_parser = above_zero)]
    publish_timeout: Duration,
    /// How long a claim of a row id lasts (dedupe.lease), 0 for none.
    #[arg(long, default_value = "0s", value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_duration)]
    dedupe_lease: Duration,
    /// JetStream domain that requests are sent to, if any.
    #[arg(long, value_name = "TOKEN")]
    js_domain: Option<String>,
}

/// The servers, connected, and what should be there.
pub(super) struct Asked {
    pub(super) connection: Connection,
    pub(super) spec: TopologySpec,
}

impl LookFlags {
    /// Connects.
    pub(super) async fn ask(&self, around: &Surroundings<'_>) -> Result<Asked, Refusal> {
        let (options, spec) = if self.servers.servers.is_empty() {
            configured(around)?
        } else {
            let spec = check(self.input())?;
            let inbox = inbox_prefix(spec.prefix().as_str());
            (self.servers.options(self.js_domain.clone(), inbox), spec)
        };
        let record_refusals_of = vec![format!("{}.live.", spec.prefix())];
        let options = ConnectOptions { record_refusals_of, ..options };
        Ok(Asked { connection: connect(&options, self.servers.wait).await?, spec })
    }

    /// Connects where there are servers: those that were named, or those of the configuration here unless counts are given.
    pub(super) async fn ask_if_any(&self, around: &Surroundings<'_>) -> Result<Option<Asked>, Refusal> {
        let counted = self.partitions.is_some() || self.shards.is_some();
        let configured = || (around.config)().is_ok_and(|config| matches!(config.queue, Queue::Nats(_)));
        if self.servers.servers.is_empty() && (counted || !configured()) {
            return Ok(None);
        }
        self.ask(around).await.map(Some)
    }

    /// What the flags ask for.
    pub(super) fn input(&self) -> TopologyInput {
        let usual = TopologyInput::default();
        TopologyInput {
            partitions: self.partitions.map_or(usual.partitions, u64::from),
            shards: self.shards.map_or(usual.shards, u64::from),
            publish_timeout: self.publish_timeout,
            dedupe_lease: self.dedupe_lease,
            js_domain: self.js_domain.clone(),
            ..self.objects.of(self.names.input())
        }
    }
}

fn configured(around: &Surroundings<'_>) -> Result<(ConnectOptions, TopologySpec), Refusal> {
    let text = match (around.config)() {
        Ok(config) => match config.queue {
            Queue::Nats(nats) => return Ok((nats.connect, nats.topology)),
            Queue::Embedded => "mq.backend is embedded here".to_owned(),
        },
        Err(findings) => findings.trim_end().to_owned(),
    };
    let text = format!(
        "mq: name the servers with --server nats://host:4222, or run this where a server is configured: {text}"
    );
    Err(Refusal { text, code: USAGE })
}
