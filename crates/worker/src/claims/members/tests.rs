//! Candidates for one slot.

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::conformance::{BucketFault, MemoryBucket};

use super::*;
use crate::lease::{Ended, hold, resign};

const S: Duration = Duration::from_secs(1);

/// A process that would have the only slot.
struct Candidate {
    bucket: MemoryBucket,
    value: LeaseValue,
    membership: Membership,
}

/// A process that has it.
struct Holder {
    token: Revision,
    stop: CancellationToken,
    holding: JoinSet<Ended>,
    _said: watch::Sender<Bytes>,
}

impl Candidate {
    fn new(world: &MemoryBucket, session: &str) -> Self {
        Self::among(world, session, 1)
    }

    fn among(world: &MemoryBucket, session: &str, slots: usize) -> Self {
        let (bucket, timings) = (world.another(), LeaseTimings::default());
        let value = LeaseValue {
            holder: format!("host of {session}"),
            duration: timings.duration(),
            session: session.to_owned(),
            view: None,
            version: None,
            live: None,
            held: BTreeSet::new(),
        };
        let membership = Membership::new(Arc::new(bucket.clone()), timings, slots, value.clone());
        Self { bucket, value, membership }
    }

    async fn look(&mut self, join: bool) -> Look {
        let wanted = Wanted { join, ..Wanted::default() };
        self.membership.look(&wanted).await.unwrap()
    }

    /// Takes a slot now, if it can.
    async fn join(&mut self) -> Option<Holder> {
        let (_, term) = self.look(true).await.joined?;
        let (said, stop) = (watch::Sender::new(self.value.to_bytes()), CancellationToken::new());
        let (bucket, timings) = (Arc::new(self.bucket.clone()), LeaseTimings::default());
        let token = term.token;
        let mut holding = JoinSet::new();
        holding.spawn(hold(bucket, term, said.subscribe(), timings, stop.clone()));
        Some(Holder { token, stop, holding, _said: said })
    }

    /// Tries every two seconds; how long it took.
    async fn campaign(&mut self, within: Duration) -> Option<(Holder, Duration)> {
        let began = Instant::now();
        while began.elapsed() < within {
            if let Some(holder) = self.join().await {
                return Some((holder, began.elapsed()));
            }
            sleep(2 * S).await;
        }
        None
    }
}

impl Holder {
    async fn ended(&mut self) -> Ended {
        self.holding.join_next().await.unwrap().unwrap()
    }

    async fn resign(mut self, bucket: &MemoryBucket) {
        self.stop.cancel();
        match self.ended().await {
            Ended::Told(term) => resign(bucket, &term).await.unwrap(),
            Ended::Lost(reason) => panic!("lost: {reason}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn case_87_one_holds_a_slot_at_a_time_and_tokens_grow_over_resigning() {
    let world = MemoryBucket::default();
    let (mut a, mut b) = (Candidate::new(&world, "a"), Candidate::new(&world, "b"));
    let mut last = Revision(0);
    for _ in 0..3 {
        let held = a.join().await.unwrap();
        assert!(held.token > last && b.join().await.is_none());
        last = held.token;
        held.resign(&a.bucket).await;
        let held = b.join().await.unwrap();
        assert!(held.token > last && a.join().await.is_none());
        last = held.token;
        held.resign(&b.bucket).await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_87_looking_takes_nothing_and_sees_who_is_there() {
    let world = MemoryBucket::default();
    let (mut a, mut b) = (Candidate::new(&world, "a"), Candidate::new(&world, "b"));
    assert!(b.look(false).await.seen.is_empty(), "never taken");
    let held = a.join().await.unwrap();
    for _ in 0..2 {
        let look = b.look(false).await;
        assert!(look.seen.len() == 1 && !look.seen[0].lapsed() && look.joined.is_none());
        assert_eq!(look.seen[0].revision, held.token);
    }
    assert_eq!(a.look(false).await.seen[0].value.session, "a", "its own too");
    held.resign(&a.bucket).await;
    assert!(b.look(false).await.seen.is_empty(), "resigned");
}

#[tokio::test(start_paused = true)]
async fn case_87_of_many_that_start_at_once_each_finds_a_slot() {
    let world = MemoryBucket::default();
    let mut slots = BTreeSet::new();
    for session in ["a", "b", "c"] {
        let mut candidate = Candidate::among(&world, session, 3);
        // Seen by nobody before.
        slots.insert(candidate.look(true).await.joined.unwrap().0);
    }
    assert_eq!(slots, (0..3).map(MemberSlot).collect());
    assert!(Candidate::among(&world, "d", 3).join().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn case_89_a_live_holder_is_never_replaced() {
    let world = MemoryBucket::default();
    let (mut a, mut b) = (Candidate::new(&world, "a"), Candidate::new(&world, "b"));
    let held = a.join().await.unwrap();
    assert!(b.campaign(120 * S).await.is_none());
    held.resign(&a.bucket).await;
}

#[tokio::test(start_paused = true)]
async fn case_89_a_stalled_holder_steps_down_before_a_candidate_takes_over() {
    let world = MemoryBucket::default();
    let (mut a, mut b) = (Candidate::new(&world, "a"), Candidate::new(&world, "b"));
    let mut held = a.join().await.unwrap();
    assert!(b.campaign(9 * S).await.is_none());
    a.bucket.set_reachable(false);
    let token = held.token;
    let began = Instant::now();
    let stepping_down = async {
        let ended = held.ended().await;
        (ended, began.elapsed())
    };
    let ((ended, stalled), after) = tokio::join!(stepping_down, b.campaign(40 * S));
    let (after, took) = after.unwrap();
    assert!(matches!(ended, Ended::Lost(_)) && stalled + 4 * S <= took, "{stalled:?}, {took:?}");
    assert!(
        took >= 13 * S && took <= 17 * S,
        "one duration after the last renewal that was seen, not {took:?}"
    );
    assert!(after.token > token);
}

#[tokio::test(start_paused = true)]
async fn case_91_a_slot_that_is_given_back_is_free_at_once() {
    let world = MemoryBucket::default();
    let (mut a, mut b) = (Candidate::new(&world, "a"), Candidate::new(&world, "b"));
    let held = a.join().await.unwrap();
    sleep(7 * S).await;
    assert!(b.join().await.is_none());
    held.resign(&a.bucket).await;
    let began = Instant::now();
    assert!(b.join().await.is_some());
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn case_92_one_whose_term_ended_here_goes_on_from_its_own_write() {
    let world = MemoryBucket::default();
    let mut a = Candidate::new(&world, "a");
    let mut held = a.join().await.unwrap();
    sleep(5 * S).await;
    a.bucket.set_reachable(false);
    assert!(matches!(held.ended().await, Ended::Lost(_)));
    a.bucket.set_reachable(true);
    let (again, took) = a.campaign(20 * S).await.unwrap();
    assert!(took == Duration::ZERO && again.token > held.token);
    again.resign(&a.bucket).await;
    // So does one whose first write was done and not answered.
    a.bucket.fail_next("lease.ingest.m0", BucketFault::AnswerLost);
    let wanted = Wanted { join: true, ..Wanted::default() };
    assert!(a.membership.look(&wanted).await.is_err());
    assert!(a.join().await.is_some());
}
