//! The looks while the queue is open. A request that is refused all of a sudden says at once that something is amiss; what
//! says that all is well again is a look that finds nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use wavehouse_topology::{TopologyError, TopologyObserved, verify};

use super::{is_required, observe};
use crate::shared::Shared;

/// Between two looks while something is amiss, so that what was mended is seen soon.
const AMISS: Duration = Duration::from_secs(30);
/// Longest look.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// Looks every so often until the queue is closed.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let closed = shared.closed.clone();
    tokio::select! {
        () = closed.cancelled() => {}
        () = go_on(&shared) => {}
    }
}

async fn go_on(shared: &Shared) {
    let every = shared.options.topology_recheck;
    let (mut refusals, mut ok) = (shared.connection.refusals(), shared.topology_ok.subscribe());
    let mut seen = *refusals.borrow_and_update();
    let mut next = Instant::now() + every;
    loop {
        // The senders live as long as what they are borrowed from.
        tokio::select! {
            _changed = refusals.changed() => {
                told_of_refusals(shared, seen);
                seen = *refusals.borrow_and_update();
            }
            _changed = ok.changed() => {
                if !*ok.borrow_and_update() {
                    next = next.min(Instant::now() + AMISS.min(every));
                }
            }
            () = sleep_until(next) => {
                look_again(shared).await;
                let wait = if *ok.borrow_and_update() { every } else { AMISS.min(every) };
                next = Instant::now() + wait;
            }
        }
    }
}

/// Whether a consumer's request was refused since then; if so, something is amiss from now on.
fn told_of_refusals(shared: &Shared, since: u64) -> bool {
    let refused = shared.connection.refused_since(since);
    let mut refused = refused.iter().filter(|refused| is_consumer_request(&refused.subject)).peekable();
    let any = refused.peek().is_some();
    for refused in refused {
        shared.topology_fault(&format!("the user may not publish to {}", refused.subject));
    }
    any
}

/// `$JS.API.CONSUMER.…` or `$JS.<domain>.API.CONSUMER.…`.
fn is_consumer_request(subject: &str) -> bool {
    let Some(rest) = subject.strip_prefix("$JS.") else { return false };
    let in_domain = rest.split_once('.').is_some_and(|(_, rest)| rest.starts_with("API.CONSUMER."));
    rest.starts_with("API.CONSUMER.") || in_domain
}

async fn look_again(shared: &Shared) {
    let connection = &shared.connection;
    let link = *connection.link().borrow();
    if !link.connected {
        return;
    }
    let before = *connection.refusals().borrow();
    let looked = timeout(LOOK_MAX, observe(connection, shared.spec())).await;
    if *connection.link().borrow() != link {
        // Half of it may have been asked of nobody.
        return;
    }
    match looked {
        Ok(Ok(observed)) => judge(shared, &observed, before),
        Ok(Err(error)) => tracing::warn!(%error, "message servers could not be looked at"),
        Err(_elapsed) => tracing::warn!(limit = ?LOOK_MAX, "message servers could not be looked at in time"),
    }
}

fn judge(shared: &Shared, observed: &TopologyObserved, before: u64) {
    let found = verify(shared.spec(), observed);
    if is_required(&found) {
        shared.topology_fault(&TopologyError(found).to_string());
    } else if !told_of_refusals(shared, before) && !shared.topology_ok.send_replace(true) {
        tracing::info!("what must be on the message servers is there again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_consumers_are_told_from_others() {
        for (subject, of_consumer) in [
            ("$JS.API.CONSUMER.MSG.NEXT.S.c", true),
            ("$JS.hub.API.CONSUMER.RESET.S.c", true),
            ("$JS.API.STREAM.NAMES", false),
            ("$JS.hub.API.STREAM.NAMES", false),
            ("wh.live.x", false),
        ] {
            assert_eq!(is_consumer_request(subject), of_consumer, "{subject}");
        }
    }
}
