//! One look at the servers: the streams that hold subjects of ours, their durables, the history, the lease bucket, and
//! what the connecting user may not do.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use wavehouse_nats::{CallError, Connection, JetStream, found};
use wavehouse_topology::{
    ConsumerInfo, GoneStream, StreamInfo, StreamObserved, TopologyObserved, TopologySpec,
};

use super::permissions;
use super::servers::{Leader, leader, servers};

/// Requests on their way at once.
const AT_ONCE: usize = 32;

/// Looks at everything that the rules judge, as the connecting user. Nothing is delivered, pinned, changed or removed.
///
/// Refused publishes below `<prefix>.live.` must be among those that the connection records.
///
/// # Errors
/// [`CallError`] when a request came to nothing or was refused; what is not there is no error.
pub async fn observe(connection: &Connection, spec: &TopologySpec) -> Result<TopologyObserved, CallError> {
    let jetstream = connection.jetstream();
    let server = connection
        .server()
        .ok_or_else(|| CallError::NotConnected { subject: jetstream.subject("STREAM.NAMES") })?;
    let max_payload_bytes = server.max_payload_bytes;
    let mut look = Look { jetstream, spec, seen: BTreeSet::new(), leaders: BTreeSet::new() };
    let mut observed = TopologyObserved { max_payload_bytes, ..TopologyObserved::default() };
    look.streams(&mut observed).await?;
    observed.servers = servers(connection, server, look.leaders).await;
    observed.refusals = permissions::refusals(connection, spec, &observed).await?;
    Ok(observed)
}

/// A look under way.
struct Look<'a> {
    jetstream: JetStream,
    spec: &'a TopologySpec,
    /// Streams that were looked at.
    seen: BTreeSet<String>,
    /// Servers that lead a durable.
    leaders: BTreeSet<Leader>,
}

impl Look<'_> {
    async fn streams(&mut self, observed: &mut TopologyObserved) -> Result<(), CallError> {
        let prefix = self.spec.prefix();
        let ingest = prefix.ingest_filter();
        for filter in [ingest.clone(), prefix.dead_letter_filter()] {
            for name in self.jetstream.stream_names(Some(&filter)).await? {
                if !self.seen.insert(name.clone()) {
                    continue;
                }
                match self.stream(&name, filter == ingest).await? {
                    Some(stream) => observed.streams.push(stream),
                    None => observed.gone.push(GoneStream { name, listed_for: filter.clone() }),
                }
            }
        }
        let bucket = self.spec.input().coord_on_nats.then(|| self.spec.coord_stream());
        for name in std::iter::once(self.spec.history_stream()).chain(bucket) {
            if self.seen.insert(name.clone()) {
                observed.streams.extend(self.stream(&name, false).await?);
            }
        }
        Ok(())
    }

    /// A stream, with the durables of its shards when they are asked for; `None` when it is not there.
    async fn stream(&mut self, name: &str, durables: bool) -> Result<Option<StreamObserved>, CallError> {
        let request = format!("STREAM.INFO.{name}");
        let Some(info) = found(self.jetstream.call::<StreamInfo>(&request, Bytes::new()).await)? else {
            return Ok(None);
        };
        let consumers = if durables { self.durables(name).await? } else { Vec::new() };
        Ok(Some(StreamObserved { info, consumers }))
    }

    async fn durables(&mut self, stream: &str) -> Result<Vec<ConsumerInfo>, CallError> {
        let names = found(self.jetstream.consumer_names(stream).await)?.unwrap_or_default();
        let mut names: Vec<_> =
            names.into_iter().filter_map(|name| Some((self.spec.shard_of(&name)?, name))).collect();
        names.sort_unstable();
        let jetstream = &self.jetstream;
        let requests = names.into_iter().map(|(_, durable)| format!("CONSUMER.INFO.{stream}.{durable}"));
        let asked = requests.map(async |request| {
            let answer = found(jetstream.call::<Value>(&request, Bytes::new()).await)?;
            answer.map(|answer| understood(jetstream, &request, answer)).transpose()
        });
        let answers: Vec<_> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
        let (leaders, durables): (Vec<_>, Vec<_>) = answers.into_iter().flatten().unzip();
        self.leaders.extend(leaders.into_iter().flatten());
        Ok(durables)
    }
}

/// Who answered, and what.
fn understood(
    jetstream: &JetStream,
    request: &str,
    answer: Value,
) -> Result<(Option<Leader>, ConsumerInfo), CallError> {
    let leader = leader(&answer);
    let info = serde_json::from_value(answer).map_err(|error| CallError::Malformed {
        subject: jetstream.subject(request),
        why: error.to_string(),
    })?;
    Ok((leader, info))
}
