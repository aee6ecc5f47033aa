//! Sends batches and settles them in the order of the file.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::feed::{Batch, Row};
use super::post::{Target, Verdict, judge};
use super::progress::Progress;
use super::refused::{Refusal, RefusedFile};
use super::state::{Counts, StateError, StateFile};

/// An address that never answered is given up after this long, since it is likely a wrong one.
const FIRST_ANSWER_PATIENCE: Duration = Duration::from_secs(15);

/// How long an interrupted load waits for answers to what it has sent, so that nothing is sent twice later.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// How a load is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Requests in flight at once. 1 keeps the order of the file.
    pub(super) parallel: usize,
    /// How long one batch may be refused or unanswered before the load gives up.
    pub(super) patience: Duration,
}

/// Why a load stopped before its end.
#[derive(Debug, Error)]
pub(super) enum SendError {
    /// The server says that trying again would not help.
    #[error("the server refuses the load: {said}")]
    Refused {
        /// Its words.
        said: String,
    },
    /// Nothing was taken for too long.
    #[error("nothing was taken for {patience_s} s; the last answer: {why}")]
    Patience {
        /// How long was waited.
        patience_s: u64,
        /// The last failure.
        why: String,
    },
    /// The refusals file cannot be written.
    #[error("cannot write {path}")]
    RefusedFile {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The state file cannot be written.
    #[error("cannot keep what was acknowledged")]
    State(#[source] StateError),
    /// A sender ended without a result.
    #[error("a sender died")]
    Sender(#[source] tokio::task::JoinError),
    /// The person asked for it.
    #[error("interrupted")]
    Interrupted,
}

/// What became of one batch.
#[derive(Debug, Default)]
struct Settled {
    counts: Counts,
    refusals: Vec<Refusal>,
}

/// The books of a load: what is counted, kept and shown.
pub(super) struct Books<'a> {
    /// Counts over all runs of the load.
    pub(super) counts: Counts,
    /// Where the load goes on after an interrupt; none for standard input.
    pub(super) state: Option<&'a mut StateFile>,
    /// Where refused records are written.
    pub(super) refused: &'a mut RefusedFile,
    /// What the person sees.
    pub(super) progress: Arc<Progress>,
}

impl Books<'_> {
    /// Order matters: a refusal is on disk before the place behind it is.
    fn enter(&mut self, batch: &Batch, settled: &Settled) -> Result<(), SendError> {
        self.counts.add(&settled.counts);
        self.refused.write(&settled.refusals).map_err(|source| SendError::RefusedFile {
            path: self.refused.path().display().to_string(),
            source,
        })?;
        if let Some(state) = &mut self.state {
            state.advance(batch.mark, self.counts).map_err(SendError::State)?;
        }
        self.progress.advance(&self.counts);
        Ok(())
    }
}

type Flight = (u64, Batch, Result<Settled, SendError>);

/// Batches that were answered before an earlier one.
#[derive(Default)]
struct Landing {
    early: BTreeMap<u64, (Batch, Settled)>,
    entered: u64,
}

impl Landing {
    /// Enters every batch whose turn it is by now.
    fn land(
        &mut self,
        flight: Result<Flight, tokio::task::JoinError>,
        books: &mut Books<'_>,
    ) -> Result<(), SendError> {
        let (number, batch, result) = flight.map_err(SendError::Sender)?;
        self.early.insert(number, (batch, result?));
        while let Some((batch, settled)) = self.early.remove(&self.entered) {
            books.enter(&batch, &settled)?;
            self.entered += 1;
        }
        Ok(())
    }
}

/// Sends everything that comes out of `batches`. What was settled before an error is in the books.
pub(super) async fn deliver(
    target: &Target,
    batches: &mut mpsc::Receiver<Batch>,
    pace: Pace,
    books: &mut Books<'_>,
    interrupted: impl Future<Output = ()>,
) -> Result<(), SendError> {
    let mut flights: JoinSet<Flight> = JoinSet::new();
    let mut landing = Landing::default();
    let (mut started, mut more) = (0_u64, true);
    tokio::pin!(interrupted);
    while more || !flights.is_empty() {
        tokio::select! {
            biased;
            () = &mut interrupted => {
                let last = tokio::time::timeout(LAST_ANSWERS, async {
                    while let Some(flight) = flights.join_next().await {
                        landing.land(flight, books)?;
                    }
                    Ok(())
                });
                return last.await.unwrap_or(Ok(())).and(Err(SendError::Interrupted));
            }
            Some(flight) = flights.join_next(), if !flights.is_empty() => landing.land(flight, books)?,
            batch = batches.recv(), if more && flights.len() < pace.parallel => match batch {
                None => more = false,
                Some(batch) => {
                    let (target, progress, number) = (target.clone(), Arc::clone(&books.progress), started);
                    started += 1;
                    flights.spawn(async move {
                        let result = send_batch(&target, &batch, pace.patience, &progress).await;
                        (number, batch, result)
                    });
                }
            },
        }
    }
    Ok(())
}

async fn send_batch(
    target: &Target,
    batch: &Batch,
    patience: Duration,
    progress: &Progress,
) -> Result<Settled, SendError> {
    let mut settled = Settled::default();
    for one in &batch.unsendable {
        settled.counts.refused += 1;
        settled.refusals.push(Refusal {
            record: one.number,
            error: one.problem.reason().to_owned(),
            exception_code: None,
            row: Vec::new(),
        });
    }
    // Parts still to be sent, the next one last, so that halves go in order.
    let mut parts: Vec<&[Row]> = if batch.rows.is_empty() { Vec::new() } else { vec![&batch.rows] };
    while let Some(rows) = parts.pop() {
        if let Some(halves) = send_part(target, batch, rows, (patience, progress), &mut settled).await? {
            parts.extend([halves.1, halves.0]);
        }
    }
    settled.refusals.sort_by_key(|refusal| refusal.record);
    Ok(settled)
}

type Halves<'a> = (&'a [Row], &'a [Row]);

/// Sends neighbouring rows of a batch until they are taken or refused; gives two halves when they are too many.
async fn send_part<'a>(
    target: &Target,
    batch: &Batch,
    rows: &'a [Row],
    (patience, progress): (Duration, &Progress),
    settled: &mut Settled,
) -> Result<Option<Halves<'a>>, SendError> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(None) };
    let body = batch.body.slice(first.from..last.to);
    let begun = Instant::now();
    let (mut attempt, mut sent_twice) = (0, false);
    loop {
        match judge(target.post(body.clone()).await, rows.len(), attempt) {
            Verdict::Done(taken) => {
                settled.counts.accepted += taken.succeeded;
                settled.counts.duplicates += taken.duplicates;
                settled.counts.refused += taken.failed;
                settled.counts.sent_twice += if sent_twice { taken.succeeded } else { 0 };
                for result in taken.results {
                    let row = result.index.checked_sub(1).and_then(|at| rows.get(at));
                    if let (Some(row), Some(error)) = (row, result.error) {
                        settled.refusals.push(Refusal {
                            record: row.number,
                            error,
                            exception_code: result.exception_code,
                            row: batch.body[row.from..row.to].to_vec(),
                        });
                    }
                }
                progress.clear_note();
                return Ok(None);
            }
            Verdict::Halve => return Ok(Some(rows.split_at(rows.len() / 2))),
            Verdict::Fatal(said) => return Err(SendError::Refused { said }),
            Verdict::Again { wait, may_be_stored, why } => {
                let patience = if target.answered() { patience } else { patience.min(FIRST_ANSWER_PATIENCE) };
                if begun.elapsed() + wait > patience {
                    return Err(SendError::Patience { patience_s: patience.as_secs(), why });
                }
                sent_twice |= may_be_stored;
                progress.note(&format!("waiting {:.1} s: {why}", wait.as_secs_f64()));
                tokio::time::sleep(wait).await;
                attempt += 1;
            }
        }
    }
}
