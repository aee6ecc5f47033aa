//! The process dies; the queue's directory and ClickHouse stay.

use std::time::Duration;

use wavehouse_core::Sequence;

use crate::kit::{Answer, House, Scripted, block, constraint, lines, lost, table, unavailable};

const S: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_stored_but_not_acked_comes_back_as_the_same_batch() {
    // ClickHouse stores the batch, the process dies before it hears of it.
    let mut house = House::new(Scripted::new(|_, _| Answer::StoreAndFail(lost())));
    house.start();
    let t = table("t");
    house.publish((0..10).map(|n| block(&t, lines(n * 10..(n + 1) * 10))).collect()).await;
    tokio::time::sleep(S + S / 4).await;
    assert_eq!(house.sink.rows(&t), lines(0..100));
    // More comes while it is down, so that a batch made anew would be another.
    house.publish(vec![block(&t, lines(100..150))]).await;
    house.crash().await;
    house.sink.set(|_, _| Answer::Store);
    house.start();
    house.drained(60 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..150));
}

#[tokio::test(start_paused = true)]
async fn acks_that_were_lost_store_no_twins() {
    let mut house = House::new(Scripted::good());
    house.start();
    let t = table("t");
    house.publish(vec![block(&t, lines(0..10)), block(&t, lines(10..20))]).await;
    house.drained(5 * S).await;
    // The acks were not yet durable: no later cut was recorded.
    house.crash().await;
    assert_eq!(house.unwritten(), 20);
    house.publish(vec![block(&t, lines(20..30))]).await;
    house.start();
    house.drained(5 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..30));
}

#[tokio::test(start_paused = true)]
async fn death_between_burying_and_acking_leaves_one_letter() {
    let mut calls = 0;
    let mut house = House::new(Scripted::new(move |batch, _| {
        calls += 1;
        // Dies on the part behind the bad row.
        if calls > 3 { Answer::Fail(unavailable(None)) } else { constraint(batch, true) }
    }));
    house.start();
    let t = table("t");
    let mut rows = lines(0..10);
    rows[4] = "{\"bad\":4}".to_owned();
    house.publish(vec![block(&t, rows.clone())]).await;
    tokio::time::sleep(S + S / 4).await;
    assert_eq!(house.letters().await.len(), 1);
    assert_eq!(house.sink.rows(&t), rows[..4]);
    house.crash().await;
    house.sink.set(|batch, _| constraint(batch, true));
    house.start();
    house.drained(60 * S).await;
    assert_eq!(house.letters().await.len(), 1);
    rows.remove(4);
    assert_eq!(house.sink.rows(&t), rows);
}

#[tokio::test(start_paused = true)]
async fn a_batch_with_an_unreadable_block_loses_no_other_row() {
    // The first, a middle or the last block of a batch that was recorded and never stored, with more behind it or not.
    for (bad, more) in [(1, true), (5, true), (10, true), (1, false), (5, false), (10, false)] {
        let mut house = House::new(Scripted::new(|_, _| Answer::Fail(unavailable(None))));
        house.start();
        let t = table("t");
        house.publish((0..10).map(|n| block(&t, lines(n * 10..(n + 1) * 10))).collect()).await;
        tokio::time::sleep(S + S / 4).await;
        house.crash().await;
        house.store.damage(&t, Sequence(bad));
        let mut wanted: Vec<String> = lines(0..100);
        let from = (bad as usize - 1) * 10;
        wanted.drain(from..from + 10);
        if more {
            house.publish(vec![block(&t, lines(100..120))]).await;
            wanted.extend(lines(100..120));
        }
        house.sink.set(|_, _| Answer::Store);
        house.start();
        let end = tokio::time::Instant::now() + 120 * S;
        while house.unwritten() > 10 && tokio::time::Instant::now() < end {
            tokio::time::sleep(S).await;
        }
        assert_eq!(house.sink.rows(&t), wanted, "block {bad}, more behind it: {more}");
        assert_eq!(house.unwritten(), 10, "what cannot be read stays");
        house.crash().await;
        house.start();
        tokio::time::sleep(60 * S).await;
        assert_eq!(house.sink.rows(&t), wanted, "nothing is left to do");
    }
}

#[tokio::test(start_paused = true)]
async fn many_cut_batches_come_back_a_few_at_a_time() {
    let mut house = House::new(Scripted::slow(10 * S, |_, _| Answer::Store));
    let tables: Vec<_> = (0..20).map(|number| table(&format!("t{number}"))).collect();
    // Large batches: together far more than what may be in hand.
    let fat = |number: u32| format!("{{\"n\":{number},\"s\":\"{}\"}}", "x".repeat(1 << 20));
    house.options.batch_bytes_max = 8 << 20;
    house.options.held_bytes = 16 << 20;
    house.options.inserts_max = 20;
    house.start();
    for t in &tables {
        house.publish((0..8).map(|number| block(t, [fat(number)])).collect()).await;
    }
    tokio::time::sleep(5 * S).await;
    house.crash().await;
    house.sink = Scripted::good();
    house.start();
    house.drained(120 * S).await;
    for t in &tables {
        assert_eq!(house.sink.rows(t).len(), 8, "{t}");
    }
}
