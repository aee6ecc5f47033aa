//! What settling promises: ack ends, everything else comes back, and a pause stops one table alone.

#![expect(clippy::expect_used, reason = "a case fails by panicking, and says what it expected")]

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::BrokerFixture;
use super::kit::{
    AMPLE, ONE_BLOCK, Reader, delivered_numbers, events, numbered, publish, publish_each, table, within,
};
use crate::unit::RowBudget;

/// An ack wait that a case sits out.
const SHORT_ACK_WAIT: Duration = Duration::from_millis(400);
/// A pause that a case does not sit out.
const LONG: Duration = Duration::from_secs(3600);

fn pause(reader: &Reader, table: &wavehouse_core::TableRef, until: Instant) {
    for control in reader.controls() {
        control.pause(table, until);
    }
}

pub(super) async fn ack_ends(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..3).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let mut out = reader.take(3).await;
    out.remove(1).ack();
    drop(out);
    reader.expect(&events(), 0).await.ack();
    reader.expect(&events(), 2).await.ack();
    reader.quiet("every block is acked").await;
}

pub(super) async fn drop_is_retry(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..1).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let mut sequence = None;
    for attempt in 1..=4 {
        let delivery = reader.expect(&events(), 0).await;
        assert_eq!(delivery.attempt(), attempt, "each time it comes is counted");
        assert_eq!(*sequence.get_or_insert(delivery.sequence()), delivery.sequence(), "its number stays");
        drop(delivery);
    }
    reader.expect(&events(), 0).await.ack();
    reader.quiet("it is acked").await;
}

pub(super) async fn retry_not_before(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let other = table("acme", "events");
    publish(&broker, numbered(&events(), 0..1)).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let wait = Duration::from_millis(500);
    let began = Instant::now();
    reader.expect(&events(), 0).await.retry(wait);
    publish(&broker, numbered(&other, 7..8)).await;
    reader.expect(&other, 7).await.ack();
    let again = reader.expect(&events(), 0).await;
    assert!(began.elapsed() >= wait, "not before so long: {:?}", began.elapsed());
    assert_eq!(again.attempt(), 2);
    again.ack();
}

pub(super) async fn ack_wait(fixture: &mut dyn BrokerFixture) {
    fixture.set_ack_wait(SHORT_ACK_WAIT).await;
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..2).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let first = reader.expect(&events(), 0).await;
    let began = Instant::now();
    reader.expect(&events(), 1).await.ack();
    let again = reader.expect(&events(), 0).await;
    assert!(began.elapsed() >= SHORT_ACK_WAIT / 2, "not before the ack wait: {:?}", began.elapsed());
    assert_eq!((again.attempt(), again.sequence()), (2, first.sequence()));
    again.ack();
    drop(first);
    reader.quiet("the one is acked, and the end of an overtaken attempt changes nothing").await;
}

pub(super) async fn late_ack_counts(fixture: &mut dyn BrokerFixture) {
    fixture.set_ack_wait(SHORT_ACK_WAIT).await;
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..1).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let first = reader.expect(&events(), 0).await;
    let again = reader.expect(&events(), 0).await;
    first.ack();
    drop(again);
    reader.quiet("an ack of an overtaken attempt is an ack").await;
    assert_eq!(broker.depths(), []);
}

pub(super) async fn late_retry_ignored(fixture: &mut dyn BrokerFixture) {
    // Long enough that the second attempt is certainly not overdue while it is watched.
    fixture.set_ack_wait(Duration::from_secs(2)).await;
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..1).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let first = reader.expect(&events(), 0).await;
    let again = reader.expect(&events(), 0).await;
    first.retry(Duration::ZERO);
    reader.quiet("a later attempt is out").await;
    again.ack();
    reader.quiet("it is acked").await;
}

pub(super) async fn next_may_be_cancelled(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let mut reader = Reader::open(&broker, RowBudget { rows: 3, bytes: 1 << 20 }).await;
    let mut got = Vec::new();
    let all: Vec<u64> = (0..60).collect();
    for number in &all {
        let submitted = broker.submit(vec![numbered(&events(), *number..number + 1)]);
        // Given up at once, or after a moment, with a block on its way.
        for patience in [0, 0, 1] {
            if let Ok(outcome) = timeout(Duration::from_millis(patience), reader.poll()).await {
                let delivery = outcome.expect("delivery goes on").expect("delivery goes on");
                got.extend(delivered_numbers(&delivery));
                delivery.ack();
            }
        }
        assert!(within("a result", submitted).await[0].is_ok());
    }
    while got.len() < all.len() {
        let delivery = reader.next("the rows after cancelled calls").await;
        got.extend(delivered_numbers(&delivery));
        delivery.ack();
    }
    assert_eq!(got, all, "a cancelled call loses nothing and changes no order");
}

pub(super) async fn waiting_next_wakes(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let mut reader = Reader::open(&broker, AMPLE).await;
    let publishing = async {
        tokio::task::yield_now().await;
        publish(&broker, numbered(&events(), 5..6)).await
    };
    let (delivery, _) = tokio::join!(reader.next("a row published while next waits"), publishing);
    assert_eq!(delivered_numbers(&delivery), [5]);
    delivery.ack();
}

pub(super) async fn pause_stops_one_table(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let other = table("0", "other");
    let mut reader = Reader::open(&broker, AMPLE).await;
    pause(&reader, &events(), Instant::now() + LONG);
    publish_each(&broker, &events(), 0..3).await;
    for number in 0..3 {
        publish(&broker, numbered(&other, number..number + 1)).await;
        reader.expect(&other, number).await.ack();
    }
    reader.quiet("the table is paused").await;
    pause(&reader, &events(), Instant::now());
    for number in 0..3 {
        reader.expect(&events(), number).await.ack();
    }
}

pub(super) async fn pause_ends(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let mut reader = Reader::open(&broker, AMPLE).await;
    let until = Instant::now() + Duration::from_millis(400);
    pause(&reader, &events(), until);
    publish_each(&broker, &events(), 0..2).await;
    let first = reader.expect(&events(), 0).await;
    assert!(Instant::now() >= until, "not before the pause ends");
    first.ack();
    reader.expect(&events(), 1).await.ack();
}

pub(super) async fn paused_holds_no_budget(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let other = table("0", "other");
    publish_each(&broker, &events(), 0..3).await;
    let mut reader = Reader::open(&broker, ONE_BLOCK).await;
    let held = reader.expect(&events(), 0).await;
    publish_each(&broker, &other, 0..2).await;
    reader.quiet("the budget is spent").await;
    pause(&reader, &events(), Instant::now() + LONG);
    held.retry(Duration::ZERO);
    reader.expect(&other, 0).await.ack();
    reader.expect(&other, 1).await.ack();
    reader.quiet("the table is paused").await;
    pause(&reader, &events(), Instant::now());
    for number in 0..3 {
        reader.expect(&events(), number).await.ack();
    }
}

pub(super) async fn held_survives_pause(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..2).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let out = reader.take(2).await;
    pause(&reader, &events(), Instant::now() + LONG);
    for delivery in out {
        delivery.ack();
    }
    pause(&reader, &events(), Instant::now());
    reader.quiet("what was out when the table was paused has been acked").await;
    assert_eq!(broker.depths(), []);
}
