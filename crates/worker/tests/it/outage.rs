//! A ClickHouse, or a table of it, that takes nothing for a while.

use std::time::Duration;

use tokio::time::Instant;
use wavehouse_clickhouse::{Cause, Class, ClickHouseError};

use crate::kit::{Answer, House, Scripted, block, lines, lost, table, unavailable};

const S: Duration = Duration::from_secs(1);

fn denied() -> ClickHouseError {
    let (class, cause) = (Class::Denied, Cause::Answered);
    ClickHouseError { class, cause, code: Some(516), status: Some(403), message: "wrong password".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_minute_without_clickhouse() {
    let back = Instant::now() + 65 * S;
    let down_from = Instant::now() + 5 * S;
    let mut house = House::new(Scripted::new(move |_, now| {
        if now > down_from && now < back { Answer::Fail(unavailable(None)) } else { Answer::Store }
    }));
    house.start();
    let tables: Vec<_> = (0..8).map(|number| table(&format!("t{number}"))).collect();
    for second in 0..80 {
        house
            .publish(tables.iter().map(|t| block(t, lines(second * 100..(second + 1) * 100))).collect())
            .await;
        tokio::time::sleep(S).await;
    }
    house.drained(60 * S).await;
    for t in &tables {
        assert_eq!(house.sink.rows(t), lines(0..8000), "{t}");
    }
    assert!(house.letters().await.is_empty());
    let tries = house.sink.calls().iter().filter(|(at, ..)| *at > down_from + S && *at < back).count();
    assert!((3..=16).contains(&tries), "{tries} tries in the outage");
}

#[tokio::test(start_paused = true)]
async fn wrong_password_waits_too() {
    let mut house = House::new(Scripted::new(|_, _| Answer::Fail(denied())));
    house.start();
    let t = table("t");
    house.publish(vec![block(&t, lines(0..100))]).await;
    tokio::time::sleep(300 * S).await;
    assert!(house.letters().await.is_empty());
    house.sink.set(|_, _| Answer::Store);
    house.drained(40 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..100));
}

#[tokio::test(start_paused = true)]
async fn too_many_parts_of_one_table_is_its_own_affair() {
    let mut house = House::new(Scripted::new(|batch, _| match batch.table.table.as_str() {
        "full" => Answer::Fail(unavailable(Some(252))),
        _ => Answer::Store,
    }));
    house.start();
    let (full, other) = (table("full"), table("other"));
    for second in 0..60 {
        let rows = || lines(second * 100..(second + 1) * 100);
        house.publish(vec![block(&full, rows()), block(&other, rows())]).await;
        tokio::time::sleep(S).await;
    }
    tokio::time::sleep(2 * S).await;
    assert_eq!(house.sink.rows(&other), lines(0..6000));
    // Never split: every try was the same batch.
    let tries: Vec<u32> =
        house.sink.calls().iter().filter(|(_, t, _)| *t == full).map(|(.., rows)| *rows).collect();
    assert!(tries.len() <= 12 && tries.windows(2).all(|pair| pair[0] == pair[1]), "{tries:?}");
    house.sink.set(|_, _| Answer::Store);
    house.drained(40 * S).await;
    assert_eq!(house.sink.rows(&full), lines(0..6000));
}

#[tokio::test(start_paused = true)]
async fn a_table_that_times_out_alone_does_not_stop_the_others() {
    let mut house = House::new(Scripted::new(|batch, _| match batch.table.table.as_str() {
        "slow" => Answer::Fail(unavailable(None)),
        _ => Answer::Store,
    }));
    house.start();
    let (slow, other) = (table("slow"), table("other"));
    for second in 0..120 {
        let rows = || lines(second * 10..(second + 1) * 10);
        house.publish(vec![block(&slow, rows()), block(&other, rows())]).await;
        tokio::time::sleep(S).await;
    }
    tokio::time::sleep(5 * S).await;
    assert_eq!(house.sink.rows(&other), lines(0..1200));
    assert_eq!(house.unwritten(), 1200);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_stores_no_twins() {
    let mut calls = 0;
    let mut house = House::new(Scripted::new(move |_, _| {
        calls += 1;
        if calls % 3 == 0 { Answer::Store } else { Answer::StoreAndFail(lost()) }
    }));
    house.start();
    let t = table("t");
    for second in 0..30 {
        house.publish(vec![block(&t, lines(second * 100..(second + 1) * 100))]).await;
        tokio::time::sleep(S).await;
    }
    house.drained(200 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..3000));
}

#[tokio::test(start_paused = true)]
async fn an_insert_longer_than_the_ack_wait_stores_no_twins() {
    let mut house = House::new(Scripted::slow(150 * S, |_, _| Answer::Store));
    house.start();
    let t = table("t");
    house.publish((0..10).map(|n| block(&t, lines(n * 10..(n + 1) * 10))).collect()).await;
    house.drained(400 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..100));
    assert_eq!(house.sink.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_content_twice_is_stored_twice() {
    let mut house = House::new(Scripted::good());
    house.start();
    let t = table("t");
    for _ in 0..2 {
        house.publish(vec![block(&t, lines(0..5))]).await;
        house.drained(5 * S).await;
    }
    assert_eq!(house.sink.rows(&t), [lines(0..5), lines(0..5)].concat());
}
