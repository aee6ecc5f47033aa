//! What recorded cuts promise: durable when recorded, given to the next opener, honoured first; and that acks given
//! before a cut are as durable as the cut.

#![expect(clippy::expect_used, reason = "a case fails by panicking, and says what it expected")]

use wavehouse_core::TableRef;

use super::BrokerFixture;
use super::kit::{AMPLE, Reader, cut_of, delivered_numbers, events, publish_each, table, within};
use crate::cut::{Cut, CutError, InsertToken, SPLITS_MAX};
use crate::unit::Delivery;

async fn record(reader: &Reader, cut: &Cut) {
    let control = reader.control_of(&cut.table);
    within("a cut to be recorded", control.record_cut(cut.clone())).await.expect("the cut is recorded");
}

/// Publishes the rows 0 to 5 of a table, takes them, and records a cut over rows 1 to 3.
async fn with_cut(fixture: &dyn BrokerFixture, table: &TableRef) -> (Reader, Vec<Delivery>, Cut) {
    let broker = fixture.broker();
    publish_each(&broker, table, 0..6).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    assert!(reader.cuts().is_empty(), "a new queue has no cuts");
    let out = reader.take(6).await;
    let cut = Cut { splits: vec![1, 2], done_rows: 1, ..cut_of(&out[1], &out[3], 0xfeed_beef << 64) };
    record(&reader, &cut).await;
    (reader, out, cut)
}

async fn assert_given(fixture: &dyn BrokerFixture, cut: &Cut, rows: &[u64]) -> (Reader, Vec<Delivery>) {
    let mut reader = Reader::open(&fixture.broker(), AMPLE).await;
    assert_eq!(reader.cuts().get(&cut.table), Some(cut), "the cut comes as it was recorded");
    let out = reader.take(rows.len()).await;
    assert_eq!(out.iter().flat_map(delivered_numbers).collect::<Vec<_>>(), rows);
    (reader, out)
}

pub(super) async fn over_release(fixture: &mut dyn BrokerFixture) {
    let (reader, out, cut) = with_cut(fixture, &events()).await;
    drop(out);
    reader.release().await;
    assert_given(fixture, &cut, &[0, 1, 2, 3, 4, 5]).await;
}

pub(super) async fn over_restart(fixture: &mut dyn BrokerFixture) {
    let (reader, out, cut) = with_cut(fixture, &table("acme", "page views")).await;
    drop((reader, out));
    fixture.restart().await;
    assert_given(fixture, &cut, &[0, 1, 2, 3, 4, 5]).await;
}

pub(super) async fn over_crash(fixture: &mut dyn BrokerFixture) {
    let (_reader, _out, cut) = with_cut(fixture, &events()).await;
    fixture.crash().await;
    assert_given(fixture, &cut, &[0, 1, 2, 3, 4, 5]).await;
    fixture.crash().await;
    assert_given(fixture, &cut, &[0, 1, 2, 3, 4, 5]).await;
}

pub(super) async fn replaces_earlier(fixture: &mut dyn BrokerFixture) {
    let other = table("acme", "events");
    publish_each(&fixture.broker(), &other, 0..2).await;
    let (mut reader, mut out, first) = with_cut_beside(fixture, &other).await;
    let kept = cut_of(&out[0], &out[1], 3);
    record(&reader, &kept).await;
    let second = Cut { splits: vec![2], token: InsertToken(2), done_rows: 2, ..first };
    record(&reader, &second).await;
    out.clear();
    drop(reader);
    fixture.crash().await;
    reader = Reader::open(&fixture.broker(), AMPLE).await;
    let cuts = reader.cuts();
    assert_eq!(cuts.get(&events()), Some(&second), "the later cut stands");
    assert_eq!(cuts.get(&other), Some(&kept), "another table's cut is not touched");
}

async fn with_cut_beside(fixture: &dyn BrokerFixture, other: &TableRef) -> (Reader, Vec<Delivery>, Cut) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..3).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let out = reader.take(5).await;
    let (others, events): (Vec<_>, Vec<_>) = out.into_iter().partition(|delivery| delivery.table() == other);
    let cut = cut_of(&events[0], &events[2], 1);
    record(&reader, &cut).await;
    (reader, others.into_iter().chain(events).collect(), cut)
}

pub(super) async fn ends_with_its_blocks(fixture: &mut dyn BrokerFixture) {
    let (reader, mut out, _cut) = with_cut(fixture, &events()).await;
    for delivery in out.drain(1..4) {
        delivery.ack();
    }
    drop(out);
    reader.release().await;
    let mut reader = Reader::open(&fixture.broker(), AMPLE).await;
    assert!(reader.cuts().is_empty(), "every block of the cut is acked");
    let out = reader.take(3).await;
    assert_eq!(out.iter().flat_map(delivered_numbers).collect::<Vec<_>>(), [0, 4, 5]);
}

pub(super) async fn stays_until_all_acked(fixture: &mut dyn BrokerFixture) {
    let (reader, mut out, cut) = with_cut(fixture, &events()).await;
    out.remove(2).ack();
    out.remove(0).ack();
    drop(out);
    reader.release().await;
    let (reader, out) = assert_given(fixture, &cut, &[1, 3, 4, 5]).await;
    drop((reader, out));
    fixture.restart().await;
    assert_given(fixture, &cut, &[1, 3, 4, 5]).await;
}

pub(super) async fn keeps_earlier_acks(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let other = table("acme", "events");
    publish_each(&broker, &events(), 0..4).await;
    publish_each(&broker, &other, 0..1).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let out = reader.take(5).await;
    let (mut others, mut mine): (Vec<_>, Vec<_>) = out.into_iter().partition(|d| d.table() == &other);
    mine.remove(1).ack();
    mine.remove(0).ack();
    others.remove(0).ack();
    let cut = cut_of(&mine[0], &mine[1], 9);
    record(&reader, &cut).await;
    drop((reader, mine));
    fixture.crash().await;
    let (mut reader, out) = assert_given(fixture, &cut, &[2, 3]).await;
    reader.quiet("what was acked before a cut was recorded stays acked over a crash").await;
    drop(out);
}

pub(super) async fn many_splits(fixture: &mut dyn BrokerFixture) {
    let (reader, out, cut) = with_cut(fixture, &events()).await;
    let most = u32::try_from(SPLITS_MAX).expect("small");
    let cut =
        Cut { splits: (1..=most).map(|row| row * 1000).collect(), token: InsertToken(u128::MAX), ..cut };
    record(&reader, &cut).await;
    drop((reader, out));
    fixture.crash().await;
    assert_given(fixture, &cut, &[0, 1, 2, 3, 4, 5]).await;
}

pub(super) async fn refused_to_former_owner(fixture: &mut dyn BrokerFixture) {
    let (reader, out, cut) = with_cut(fixture, &events()).await;
    let former = reader.control_of(&events());
    drop(out);
    reader.release().await;
    let stale = Cut { token: InsertToken(1), ..cut.clone() };
    let refused = within("a refusal", former.record_cut(stale.clone())).await;
    assert_eq!(refused, Err(CutError::Lost { table: events() }), "after release");
    let (reader, out) = assert_given(fixture, &cut, &[0, 1, 2, 3, 4, 5]).await;
    let refused = within("a refusal", former.record_cut(stale.clone())).await;
    assert_eq!(refused, Err(CutError::Lost { table: events() }), "while another has the unit");
    let owner = reader.control_of(&events());
    drop(out);
    within("the close", fixture.broker().close()).await.expect("a clean close");
    let refused = within("a refusal", owner.record_cut(stale)).await;
    assert_eq!(refused, Err(CutError::Lost { table: events() }), "after close");
    drop(reader);
    fixture.restart().await;
    assert_given(fixture, &cut, &[0, 1, 2, 3, 4, 5]).await;
}
