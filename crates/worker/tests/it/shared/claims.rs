//! Who reads which unit, as processes come and go.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use wavehouse_broker::TakeOver;
use wavehouse_core::{PartitionId, Placement, ShardId, TableRef, UnitId};
use wavehouse_worker::WorkerFault;

use super::running::{Running, until};
use super::world::{Seen, World};
use crate::kit::{Answer, Scripted, lines, table};

pub(super) const S: Duration = Duration::from_secs(1);

pub(super) fn twelve() -> Placement {
    Placement::new(2, 6).unwrap()
}

/// How many units each process has.
pub(super) fn loads(world: &World) -> BTreeMap<usize, usize> {
    let mut loads = BTreeMap::new();
    for owner in world.owners().into_values() {
        *loads.entry(owner).or_default() += 1;
    }
    loads
}

pub(super) fn even(world: &World, processes: &[usize], units: usize) -> bool {
    let loads = loads(world);
    let cap = units.div_ceil(processes.len());
    loads.values().sum::<usize>() == units
        && loads.keys().all(|process| processes.contains(process))
        && loads.values().all(|load| *load <= cap)
}

/// A table of that unit.
pub(super) fn table_of(placement: Placement, unit: UnitId) -> TableRef {
    (0..).map(|n| table(&format!("t{n}"))).find(|t| placement.unit_for(t) == unit).unwrap()
}

pub(super) fn events(
    world: &World,
    wanted: impl Fn(usize, &Seen) -> bool,
) -> Vec<(Instant, usize, UnitId, Seen)> {
    world.log().into_iter().filter(|(_, process, _, seen)| wanted(*process, seen)).collect()
}

#[tokio::test(start_paused = true)]
async fn case_95_three_processes_split_twelve_units_and_hand_over_without_overlap() {
    let (world, sink, placement) = (World::new(true), Scripted::good(), twelve());
    let start = |number| Running::start(&world, number, placement, &sink);
    let (one, two, three) = (start(1), start(2), start(3));
    until(10 * S, "an even split", || even(&world, &[1, 2, 3], 12)).await;
    let took =
        until(10 * S, "the gauges", || one.metric("wavehouse_ingest_shard_members") == Some(3.0)).await;
    assert!(took <= 4 * S, "{took:?}");
    let four = start(4);
    until(10 * S, "a share for the fourth", || even(&world, &[1, 2, 3, 4], 12)).await;
    // Nobody ever opened a unit that another had not released.
    let mut held: BTreeMap<UnitId, usize> = BTreeMap::new();
    for (_, process, unit, seen) in world.log() {
        match seen {
            Seen::Opened => assert_eq!(held.insert(unit, process), None, "{unit} is opened while it is held"),
            Seen::Released => assert_eq!(held.remove(&unit), Some(process)),
            _ => {}
        }
    }
    // One that stops leaves nothing behind, and the others have its share within a tick.
    two.stop().await.unwrap();
    assert!(!world.owners().values().any(|owner| *owner == 2));
    until(3 * S, "the share of the one that stopped", || even(&world, &[1, 3, 4], 12)).await;
    for process in [one, three, four] {
        process.stop().await.unwrap();
    }
    assert!(world.owners().is_empty() && world.lease(0).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn case_96_a_handover_waits_for_the_rows_in_hand() {
    let (world, placement) = (World::new(true), twelve());
    let slow = Scripted::slow(13 * S, |_, _| Answer::Store);
    let one = Running::start(&world, 1, placement, &slow);
    until(5 * S, "everything", || even(&world, &[1], 12)).await;
    let tables: Vec<TableRef> = placement.units().map(|unit| table_of(placement, unit)).collect();
    for t in &tables {
        world.publish(placement, t, lines(0..10)).await;
    }
    // Four inserts at a time are under way.
    sleep(3 * S).await;
    let two = Running::start(&world, 2, placement, &slow);
    until(60 * S, "an even split", || even(&world, &[1, 2], 12)).await;
    until(100 * S, "every row", || world.unwritten() == 0).await;
    for t in &tables {
        assert_eq!(slow.rows(t), lines(0..10), "{t}");
    }
    // Each table was inserted once, by whoever had it.
    assert_eq!(slow.calls().len(), 12);
    assert_eq!(one.metric("wavehouse_ingest_shard_events_total{event=\"handover_timeout\"}"), None);
    two.stop().await.unwrap();
    one.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn case_97_a_lost_slot_gives_every_unit_up_and_a_new_one_is_taken() {
    let (world, sink, placement) = (World::new(true), Scripted::good(), twelve());
    let one = Running::start(&world, 1, placement, &sink);
    until(5 * S, "everything", || even(&world, &[1], 12)).await;
    let before = world.lease(0).await.unwrap();
    one.bucket.set_reachable(false);
    let disowned = || events(&world, |_, seen| *seen == Seen::Disowned).len() >= 12;
    let took = until(15 * S, "all disowned", disowned).await;
    assert!(took >= 7 * S && took <= 11 * S, "at the renew deadline, not {took:?}");
    until(S, "nothing is held", || world.owners().is_empty()).await;
    let lost = one.metric("wavehouse_ingest_shard_events_total{event=\"lost\"}");
    assert!(lost >= Some(1.0), "{lost:?}");
    one.bucket.set_reachable(true);
    until(40 * S, "everything again", || even(&world, &[1], 12)).await;
    let after = world.lease(0).await.unwrap();
    assert!(after.revision > before.revision);
    one.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn case_98_more_processes_than_units() {
    let placement = Placement::new(1, 2).unwrap();
    let (world, sink) = (World::new(true), Scripted::good());
    let all: Vec<Running> = (1..=5).map(|number| Running::start(&world, number, placement, &sink)).collect();
    until(10 * S, "two hold one each", || loads(&world).values().eq([1, 1].iter())).await;
    sleep(30 * S).await;
    assert!(loads(&world).values().eq([1, 1].iter()));
    // One of the idle ones takes a slot that becomes free.
    let (holders, idle): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|process| loads(&world).contains_key(&process.number));
    assert_eq!((holders.len(), idle.len()), (2, 3));
    for holder in holders {
        holder.stop().await.unwrap();
    }
    until(10 * S, "two others hold one each", || loads(&world).values().eq([1, 1].iter())).await;
    for process in idle {
        process.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn case_99_a_take_over_comes_before_opening_and_only_for_one_that_is_gone() {
    let (world, sink, placement) = (World::new(false), Scripted::good(), twelve());
    let one = Running::start(&world, 1, placement, &sink);
    until(5 * S, "everything", || even(&world, &[1], 12)).await;
    let alone = events(&world, |_, seen| matches!(seen, Seen::TakenOver(..))).len();
    let two = Running::start(&world, 2, placement, &sink);
    until(10 * S, "an even split", || even(&world, &[1, 2], 12)).await;
    let taken_over = || events(&world, |_, seen| matches!(seen, Seen::TakenOver(..)));
    assert_eq!(taken_over().len(), alone, "a handover needs none");
    let (ones, died) = (loads(&world)[&1], Instant::now());
    one.kill().await;
    let took = until(40 * S, "all of the dead one's", || even(&world, &[2], 12)).await;
    assert!(took >= 12 * S && took <= 20 * S, "once its lease has lapsed, not after {took:?}");
    let fenced: Vec<_> = taken_over().into_iter().filter(|(at, ..)| *at >= died).collect();
    assert_eq!(fenced.len(), ones);
    for (at, process, unit, seen) in fenced {
        assert_eq!((process, seen), (2, Seen::TakenOver(TakeOver::Lapsed, true)));
        let opened = events(&world, |process, seen| process == 2 && *seen == Seen::Opened);
        assert!(opened.iter().any(|(opened, _, there, _)| *there == unit && *opened >= at));
    }
    two.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn case_99_a_unit_that_is_still_read_is_waited_for_and_opened_in_the_end() {
    let (world, sink, placement) = (World::new(false), Scripted::good(), Placement::new(1, 2).unwrap());
    let one = Running::start(&world, 1, placement, &sink);
    let two = Running::start(&world, 2, placement, &sink);
    until(10 * S, "an even split", || even(&world, &[1, 2], 2)).await;
    // It cannot renew, and it hangs in what it does when it notices; but the servers see it read on.
    let unit = world.owners().into_iter().find(|(_, owner)| *owner == 1).unwrap().0;
    world.keep_active(unit);
    one.freeze();
    let took = until(90 * S, "opened all the same", || world.owners()[&unit] == 2).await;
    assert!(took >= 40 * S && took <= 55 * S, "the lease and the patience, not {took:?}");
    assert!(events(&world, |_, seen| matches!(seen, Seen::TakenOver(_, true))).is_empty());
    two.stop().await.unwrap();
    one.kill().await;
}

#[tokio::test(start_paused = true)]
async fn case_100_a_configured_unit_that_is_gone_ends_the_worker_and_an_extra_does_not() {
    let (world, sink, placement) = (World::new(true), Scripted::good(), twelve());
    let extra = UnitId { partition: PartitionId(0), shard: ShardId(7) };
    let larger = Placement::new(2, 8).unwrap();
    world.publish(larger, &table_of(larger, extra), lines(0..3)).await;
    let mut one = Running::start(&world, 1, placement, &sink);
    until(10 * S, "everything and the extra", || even(&world, &[1], 13)).await;
    until(10 * S, "the extra's rows", || world.unwritten() == 0).await;
    world.remove(extra);
    sleep(20 * S).await;
    assert!(even(&world, &[1], 12));
    // Delivery of a unit that ends by itself is begun again.
    let unit = placement.units().next().unwrap();
    world.end_delivery(unit);
    until(20 * S, "it is read again", || even(&world, &[1], 12)).await;
    world.remove(unit);
    let fault = tokio::time::timeout(30 * S, one.ended()).await.unwrap().unwrap_err();
    assert!(
        matches!(fault, WorkerFault::Gone { .. }) && fault.to_string().starts_with("delivery ended"),
        "{fault}"
    );
    assert!(world.owners().is_empty() && world.lease(0).await.is_none(), "the rest is given back");
}

#[tokio::test(start_paused = true)]
async fn case_102_only_the_lowest_member_counts() {
    let (world, sink, placement) = (World::new(true), Scripted::good(), twelve());
    let one = Running::start(&world, 1, placement, &sink);
    until(5 * S, "everything", || even(&world, &[1], 12)).await;
    let two = Running::start(&world, 2, placement, &sink);
    sleep(40 * S).await;
    let shows = |process: &Running| process.metric("wavehouse_ingest_shards_unowned");
    assert_eq!((shows(&one), shows(&two)), (Some(0.0), None));
    let counted = world.counts.load(Ordering::Relaxed);
    assert!((2..=4).contains(&counted), "every 15 s, not {counted} times");
    one.stop().await.unwrap();
    until(30 * S, "the next one counts", || shows(&two).is_some()).await;
    two.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn case_103_the_first_look_takes_over_only_when_alone() {
    let (world, sink, placement) = (World::new(true), Scripted::good(), twelve());
    for (unit, t) in placement.units().map(|unit| (unit, table_of(placement, unit))) {
        world.publish(placement, &t, lines(0..1)).await;
        assert_eq!(placement.unit_for(&t), unit);
    }
    let by =
        |number| move |process: usize, seen: &Seen| process == number && matches!(seen, Seen::TakenOver(..));
    let one = Running::start(&world, 1, placement, &sink);
    until(5 * S, "everything", || even(&world, &[1], 12)).await;
    assert_eq!(events(&world, by(1)).len(), 12);
    let two = Running::start(&world, 2, placement, &sink);
    until(10 * S, "an even split", || even(&world, &[1, 2], 12)).await;
    assert_eq!(events(&world, by(2)).len(), 0);
    two.stop().await.unwrap();
    one.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn case_104_stopping_cuts_a_handover_short() {
    let (world, placement) = (World::new(true), Placement::new(1, 2).unwrap());
    let hangs = Scripted::slow(1000 * S, |_, _| Answer::Store);
    let one = Running::start(&world, 1, placement, &hangs);
    until(5 * S, "everything", || even(&world, &[1], 2)).await;
    let tables: Vec<TableRef> = placement.units().map(|unit| table_of(placement, unit)).collect();
    for t in &tables {
        world.publish(placement, t, lines(0..10)).await;
    }
    sleep(3 * S).await;
    let good = Scripted::good();
    let two = Running::start(&world, 2, placement, &good);
    sleep(10 * S).await;
    assert_eq!(loads(&world), BTreeMap::from([(1, 2)]), "the handover waits");
    let began = Instant::now();
    one.stop().await.unwrap();
    assert!(began.elapsed() <= 21 * S, "{:?}", began.elapsed());
    until(10 * S, "every row", || world.unwritten() == 0).await;
    two.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handover_ends_after_a_minute_whatever_is_in_hand() {
    let (world, placement) = (World::new(true), Placement::new(1, 2).unwrap());
    let hangs = Scripted::slow(1000 * S, |_, _| Answer::Store);
    let one = Running::start(&world, 1, placement, &hangs);
    until(5 * S, "everything", || even(&world, &[1], 2)).await;
    for unit in placement.units() {
        world.publish(placement, &table_of(placement, unit), lines(0..10)).await;
    }
    sleep(3 * S).await;
    let good = Scripted::good();
    let two = Running::start(&world, 2, placement, &good);
    let took = until(80 * S, "an even split", || even(&world, &[1, 2], 2)).await;
    assert!(took >= 58 * S && took <= 66 * S, "{took:?}");
    let timeouts = one.metric("wavehouse_ingest_shard_events_total{event=\"handover_timeout\"}");
    assert_eq!(timeouts, Some(1.0));
    until(20 * S, "the rows of the one that moved", || world.unwritten() == 10).await;
    one.kill().await;
    two.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn case_107_the_gauges_tell_what_is_owned_and_held() {
    let (world, placement) = (World::new(true), twelve());
    let down = Scripted::slow(5 * S, |_, _| Answer::Store);
    let one = Running::start(&world, 1, placement, &down);
    until(5 * S, "everything", || even(&world, &[1], 12)).await;
    let two = Running::start(&world, 2, placement, &down);
    until(10 * S, "an even split", || even(&world, &[1, 2], 12)).await;
    let metric = |process: &Running, name: &str| process.metric(&format!("wavehouse_ingest_{name}"));
    for process in [&one, &two] {
        until(5 * S, "the gauges", || metric(process, "shard_members") == Some(2.0)).await;
        assert_eq!(metric(process, "shards_owned"), Some(loads(&world)[&process.number] as f64));
    }
    assert!(metric(&one, "shard_events_total{event=\"taken\"}") >= Some(12.0));
    let given = metric(&one, "shard_events_total{event=\"released\"}");
    assert_eq!(given, Some(loads(&world)[&2] as f64));
    assert_eq!(metric(&one, "shard_handover_seconds_count"), given);
    let (unit, owner) = world.owners().into_iter().next().unwrap();
    world.publish(placement, &table_of(placement, unit), lines(0..7)).await;
    sleep(3 * S).await;
    let of_owner = if owner == 1 { &one } else { &two };
    assert_eq!(metric(of_owner, "rows_held"), Some(7.0));
    until(10 * S, "nothing is held", || metric(of_owner, "rows_held") == Some(0.0)).await;
    two.stop().await.unwrap();
    one.stop().await.unwrap();
}
