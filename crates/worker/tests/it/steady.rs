//! Batches, order, turns and stopping while everything works.

use std::time::Duration;

use tokio::time::Instant;

use crate::kit::{Answer, House, Scripted, block, lines, table};

const S: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn single_rows_become_one_batch_after_the_linger() {
    let mut house = House::new(Scripted::good());
    house.start();
    let (began, t) = (Instant::now(), table("t"));
    for number in 0..100 {
        house.publish(vec![block(&t, lines(number..number + 1))]).await;
    }
    house.drained(5 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..100));
    let calls = house.sink.calls();
    assert_eq!(calls.len(), 1);
    assert!(calls[0].0 - began >= S && calls[0].0 - began < S + S / 10, "{:?}", calls[0].0 - began);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_rows_do_not_linger_and_the_next_ones_grow() {
    let mut house = House::new(Scripted::slow(3 * S, |_, _| Answer::Store));
    house.start();
    let (began, t) = (Instant::now(), table("t"));
    for number in 0..50 {
        house.publish(vec![block(&t, lines(number * 1000..(number + 1) * 1000))]).await;
    }
    house.drained(20 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..50_000));
    let calls: Vec<(Duration, u32)> =
        house.sink.calls().iter().map(|(at, _, rows)| (*at - began, *rows)).collect();
    // The first is ready by its rows; all that came while it was in flight is the second.
    assert_eq!(calls, [(Duration::ZERO, 10_000), (3 * S, 40_000)]);
}

#[tokio::test(start_paused = true)]
async fn inserts_of_a_table_begin_half_a_second_apart() {
    let mut house = House::new(Scripted::good());
    house.start();
    let (began, t) = (Instant::now(), table("t"));
    house.publish(vec![block(&t, lines(0..10_000))]).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    house.publish(vec![block(&t, lines(10_000..20_000))]).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    house.publish(vec![block(&t, lines(20_000..30_000))]).await;
    house.drained(5 * S).await;
    let calls: Vec<(u128, u32)> =
        house.sink.calls().iter().map(|(at, _, rows)| ((*at - began).as_millis(), *rows)).collect();
    assert_eq!(calls, [(0, 10_000), (500, 20_000)]);
}

#[tokio::test(start_paused = true)]
async fn four_inserts_at_a_time_and_every_table_gets_its_turn() {
    let mut house = House::new(Scripted::slow(S, |_, _| Answer::Store));
    house.start();
    let tables: Vec<_> = (0..12).map(|number| table(&format!("t{number}"))).collect();
    for round in 0..4 {
        let rows = lines(round * 10_000..(round + 1) * 10_000);
        house.publish(tables.iter().map(|t| block(t, rows.clone())).collect()).await;
        tokio::time::sleep(3 * S).await;
    }
    house.drained(60 * S).await;
    assert_eq!(house.sink.most_in_flight(), 4);
    for t in &tables {
        assert_eq!(house.sink.rows(t), lines(0..40_000), "{t}");
    }
    // Nobody is served twice before everybody was served once.
    let first: Vec<_> = house.sink.calls().into_iter().take(12).map(|(_, t, _)| t).collect();
    assert!(tables.iter().all(|t| first.contains(t)), "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn stopping_writes_what_is_in_hand() {
    let mut house = House::new(Scripted::slow(S / 2, |_, _| Answer::Store));
    house.start();
    let t = table("t");
    house.publish(vec![block(&t, lines(0..10)), block(&table("u"), lines(0..10))]).await;
    tokio::time::sleep(S / 10).await;
    assert_eq!(house.sink.calls().len(), 0);
    house.stop().await.unwrap();
    assert_eq!(house.sink.rows(&t), lines(0..10));
    assert_eq!(house.unwritten(), 0);
}

#[tokio::test(start_paused = true)]
async fn stopping_does_not_wait_for_ever_and_loses_nothing() {
    let mut house = House::new(Scripted::slow(100 * S, |_, _| Answer::Store));
    house.start();
    let t = table("t");
    house.publish(vec![block(&t, lines(0..10_000))]).await;
    tokio::time::sleep(2 * S).await;
    let began = Instant::now();
    house.stop().await.unwrap();
    assert_eq!(began.elapsed(), house.options.stop_budget);
    assert_eq!(house.unwritten(), 10_000);
    // The unit is free again, and the next worker writes the rows.
    house.sink = Scripted::good();
    house.start();
    house.drained(10 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..10_000));
}

#[tokio::test(start_paused = true)]
async fn blocks_without_rows_are_settled() {
    let mut house = House::new(Scripted::good());
    house.start();
    let t = table("t");
    let none = || block(&t, Vec::new());
    house.publish(vec![none(), block(&t, lines(0..1)), none()]).await;
    house.drained(5 * S).await;
    house.publish(vec![none()]).await;
    tokio::time::sleep(3 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..1));
    assert_eq!(house.sink.calls().len(), 1);
    house.stop().await.unwrap();
}
