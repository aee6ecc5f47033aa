//! The broker in memory keeps every promise.

use wavehouse_broker::broker_conformance;
use wavehouse_broker::conformance::{MemoryFixture, lacks_report};

broker_conformance!(MemoryFixture);

#[test]
fn it_lacks_nothing() {
    assert_eq!(lacks_report::<MemoryFixture>(), "lacks nothing\n");
}
