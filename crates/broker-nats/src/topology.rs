//! What is on the message servers: looked at as the connecting user and judged by the rules, once before the queue opens
//! and again and again while it is open. Nothing is repaired.

mod behind;
mod observe;
mod permissions;
mod ready;
mod servers;
mod watch;

pub use behind::history_behind;
pub(crate) use behind::watch_history;
pub use observe::observe;
pub(crate) use ready::ready;
pub(crate) use watch::watch;

use wavehouse_topology::{Finding, Severity};

/// Whether anything must be mended before the queue can be used.
fn is_required(found: &[Finding]) -> bool {
    found.iter().any(|finding| finding.severity == Severity::Required)
}
