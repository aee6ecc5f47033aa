//! The suite that every lease bucket passes: a case for each promise of [`LeaseBucket`].
//!
//! A bucket joins with one line in its own tests, `lease_conformance!(ItsFixture)`, which becomes one named test a case.
//! Two handles stand for two processes; what one writes the other must see at once. [`MemoryBucket`] keeps every promise
//! and can be told to fail, for the tests of those who hold leases.

mod cases;
mod memory;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

pub use memory::{BucketFault, MemoryBucket};

use crate::lease::LeaseBucket;

/// Longest that a case may take.
const CASE_WAIT: Duration = Duration::from_secs(60);
/// How long what is left running after a case is waited for.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

/// A bucket under test: one empty bucket of its own for each case.
#[async_trait]
pub trait LeaseFixture: Send + Sync {
    /// Makes a bucket that is empty.
    async fn start() -> Self
    where
        Self: Sized;

    /// A handle of its own, as another process would have it.
    async fn handle(&self) -> Arc<dyn LeaseBucket>;
}

/// Runs one case on a fresh fixture.
///
/// # Panics
/// When the promise is not kept.
pub fn run_lease_case<F: LeaseFixture>(case: LeaseCase) {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match built {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime for the case: {error}"),
    };
    runtime.block_on(async {
        let fixture = F::start().await;
        let ended = timeout(CASE_WAIT, run_case(case, &fixture)).await;
        assert!(ended.is_ok(), "{case:?} did not end within {CASE_WAIT:?}");
    });
    runtime.shutdown_timeout(SHUTDOWN_WAIT);
}

/// The list of cases: name, function, and the promise in words. Calls `$then` with it.
#[doc(hidden)]
#[macro_export]
macro_rules! __lease_cases {
    ($then:path, [$($args:tt)*]) => {
        $then! { [$($args)*]
            ReadsWhatIsWritten reads_what_is_written "a write is seen at once by every process, with its revision";
            CreatesOnce creates_once "a key is created where there is none, and by one alone";
            UpdatesNameTheLast updates_name_the_last "an update names the last write, or changes nothing";
            DeletesNameTheLast deletes_name_the_last "a deletion names the last write, or changes nothing";
            DeletedIsAbsent deleted_is_absent "a deleted key is not there, and can be created again";
            RevisionsGrow revisions_grow "revisions grow with every write, over deletions and other keys";
            OneWins one_wins "of many that compete one wins";
            KeysApart keys_apart "keys that look alike are different keys";
            LargeAndOddValues large_and_odd_values "values up to the longest are kept byte for byte";
            ListsWhatIsThere lists_what_is_there "a list has the keys of a prefix that hold something, in order";
            ListsMany lists_many "a list is whole however many keys there are";
        }
    };
}

macro_rules! define_cases {
    ([] $($case:ident $function:ident $sentence:literal;)*) => {
        /// One promise of [`LeaseBucket`]; each has a case.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum LeaseCase {
            $(#[doc = $sentence] $case,)*
        }

        impl LeaseCase {
            /// Every case, in order.
            pub const ALL: &'static [Self] = &[$(Self::$case,)*];
        }

        async fn run_case(case: LeaseCase, fixture: &dyn LeaseFixture) {
            match case {
                $(LeaseCase::$case => Box::pin(cases::$function(fixture)).await,)*
            }
        }
    };
}
__lease_cases!(define_cases, []);

/// Makes one named test of each case, for the given [`LeaseFixture`], in a module `leases`.
#[macro_export]
macro_rules! lease_conformance {
    ($fixture:ty) => {
        $crate::__lease_cases!($crate::__lease_case_tests, [$fixture]);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __lease_case_tests {
    ([$fixture:ty] $($case:ident $function:ident $sentence:literal;)*) => {
        type LeaseFixtureUnderTest = $fixture;
        mod leases {
            $(
                #[doc = $sentence]
                #[test]
                fn $function() {
                    $crate::conformance::run_lease_case::<super::LeaseFixtureUnderTest>(
                        $crate::conformance::LeaseCase::$case,
                    );
                }
            )*
        }
    };
}
