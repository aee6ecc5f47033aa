//! The bucket in memory keeps every promise, and fails when told to.

use bytes::Bytes;
use wavehouse_broker::conformance::{BucketFault, MemoryBucket};
use wavehouse_broker::{LeaseBucket, LeaseError, lease_conformance};

lease_conformance!(MemoryBucket);

#[tokio::test]
async fn it_fails_once_where_it_is_told_to() {
    let bucket = MemoryBucket::default();
    let value = Bytes::from_static(b"x");
    bucket.fail_next("lease.a", BucketFault::NotDone);
    let other = bucket.create("lease.b", value.clone()).await.expect("another key");
    bucket.create("lease.a", value.clone()).await.expect_err("told to fail");
    assert_eq!(bucket.get("lease.a").await, Ok(None), "not done, and only once");

    bucket.fail_next("lease.b", BucketFault::AnswerLost);
    let lost = bucket.update("lease.b", Bytes::from_static(b"y"), other).await;
    assert!(matches!(lost, Err(LeaseError::Unavailable { .. })));
    let entry = bucket.get("lease.b").await.expect("it answers").expect("it is there");
    assert!(entry.revision > other && entry.value == "y", "done all the same");

    bucket.set_reachable(false);
    assert!(matches!(bucket.list("lease.").await, Err(LeaseError::Unavailable { .. })));
    let seen_by_others = bucket.another().list("lease.").await;
    assert_eq!(seen_by_others, Ok(vec!["lease.b".to_owned()]), "others are not cut off");
    bucket.set_reachable(true);
    bucket.fail_next("", BucketFault::NoBucket);
    assert!(matches!(bucket.get("lease.b").await, Err(LeaseError::NoBucket { .. })));
}
