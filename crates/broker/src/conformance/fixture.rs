//! How a backend is brought under test, the list of promises, and the macro that makes a test of each.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use wavehouse_core::TenantId;

use crate::contract::SharedBroker;

/// How long what is left running after a case is waited for.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

/// A backend under test: one empty queue of its own for each case.
///
/// The queue takes at least 64 MiB of unwritten rows of a tenant, keeps rows for live streams for an hour, and has an
/// ack wait that is longer than any case, unless a case says otherwise. It is set up so that 8 MiB of settled rows are
/// more than [`sweep`](crate::Broker::sweep) may leave lying (small log files, for example).
#[async_trait]
pub trait BrokerFixture: Send + Sized {
    /// Makes a queue that is empty and opens it.
    async fn start() -> Self;

    /// The broker that is open now.
    fn broker(&self) -> SharedBroker;

    /// Closes the broker cleanly and opens the same queue again. What a case still holds of the old one is dead.
    async fn restart(&mut self);

    /// Ends the broker as `kill -9` of the process would, as nearly as can be done within one, and opens the same
    /// queue again. What a case still holds of the old one is dead and must have no effect.
    async fn crash(&mut self);

    /// Sets how long a delivery may stay unsettled. Called before a case publishes; may restart the broker.
    async fn set_ack_wait(&mut self, ack_wait: Duration);

    /// Makes the queue refuse rows of this tenant, and of no other, as full of unwritten rows.
    async fn fill(&mut self, tenant: &TenantId);

    /// Makes delivery of every open unit end on its own, as when another process takes the units over.
    async fn end_delivery(&mut self);

    /// What this backend does not promise, each with the reason. Nothing, if it keeps everything.
    fn lacks() -> &'static [(Promise, &'static str)];
}

/// Runs the case of a promise on a fresh fixture, unless the backend lacks it.
///
/// # Panics
/// When the promise is not kept.
pub fn run<F: BrokerFixture>(promise: Promise) {
    if F::lacks().iter().any(|(lacked, _)| *lacked == promise) {
        return;
    }
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match built {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime for the case: {error}"),
    };
    runtime.block_on(async {
        let mut fixture = F::start().await;
        case(promise, &mut fixture).await;
    });
    runtime.shutdown_timeout(SHUTDOWN_WAIT);
}

/// What a backend lacks, one line each, in the order of the promises; for a golden text in the backend's tests.
///
/// # Panics
/// When a promise is named twice.
#[must_use]
pub fn lacks_report<F: BrokerFixture>() -> String {
    let mut report = String::new();
    for promise in Promise::ALL {
        let mut reasons = F::lacks().iter().filter(|(lacked, _)| lacked == promise);
        if let Some((_, reason)) = reasons.next() {
            report.push_str(&format!("{promise}\n    {}\n    lacks it: {reason}\n", promise.sentence()));
        }
        assert!(reasons.next().is_none(), "{promise} is named twice");
    }
    if report.is_empty() {
        report.push_str("lacks nothing\n");
    }
    report
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The list of cases: subject file, promise, function, and the promise in words. Calls `$then` with it.
#[doc(hidden)]
#[macro_export]
macro_rules! __broker_cases {
    ($then:path, [$($args:tt)*]) => {
        $then! { [$($args)*]
            publish {
                RoundTrip round_trip "rows of odd tables, scopes and tenants come out as they went in";
                OneResultABlock one_result_a_block "a submit has one result a block, in their order, and each receipt says where the rows stand";
                RefusedBlockAlone refused_block_alone "a block that is too large is rejected as certainly not stored, and keeps no other out";
                LargestBlock largest_block "a block of the largest size is taken";
                EmptyBlock empty_block "an empty block is legal, and holds nothing up";
                MixedSizes mixed_sizes "small and large blocks in one submit keep their order and every byte";
                DurableOverRestart durable_over_restart "what was accepted is there after a restart";
                DurableOverCrash durable_over_crash "what was accepted is there after a crash";
                DroppedResultKeepsRows dropped_result_keeps_rows "dropping the result of a submit does not take the rows back";
                MergedRowsKeepTheirSegment merged_rows_keep_their_segment "merging parts no row from its receipt time, scope and receipt";
                SequencesWithoutGaps sequences_without_gaps "sequences of a table run from 1 without gaps, over restarts too";
            }
            order {
                OrderFixedAtTheCall fixed_at_the_call "order is the order of the calls to submit, whatever is polled first";
                OrderOfEachSender of_each_sender "who awaits each result keeps their order among concurrent senders";
                OrderOfTenantsInterleaved tenants_interleaved "tables of several tenants, interleaved, each come in publish order";
                OrderBeyondTheBudget kept_beyond_the_budget "order holds when there is far more than the budget lets out";
                OrderOverARestart over_a_restart "order holds across a restart and a crash";
                OrderRetriedBeforeLater retried_before_later "a retried block comes back before any later block of its table";
                OrderRetriedTogether retried_together "blocks handed back in any order come back in theirs";
            }
        }
    };
}

macro_rules! define_promises {
    ([] $($subject:ident { $($promise:ident $case:ident $sentence:literal;)* })*) => {
        /// One promise of the contract; each has a case.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Promise {
            $($(#[doc = $sentence] $promise,)*)*
        }

        impl Promise {
            /// Every promise, by subject.
            pub const ALL: &'static [Self] = &[$($(Self::$promise,)*)*];

            /// Subject and case, as in the name of the test.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($(Self::$promise => concat!(stringify!($subject), "::", stringify!($case)),)*)*
                }
            }

            /// The promise in words.
            #[must_use]
            pub fn sentence(self) -> &'static str {
                match self {
                    $($(Self::$promise => $sentence,)*)*
                }
            }
        }

        async fn case<F: BrokerFixture>(promise: Promise, fixture: &mut F) {
            match promise {
                $($(Promise::$promise => Box::pin(super::$subject::$case(fixture)).await,)*)*
            }
        }
    };
}
__broker_cases!(define_promises, []);

/// Makes one named test of each case, for the given [`BrokerFixture`], in a module for each subject.
#[macro_export]
macro_rules! broker_conformance {
    ($fixture:ty) => {
        $crate::__broker_cases!($crate::__broker_case_tests, [$fixture]);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __broker_case_tests {
    ([$fixture:ty] $($subject:ident { $($promise:ident $case:ident $sentence:literal;)* })*) => {
        type FixtureUnderTest = $fixture;
        $(mod $subject {
            $(
                #[doc = $sentence]
                #[test]
                fn $case() {
                    $crate::conformance::run::<super::FixtureUnderTest>($crate::conformance::Promise::$promise);
                }
            )*
        })*
    };
}
