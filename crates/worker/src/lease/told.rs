//! What a lease tells whoever looks on: an operator's command, say.

use std::collections::BTreeSet;
use std::time::Duration;

use wavehouse_core::{Placement, UnitId};

use super::{LeaseTimings, LeaseValue, View};

/// A process that shares the units, as its lease tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberTold {
    /// Its instance id; empty where the lease cannot be read.
    pub instance_id: String,
    /// Its version, if it says.
    pub version: Option<String>,
    /// How many partitions and shards it was told of, if it says.
    pub placement: Option<Placement>,
    /// How long its lease counts after it was renewed.
    pub duration: Duration,
    /// The units that it has, or is about to have or to give up.
    pub units: BTreeSet<UnitId>,
}

impl MemberTold {
    /// Reads the value of a member's lease.
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        let LeaseValue { holder, view, version, duration, held, .. } =
            LeaseValue::parse(value, LeaseTimings::default().duration());
        let placement = view.map(|View(placement)| placement);
        Self { instance_id: holder, version, placement, duration, units: held }
    }
}
