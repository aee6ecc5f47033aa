//! What order promises: the order of the calls to submit, table by table, through retries as well.

#![expect(clippy::expect_used, reason = "a case fails by panicking, and says what it expected")]

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::BrokerFixture;
use super::kit::{
    AMPLE, ONE_BLOCK, Reader, delivered_numbers, events, numbered, numbers, padded, publish, publish_each,
    table, within,
};
use crate::unit::{RowBudget, StoredBlock};

fn numbers_of(blocks: &[StoredBlock], table: &wavehouse_core::TableRef) -> Vec<u64> {
    let of_table = blocks.iter().filter(|stored| stored.block.table == *table);
    of_table.flat_map(|stored| numbers(&stored.block)).collect()
}

pub(super) async fn fixed_at_the_call(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let mut calls: Vec<_> = (0..20).map(|n| broker.submit(vec![numbered(&events(), n..n + 1)])).collect();
    let mut positions = Vec::new();
    while let Some(call) = calls.pop() {
        let results = within("a result, asked for in reverse order", call).await;
        positions.push(results[0].clone().expect("accepted").first);
    }
    positions.reverse();
    assert!(positions.is_sorted_by(|a, b| a < b), "receipts follow the calls: {positions:?}");
    let mut reader = Reader::open(&broker, AMPLE).await;
    let got = reader.take_acked(20).await;
    assert_eq!(numbers_of(&got, &events()), (0..20).collect::<Vec<_>>(), "rows follow the calls");
}

pub(super) async fn of_each_sender(fixture: &mut dyn BrokerFixture) {
    const SENDERS: u64 = 6;
    const EACH: u64 = 60;
    let broker = fixture.broker();
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        let broker = broker.clone();
        senders.spawn(async move {
            for number in 0..EACH {
                let number = sender * 1000 + number;
                publish(&broker, numbered(&events(), number..number + 1)).await;
            }
        });
    }
    let mut reader = Reader::open(&broker, AMPLE).await;
    let total = usize::try_from(SENDERS * EACH).expect("small");
    let got = reader.take_acked(total).await;
    assert!(got.is_sorted_by_key(|stored| stored.sequence), "sequences ascend");
    let got = numbers_of(&got, &events());
    for sender in 0..SENDERS {
        let of_sender: Vec<_> = got.iter().copied().filter(|number| number / 1000 == sender).collect();
        let sent: Vec<_> = (sender * 1000..sender * 1000 + EACH).collect();
        assert_eq!(of_sender, sent, "who awaits each result keeps their order");
    }
    while let Some(ended) = senders.join_next().await {
        ended.expect("a sender ends well");
    }
}

pub(super) async fn tenants_interleaved(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let tables = [events(), table("acme", "events"), table("acme", "page views"), table("b", "events")];
    let mut calls = Vec::new();
    for number in 0..40 {
        let blocks = tables.iter().map(|table| numbered(table, number..number + 1)).collect();
        calls.push(broker.submit(blocks));
    }
    for call in calls {
        let results = within("results", call).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    let mut reader = Reader::open(&broker, RowBudget { rows: 7, bytes: 1 << 20 }).await;
    let got = reader.take_acked(160).await;
    for table in &tables {
        assert_eq!(numbers_of(&got, table), (0..40).collect::<Vec<_>>(), "{table} comes in publish order");
    }
}

pub(super) async fn kept_beyond_the_budget(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    for number in 0..200 {
        publish(&broker, padded(&events(), number, 10_000)).await;
    }
    let mut reader = Reader::open(&broker, RowBudget { rows: 1 << 30, bytes: 35_000 }).await;
    let got = reader.take_acked(200).await;
    assert_eq!(numbers_of(&got, &events()), (0..200).collect::<Vec<_>>());
    assert!(got.is_sorted_by_key(|stored| stored.sequence), "sequences ascend");
}

pub(super) async fn over_a_restart(fixture: &mut dyn BrokerFixture) {
    publish_each(&fixture.broker(), &events(), 0..10).await;
    fixture.restart().await;
    publish_each(&fixture.broker(), &events(), 10..20).await;
    fixture.crash().await;
    publish_each(&fixture.broker(), &events(), 20..30).await;
    let mut reader = Reader::open(&fixture.broker(), AMPLE).await;
    let got = reader.take_acked(30).await;
    assert_eq!(numbers_of(&got, &events()), (0..30).collect::<Vec<_>>());
}

pub(super) async fn retried_before_later(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..3).await;
    let mut reader = Reader::open(&broker, ONE_BLOCK).await;
    let wait = Duration::from_millis(300);
    let began = Instant::now();
    reader.expect(&events(), 0).await.retry(wait);
    let again = reader.expect(&events(), 0).await;
    assert!(began.elapsed() >= wait, "later rows wait for a retried one, not the reverse");
    again.ack();
    reader.expect(&events(), 1).await.ack();
    reader.expect(&events(), 2).await.ack();
}

pub(super) async fn retried_together(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..5).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let mut out = reader.take(5).await;
    for control in reader.controls() {
        control.pause(&events(), Instant::now() + Duration::from_secs(3600));
    }
    // Handed back in an order that is not theirs.
    for index in [3, 0, 2, 1, 0] {
        drop(out.remove(index));
    }
    publish_each(&broker, &events(), 5..7).await;
    for control in reader.controls() {
        control.pause(&events(), Instant::now());
    }
    let back = reader.take(7).await;
    assert_eq!(back.iter().flat_map(delivered_numbers).collect::<Vec<_>>(), (0..7).collect::<Vec<_>>());
    let attempts: Vec<_> = back.iter().map(crate::Delivery::attempt).collect();
    assert_eq!(attempts, [2, 2, 2, 2, 2, 1, 1]);
}
