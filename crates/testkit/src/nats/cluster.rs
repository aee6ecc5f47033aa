//! Three message servers that form a cluster, and ways to make it suffer.
//!
//! Servers dial each other through [`Link`]s of ours, so that a test can cut a server off from the others while its
//! clients stay connected. Servers do not tell clients or each other of further addresses;
//! what a test connects to is what it named.

use std::time::Duration;

use super::{NATS_VERSION, NatsServer};
use crate::link::Link;
use crate::wait::{free_port, wait_for};

/// Servers of a cluster; the fewest that outlive the loss of one.
const NODES: usize = 3;
/// Where servers say that they are reached. They tell each other, and one that heard of another before it dialled it would
/// go past the links; here it goes nowhere, and dials as it was told.
const ADVERTISED: &str = "127.0.0.1:1";
/// A cluster elects within a few seconds; a loaded machine takes longer.
const ELECTION_MS_MAX: u64 = 60_000;

/// A cluster of three, each with a store of its own.
pub struct NatsCluster {
    nodes: Vec<NatsServer>,
    /// What leads from one server to another, by their numbers.
    links: Vec<((usize, usize), Link)>,
}

impl NatsCluster {
    /// Starts three servers of [`NATS_VERSION`] with JetStream and this configuration in each, accounts for instance, and
    /// waits until they have a leader.
    pub async fn start(more: &str) -> Self {
        let routes: Vec<u16> = (0..NODES).map(|_| free_port()).collect();
        let mut links = Vec::new();
        for from in 0..NODES {
            for to in (0..NODES).filter(|to| *to != from) {
                links.push(((from, to), Link::to(routes[to])));
            }
        }
        let mut nodes = Vec::new();
        for (node, port) in routes.iter().enumerate() {
            let dialled: Vec<String> = links
                .iter()
                .filter(|((from, _), _)| *from == node)
                .map(|(_, link)| format!("\"nats://127.0.0.1:{}\"", link.port()))
                .collect();
            let head = format!(
                "server_name: n{node}\ncluster {{ name: c, listen: \"127.0.0.1:{}\", no_advertise: true, advertise: \"{ADVERTISED}\", \
                 pool_size: -1, routes: [{}] }}\n",
                port,
                dialled.join(", ")
            );
            let config = head + &NatsServer::jetstream_config(more);
            nodes.push(NatsServer::start_version(NATS_VERSION, &config).await);
        }
        let cluster = Self { nodes, links };
        cluster.wait_for_leader().await;
        cluster
    }

    /// Where the servers listen, by number.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(NatsServer::url).collect()
    }

    /// One of the servers, from 0.
    #[must_use]
    pub fn node(&self, node: usize) -> &NatsServer {
        &self.nodes[node]
    }

    /// The same, to be ended, restarted or reconfigured.
    pub fn node_mut(&mut self, node: usize) -> &mut NatsServer {
        &mut self.nodes[node]
    }

    /// Cuts a server off from the others; its clients stay.
    pub fn cut(&self, node: usize) {
        self.of(node).for_each(Link::cut);
    }

    /// Lets a server that was cut off find the others again.
    pub fn heal(&self, node: usize) {
        self.of(node).for_each(Link::heal);
    }

    /// The number of the server called so in an answer of the cluster (`n1`).
    #[must_use]
    pub fn number(&self, server_name: &str) -> Option<usize> {
        server_name.strip_prefix('n')?.parse().ok().filter(|number| *number < NODES)
    }

    fn of(&self, node: usize) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |((from, to), _)| *from == node || *to == node).map(|(_, link)| link)
    }

    async fn wait_for_leader(&self) {
        wait_for("the cluster to have a leader", Duration::from_millis(ELECTION_MS_MAX), async || {
            self.nodes.iter().any(|node| node.log().contains("Self is new JetStream cluster metadata leader"))
        })
        .await;
    }
}
