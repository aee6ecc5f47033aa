//! The versions of all servers that can be asked: whichever leads a durable must know how it is read.

use std::collections::BTreeSet;

use serde_json::Value;
use wavehouse_nats::{Connection, ServerFacts};
use wavehouse_topology::ServerObserved;

/// Where a server writes its version into what it answers about a consumer.
const VERSION: &str = "_nats.ver";

/// A server that leads a durable, and its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Leader {
    name: String,
    version: String,
}

/// Who answered about a consumer; `None` where there is no cluster or the server does not say.
pub(super) fn leader(info: &Value) -> Option<Leader> {
    let name = info.get("cluster")?.get("leader")?.as_str().filter(|name| !name.is_empty())?;
    let version = info.get("config")?.get("metadata")?.get(VERSION)?.as_str()?;
    Some(Leader { name: name.to_owned(), version: version.to_owned() })
}

/// The connected server first, then those that said something of themselves, then those that did not.
pub(super) async fn servers(
    connection: &Connection,
    connected: ServerFacts,
    leaders: BTreeSet<Leader>,
) -> Vec<ServerObserved> {
    let mut known = BTreeSet::from([connected.name]);
    let mut found = vec![ServerObserved { name: String::new(), version: Some(connected.version) }];
    let mut silent = Vec::new();
    let mut told: Vec<Leader> = leaders.into_iter().collect();
    for (address, banner) in connection.banners().await {
        match banner {
            Some(banner) => told.push(Leader { name: banner.name, version: banner.version }),
            None => silent.push(ServerObserved { name: address, version: None }),
        }
    }
    for Leader { name, version } in told {
        if known.insert(name.clone()) {
            found.push(ServerObserved { name, version: Some(version) });
        }
    }
    found.append(&mut silent);
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn leaders_are_known_by_what_they_answer() {
        let info = |leader: Value, metadata: Value| {
            super::leader(&json!({"cluster": {"leader": leader}, "config": {"metadata": metadata}}))
        };
        let known = Leader { name: "n1".to_owned(), version: "2.14.6".to_owned() };
        assert_eq!(info(json!("n1"), json!({"_nats.ver": "2.14.6"})), Some(known));
        assert_eq!(info(json!(""), json!({"_nats.ver": "2.14.6"})), None);
        assert_eq!(info(json!("n1"), json!({})), None);
        assert_eq!(leader(&json!({"config": {"metadata": {"_nats.ver": "2.14.6"}}})), None);
    }
}
