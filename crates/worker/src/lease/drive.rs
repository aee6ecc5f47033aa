//! Taking, keeping and giving back a name, over any bucket.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{LeaseBucket, LeaseError, Revision};

use super::term::{Conflict, Term};
use super::{LeaseTimings, LeaseValue, Way};

/// One attempt to renew; then the next one is sent, as the answer may have been lost.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Wait after an attempt that failed at once.
const RETRY: Duration = Duration::from_millis(250);

/// How a term ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Somebody else has the name, or might by now.
    Lost(String),
    /// It is to be resigned, and may still be one's own.
    Told(Term),
}

/// Writes a key in a way that was decided on. `Ok(None)` if another was faster.
pub(crate) async fn take(
    bucket: &dyn LeaseBucket,
    key: String,
    value: &LeaseValue,
    way: Way,
) -> Result<Option<Term>, LeaseError> {
    let (sent, bytes) = (Instant::now(), value.to_bytes());
    let written = match way {
        Way::Create => bucket.create(&key, bytes).await,
        Way::Over(last) => bucket.update(&key, bytes, last).await,
        Way::Held => return Ok(None),
    };
    match written {
        Ok(token) => Ok(Some(Term::new(key, value, token, sent))),
        Err(LeaseError::Conflict { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Renews until the term is lost or `stop`, and at once when there is something new to say; a renewal that hangs keeps
/// nothing from ending.
pub(crate) async fn hold(
    bucket: Arc<dyn LeaseBucket>,
    mut term: Term,
    mut values: watch::Receiver<Bytes>,
    timings: LeaseTimings,
    stop: CancellationToken,
) -> Ended {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ended::Told(term),
            Ok(()) = values.changed() => {}
            () = sleep_until(term.renew_at(timings)) => {}
        }
        let deadline = term.ends_at(timings);
        // One that stood still must not go on as if it had renewed: others have counted it out.
        if Instant::now() >= deadline {
            return Ended::Lost("it was not renewed in time".to_owned());
        }
        term.value = values.borrow_and_update().clone();
        let renewed = tokio::select! {
            biased;
            () = stop.cancelled() => return Ended::Told(term),
            renewed = timeout_at(deadline, renew(&*bucket, &mut term)) => renewed,
        };
        match renewed {
            Ok(Ok(())) => {}
            Ok(Err(lost)) => return Ended::Lost(lost),
            Err(_elapsed) => return Ended::Lost("it could not be renewed in time".to_owned()),
        }
        // A process that stood still must not take its own late answer for good.
        if Instant::now() >= term.ends_at(timings) {
            return Ended::Lost("it was renewed too late".to_owned());
        }
    }
}

/// Tries until a renewal succeeds or the name is another's. Safe to cancel: what was learnt is in the term.
async fn renew(bucket: &dyn LeaseBucket, term: &mut Term) -> Result<(), String> {
    loop {
        let sent = Instant::now();
        match timeout(ATTEMPT, bucket.update(&term.key, term.value.clone(), term.last)).await {
            Ok(Ok(revision)) => {
                term.renewed(revision, sent);
                return Ok(());
            }
            Ok(Err(LeaseError::Conflict { .. })) => match timeout(ATTEMPT, bucket.get(&term.key)).await {
                Ok(Ok(entry)) => {
                    if term.conflicted(entry.as_ref()) == Conflict::Lost {
                        return Err("another process has written it".to_owned());
                    }
                }
                Ok(Err(error)) => failed(term, &error).await,
                Err(_elapsed) => {}
            },
            Ok(Err(error)) => failed(term, &error).await,
            Err(_elapsed) => {}
        }
    }
}

async fn failed(term: &Term, error: &LeaseError) {
    tracing::debug!(key = %term.key, error = %wavehouse_core::chain(error), "lease cannot be renewed yet");
    tokio::time::sleep(RETRY).await;
}

/// Gives a name back if it is still one's own. A name that cannot be given back lapses.
pub(crate) async fn resign(bucket: &dyn LeaseBucket, term: &Term) -> Result<(), LeaseError> {
    let conflict = match bucket.delete(&term.key, term.last).await {
        Err(error @ LeaseError::Conflict { .. }) => error,
        ended => return ended,
    };
    // An answer may have been lost: then the key is one's own at a later revision.
    let own = |revision: Revision| async move { bucket.delete(&term.key, revision).await };
    match bucket.get(&term.key).await? {
        Some(entry) if term.is_own(&entry) => own(entry.revision).await,
        Some(_) => Err(conflict),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
