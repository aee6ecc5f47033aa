//! Units on real servers: pins, resets, and what becomes of a former owner.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::{sleep, timeout};
use wavehouse_broker::{
    Broker, Cut, CutError, Delivery, InsertToken, OpenUnit, RowBudget, SharingError, TakeOver,
};
use wavehouse_broker_nats::NatsBroker;
use wavehouse_core::{TableRef, UnitId};
use wavehouse_nats::ConsumerInfo;
use wavehouse_testkit::wait_for;
use wavehouse_topology::TopologyInput;

use crate::fixture::{Line, Servers, input};
use crate::publish::{publish, rows, table};

pub(crate) const AMPLE: RowBudget = RowBudget { rows: 10_000, bytes: 8 << 20 };
const SOON: Duration = Duration::from_secs(15);

async fn one_unit() -> (Servers, UnitId) {
    let servers = Servers::start_with(TopologyInput { partitions: 1, shards: 1, ..input() }, "").await;
    let unit = servers.spec.placement().units().next().expect("a unit");
    (servers, unit)
}

pub(crate) async fn send(broker: &Arc<NatsBroker>, table: &TableRef, numbers: std::ops::Range<u64>) {
    for number in numbers {
        publish(broker, rows(table, number..number + 1)).await.unwrap();
    }
}

pub(crate) async fn next(opened: &mut OpenUnit) -> Delivery {
    timeout(SOON, opened.deliveries.next()).await.expect("a block in time").unwrap().expect("a block")
}

async fn durable(servers: &Servers) -> ConsumerInfo {
    servers.operator.consumer_info("WH_INGEST_0", "wh-ingest-0").await.unwrap()
}

pub(crate) fn pin(info: &ConsumerInfo) -> String {
    info.priority_groups.first().map(|group| group.pinned_client_id.clone()).unwrap_or_default()
}

pub(crate) fn cut_of(delivery: &Delivery) -> Cut {
    Cut {
        table: delivery.table().clone(),
        first: delivery.sequence(),
        last: delivery.sequence(),
        blocks: 1,
        splits: Vec::new(),
        done_rows: 0,
        token: InsertToken(7),
    }
}

#[tokio::test]
async fn case_63_a_release_hands_over_at_once_and_one_that_never_read_leaves_the_pin() {
    let (servers, unit) = one_unit().await;
    let (one, two) = (servers.open().await, servers.open().await);
    let t = table("t");
    send(&one, &t, 0..2).await;
    let mut opened = one.open_unit(unit, AMPLE).await.unwrap();
    next(&mut opened).await.ack();
    let held = next(&mut opened).await;
    opened.control.release().await;
    drop(held);
    assert_eq!(pin(&durable(&servers).await), "", "given back");
    let began = Instant::now();
    let mut opened = two.open_unit(unit, AMPLE).await.unwrap();
    let delivery = next(&mut opened).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(delivery.sequence().0, 2, "what was acked does not come");
    delivery.ack();
    opened.control.release().await;
}

#[tokio::test]
async fn case_65_a_lapsed_owner_is_taken_over_when_it_reads_no_more() {
    let (servers, unit) = one_unit().await;
    let (mut line, two) = (Line::to(servers.server.port()).await, servers.open().await);
    let one = NatsBroker::open(servers.options_at(line.url())).await.expect("the queue opens");
    let sharing = two.sharing().expect("units are shared");
    assert_eq!(sharing.take_over(unit, TakeOver::Lapsed).await, Ok(false), "it holds nothing");
    send(&two, &table("t"), 0..3).await;
    let mut opened = one.open_unit(unit, AMPLE).await.unwrap();
    let _held = next(&mut opened).await;
    let refused = sharing.take_over(unit, TakeOver::Lapsed).await;
    assert_eq!(refused, Err(SharingError::Held { unit }), "it is read");
    assert!(sharing.unread(&[unit]).await.unwrap().is_empty());
    line.cut().await;
    let died = Instant::now();
    wait_for("the dead one's unit", Duration::from_secs(30), async || {
        sharing.take_over(unit, TakeOver::Lapsed).await == Ok(true)
    })
    .await;
    assert!(died.elapsed() >= Duration::from_secs(8), "not before its pin has lapsed: {:?}", died.elapsed());
    assert_eq!(sharing.unread(&[unit]).await.unwrap(), [unit]);
    let mut opened = two.open_unit(unit, AMPLE).await.unwrap();
    for sequence in 1..=3 {
        let delivery = next(&mut opened).await;
        assert_eq!(delivery.sequence().0, sequence);
        delivery.ack();
    }
    opened.control.release().await;
}

#[tokio::test]
async fn a_suspected_owner_that_lives_can_record_nothing_more_and_is_told() {
    let (servers, unit) = one_unit().await;
    let (one, two) = (servers.open().await, servers.open().await);
    let sharing = two.sharing().expect("units are shared");
    send(&one, &table("t"), 0..3).await;
    let mut former = one.open_unit(unit, AMPLE).await.unwrap();
    let held = next(&mut former).await;
    former.control.record_cut(cut_of(&held)).await.unwrap();
    assert_eq!(sharing.take_over(unit, TakeOver::Suspected).await, Ok(true));
    let refused = former.control.record_cut(cut_of(&held)).await;
    assert_eq!(refused, Err(CutError::Lost { table: table("t") }));
    let mut opened = two.open_unit(unit, AMPLE).await.unwrap();
    assert_eq!(opened.cuts, [cut_of(&held)], "what was recorded is given on");
    drop(held);
    for sequence in 1..=3 {
        let delivery = next(&mut opened).await;
        assert_eq!(delivery.sequence().0, sequence);
        delivery.ack();
    }
    let lost = timeout(SOON, async {
        loop {
            if let Err(lost) = former.deliveries.next().await {
                return lost;
            }
        }
    });
    assert_eq!(lost.await.expect("it is told").unit, unit);
    former.control.release().await;
    // It took nothing along when it went.
    send(&two, &table("t"), 3..4).await;
    assert_eq!(next(&mut opened).await.sequence().0, 4);
    opened.control.release().await;
}

#[tokio::test]
async fn case_68_a_durable_that_is_deleted_ends_delivery() {
    let (servers, unit) = one_unit().await;
    let one = servers.open().await;
    send(&one, &table("t"), 0..3).await;
    let mut opened = one.open_unit(unit, RowBudget { rows: 1, bytes: 1 }).await.unwrap();
    let _held = next(&mut opened).await;
    servers.call("CONSUMER.DELETE.WH_INGEST_0.wh-ingest-0", &json!({})).await;
    let lost = timeout(SOON, opened.deliveries.next()).await.expect("within seconds");
    assert!(lost.is_err_and(|lost| lost.reason.contains("durable")));
    opened.control.release().await;
    let again = one.open_unit(unit, AMPLE).await;
    assert_eq!(again.err(), Some(wavehouse_broker::OpenUnitError::Unknown(unit)));
}

#[tokio::test]
async fn case_69_an_owner_that_is_busy_for_longer_than_its_pin_lasts_keeps_it() {
    let (servers, unit) = one_unit().await;
    let mut options = servers.options();
    options.held_rows_max = 8;
    let one = NatsBroker::open(options).await.expect("the queue opens");
    let t = table("t");
    publish(&one, rows(&t, 0..1000)).await.unwrap();
    send(&one, &t, 1000..1020).await;
    let mut opened = one.open_unit(unit, RowBudget { rows: 1, bytes: 1 }).await.unwrap();
    let held = next(&mut opened).await;
    let first = durable(&servers).await;
    for _ in 0..13 {
        sleep(Duration::from_secs(1)).await;
        let now = durable(&servers).await;
        assert_eq!((pin(&now).is_empty(), pin(&now)), (false, pin(&first)), "the same pin throughout");
    }
    let more = durable(&servers).await.delivered.stream_seq - first.delivered.stream_seq;
    assert!(more <= 3, "one block now and then, to keep the pin, not {more}");
    assert!(servers.open().await.sharing().unwrap().unread(&[unit]).await.unwrap().is_empty());
    held.ack();
    opened.control.set_budget(AMPLE);
    for sequence in 2..=21 {
        let delivery = next(&mut opened).await;
        assert_eq!(delivery.sequence().0, sequence, "in order");
        delivery.ack();
    }
    opened.control.release().await;
}
