//! Opening the queue: connect, wait until everything is there as it must be, and find each partition's stream by its
//! subject.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::RowBudget;
use wavehouse_core::{FaultKind, PartitionId};
use wavehouse_nats::{CallError, Connection, InvalidOptions, JetStream};
use wavehouse_topology::TopologyError;

use crate::gaps::Gaps;
use crate::logs::log_id;
use crate::options::Options;
use crate::pool::Pool;
use crate::shared::{Partition, Shared};
use crate::topology::ready;

/// What a message's headers, its subject and those that servers add to its copy may take, in bytes.
const OVERHEAD_BYTES: u64 = 4 << 10;

/// Why the queue could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// What the operator wrote cannot work; nothing was dialled.
    #[error("options of the message servers cannot work")]
    Invalid(#[source] InvalidOptions),
    /// No server took the connection in time.
    #[error("no message server is connected after {waited_ms} ms: {urls} ({reason})")]
    NotConnected {
        /// Where they were looked for, without secrets.
        urls: String,
        /// How long was waited, in milliseconds.
        waited_ms: u64,
        /// What was seen last.
        reason: String,
    },
    /// Something that must be there is not, or is otherwise than it must be.
    #[error("message servers lack what the queue needs")]
    Topology(#[source] TopologyError),
    /// The servers could not be looked at.
    #[error("message servers could not be looked at: {reason}")]
    Unchecked {
        /// What was seen.
        reason: String,
    },
}

impl OpenError {
    /// What the caller should do.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        match self {
            Self::Invalid(_) | Self::Topology(_) => FaultKind::Stop,
            Self::NotConnected { .. } | Self::Unchecked { .. } => FaultKind::Retry { after: None },
        }
    }
}

impl From<CallError> for OpenError {
    fn from(error: CallError) -> Self {
        Self::Unchecked { reason: error.to_string() }
    }
}

/// Connects, and gives back what all parts share.
pub(crate) async fn open(options: Options) -> Result<Arc<Shared>, OpenError> {
    let connection = Connection::open(&options.connection()).await.map_err(OpenError::Invalid)?;
    let found = find(&options, &connection).await;
    let (partitions, block_bytes_max) = match found {
        Ok(found) => found,
        Err(error) => {
            connection.close().await;
            return Err(error);
        }
    };
    Ok(Arc::new(Shared {
        jetstream: connection.jetstream(),
        connection,
        session: random_name()?,
        partitions,
        extras: Mutex::new(HashMap::new()),
        topology_ok: watch::Sender::new(true),
        history_behind: watch::Sender::new(None),
        gaps: Gaps::default(),
        block_bytes_max,
        pool: Pool::new(RowBudget { rows: options.held_rows_max, bytes: options.held_bytes_max }),
        owners: AtomicU64::new(0),
        closed: CancellationToken::new(),
        options,
    }))
}

async fn find(options: &Options, connection: &Connection) -> Result<(Vec<Partition>, usize), OpenError> {
    ready(connection, options).await?;
    let jetstream = connection.jetstream();
    let mut partitions = Vec::new();
    let mut message_bytes_max = u64::MAX;
    for id in (0..options.spec.placement().partitions()).map(PartitionId) {
        let (partition, size_max) = find_partition(options, &jetstream, id).await?;
        message_bytes_max = message_bytes_max.min(size_max);
        partitions.push(partition);
    }
    let payload = connection
        .server()
        .map_or(wavehouse_topology::limits::PAYLOAD_BYTES, |server| server.max_payload_bytes);
    // A pull asks for so many bytes; what is larger would never be delivered.
    let largest = payload.min(message_bytes_max).min(options.spec.input().pull_bytes);
    Ok((partitions, usize::try_from(largest.saturating_sub(OVERHEAD_BYTES)).unwrap_or(usize::MAX)))
}

/// The stream that holds a partition's subjects, and the largest message that it takes.
async fn find_partition(
    options: &Options,
    jetstream: &JetStream,
    id: PartitionId,
) -> Result<(Partition, u64), OpenError> {
    let probe = options.spec.prefix().partition_probe(id);
    let names = jetstream.stream_names(Some(&probe)).await?;
    let [stream] = names.as_slice() else {
        let reason = format!("{} streams hold {probe}, one must", names.len());
        return Err(OpenError::Unchecked { reason });
    };
    let info = jetstream.stream_info(stream).await?;
    let number = |field: &str| info.config.get(field).and_then(serde_json::Value::as_u64).filter(|n| *n > 0);
    let partition = Partition {
        id,
        log: log_id(stream, &info.created),
        bytes_max: number("max_bytes").unwrap_or(0),
        stream: stream.clone(),
    };
    Ok((partition, number("max_msg_size").unwrap_or(u64::MAX)))
}

/// 128 random bits as text.
fn random_name() -> Result<String, OpenError> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| OpenError::Unchecked { reason: format!("no randomness: {error}") })?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _written = write!(text, "{byte:02x}");
        text
    }))
}
