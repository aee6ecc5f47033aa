//! Batches, order, turns and stopping while everything works.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::Broker;
use wavehouse_worker::{ClaimOptions, Worker, WorkerMetrics};

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

#[tokio::test(start_paused = true)]
async fn a_queue_of_ones_own_is_read_whole_and_without_leases() {
    let mut registry = Registry::default();
    let house = House::new(Scripted::good());
    assert!(house.broker.sharing().is_none());
    let (broker, sink) = (Arc::clone(&house.broker), Arc::clone(&house.sink));
    let (metrics, stop) = (WorkerMetrics::register(&mut registry), CancellationToken::new());
    let worker = Worker::new(house.options.clone(), broker, sink, metrics);
    let mut running = JoinSet::new();
    running.spawn(worker.with_claims(ClaimOptions::new("somebody")).run(stop.clone()));
    let t = table("t");
    house.publish(vec![block(&t, lines(0..100))]).await;
    house.drained(5 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..100));
    stop.cancel();
    running.join_next().await.unwrap().unwrap().unwrap();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let shown: Vec<&str> = text.lines().filter(|line| line.starts_with("wavehouse_ingest_shards")).collect();
    assert!(shown.is_empty(), "{shown:?}");
}
