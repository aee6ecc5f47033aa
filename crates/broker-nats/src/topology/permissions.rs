//! What the connecting user may not do, found out by requests that the servers reject for what they say: none of them
//! delivers a row, takes a pin or removes a letter. A refused publish is never answered; the connection hears of it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use wavehouse_nats::{CallError, Connection, JetStream};
use wavehouse_topology::{Refusal, TopologyObserved, TopologySpec};

/// Longest wait for an answer or a refusal.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Requests on their way at once.
const AT_ONCE: usize = 64;
/// Not JSON, so that it is rejected before anything is done.
const NONSENSE: &[u8] = b"-";

/// Everything that is refused.
///
/// # Errors
/// [`CallError`] when neither an answer nor a refusal came.
pub(super) async fn refusals(
    connection: &Connection,
    spec: &TopologySpec,
    observed: &TopologyObserved,
) -> Result<Vec<Refusal>, CallError> {
    let jetstream = connection.jetstream().with_timeout(PROBE_TIMEOUT);
    let mut asked = Vec::new();
    for stream in &observed.streams {
        for durable in &stream.consumers {
            asked.push(durable_refusal(&jetstream, stream.name().to_owned(), durable.name.clone()));
        }
    }
    let refused: Vec<Option<Refusal>> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    let mut refused: Vec<Refusal> = refused.into_iter().flatten().collect();
    let letters = spec.dlq_stream();
    if observed.stream(&letters).is_some() {
        for request in ["GET", "DELETE"] {
            let request = format!("STREAM.MSG.{request}.{letters}");
            if let Some(subject) = probe(&jetstream, &request, Bytes::from_static(NONSENSE)).await? {
                refused.push(Refusal::DeadLetters(subject));
                break;
            }
        }
    }
    refused.extend(live_refusal(connection, spec).await?);
    Ok(refused)
}

/// A pull whose heartbeat is too long for it, and an unpin that names no group.
async fn durable_refusal(
    jetstream: &JetStream,
    stream: String,
    durable: String,
) -> Result<Option<Refusal>, CallError> {
    let second = 1_000_000_000_u64;
    let pull = json!({"batch": 1, "expires": second, "idle_heartbeat": second}).to_string();
    for (request, body) in [("MSG.NEXT", Bytes::from(pull)), ("UNPIN", Bytes::from_static(b"{}"))] {
        let request = format!("CONSUMER.{request}.{stream}.{durable}");
        if let Some(subject) = probe(jetstream, &request, body).await? {
            return Ok(Some(Refusal::Durable { stream, durable, subject }));
        }
    }
    Ok(None)
}

/// The subject, when it was refused.
async fn probe(jetstream: &JetStream, request: &str, body: Bytes) -> Result<Option<String>, CallError> {
    match jetstream.call::<Value>(request, body).await {
        Err(CallError::Refused { subject }) => Ok(Some(subject)),
        // Any answer says that it was let through.
        Ok(_) | Err(CallError::JetStream { .. } | CallError::Malformed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Asks a process that is not there: the servers say so, or that it may not be asked.
async fn live_refusal(connection: &Connection, spec: &TopologySpec) -> Result<Option<Refusal>, CallError> {
    let subject = spec.prefix().live("nobody");
    match connection.request(&subject, None, Bytes::new(), PROBE_TIMEOUT).await {
        Err(CallError::Refused { subject }) => Ok(Some(Refusal::Live(subject))),
        Ok(_) | Err(CallError::NoResponders { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
