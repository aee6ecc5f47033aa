//! What closing promises: settles durable, streams ended, everything after refused, nothing accepted lost.

#![expect(clippy::expect_used, reason = "a case fails by panicking, and says what it expected")]

use std::collections::BTreeSet;

use wavehouse_core::{LogId, Position, Sequence, Timestamp};

use super::BrokerFixture;
use super::kit::{AMPLE, Reader, delivered_numbers, events, numbered, publish_each, table, tenant, within};
use crate::errors::{HistoryError, LetterError, OpenUnitError, PublishError, Stored};
use crate::history::{HistoryFilter, HistoryStart};
use crate::letter::LetterFilter;

pub(super) async fn refuses_after(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..1).await;
    within("the close", broker.close()).await.expect("a clean close");
    let blocks = vec![numbered(&events(), 1..2), numbered(&table("acme", "x"), 2..3)];
    let results = within("refusals", broker.submit(blocks)).await;
    assert_eq!(results, [Err(PublishError::Closed), Err(PublishError::Closed)]);
    for unit in broker.units() {
        let opened = within("a refusal", broker.open_unit(unit, AMPLE)).await;
        assert_eq!(opened.err(), Some(OpenUnitError::Closed));
    }
    let history = within("a refusal", broker.open_history(HistoryStart::Live, HistoryFilter::All)).await;
    assert_eq!(history.err(), Some(HistoryError::Closed));
    let filter = LetterFilter { tenant: tenant("0"), table: None, code: None, from: None, until: None };
    assert_eq!(within("a refusal", broker.letters(&filter, None, 9)).await, Err(LetterError::Closed));
    assert_eq!(within("a refusal", broker.letter_counts(&tenant("0"))).await, Err(LetterError::Closed));
    assert_eq!(within("a refusal", broker.bury(Vec::new())).await, Err(LetterError::Closed));
    let position = Position::new(LogId(1), Sequence(1), 0);
    let dropped = within("a refusal", broker.drop_letters(&events(), &[position])).await;
    assert_eq!(dropped, Err(LetterError::Closed));
    within("a sweep of nothing", broker.sweep(Timestamp(0))).await;
    within("the close of what is closed", broker.close()).await.expect("it does nothing");
}

pub(super) async fn ends_deliveries(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let mut reader = Reader::open(&broker, AMPLE).await;
    publish_each(&broker, &events(), 0..1).await;
    let held = reader.expect(&events(), 0).await;
    let (outcome, closed) = tokio::join!(within("a waiting next to end", reader.poll()), broker.close());
    closed.expect("a clean close");
    assert!(!matches!(outcome, Ok(Some(_))), "delivery ends: {outcome:?}");
    let control = reader.control_of(&events());
    held.ack();
    control.halt();
    within("a release after the close", control.release()).await;
    let after = within("the end", reader.poll()).await;
    assert!(!matches!(after, Ok(Some(_))), "delivery stays ended: {after:?}");
}

pub(super) async fn keeps_acks(fixture: &mut dyn BrokerFixture) {
    publish_each(&fixture.broker(), &events(), 0..5).await;
    let mut reader = Reader::open(&fixture.broker(), AMPLE).await;
    let mut out = reader.take(5).await;
    for index in [3, 1, 0] {
        out.remove(index).ack();
    }
    within("the close", fixture.broker().close()).await.expect("a clean close");
    drop((reader, out));
    fixture.restart().await;
    let mut reader = Reader::open(&fixture.broker(), AMPLE).await;
    reader.expect(&events(), 2).await.ack();
    reader.expect(&events(), 4).await.ack();
    reader.quiet("acks are durable once the broker is closed").await;
}

pub(super) async fn keeps_word_to_senders(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let calls: Vec<_> = (0..200).map(|n| broker.submit(vec![numbered(&events(), n..n + 1)])).collect();
    let closing = tokio::task::JoinSet::from_iter([async move { broker.close().await }]);
    let (mut accepted, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for (number, call) in (0..).zip(calls) {
        match &within("a result, closing or not", call).await[0] {
            Ok(_) => assert!(accepted.insert(number)),
            Err(error) if error.stored() == Stored::No => assert!(refused.insert(number)),
            Err(_) => {}
        }
    }
    for closed in within("the close", closing.join_all()).await {
        closed.expect("a clean close");
    }
    fixture.restart().await;
    let mut reader = Reader::open(&fixture.broker(), AMPLE).await;
    // One more, so that the end of what there is can be seen.
    publish_each(&fixture.broker(), &events(), 1000..1001).await;
    let mut got = Vec::new();
    while got.last() != Some(&1000) {
        let delivery = reader.next("the rows up to the last").await;
        got.extend(delivered_numbers(&delivery));
        assert!(got.len() <= 201, "each row comes once");
        delivery.ack();
    }
    assert!(got.is_sorted_by(|a, b| a < b), "in order, each once");
    let got: BTreeSet<_> = got.into_iter().collect();
    assert!(accepted.is_subset(&got), "what was accepted is there");
    assert!(refused.is_disjoint(&got), "what was refused as not stored is not");
}
