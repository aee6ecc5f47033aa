//! Processes that freeze, die, come back, were told of other counts, or cannot reach what they need.

use std::sync::atomic::Ordering;

use tokio::time::sleep;
use wavehouse_broker::TakeOver;
use wavehouse_core::{Placement, TableRef};

use super::claims::{S, even, events, table_of, twelve};
use super::running::{Running, until};
use super::world::{Seen, World};
use crate::kit::{Answer, Scripted, lines, unavailable};

#[tokio::test(start_paused = true)]
async fn one_that_is_gone_is_suspected_and_replaced_before_its_lease_lapses() {
    let (world, sink, placement) = (World::new(true), Scripted::good(), twelve());
    let one = Running::start(&world, 1, placement, &sink);
    let two = Running::start(&world, 2, placement, &sink);
    until(10 * S, "an even split", || even(&world, &[1, 2], 12)).await;
    one.kill().await;
    let took = until(15 * S, "all of the dead one's", || even(&world, &[2], 12)).await;
    assert!(took <= 9 * S, "{took:?}");
    assert!(!events(&world, |_, seen| *seen == Seen::TakenOver(TakeOver::Suspected, true)).is_empty());
    two.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_that_is_there_and_cannot_renew_is_asked_now_and_then_and_keeps_its_slot_for_its_time() {
    let (world, sink, placement) = (World::new(true), Scripted::good(), Placement::new(1, 1).unwrap());
    let one = Running::start(&world, 1, placement, &sink);
    until(5 * S, "everything", || even(&world, &[1], 1)).await;
    // It waits for the only slot, and sees that the holder is silent.
    let two = Running::start(&world, 2, placement, &sink);
    one.bucket.set_reachable(false);
    let took = until(40 * S, "the other has it", || even(&world, &[2], 1)).await;
    assert!(took >= 13 * S && took <= 20 * S, "when the lease has lapsed, not after {took:?}");
    let asked = world.asks.load(Ordering::Relaxed);
    assert!((1..=10).contains(&asked), "asked {asked} times");
    assert!(events(&world, |_, seen| matches!(seen, Seen::TakenOver(TakeOver::Suspected, _))).is_empty());
    two.stop().await.unwrap();
    one.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_that_starts_anew_under_its_name_has_its_slot_back_at_once() {
    let (world, sink, placement) = (World::new(true), Scripted::good(), twelve());
    let one = Running::named(&world, 1, "host", placement, &sink);
    until(5 * S, "everything", || even(&world, &[1], 12)).await;
    one.kill().await;
    let again = Running::named(&world, 2, "host", placement, &sink);
    let took = until(15 * S, "everything again", || even(&world, &[2], 12)).await;
    assert!(took <= 3 * S, "{took:?}");
    assert!(world.lease(1).await.is_none(), "in the same slot");
    // Another one that was given the same name by mistake takes another slot.
    let twin = Running::named(&world, 3, "host", placement, &sink);
    until(15 * S, "an even split", || even(&world, &[2, 3], 12)).await;
    sleep(30 * S).await;
    assert!(even(&world, &[2, 3], 12));
    twin.stop().await.unwrap();
    again.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_that_was_frozen_cannot_insert_when_it_comes_back() {
    let (world, sink, placement) = (World::new(true), Scripted::good(), twelve());
    let one = Running::start(&world, 1, placement, &sink);
    let two = Running::start(&world, 2, placement, &sink);
    until(10 * S, "an even split", || even(&world, &[1, 2], 12)).await;
    let (unit, _) = world.owners().into_iter().find(|(_, owner)| *owner == 1).unwrap();
    let t = table_of(placement, unit);
    // Rows are in hand and about to be inserted.
    world.publish(placement, &t, lines(0..10)).await;
    sleep(S / 2).await;
    one.freeze();
    // Suspected, and replaced before its own deadline.
    until(9 * S, "another has it", || world.owners()[&unit] == 2).await;
    one.thaw();
    world.publish(placement, &t, lines(10..20)).await;
    until(20 * S, "every row", || world.unwritten() == 0).await;
    assert_eq!(sink.rows(&t), lines(0..20));
    until(40 * S, "an even split", || even(&world, &[1, 2], 12)).await;
    two.stop().await.unwrap();
    one.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn mixed_counts_leave_no_unit_alone() {
    let (world, sink) = (World::new(true), Scripted::good());
    let (small, large) = (Placement::new(2, 4).unwrap(), Placement::new(4, 6).unwrap());
    let one = Running::start(&world, 1, small, &sink);
    let two = Running::start(&world, 2, small, &sink);
    until(10 * S, "the small ones share", || even(&world, &[1, 2], 8)).await;
    let three = Running::start(&world, 3, large, &sink);
    until(15 * S, "all units are read", || world.owners().len() == 24).await;
    let owners = world.owners();
    assert!(owners.iter().all(|(unit, owner)| *owner == 3 || small.contains(*unit)));
    let four = Running::start(&world, 4, large, &sink);
    one.stop().await.unwrap();
    two.stop().await.unwrap();
    until(15 * S, "the large ones share", || even(&world, &[3, 4], 24)).await;
    three.stop().await.unwrap();
    four.stop().await.unwrap();
    // Back to the smaller counts: what is left is read as extras.
    let five = Running::start(&world, 5, small, &sink);
    until(15 * S, "extras too", || even(&world, &[5], 24)).await;
    five.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_clickhouse_does_not_keep_a_unit_from_moving() {
    let (world, placement) = (World::new(true), twelve());
    let sink = Scripted::new(|_, _| Answer::Fail(unavailable(None)));
    let one = Running::start(&world, 1, placement, &sink);
    until(5 * S, "everything", || even(&world, &[1], 12)).await;
    let tables: Vec<TableRef> = placement.units().map(|unit| table_of(placement, unit)).collect();
    for t in &tables {
        world.publish(placement, t, lines(0..10)).await;
    }
    sleep(20 * S).await;
    let two = Running::start(&world, 2, placement, &sink);
    let took = until(10 * S, "an even split", || even(&world, &[1, 2], 12)).await;
    assert!(took < 5 * S, "{took:?}");
    sink.set(|_, _| Answer::Store);
    until(60 * S, "every row", || world.unwritten() == 0).await;
    for t in &tables {
        assert_eq!(sink.rows(t), lines(0..10), "{t}");
    }
    two.stop().await.unwrap();
    one.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_is_cut_off_moves_nothing() {
    let (world, sink, placement) = (World::new(true), Scripted::good(), twelve());
    let one = Running::start(&world, 1, placement, &sink);
    let two = Running::start(&world, 2, placement, &sink);
    until(10 * S, "an even split", || even(&world, &[1, 2], 12)).await;
    let before = world.log().len();
    for process in [&one, &two] {
        process.bucket.set_reachable(false);
    }
    sleep(6 * S).await;
    for process in [&one, &two] {
        process.bucket.set_reachable(true);
    }
    sleep(30 * S).await;
    assert_eq!(world.log().len(), before, "{:?}", &world.log()[before..]);
    two.stop().await.unwrap();
    one.stop().await.unwrap();
}
