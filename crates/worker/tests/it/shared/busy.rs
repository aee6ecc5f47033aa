//! Processes that have their hands full: what they hold is bounded, and nobody takes from them what they are slow with.

use tokio::time::{Instant, sleep};
use wavehouse_broker::TakeOver;
use wavehouse_core::{Placement, TableRef};

use super::claims::{S, even, events, table_of, twelve};
use super::running::{Running, until};
use super::world::{Seen, World};
use crate::kit::{Answer, Scripted, lines, unavailable};

/// What one process holds at most: what each of its units is guaranteed, or what was asked for.
const HELD_MAX: f64 = 200_000.0;

#[tokio::test(start_paused = true)]
async fn case_101_what_is_held_is_bounded_and_drains() {
    let (world, placement) = (World::new(true), Placement::new(1, 2).unwrap());
    let sink = Scripted::new(|_, _| Answer::Fail(unavailable(None)));
    let one = Running::start(&world, 1, placement, &sink);
    until(5 * S, "everything", || even(&world, &[1], 2)).await;
    let tables: Vec<TableRef> = placement.units().map(|unit| table_of(placement, unit)).collect();
    for n in 0..60 {
        for t in &tables {
            world.publish(placement, t, lines(n * 5000..(n + 1) * 5000)).await;
        }
    }
    let held = || one.metric("wavehouse_ingest_rows_held").unwrap_or_default();
    let end = Instant::now() + 90 * S;
    let mut most = 0.0_f64;
    while Instant::now() < end {
        most = most.max(held());
        sleep(S / 10).await;
    }
    assert!(most <= HELD_MAX, "{most} rows were held of 600,000");
    sink.set(|_, _| Answer::Store);
    until(120 * S, "every row", || world.unwritten() == 0).await;
    for t in &tables {
        assert_eq!(sink.rows(t), lines(0..300_000), "{t}");
    }
    until(5 * S, "nothing is held", || held() == 0.0).await;
    one.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn case_108_one_that_is_slow_to_insert_keeps_its_units() {
    let (world, placement) = (World::new(true), twelve());
    let slow = Scripted::slow(13 * S, |_, _| Answer::Store);
    let one = Running::start(&world, 1, placement, &slow);
    let two = Running::start(&world, 2, placement, &slow);
    until(10 * S, "an even split", || even(&world, &[1, 2], 12)).await;
    let before = world.owners();
    let t = table_of(placement, placement.units().next().unwrap());
    let log = world.log().len();
    world.publish(placement, &t, lines(0..20)).await;
    until(60 * S, "every row", || world.unwritten() == 0).await;
    assert_eq!((world.owners(), world.log().len()), (before, log), "nothing moved");
    assert_eq!(slow.rows(&t), lines(0..20));
    two.stop().await.unwrap();
    one.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn case_109_a_stuck_unit_does_not_stall_another() {
    let (world, placement) = (World::new(true), twelve());
    let units: Vec<_> = placement.units().collect();
    let stuck = table_of(placement, units[0]);
    let refused = stuck.clone();
    let sink = Scripted::new(move |batch, _| {
        if batch.table == refused { Answer::Fail(unavailable(Some(242))) } else { Answer::Store }
    });
    let one = Running::start(&world, 1, placement, &sink);
    until(5 * S, "everything", || even(&world, &[1], 12)).await;
    world.publish(placement, &stuck, lines(0..8)).await;
    sleep(5 * S).await;
    for unit in &units[1..] {
        world.publish(placement, &table_of(placement, *unit), lines(0..31)).await;
    }
    let took = until(20 * S, "all but the stuck one's", || world.unwritten() == 8).await;
    assert!(took < 5 * S, "{took:?}");
    assert!(events(&world, |_, seen| matches!(seen, Seen::TakenOver(TakeOver::Suspected, _))).is_empty());
    sink.set(|_, _| Answer::Store);
    until(60 * S, "every row", || world.unwritten() == 0).await;
    assert_eq!(sink.rows(&stuck), lines(0..8));
    one.stop().await.unwrap();
}
