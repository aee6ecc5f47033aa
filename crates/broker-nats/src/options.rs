//! What a process is told of its queue.

use std::time::Duration;

use wavehouse_nats::ConnectOptions;
use wavehouse_topology::TopologySpec;

/// Rows that all units of a process hold together, unless told otherwise.
const HELD_ROWS: u64 = 200_000;
/// Bytes of lines that all units of a process hold together, unless told otherwise.
const HELD_BYTES: u64 = 256 << 20;
/// Bytes of blocks that wait to be stored, unless told otherwise.
const PENDING_BYTES: u64 = 64 << 20;
/// Bytes of blocks in one message, unless told otherwise.
const MESSAGE_BYTES: usize = 128 << 10;
/// Blocks that wait to be stored, unless told otherwise.
const PENDING_BLOCKS: usize = 65_536;
/// How long a boot waits for the servers and what must be on them, unless told otherwise.
const TOPOLOGY_WAIT: Duration = Duration::from_secs(60);
/// Between two looks at what is on the servers while the queue is open, unless told otherwise.
const TOPOLOGY_RECHECK: Duration = Duration::from_secs(5 * 60);

/// How a process uses the queue.
#[derive(Debug, Clone)]
pub struct Options {
    /// What must exist on the servers.
    pub spec: TopologySpec,
    /// How to reach them. Prefix of answers, domain, and whose refusals are recorded follow from the spec.
    pub connect: ConnectOptions,
    /// How long opening waits for the servers and for what must be on them.
    pub topology_wait: Duration,
    /// How often what is on the servers is looked at again while the queue is open; every 30 s at the least while
    /// something is amiss.
    pub topology_recheck: Duration,
    /// How long one attempt to publish waits for its answer.
    pub publish_timeout: Duration,
    /// How long a delivery may stay unsettled until it is handed out again; the durable's own time without it, and never
    /// longer than that.
    pub ack_wait: Option<Duration>,
    /// Blocks of a table that wait travel together in one message up to so many bytes; a larger block travels alone.
    pub message_bytes_target: usize,
    /// Most bytes of blocks that wait to be stored.
    pub pending_bytes_max: u64,
    /// Most blocks that wait to be stored.
    pub pending_blocks_max: usize,
    /// Most rows that all units of this process hold together.
    pub held_rows_max: u64,
    /// Most bytes of lines that all units of this process hold together.
    pub held_bytes_max: u64,
}

impl Options {
    /// Options with everything usual.
    #[must_use]
    pub fn new(spec: TopologySpec, connect: ConnectOptions) -> Self {
        let publish_timeout = spec.input().publish_timeout;
        Self {
            spec,
            connect,
            topology_wait: TOPOLOGY_WAIT,
            topology_recheck: TOPOLOGY_RECHECK,
            publish_timeout,
            ack_wait: None,
            message_bytes_target: MESSAGE_BYTES,
            pending_bytes_max: PENDING_BYTES,
            pending_blocks_max: PENDING_BLOCKS,
            held_rows_max: HELD_ROWS,
            held_bytes_max: HELD_BYTES,
        }
    }

    /// How to connect, with all that the spec decides.
    pub(crate) fn connection(&self) -> ConnectOptions {
        let prefix = self.spec.prefix();
        ConnectOptions {
            inbox_prefix: format!("_INBOX_{prefix}"),
            js_domain: self.spec.input().js_domain.clone(),
            record_refusals_of: vec![format!("{prefix}.live.")],
            ..self.connect.clone()
        }
    }
}
