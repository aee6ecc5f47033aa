//! Which parts a process runs, and which choices of them can work on which queue.

use std::fmt;

use super::Finding;
use super::layers::Layers;
use super::resolve::subject;
use super::values::Expected;

/// The parts that a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Roles {
    /// Takes rows, serves streams and the operator's routes.
    pub(crate) api: bool,
    /// Writes rows to ClickHouse.
    pub(crate) ingest: bool,
    /// Frees disk of the embedded queue.
    pub(crate) sweeper: bool,
}

impl Roles {
    /// Every part.
    pub(crate) const ALL: Self = Self { api: true, ingest: true, sweeper: true };
}

/// As a list, for logs.
impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [("api", self.api), ("ingest", self.ingest), ("sweeper", self.sweeper)];
        let names: Vec<&str> = names.iter().filter_map(|(name, on)| on.then_some(*name)).collect();
        f.write_str(&names.join(","))
    }
}

/// What was chosen for the queue and for the leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backends {
    /// The queue is on message servers.
    pub(super) shared_queue: bool,
    /// So are the leases.
    pub(super) shared_leases: bool,
}

const LEGAL: &str = "some of api, ingest and sweeper, each once";

/// Reads a list of roles, in any order.
pub(super) fn parse(names: &[String]) -> Result<Roles, Expected> {
    let mut roles = Roles { api: false, ingest: false, sweeper: false };
    for name in names {
        let role = match name.as_str() {
            "api" => &mut roles.api,
            "ingest" => &mut roles.ingest,
            "sweeper" => &mut roles.sweeper,
            _ => return Err(format!("{LEGAL}; {name:?} is none of them")),
        };
        if *role {
            return Err(format!("{LEGAL}; {name} is there twice"));
        }
        *role = true;
    }
    if names.is_empty() { Err(LEGAL.to_owned()) } else { Ok(roles) }
}

/// Everything that cannot work together.
pub(super) fn check(roles: Roles, backends: Backends, layers: &Layers) -> Vec<Finding> {
    let Backends { shared_queue, shared_leases } = backends;
    let Roles { api, ingest, .. } = roles;
    let mut found = Vec::new();
    let mut refuse = |path: &str, what: &str, expected: &str, fix: &str| {
        found.push(Finding::new(subject(path, layers), what, expected, fix));
    };
    if !shared_queue && roles != Roles::ALL {
        refuse(
            "roles",
            "leaves parts out",
            "all of api, ingest and sweeper: no other process can reach the embedded queue",
            "remove it, or set mq.backend to nats",
        );
    }
    if !shared_queue && shared_leases {
        refuse(
            "coord.backend",
            "is nats while mq.backend is embedded",
            "local: leases ride on the connection of the queue",
            "remove it, or set mq.backend to nats",
        );
    }
    if shared_queue && !shared_leases && ingest {
        refuse(
            "coord.backend",
            "is local while mq.backend is nats and the role ingest runs here",
            "nats: ingest processes share the shards through leases",
            "set WH_COORD_BACKEND=nats",
        );
    }
    if shared_queue && !api && !ingest {
        refuse(
            "roles",
            "is sweeper alone while mq.backend is nats",
            "api, ingest or both: message servers free what is written by themselves, so nothing would run",
            "set WH_ROLES=api, ingest or api,ingest",
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(text: &str) -> Result<Roles, Expected> {
        parse(&text.split_terminator(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn lists_of_roles() {
        assert_eq!(roles("sweeper,ingest,api"), Ok(Roles::ALL));
        assert_eq!(roles("api"), Ok(Roles { api: true, ingest: false, sweeper: false }));
        for (text, told) in
            [("", "each once"), ("api,worker", "\"worker\" is none"), ("api,api", "api is there twice")]
        {
            assert!(roles(text).unwrap_err().contains(told), "{text}");
        }
    }

    /// Every choice of parts on every choice of backends: what is refused, by key.
    #[test]
    fn what_can_work() {
        let choices =
            ["api,ingest,sweeper", "api,ingest", "api,sweeper", "ingest,sweeper", "api", "ingest", "sweeper"];
        for (shared_queue, shared_leases, refused) in [
            (false, false, ["", "roles", "roles", "roles", "roles", "roles", "roles"]),
            (
                false,
                true,
                [
                    "coord.backend",
                    "roles coord.backend",
                    "roles coord.backend",
                    "roles coord.backend",
                    "roles coord.backend",
                    "roles coord.backend",
                    "roles coord.backend",
                ],
            ),
            (
                true,
                false,
                ["coord.backend", "coord.backend", "", "coord.backend", "", "coord.backend", "roles"],
            ),
            (true, true, ["", "", "", "", "", "", "roles"]),
        ] {
            for (choice, refused) in choices.iter().zip(refused) {
                let backends = Backends { shared_queue, shared_leases };
                let found = check(roles(choice).unwrap(), backends, &Layers::new());
                let keys: Vec<&str> = found.iter().map(|finding| finding.subject.as_str()).collect();
                assert_eq!(keys.join(" "), refused, "{choice} on {backends:?}");
            }
        }
    }
}
