//! How a backend is brought under test, the list of promises, and the macro that makes a test of each.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;
use wavehouse_core::TenantId;

use crate::contract::SharedBroker;

/// Longest that a case may take; it waits for each single fact for less.
const CASE_WAIT: Duration = Duration::from_secs(120);
/// How long what is left running after a case is waited for.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

/// A backend under test: one empty queue of its own for each case.
///
/// The queue takes at least 64 MiB of unwritten rows of a tenant, keeps rows for live streams for an hour, and has an
/// ack wait that is longer than any case, unless a case says otherwise. It is set up so that 8 MiB of settled rows are
/// more than [`sweep`](crate::Broker::sweep) may leave lying (by small log files, for example), and that nothing is swept
/// unless a case says so.
#[async_trait]
pub trait BrokerFixture: Send {
    /// Makes a queue that is empty and opens it.
    async fn start() -> Self
    where
        Self: Sized;

    /// The broker that is open now.
    fn broker(&self) -> SharedBroker;

    /// Closes the broker cleanly, if it is not closed, and opens the same queue again. What a case still holds of the
    /// old one is dead and must have no effect.
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
    fn lacks() -> &'static [(Promise, &'static str)]
    where
        Self: Sized;
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
        let ended = timeout(CASE_WAIT, case(promise, &mut fixture)).await;
        assert!(ended.is_ok(), "the case of {promise} did not end within {CASE_WAIT:?}");
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
                // Case 1.
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
                // Cases 4, 5.
                OrderOfTenantsInterleaved tenants_interleaved "tables of several tenants, interleaved, each come in publish order";
                OrderBeyondTheBudget kept_beyond_the_budget "order holds when there is far more than the budget lets out";
                OrderOverARestart over_a_restart "order holds across a restart and a crash";
                OrderRetriedBeforeLater retried_before_later "a retried block comes back before any later block of its table";
                OrderRetriedTogether retried_together "blocks handed back in any order come back in theirs";
            }
            settle {
                AckEnds ack_ends "an acked block does not come again, what is beside it does";
                // Case 6.
                DropIsRetry drop_is_retry "a delivery that is dropped comes again under its sequence, and attempts are counted";
                RetryNotBefore retry_not_before "a retried block does not come before its time, and other tables go on";
                // Case 7.
                AckWait ack_wait "what is neither settled nor dropped within the ack wait comes again";
                LateAckCounts late_ack_counts "an ack of an overtaken attempt is an ack";
                LateRetryIgnored late_retry_ignored "the end of an overtaken attempt, other than by ack, does not end the later one";
                NextMayBeCancelled next_may_be_cancelled "cancelling a wait for the next delivery loses no block";
                WaitingNextWakes waiting_next_wakes "a waiting reader is told of a new block";
                PauseStopsOneTable pause_stops_one_table "a pause stops one table, the others go on, and an earlier moment lifts it";
                PauseEnds pause_ends "a pause ends at its moment";
                PausedHoldsNoBudget paused_holds_no_budget "what is handed back to a paused table holds no budget";
                HeldSurvivesPause held_survives_pause "what is out when its table is paused can be acked";
            }
            cuts {
                CutOverRelease over_release "a recorded cut is given to the next opener as it was recorded";
                CutOverRestart over_restart "a recorded cut outlives a restart";
                CutOverCrash over_crash "a recorded cut outlives a crash, again and again";
                CutReplacesEarlier replaces_earlier "a cut replaces its table's earlier one and no other table's";
                CutEndsWithItsBlocks ends_with_its_blocks "a cut whose blocks are all acked is not given";
                CutStaysUntilAllAcked stays_until_all_acked "a cut is given until all of its blocks are acked, and the acked ones stay acked";
                CutKeepsEarlierAcks keeps_earlier_acks "acks given before a cut is recorded are durable with it";
                CutOfManySplits many_splits "a cut keeps as many splits as may be recorded";
                CutRefusedToFormerOwner refused_to_former_owner "who no longer owns the unit cannot record a cut";
            }
            ownership {
                OneOpener one_opener "a unit is read by one opener at a time, halted or not";
                UnknownUnit unknown_unit "a unit that is not there is refused";
                HaltDrains halt_drains "a halt hands out nothing new, ends the stream, and leaves settling possible";
                HaltWakesNext halt_wakes_next "a halt ends a waiting reader";
                ReleaseHandsOver release_hands_over "a release hands what is unsettled to the next opener, in order, and nothing that is acked";
                AcksDurableWithRelease acks_are_durable_with_release "acks are durable once the unit is released";
                HeldOverRelease held_over_release "what a former opener drops does not touch the present one's deliveries";
                ReleaseEndsWaitingNext release_ends_waiting_next "a release ends a waiting reader without an error";
                // Case 13.
                LossIsToldOnce loss_is_told_once "delivery that ends on its own is told once";
                // Case 14.
                NoLossAfterHalt no_loss_after_halt "after a halt no loss is told";
            }
            history {
                HistoryLive live "a live history is caught up at once and shows what follows";
                HistoryAfterARow after_a_row "history after any row begins with the next one, inside blocks too, settled or not";
                HistoryAfterTheLast after_the_last "history after the last row has nothing but what follows";
                // Case 10.
                HistorySince since_a_moment "history since a moment begins with the first block that has a row of that moment or later";
                // Case 10.
                HistoryFilters filters "history of one table shows its rows alone, and of all tables everything, as it was published";
                HistoryHoleForStrangePosition hole_for_strange_position "a position of another log, or never reached, is a hole and then everything";
                HistoryHoleAfterSweep hole_after_sweep "rows asked for and no longer kept are told as a hole, over a restart too";
                HistorySweepUnderAReader sweep_under_a_reader "a sweep under a reader leaves no gap that is not told";
                HistoryEachRowOnce each_row_once_while_publishing "history read while publishing shows each row once and catches up once";
                HistoryNextMayBeCancelled next_may_be_cancelled "cancelling a wait for the next event loses nothing";
                HistorySettledRowsStay settled_rows_stay "settled rows stay readable for the gap window";
                HistoryNeverHoldsUpPublishing never_holds_up_publishing "a history that nobody reads holds up no publishing";
                HistoryOverARestart over_a_restart "a position can be resumed from after a restart and a crash";
                // Case 12.
                HistoryCloseIsAnError close_is_an_error "closing ends a history with an error, not with the word that it is caught up";
            }
            dead_letter {
                // Case 8.
                LetterKeptWhole kept_whole "a letter is kept with everything that it says";
                LetterLongReasonCut long_reason_cut "a reason that is too long is cut between characters";
                LetterBuriedTwiceIsOne buried_twice_is_one "burying a position twice leaves one letter, over a restart too";
                LetterPages pages "pages come by table and position, and say whether there are more";
                LetterFiltered filtered "letters are found by table, code and time of burial";
                // Case 9.
                LetterCounted counted "letters are counted by table";
                // Case 9.
                LetterTenantsApart tenants_apart "tenants see and drop their own letters, and an unknown one has none";
                LetterDropped dropped "dropping removes those letters and no other, and tells how many";
                LetterDurable durable "burials and drops outlive a crash";
                // Case 8.
                LetterNoSettle no_settle "burying settles nothing, and acking drops no letter";
            }
            limits {
                // Case 17.
                FullForOneTenant full_for_one_tenant "a full tenant is refused as certainly not stored, and others go on";
                OnlyUnwrittenCounts only_unwritten_counts "only unwritten bytes count against a tenant's budget";
                BudgetsApart budgets_apart "a tenant's budget counts the unwritten bytes of all of its tables, and nobody else's";
                LimitsBelowUse limits_below_use "a budget below what is in use refuses new rows and drops none";
                BudgetOverRestart budget_over_restart "what waits since before a restart or a crash counts against the budget";
                // Case 15.
                LimitsReported limits_reported "the limits set last are the ones reported, tenant by tenant";
                DeliveryBudgetOfRows delivery_budget_of_rows "no more rows than the budget are out unsettled";
                DeliveryBudgetOfBytes delivery_budget_of_bytes "no more bytes than the budget are out unsettled";
                DeliveryBudgetSpansTables delivery_budget_spans_tables "the budget counts the deliveries of all tables of a unit";
                DeliveryAtLeastOneBlock at_least_one_block "one block is let out however small the budget";
                DeliveryBudgetChanges raised_budget_wakes "a raised budget wakes a waiting reader, a lowered one leaves what is out";
                Depths depths "depths tell what waits, table by table, over a restart too";
                // Case 18.
                SweepSparesUnsettled sweep_spares_unsettled "a sweep takes no unsettled row";
                StuckTableFreesOthers stuck_table_frees_others "unsettled rows of one table keep no other table's space";
                Healthy healthy "a queue that takes rows says that it is good";
            }
            close {
                CloseRefusesAfter refuses_after "after a close everything is refused as closed, and closing again does nothing";
                CloseEndsDeliveries ends_deliveries "a close ends deliveries";
                CloseKeepsAcks keeps_acks "acks are durable once the broker is closed";
                CloseKeepsWordToSenders keeps_word_to_senders "a close loses nothing accepted and keeps nothing refused as not stored";
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

        async fn case(promise: Promise, fixture: &mut dyn BrokerFixture) {
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
