//! Terms over a bucket that hangs, loses answers, is away, or has been written by another.

use std::collections::BTreeSet;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio::time::{advance, sleep};
use wavehouse_broker::LeaseEntry;
use wavehouse_broker::conformance::{BucketFault, MemoryBucket};

use super::*;

const S: Duration = Duration::from_secs(1);
const KEY: &str = "lease.ingest.m0";

/// A bucket whose calls can be made to hang until they do not any more, as those of a hung server do. What was sent
/// meanwhile is lost.
#[derive(Clone)]
struct Hangs {
    bucket: MemoryBucket,
    hung: watch::Sender<bool>,
}

impl Hangs {
    fn new(bucket: &MemoryBucket) -> Arc<Self> {
        Arc::new(Self { bucket: bucket.another(), hung: watch::Sender::new(false) })
    }

    async fn pass(&self) {
        if *self.hung.borrow() {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl LeaseBucket for Hangs {
    async fn get(&self, key: &str) -> Result<Option<LeaseEntry>, LeaseError> {
        self.pass().await;
        self.bucket.get(key).await
    }

    async fn create(&self, key: &str, value: Bytes) -> Result<Revision, LeaseError> {
        self.pass().await;
        self.bucket.create(key, value).await
    }

    async fn update(&self, key: &str, value: Bytes, last: Revision) -> Result<Revision, LeaseError> {
        self.pass().await;
        self.bucket.update(key, value, last).await
    }

    async fn delete(&self, key: &str, last: Revision) -> Result<(), LeaseError> {
        self.pass().await;
        self.bucket.delete(key, last).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>, LeaseError> {
        self.pass().await;
        self.bucket.list(prefix).await
    }
}

fn value(session: &str) -> LeaseValue {
    LeaseValue {
        holder: "host".to_owned(),
        duration: LeaseTimings::default().duration(),
        session: session.to_owned(),
        view: None,
        version: None,
        live: None,
        held: BTreeSet::new(),
    }
}

/// A term that is held.
struct Holder {
    term: Term,
    said: watch::Sender<Bytes>,
    stop: CancellationToken,
    holding: JoinSet<Ended>,
}

impl Holder {
    async fn begin(bucket: Arc<dyn LeaseBucket>) -> Self {
        let value = value("mine");
        let term = take(&*bucket, KEY.to_owned(), &value, Way::Create).await.unwrap().unwrap();
        let (said, stop) = (watch::Sender::new(value.to_bytes()), CancellationToken::new());
        let held = hold(bucket, term.clone(), said.subscribe(), LeaseTimings::default(), stop.clone());
        let mut holding = JoinSet::new();
        holding.spawn(held);
        Self { term, said, stop, holding }
    }

    async fn ended(&mut self) -> Ended {
        self.holding.join_next().await.unwrap().unwrap()
    }

    async fn end(mut self) -> Term {
        self.stop.cancel();
        match self.ended().await {
            Ended::Told(term) => term,
            Ended::Lost(reason) => panic!("the term was lost: {reason}"),
        }
    }
}

async fn revision(bucket: &MemoryBucket) -> Option<Revision> {
    bucket.get(KEY).await.unwrap().map(|entry| entry.revision)
}

#[tokio::test(start_paused = true)]
async fn case_88_renewals_raise_the_revision_and_keep_the_token() {
    let bucket = MemoryBucket::default();
    let holder = Holder::begin(Arc::new(bucket.another())).await;
    let token = holder.term.token;
    assert_eq!(revision(&bucket).await, Some(token));
    sleep(9 * S).await;
    assert_eq!(revision(&bucket).await, Some(Revision(token.0 + 4)), "every two seconds");
    let term = holder.end().await;
    assert_eq!((term.token, term.last), (token, Revision(token.0 + 4)));
}

#[tokio::test(start_paused = true)]
async fn what_is_new_is_said_at_once() {
    let bucket = MemoryBucket::default();
    let holder = Holder::begin(Arc::new(bucket.another())).await;
    holder.said.send_replace(Bytes::from_static(br#"{"holder":"h","duration_ms":1,"session":"mine"}"#));
    sleep(S / 10).await;
    let entry = bucket.get(KEY).await.unwrap().unwrap();
    assert!(entry.value.starts_with(br#"{"holder":"h""#), "{entry:?}");
    holder.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_election_does_not_end_a_term() {
    let bucket = MemoryBucket::default();
    let hangs = Hangs::new(&bucket);
    let holder = Holder::begin(hangs.clone()).await;
    sleep(5 * S).await;
    // Longer than any that was measured; what was asked meanwhile is never answered.
    hangs.hung.send_replace(true);
    sleep(8 * S).await;
    hangs.hung.send_replace(false);
    let before = revision(&bucket).await;
    sleep(Duration::from_millis(1500)).await;
    assert!(revision(&bucket).await > before, "asked again a second after the last try");
    sleep(60 * S).await;
    assert_eq!(holder.end().await.token, Revision(1));
}

#[tokio::test(start_paused = true)]
async fn a_term_ends_ten_seconds_after_its_last_renewal_was_sent() {
    for hung in [true, false] {
        let bucket = MemoryBucket::default();
        let hangs = Hangs::new(&bucket);
        let mut holder = Holder::begin(hangs.clone()).await;
        sleep(5 * S).await;
        match hung {
            true => drop(hangs.hung.send_replace(true)),
            false => hangs.bucket.set_reachable(false),
        }
        // The last renewal was sent at 4 s.
        let cut = Instant::now();
        let ended = holder.ended().await;
        assert!(matches!(ended, Ended::Lost(_)), "{ended:?}");
        let took = cut.elapsed();
        assert!(took >= Duration::from_millis(8800) && took <= Duration::from_millis(9100), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stood_still_over_its_deadline_does_not_go_on() {
    let bucket = MemoryBucket::default();
    let mut holder = Holder::begin(Arc::new(bucket.another())).await;
    sleep(S / 10).await;
    // No task runs while the clock goes on.
    advance(30 * S).await;
    assert!(matches!(holder.ended().await, Ended::Lost(_)));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_and_the_term_goes_on() {
    let bucket = MemoryBucket::default();
    let own = bucket.another();
    let holder = Holder::begin(Arc::new(own.clone())).await;
    for _ in 0..3 {
        own.fail_next(KEY, BucketFault::AnswerLost);
        sleep(5 * S).await;
    }
    let now = revision(&bucket).await.unwrap();
    let term = holder.end().await;
    assert_eq!((term.token, term.last), (Revision(1), now));
}

#[tokio::test(start_paused = true)]
async fn case_87_a_write_of_another_ends_the_term() {
    let bucket = MemoryBucket::default();
    let mut holder = Holder::begin(Arc::new(bucket.another())).await;
    let last = revision(&bucket).await.unwrap();
    bucket.update(KEY, value("theirs").to_bytes(), last).await.unwrap();
    let began = Instant::now();
    assert!(matches!(holder.ended().await, Ended::Lost(_)));
    assert!(began.elapsed() <= 2 * S, "at its next renewal");
    // So does its removal.
    let last = revision(&bucket).await.unwrap();
    bucket.delete(KEY, last).await.unwrap();
    let mut holder = Holder::begin(Arc::new(bucket.another())).await;
    assert!(holder.term.token > last, "tokens grow");
    bucket.delete(KEY, holder.term.token).await.unwrap();
    assert!(matches!(holder.ended().await, Ended::Lost(_)));
}

#[tokio::test(start_paused = true)]
async fn case_90_a_stuck_renewal_does_not_keep_a_term_from_being_resigned() {
    let bucket = MemoryBucket::default();
    let hangs = Hangs::new(&bucket);
    let holder = Holder::begin(hangs.clone()).await;
    hangs.hung.send_replace(true);
    // Within a renewal.
    sleep(Duration::from_millis(2500)).await;
    let began = Instant::now();
    let term = holder.end().await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    resign(&bucket, &term).await.unwrap();
    assert_eq!(revision(&bucket).await, None);
}

#[tokio::test(start_paused = true)]
async fn only_ones_own_is_resigned() {
    let bucket = MemoryBucket::default();
    let term = Holder::begin(Arc::new(bucket.another())).await.end().await;
    // A renewal whose answer was lost.
    let last = bucket.update(KEY, value("mine").to_bytes(), term.last).await.unwrap();
    resign(&bucket, &term).await.unwrap();
    assert_eq!(revision(&bucket).await, None);
    resign(&bucket, &term).await.unwrap();
    let theirs = bucket.create(KEY, value("theirs").to_bytes()).await.unwrap();
    assert!(theirs > last && resign(&bucket, &term).await.is_err());
    assert_eq!(revision(&bucket).await, Some(theirs));
}
