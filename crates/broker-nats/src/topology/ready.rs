//! The look before the queue opens: again and again, since servers and operator may come a moment later.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use wavehouse_nats::{CallError, Connection};
use wavehouse_topology::{Finding, TopologyError, TopologySpec, permissions_command, verify};

use super::{is_required, observe};
use crate::open::OpenError;
use crate::options::Options;

/// First wait after a look that did not satisfy; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// Longest wait between two looks.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The last look may end so long after its time.
const GRACE: Duration = Duration::from_secs(1);
/// Refused subjects that are told; one tells the rest.
const REFUSED_TOLD_MAX: usize = 5;

/// Waits until nothing that must be there is amiss. What only should be otherwise is logged.
///
/// # Errors
/// [`OpenError`] with everything that the last look found, once the time for it has passed.
pub(crate) async fn ready(connection: &Connection, options: &Options) -> Result<(), OpenError> {
    let give_up = Instant::now() + options.topology_wait;
    let left = || give_up.saturating_duration_since(Instant::now());
    let mut pause = PAUSE_MIN;
    loop {
        if !matches!(timeout(left(), connection.connected()).await, Ok(true)) {
            return Err(not_connected(connection, options));
        }
        let error = match timeout(left() + GRACE, observe(connection, &options.spec)).await {
            Ok(Ok(observed)) => match verify(&options.spec, &observed) {
                found if is_required(&found) => OpenError::Topology(TopologyError(found)),
                found => {
                    found.iter().for_each(advise);
                    return Ok(());
                }
            },
            Ok(Err(error)) => unchecked(connection, &options.spec, Some(&error)),
            Err(_elapsed) => unchecked(connection, &options.spec, None),
        };
        if left().is_zero() {
            return Err(error);
        }
        sleep(pause.min(left())).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn advise(finding: &Finding) {
    tracing::warn!(rule = finding.rule, "{finding}");
}

fn not_connected(connection: &Connection, options: &Options) -> OpenError {
    OpenError::NotConnected {
        urls: options.connect.urls.join(", "),
        waited_ms: u64::try_from(options.topology_wait.as_millis()).unwrap_or(u64::MAX),
        reason: trouble(connection.trouble().as_deref()),
    }
}

/// The client tells of a socket's error in two words.
fn trouble(seen: Option<&str>) -> String {
    match seen {
        Some("IO error") => "nothing listens there, or there is no such host".to_owned(),
        Some(error) => error.to_owned(),
        None => "nothing answered".to_owned(),
    }
}

/// A look that came to nothing. A request that is refused is never answered, so refusals tell why.
fn unchecked(connection: &Connection, spec: &TopologySpec, error: Option<&CallError>) -> OpenError {
    let seen = error.map_or_else(|| "it took too long".to_owned(), ToString::to_string);
    let refused = connection.refused_since(0);
    let subjects: Vec<&str> =
        refused.iter().take(REFUSED_TOLD_MAX).map(|refused| refused.subject.as_str()).collect();
    let reason = if subjects.is_empty() {
        seen
    } else {
        let more = refused.len().saturating_sub(subjects.len());
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let command = permissions_command(spec);
        format!(
            "{seen}; the user may not use {}{more}: give it the output of `{command}`",
            subjects.join(", ")
        )
    };
    OpenError::Unchecked { reason }
}
