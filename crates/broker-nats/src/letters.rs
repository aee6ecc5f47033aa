//! Dead letters: one message a letter, in a stream of the operator's that all processes and tenants share.
//!
//! A letter lies under `<prefix>.dlq.<tenant>.<table>`. Its message id is its table and position, so that burying it twice
//! leaves one; the stream's duplicate window (two minutes unless set) bounds that, and a twin that was buried later than
//! that is shown and dropped with the first, but counted apart.
//!
//! # What the servers do not do
//! They keep letters in the order of burial and find them by subject alone. So a page of letters, and finding those that
//! are to be dropped, reads all letters of the table, up to [`LETTERS_READ_MAX`]; past that the answer is
//! [`LetterError::Unsupported`] with the operator's command. Nothing here purges. The stream keeps a number of letters of
//! each table (100,000 unless set) and its oldest give way. A letter's headers take up to [`LETTER_HEADER_BYTES`] beside
//! its row; where that is more than a message may be, its reason is cut shorter.

mod form;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::watch;
use wavehouse_broker::{
    DeadLetter, LetterCounts, LetterCursor, LetterError, LetterFilter, LetterPage, REASON_BYTES_MAX,
};
use wavehouse_core::{Position, Scope, Subject, TableName, TableRef, TenantId, Topic, TopicKey};
use wavehouse_nats::{CallError, JetStream, StreamState, codes};
use wavehouse_topology::TopologySpec;

pub(crate) use form::table_of;
use form::{Buried, message_id};

/// Most letters of one table that are read to answer one request.
pub const LETTERS_READ_MAX: u64 = 20_000;
/// Most that a letter's headers take beside its row, in bytes.
pub const LETTER_HEADER_BYTES: usize = REASON_BYTES_MAX * 3 + 1024;
/// Requests of one call that are under way at once.
const CALLS_MAX: usize = 16;
/// A table with more letters than this is read from several places at once.
const ONE_CHAIN_MAX: u64 = 256;
/// How often a burial without an answer is tried, and how long is waited between.
const ATTEMPTS: u32 = 3;
const ATTEMPT_WAIT: Duration = Duration::from_millis(250);
/// What is left of a reason that does not fit, in bytes.
const SHORT_REASON_BYTES: usize = 256;
/// Most times that one position is dropped and buried again within the stream's duplicate window.
const REBURIALS_MAX: u32 = 100;

/// The dead letters of one deployment.
#[derive(Clone)]
pub struct Letters {
    jetstream: JetStream,
    spec: Arc<TopologySpec>,
    stream: String,
    topology_ok: watch::Sender<bool>,
}

/// A subject that letters of a table lie under, and how many.
struct Place {
    subject: String,
    count: u64,
}

impl Letters {
    /// The letters that `spec` names. `topology_ok` drops when their stream is not the one that is named.
    #[must_use]
    pub fn new(jetstream: JetStream, spec: Arc<TopologySpec>, topology_ok: watch::Sender<bool>) -> Self {
        let stream = spec.dlq_stream();
        Self { jetstream, spec, stream, topology_ok }
    }

    /// Keeps letters; see [`Broker::bury`](wavehouse_broker::Broker::bury).
    ///
    /// # Errors
    /// [`LetterError`].
    pub async fn bury(&self, letters: Vec<DeadLetter>) -> Result<(), LetterError> {
        let burials: Vec<_> = letters.into_iter().map(|letter| self.bury_one(letter)).collect();
        stream::iter(burials).buffered(CALLS_MAX).try_collect::<()>().await
    }

    async fn bury_one(&self, mut letter: DeadLetter) -> Result<(), LetterError> {
        letter.reason.truncate(letter.reason.floor_char_boundary(REASON_BYTES_MAX));
        let topic = Topic { table: letter.table.clone(), scope: Scope::default() };
        let subject = self.spec.prefix().dead_letter(&topic);
        let first_id = message_id(&letter);
        let mut id = first_id.clone();
        for _ in 0..REBURIALS_MAX {
            let ack = self.publish(&subject, &id, &mut letter).await?;
            // The first of this id may have been dropped since; then the letter is buried again under another.
            let at = ack.sequence;
            if !ack.duplicate || self.message(at).await?.is_some() {
                return Ok(());
            }
            id = format!("{first_id}+{at}");
        }
        Err(unavailable("it is dropped as often as it is buried"))
    }

    async fn publish(
        &self,
        subject: &str,
        id: &str,
        letter: &mut DeadLetter,
    ) -> Result<wavehouse_nats::PubAck, LetterError> {
        let mut attempt = 1;
        loop {
            let headers = form::headers(letter, id, &self.stream);
            match self.jetstream.publish(subject, Some(headers), letter.line.clone()).await {
                Ok(ack) => return Ok(ack),
                Err(CallError::TooLarge { .. }) if letter.reason.len() > SHORT_REASON_BYTES => {
                    letter.reason.truncate(letter.reason.floor_char_boundary(SHORT_REASON_BYTES));
                }
                Err(error) if attempt < ATTEMPTS && is_unanswered(&error) => {
                    attempt += 1;
                    tokio::time::sleep(ATTEMPT_WAIT).await;
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// How many letters each table of a tenant has; see [`Broker::letter_counts`](wavehouse_broker::Broker::letter_counts).
    ///
    /// # Errors
    /// [`LetterError`].
    pub async fn counts(&self, tenant: &TenantId) -> Result<LetterCounts, LetterError> {
        let (places, _) = self.places(tenant).await?;
        let count = |places: Vec<Place>| places.iter().map(|place| place.count).sum();
        Ok(LetterCounts {
            tables: places.into_iter().map(|(table, places)| (table, count(places))).collect(),
        })
    }

    /// A page of letters; see [`Broker::letters`](wavehouse_broker::Broker::letters).
    ///
    /// # Errors
    /// [`LetterError`].
    pub async fn page(
        &self,
        filter: &LetterFilter,
        after: Option<&LetterCursor>,
        limit: usize,
    ) -> Result<LetterPage, LetterError> {
        let (tables, state) = self.places(&filter.tenant).await?;
        let mut page = LetterPage::default();
        let mut left = LETTERS_READ_MAX;
        for (table, places) in tables {
            let asked = filter.table.as_ref().is_none_or(|asked| *asked == table);
            if !asked || after.is_some_and(|after| table < after.table) {
                continue;
            }
            let count: u64 = places.iter().map(|place| place.count).sum();
            if count > left {
                if page.letters.is_empty() {
                    return Err(self.too_many("view", &filter.tenant, &table));
                }
                page.more = true;
                break;
            }
            left -= count;
            let past = after.filter(|after| after.table == table).map(|after| after.position);
            let room = limit.saturating_sub(page.letters.len()).saturating_add(1);
            let found = self.smallest(&places, &state, room, |letter| {
                past.is_none_or(|past| letter.position > past) && is_asked(filter, letter)
            });
            page.letters.extend(found.await?);
            if page.letters.len() > limit {
                page.letters.truncate(limit);
                page.more = true;
                break;
            }
        }
        Ok(page)
    }

    /// Removes letters by position; see [`Broker::drop_letters`](wavehouse_broker::Broker::drop_letters).
    ///
    /// # Errors
    /// [`LetterError`].
    pub async fn drop_letters(&self, table: &TableRef, positions: &[Position]) -> Result<u64, LetterError> {
        let (mut tables, state) = self.places(&table.tenant).await?;
        let Some(places) = tables.remove(&table.table).filter(|_| !positions.is_empty()) else {
            return Ok(0);
        };
        if places.iter().map(|place| place.count).sum::<u64>() > LETTERS_READ_MAX {
            return Err(self.too_many("purge", &table.tenant, &table.table));
        }
        let mut found: BTreeMap<Position, Vec<u64>> = BTreeMap::new();
        self.read(&places, &state, |buried| {
            if positions.contains(&buried.letter.position) {
                found.entry(buried.letter.position).or_default().push(buried.sequence);
            }
        })
        .await?;
        let removals: Vec<_> = found.into_values().map(|sequences| self.remove_all(sequences)).collect();
        let removed: Vec<bool> = stream::iter(removals).buffer_unordered(CALLS_MAX).try_collect().await?;
        Ok(removed.into_iter().map(u64::from).sum())
    }

    /// The first letters by position that are asked for; twins show once.
    async fn smallest(
        &self,
        places: &[Place],
        state: &StreamState,
        most: usize,
        is_asked: impl Fn(&DeadLetter) -> bool,
    ) -> Result<Vec<DeadLetter>, LetterError> {
        let mut kept = BTreeMap::new();
        self.read(places, state, |buried| {
            if is_asked(&buried.letter) {
                kept.entry(buried.letter.position).or_insert(buried.letter);
                if kept.len() > most {
                    kept.pop_last();
                }
            }
        })
        .await?;
        Ok(kept.into_values().collect())
    }

    /// Reads every letter under some subjects, in any order.
    async fn read(
        &self,
        places: &[Place],
        state: &StreamState,
        mut take: impl FnMut(Buried),
    ) -> Result<(), LetterError> {
        let chains = places.iter().flat_map(|place| {
            let several = place.count > ONE_CHAIN_MAX;
            let parts = if several { CALLS_MAX as u64 } else { 1 };
            let (first, end) = (state.first_seq, state.last_seq.saturating_add(1));
            let step = end.saturating_sub(first).div_ceil(parts).max(1);
            (0..parts).map(move |part| {
                let from = first.saturating_add(part.saturating_mul(step));
                self.chain(&place.subject, from, from.saturating_add(step).min(end))
            })
        });
        let chains: Vec<_> = chains.collect();
        let mut read = stream::iter(chains).flatten_unordered(CALLS_MAX);
        while let Some(buried) = read.next().await {
            take(buried?);
        }
        Ok(())
    }

    /// The letters of one subject from a sequence on, up to another.
    fn chain<'a>(
        &'a self,
        subject: &'a str,
        from: u64,
        end: u64,
    ) -> std::pin::Pin<Box<dyn stream::Stream<Item = Result<Buried, LetterError>> + Send + 'a>> {
        Box::pin(stream::try_unfold(from, move |from| self.step(subject, from, end)))
    }

    /// The next letter of one subject, and the sequence past it.
    async fn step(&self, subject: &str, from: u64, end: u64) -> Result<Option<(Buried, u64)>, LetterError> {
        if from >= end {
            return Ok(None);
        }
        let found = self.jetstream.next_message(&self.stream, from, subject).await;
        let Some(message) = found.map_err(|error| self.failed(error))? else { return Ok(None) };
        if message.sequence >= end {
            return Ok(None);
        }
        let next = message.sequence.saturating_add(1);
        let key = self.spec.prefix().topic_key(&message.subject);
        Ok(Some((Buried::read(message, key, &self.stream), next)))
    }

    /// The tables of a tenant that have letters, and where those lie.
    async fn places(
        &self,
        tenant: &TenantId,
    ) -> Result<(BTreeMap<TableName, Vec<Place>>, StreamState), LetterError> {
        let filter = self.spec.prefix().dead_letters_of(tenant);
        let listed = self.jetstream.stream_subjects(&self.stream, &filter).await;
        let mut state = listed.map_err(|error| self.failed(error))?.state;
        let mut tables: BTreeMap<TableName, Vec<Place>> = BTreeMap::new();
        for (subject, count) in state.subjects.take().unwrap_or_default() {
            let Some(Subject::DeadLetter(TopicKey::Known(topic))) =
                self.spec.prefix().parse_subject(&subject)
            else {
                continue;
            };
            tables.entry(topic.table.table).or_default().push(Place { subject, count });
        }
        Ok((tables, state))
    }

    async fn message(&self, sequence: u64) -> Result<Option<wavehouse_nats::StoredMessage>, LetterError> {
        self.jetstream.message(&self.stream, sequence).await.map_err(|error| self.failed(error))
    }

    /// Removes a letter and its twins; whether there was any.
    async fn remove_all(&self, sequences: Vec<u64>) -> Result<bool, LetterError> {
        let mut any = false;
        for sequence in sequences {
            any |= self.remove(sequence).await?;
        }
        Ok(any)
    }

    async fn remove(&self, sequence: u64) -> Result<bool, LetterError> {
        self.jetstream.delete_message(&self.stream, sequence).await.map_err(|error| self.failed(error))
    }

    fn too_many(&self, verb: &str, tenant: &TenantId, table: &TableName) -> LetterError {
        let table = TableRef::new(tenant.clone(), table.clone());
        let subject = self.spec.prefix().dead_letter(&Topic { table, scope: Scope::default() });
        LetterError::Unsupported {
            instead: format!("nats stream {verb} {} --subject '{subject}'", self.stream),
        }
    }

    fn failed(&self, error: CallError) -> LetterError {
        if error.code() == Some(codes::STREAM_NOT_EXPECTED) && self.topology_ok.send_replace(false) {
            tracing::error!(stream = self.stream, "another stream than this one holds the dead letters");
        }
        match error {
            CallError::Closed { .. } => LetterError::Closed,
            error if error.is_stream_full() => LetterError::Full,
            error => unavailable(&error.to_string()),
        }
    }
}

fn unavailable(reason: &str) -> LetterError {
    LetterError::Unavailable { reason: reason.to_owned() }
}

/// Whether a burial may succeed if it is simply tried again under its id.
fn is_unanswered(error: &CallError) -> bool {
    error.is_unknown()
        || error.is_in_process()
        || matches!(error, CallError::NoResponders { .. } | CallError::NotConnected { .. })
}

fn is_asked(filter: &LetterFilter, letter: &DeadLetter) -> bool {
    filter.code.is_none_or(|code| letter.code == Some(code))
        && filter.from.is_none_or(|from| letter.buried_at >= from)
        && filter.until.is_none_or(|until| letter.buried_at < until)
}
