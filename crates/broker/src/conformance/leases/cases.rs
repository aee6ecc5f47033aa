//! The cases: each takes a bucket of its own and fails by panicking.

#![expect(clippy::expect_used, reason = "a case fails by panicking, and says what it expected")]

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::LeaseFixture;
use crate::lease::{LEASE_BYTES_MAX, LeaseBucket, LeaseEntry, LeaseError, Revision};

const KEY: &str = "lease.ingest.m0";
/// Keys of the long list: more than a page of names of any server.
const MANY: usize = 300;

type Handle = Arc<dyn LeaseBucket>;

async fn two(fixture: &dyn LeaseFixture) -> (Handle, Handle) {
    (fixture.handle().await, fixture.handle().await)
}

fn value(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn get(bucket: &Handle, key: &str) -> Option<LeaseEntry> {
    bucket.get(key).await.expect("the bucket answers")
}

async fn create(bucket: &Handle, key: &str, text: &str) -> Revision {
    bucket.create(key, value(text)).await.expect("the key is written")
}

fn assert_conflict<T: std::fmt::Debug>(outcome: Result<T, LeaseError>, key: &str) {
    assert_eq!(outcome.expect_err("another write came first"), LeaseError::Conflict { key: key.to_owned() });
}

pub(super) async fn reads_what_is_written(fixture: &dyn LeaseFixture) {
    let (one, other) = two(fixture).await;
    assert_eq!(get(&one, KEY).await, None, "never written");
    let mut revision = create(&one, KEY, "0").await;
    for number in 1..20 {
        let entry = get(&other, KEY).await.expect("it is there");
        assert_eq!(entry, LeaseEntry { value: value(&(number - 1).to_string()), revision });
        assert_eq!(get(&one, KEY).await, Some(entry), "both see the same");
        let written = other.update(KEY, value(&number.to_string()), revision).await;
        revision = written.expect("the last write was named");
    }
}

pub(super) async fn creates_once(fixture: &dyn LeaseFixture) {
    let (one, other) = two(fixture).await;
    let revision = create(&one, KEY, "mine").await;
    assert_conflict(other.create(KEY, value("yours")).await, KEY);
    assert_conflict(one.create(KEY, value("mine again")).await, KEY);
    assert_eq!(get(&other, KEY).await, Some(LeaseEntry { value: value("mine"), revision }));
}

pub(super) async fn updates_name_the_last(fixture: &dyn LeaseFixture) {
    let (one, other) = two(fixture).await;
    assert_conflict(one.update(KEY, value("x"), Revision(1)).await, KEY);
    assert_eq!(get(&one, KEY).await, None, "an update makes no key");
    let first = create(&one, KEY, "a").await;
    let second = other.update(KEY, value("b"), first).await.expect("the last write was named");
    assert_conflict(one.update(KEY, value("c"), first).await, KEY);
    assert_conflict(one.update(KEY, value("c"), Revision(second.0 + 1)).await, KEY);
    assert_eq!(get(&one, KEY).await, Some(LeaseEntry { value: value("b"), revision: second }));
}

pub(super) async fn deletes_name_the_last(fixture: &dyn LeaseFixture) {
    let (one, other) = two(fixture).await;
    assert_conflict(one.delete(KEY, Revision(1)).await, KEY);
    let first = create(&one, KEY, "a").await;
    let second = one.update(KEY, value("b"), first).await.expect("the last write was named");
    assert_conflict(other.delete(KEY, first).await, KEY);
    assert_eq!(get(&one, KEY).await.expect("it is there").revision, second, "nothing was deleted");
    other.delete(KEY, second).await.expect("the last write was named");
    assert_eq!(get(&one, KEY).await, None);
    assert_conflict(other.delete(KEY, second).await, KEY);
}

pub(super) async fn deleted_is_absent(fixture: &dyn LeaseFixture) {
    let (one, other) = two(fixture).await;
    let mut last = Revision(0);
    for round in 0..5 {
        let created = create(&one, KEY, &format!("round {round}")).await;
        assert!(created > last, "a term after a deletion has a greater token");
        other.delete(KEY, created).await.expect("the last write was named");
        assert_eq!(get(&one, KEY).await, None);
        assert_conflict(one.update(KEY, value("late"), created).await, KEY);
        assert_eq!(one.list("lease.").await.expect("a list"), Vec::<String>::new());
        last = created;
    }
    let contended = (one.create(KEY, value("one")).await, other.create(KEY, value("other")).await);
    contended.0.expect("it was there for the taking");
    assert_conflict(contended.1, KEY);
}

pub(super) async fn revisions_grow(fixture: &dyn LeaseFixture) {
    let (one, other) = two(fixture).await;
    let mut last = Revision(0);
    for (handle, key) in [(&one, KEY), (&other, "lease.ingest.m1"), (&one, "lease.batch.0.0")] {
        let created = create(handle, key, "a").await;
        assert!(created > last, "{key}");
        let updated = other.update(key, value("b"), created).await.expect("the last write was named");
        assert!(updated > created, "{key}");
        last = updated;
    }
}

pub(super) async fn one_wins(fixture: &dyn LeaseFixture) {
    const COMPETITORS: u32 = 8;
    let (one, other) = two(fixture).await;
    let mut last: Option<Revision> = None;
    for round in 0..5 {
        let mut competing = JoinSet::new();
        for number in 0..COMPETITORS {
            let bucket = Arc::clone(if number % 2 == 0 { &one } else { &other });
            competing.spawn(async move {
                let text = value(&format!("{round} {number}"));
                let outcome = match last {
                    None => bucket.create(KEY, text.clone()).await,
                    Some(last) => bucket.update(KEY, text.clone(), last).await,
                };
                (text, outcome)
            });
        }
        let mut winners = Vec::new();
        while let Some(competitor) = competing.join_next().await {
            let (text, outcome) = competitor.expect("it ran");
            match outcome {
                Ok(revision) => winners.push(LeaseEntry { value: text, revision }),
                lost => assert_conflict(lost, KEY),
            }
        }
        assert_eq!(winners.len(), 1, "one alone wins round {round}: {winners:?}");
        assert_eq!(get(&one, KEY).await.as_ref(), winners.first());
        last = winners.first().map(|winner| winner.revision);
    }
}

pub(super) async fn keys_apart(fixture: &dyn LeaseFixture) {
    let (one, other) = two(fixture).await;
    let keys = ["lease.a", "lease.A", "lease.a.b", "lease.a.b.c", "lease.a-b", "lease.a_b", "lease.ab"];
    let mut written = Vec::new();
    for key in keys {
        written.push(create(&one, key, key).await);
    }
    for (key, revision) in keys.into_iter().zip(written) {
        assert_eq!(get(&other, key).await, Some(LeaseEntry { value: value(key), revision }), "{key}");
    }
}

pub(super) async fn large_and_odd_values(fixture: &dyn LeaseFixture) {
    let (one, other) = two(fixture).await;
    let bytes = |length: usize| Bytes::from_iter((0..length).map(|at| u8::try_from(at % 251).unwrap_or(0)));
    let values = [Bytes::new(), Bytes::from_static(b"\0\r\n\xff"), bytes(LEASE_BYTES_MAX)];
    for (number, value) in values.into_iter().enumerate() {
        let key = format!("lease.value.{number}");
        let revision = one.create(&key, value.clone()).await.expect("the key is written");
        let entry = LeaseEntry { value, revision };
        assert_eq!(get(&other, &key).await, Some(entry), "value {number}; an empty one is not an absent one");
        assert!(other.list("lease.value.").await.expect("a list").contains(&key));
    }
}

pub(super) async fn lists_what_is_there(fixture: &dyn LeaseFixture) {
    let (one, other) = two(fixture).await;
    let list = async |prefix: &str| other.list(prefix).await.expect("a list");
    assert_eq!(list("lease.").await, Vec::<String>::new());
    for key in
        ["lease.ingest.m10", "lease.ingest.m1", "lease.ingest.m2", "lease.batch.0.3", "lease.ingestion"]
    {
        create(&one, key, "x").await;
    }
    let gone = create(&one, "lease.ingest.m3", "x").await;
    one.delete("lease.ingest.m3", gone).await.expect("the last write was named");
    assert_eq!(list("lease.ingest.").await, ["lease.ingest.m1", "lease.ingest.m10", "lease.ingest.m2"]);
    assert_eq!(list("lease.ingest.m1").await, ["lease.ingest.m1", "lease.ingest.m10"]);
    assert_eq!(list("lease.batch.").await, ["lease.batch.0.3"]);
    assert_eq!(list("lease.nothing.").await, Vec::<String>::new());
    assert_eq!(list("lease.").await.len(), 5);
    assert_eq!(list("lease.ingest").await.len(), 4, "a prefix of text, not of tokens");
}

pub(super) async fn lists_many(fixture: &dyn LeaseFixture) {
    let (one, other) = two(fixture).await;
    let mut expected: Vec<String> = (0..MANY).map(|number| format!("lease.many.{number}")).collect();
    let mut revisions = Vec::new();
    for key in &expected {
        revisions.push(create(&one, key, "x").await);
    }
    // Every third one goes.
    for (number, revision) in revisions.into_iter().enumerate().filter(|(number, _)| number % 3 == 0) {
        other.delete(&format!("lease.many.{number}"), revision).await.expect("the last write was named");
    }
    let mut number = 0..;
    expected.retain(|_| number.next().is_some_and(|number| number % 3 != 0));
    expected.sort();
    assert_eq!(other.list("lease.many.").await.expect("a list"), expected);
}
