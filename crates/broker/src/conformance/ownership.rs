//! What owning a unit promises: one opener at a time, halt drains, release hands over.

#![expect(clippy::expect_used, reason = "a case fails by panicking, and says what it expected")]

use wavehouse_core::{FaultKind, PartitionId, ShardId, UnitId};

use super::BrokerFixture;
use super::kit::{
    AMPLE, ONE_BLOCK, Reader, delivered_numbers, events, numbered, publish, publish_each, table, within,
};
use crate::errors::OpenUnitError;

pub(super) async fn one_opener(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..1).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    for unit in broker.units() {
        let second = within("an answer", broker.open_unit(unit, AMPLE)).await;
        let error = second.err().expect("a unit is read by one opener at a time");
        assert_eq!((error.clone(), error.fault()), (OpenUnitError::Open(unit), FaultKind::Stop));
    }
    reader.expect(&events(), 0).await.ack();
    for control in reader.controls() {
        control.halt();
    }
    for unit in broker.units() {
        let second = within("an answer", broker.open_unit(unit, AMPLE)).await;
        assert_eq!(second.err(), Some(OpenUnitError::Open(unit)), "a halted unit stays owned");
    }
    reader.release().await;
    Reader::open(&broker, AMPLE).await;
}

pub(super) async fn unknown_unit(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let unit = UnitId { partition: PartitionId(u16::MAX), shard: ShardId(u16::MAX) };
    assert!(!broker.units().contains(&unit));
    let error = within("an answer", broker.open_unit(unit, AMPLE)).await.err();
    assert_eq!(error, Some(OpenUnitError::Unknown(unit)));
}

pub(super) async fn halt_drains(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..4).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let held = reader.expect(&events(), 0).await;
    for control in reader.controls() {
        control.halt();
    }
    publish_each(&broker, &events(), 4..6).await;
    // What was fetched before the halt may still come, in order; then the end, again and again.
    let mut next = 1;
    let mut ends = 0;
    while ends < 2 {
        match within("the drain", reader.poll()).await.expect("a halt is no loss") {
            Some(delivery) => {
                assert_eq!((ends, delivered_numbers(&delivery)), (0, vec![next]), "in order, before the end");
                assert!(next < 4, "what came after the halt is not handed out");
                next += 1;
                delivery.ack();
            }
            None => ends += 1,
        }
    }
    held.ack();
    reader.release().await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    for number in next..6 {
        reader.expect(&events(), number).await.ack();
    }
    reader.quiet("acks after a halt count").await;
}

pub(super) async fn halt_wakes_next(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let mut reader = Reader::open(&broker, AMPLE).await;
    let controls: Vec<_> = reader.controls().cloned().collect();
    let halting = async {
        tokio::task::yield_now().await;
        controls.iter().for_each(|control| control.halt());
    };
    let (outcome, ()) = tokio::join!(within("a waiting next to end", reader.poll()), halting);
    assert!(matches!(outcome, Ok(None)), "{outcome:?}");
}

pub(super) async fn release_hands_over(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let other = table("acme", "events");
    publish_each(&broker, &events(), 0..4).await;
    publish_each(&broker, &other, 0..2).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let out = reader.take(6).await;
    for delivery in out {
        let number = delivered_numbers(&delivery)[0];
        if (delivery.table() == &events() && number == 1) || (delivery.table() == &other && number == 0) {
            delivery.ack();
        }
    }
    reader.release().await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let (mut got, mut got_other) = (Vec::new(), Vec::new());
    for delivery in reader.take(4).await {
        let list = if delivery.table() == &events() { &mut got } else { &mut got_other };
        list.extend(delivered_numbers(&delivery));
        delivery.ack();
    }
    assert_eq!((got, got_other), (vec![0, 2, 3], vec![1]), "the unsettled go over, in order");
    reader.quiet("the acked stay acked").await;
}

pub(super) async fn acks_are_durable_with_release(fixture: &mut dyn BrokerFixture) {
    publish_each(&fixture.broker(), &events(), 0..4).await;
    let mut reader = Reader::open(&fixture.broker(), AMPLE).await;
    let mut out = reader.take(4).await;
    out.remove(2).ack();
    out.remove(0).ack();
    drop(out);
    reader.release().await;
    fixture.crash().await;
    let mut reader = Reader::open(&fixture.broker(), AMPLE).await;
    reader.expect(&events(), 1).await.ack();
    reader.expect(&events(), 3).await.ack();
    reader.quiet("acks are durable once the unit is released").await;
}

pub(super) async fn held_over_release(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..2).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let held = reader.take(2).await;
    reader.release().await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let out = reader.take(2).await;
    assert_eq!(out.iter().flat_map(delivered_numbers).collect::<Vec<_>>(), [0, 1]);
    drop(held);
    reader.quiet("what a former opener drops is not the present opener's").await;
    for delivery in out {
        delivery.ack();
    }
    reader.quiet("everything is acked").await;
}

pub(super) async fn release_ends_waiting_next(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..2).await;
    let mut reader = Reader::open(&broker, ONE_BLOCK).await;
    let held = reader.expect(&events(), 0).await;
    let controls: Vec<_> = reader.controls().cloned().collect();
    let releasing = async {
        tokio::task::yield_now().await;
        for control in &controls {
            control.release().await;
        }
    };
    let (outcome, ()) = tokio::join!(within("a waiting next to end", reader.poll()), releasing);
    assert!(matches!(outcome, Ok(None)), "a release is no loss: {outcome:?}");
    drop(held);
    let mut reader = Reader::open(&broker, AMPLE).await;
    reader.expect(&events(), 0).await.ack();
    reader.expect(&events(), 1).await.ack();
}

pub(super) async fn loss_is_told_once(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let mut reader = Reader::open(&broker, AMPLE).await;
    publish(&broker, numbered(&events(), 0..1)).await;
    let held = reader.expect(&events(), 0).await;
    fixture.end_delivery().await;
    let mut lost = Vec::new();
    // A unit may end while another's loss is still to be told, so a few more calls than units.
    for _call in 0..3 * broker.units().len() {
        if let Err(error) = within("the loss to be told", reader.poll()).await {
            assert!(!error.reason.is_empty(), "it says why");
            assert!(!lost.contains(&error.unit), "told once a unit");
            lost.push(error.unit);
        }
    }
    lost.sort_unstable();
    let mut units = broker.units();
    units.sort_unstable();
    assert_eq!(lost, units);
    for _again in 0..2 {
        let after = within("the end after the loss", reader.poll()).await;
        assert!(matches!(after, Ok(None)), "told once: {after:?}");
    }
    drop(held);
}

pub(super) async fn no_loss_after_halt(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let mut reader = Reader::open(&broker, AMPLE).await;
    for control in reader.controls() {
        control.halt();
    }
    fixture.end_delivery().await;
    for _again in 0..3 {
        let outcome = within("the end", reader.poll()).await;
        assert!(matches!(outcome, Ok(None)), "never after a halt: {outcome:?}");
    }
}
