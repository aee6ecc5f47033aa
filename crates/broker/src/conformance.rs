//! The suite that every broker passes: a case for each promise of [`Broker`](crate::Broker).
//!
//! A backend joins with one line in its own tests, `broker_conformance!(ItsFixture)`, which becomes one named test a
//! case. What it cannot keep it names in [`BrokerFixture::lacks`] with the reason; such a case is passed over, and
//! [`lacks_report`] prints all of them for a golden text, so that nothing is passed over in silence.
//!
//! Cases look at rows, not at blocks, wherever a broker is free to merge blocks. They do take it for granted that blocks
//! whose submits were awaited one after the other are not merged. They wait for facts, with a limit ([`within`]); only
//! for what must *not* happen do they watch for a short while, after a fact that would have followed it.
//!
//! [`MemoryBroker`] keeps every promise without a disk. It proves the suite, and serves the tests of those who use a
//! broker.

mod close;
mod cuts;
mod dead_letter;
mod fixture;
mod history;
mod kit;
mod leases;
mod limits;
mod memory;
mod order;
mod ownership;
mod publish;
mod settle;

pub use fixture::{BrokerFixture, Promise, lacks_report, run};
pub use kit::within;
pub use leases::{BucketFault, LeaseCase, LeaseFixture, MemoryBucket, run_lease_case};
pub use memory::{MemoryBroker, MemoryFixture, MemoryOptions, MemoryStore};
