//! What limits promise: a tenant's budget is for unwritten bytes and its own; delivery keeps to its budget; a sweep
//! gives back what is settled and nothing else.

#![expect(clippy::expect_used, reason = "a case fails by panicking, and says what it expected")]

use std::time::Duration;

use wavehouse_core::{FaultKind, TableRef};

use super::BrokerFixture;
use super::kit::{
    AMPLE, Reader, at, delivered_numbers, events, much_later, numbered, padded, publish, publish_each,
    publish_settled, table, tenant, try_publish, within,
};
use crate::contract::{BrokerHealth, SharedBroker, TenantLimits};
use crate::errors::{PublishError, Stored};
use crate::unit::RowBudget;

fn limit(broker: &SharedBroker, tenant_id: &str, unwritten_bytes_max: u64) {
    let limits = broker.limits(&tenant(tenant_id));
    broker.set_limits(&tenant(tenant_id), TenantLimits { unwritten_bytes_max, ..limits });
}

fn assert_full(error: &PublishError, tenant_id: &str) {
    assert!(
        matches!(error, PublishError::TenantFull { tenant: full, .. } if *full == tenant(tenant_id)),
        "{error:?}"
    );
    assert!(matches!(error.fault(), FaultKind::Retry { after: Some(_) }));
    assert_eq!(error.stored(), Stored::No);
}

pub(super) async fn full_for_one_tenant(fixture: &mut dyn BrokerFixture) {
    let (mine, theirs) = (table("acme", "events"), events());
    publish(&fixture.broker(), numbered(&mine, 0..1)).await;
    fixture.fill(&tenant("acme")).await;
    let broker = fixture.broker();
    let both = broker.submit(vec![padded(&mine, 1, 10_000), numbered(&theirs, 0..1)]);
    let results = within("results", both).await;
    assert_full(results[0].as_ref().expect_err("the tenant is full"), "acme");
    assert!(results[1].is_ok(), "another tenant goes on: {results:?}");
    publish(&broker, padded(&theirs, 1, 10_000)).await;
}

pub(super) async fn only_unwritten_counts(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    limit(&broker, "0", 256 << 10);
    let mut reader = Reader::open(&broker, AMPLE).await;
    // Eight times the budget goes through, a half at a time.
    for number in 0..16 {
        publish(&broker, padded(&events(), number, 128 << 10)).await;
        reader.expect(&events(), number).await.ack();
        if number % 4 == 3 {
            reader.release().await;
            reader = Reader::open(&broker, AMPLE).await;
        }
    }
    publish(&broker, padded(&events(), 16, 128 << 10)).await;
    let full = try_publish(&broker, padded(&events(), 17, 192 << 10)).await;
    assert_full(&full.expect_err("unwritten rows fill it"), "0");
    reader.expect(&events(), 16).await.ack();
    reader.release().await;
    publish(&broker, padded(&events(), 18, 192 << 10)).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let delivery = reader.next("the row that had room again").await;
    assert_eq!(delivered_numbers(&delivery), [18], "what was refused does not come");
    delivery.ack();
}

pub(super) async fn budgets_apart(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let tenants = ["0", "acme", "b"];
    for tenant_id in tenants {
        limit(&broker, tenant_id, 256 << 10);
    }
    for tenant_id in tenants {
        publish(&broker, padded(&table(tenant_id, "a"), 0, 96 << 10)).await;
        publish(&broker, padded(&table(tenant_id, "b"), 1, 96 << 10)).await;
        let full = try_publish(&broker, padded(&table(tenant_id, "c"), 2, 96 << 10)).await;
        assert_full(&full.expect_err("all of its tables fill a tenant's budget"), tenant_id);
    }
    let mut reader = Reader::open(&broker, AMPLE).await;
    for delivery in reader.take(6).await {
        if delivery.table().tenant == tenant("acme") {
            delivery.ack();
        }
    }
    reader.release().await;
    publish(&broker, padded(&table("acme", "c"), 3, 96 << 10)).await;
    let full = try_publish(&broker, padded(&events(), 3, 96 << 10)).await;
    assert_full(&full.expect_err("what another tenant gets written makes no room"), "0");
}

pub(super) async fn limits_below_use(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    for number in 0..4 {
        publish(&broker, padded(&events(), number, 64 << 10)).await;
    }
    limit(&broker, "0", 64 << 10);
    let full = try_publish(&broker, numbered(&events(), 4..5)).await;
    assert_full(&full.expect_err("it is over its budget"), "0");
    let mut reader = Reader::open(&broker, AMPLE).await;
    for number in 0..4 {
        reader.expect(&events(), number).await.ack();
    }
    reader.release().await;
    publish(&broker, numbered(&events(), 5..6)).await;
    limit(&broker, "0", 0);
    let full = try_publish(&broker, numbered(&events(), 6..7)).await;
    assert_full(&full.expect_err("a budget of nothing takes nothing"), "0");
}

pub(super) async fn budget_over_restart(fixture: &mut dyn BrokerFixture) {
    for number in 0..4 {
        publish(&fixture.broker(), padded(&events(), number, 64 << 10)).await;
    }
    for round in 0..2 {
        match round {
            0 => fixture.restart().await,
            _ => fixture.crash().await,
        }
        let broker = fixture.broker();
        limit(&broker, "0", 256 << 10);
        let full = try_publish(&broker, padded(&events(), 4, 64 << 10)).await;
        assert_full(&full.expect_err("what waits since before still counts"), "0");
    }
}

pub(super) async fn limits_reported(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let others = broker.limits(&tenant("acme"));
    for bytes in [1 << 20, 1 << 21] {
        let limits =
            TenantLimits { unwritten_bytes_max: bytes, gap_window: Duration::from_secs(bytes >> 10) };
        broker.set_limits(&tenant("0"), limits);
        assert_eq!(broker.limits(&tenant("0")), limits, "the latest");
    }
    assert_eq!(broker.limits(&tenant("acme")), others, "another tenant's are not touched");
}

/// Publishes rows, opens with a budget and takes what comes; the rest must wait until something is settled.
async fn within_budget(broker: &SharedBroker, budget: RowBudget, first: &[u64]) {
    let mut reader = Reader::open(broker, budget).await;
    let mut out = Vec::new();
    for number in first {
        out.push(reader.expect(&events(), *number).await);
    }
    reader.quiet("the budget is spent").await;
    let next = first.len() as u64;
    out.remove(0).ack();
    out.push(reader.expect(&events(), next).await);
    reader.quiet("the budget is spent again").await;
    for delivery in out {
        delivery.ack();
    }
}

pub(super) async fn delivery_budget_of_rows(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..8).await;
    within_budget(&broker, RowBudget { rows: 3, bytes: 1 << 30 }, &[0, 1, 2]).await;
}

pub(super) async fn delivery_budget_of_bytes(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    for number in 0..8 {
        publish(&broker, padded(&events(), number, 1000)).await;
    }
    within_budget(&broker, RowBudget { rows: 1 << 30, bytes: 2500 }, &[0, 1]).await;
}

pub(super) async fn delivery_budget_spans_tables(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let tables: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(|name| table("0", name)).into();
    for table in &tables {
        publish_each(&broker, table, 0..2).await;
    }
    let units = broker.units().len();
    let mut reader = Reader::open(&broker, RowBudget { rows: 2, bytes: 1 << 30 }).await;
    let mut out = Vec::new();
    while let Ok(outcome) = tokio::time::timeout(super::kit::QUIET, reader.poll()).await {
        out.push(outcome.expect("delivery goes on").expect("delivery goes on"));
        assert!(out.len() <= 2 * units, "no more than the budget is out");
    }
    assert!(out.len() >= 2, "as much as the budget lets out");
    let mut seen = out.len();
    while seen < 12 {
        out.remove(0).ack();
        out.push(reader.next("a row in the place of the acked").await);
        seen += 1;
    }
}

pub(super) async fn at_least_one_block(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish(&broker, numbered(&events(), 0..10)).await;
    publish(&broker, padded(&events(), 10, 500_000)).await;
    publish_each(&broker, &events(), 11..12).await;
    let mut reader = Reader::open(&broker, RowBudget { rows: 0, bytes: 0 }).await;
    for first in [0, 10, 11] {
        let delivery = reader.next("a block larger than the budget").await;
        assert_eq!(delivered_numbers(&delivery)[0], first);
        reader.quiet("one is out").await;
        delivery.ack();
    }
}

pub(super) async fn raised_budget_wakes(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..6).await;
    let mut reader = Reader::open(&broker, RowBudget { rows: 1, bytes: 1 << 30 }).await;
    let mut out = vec![reader.expect(&events(), 0).await];
    reader.quiet("the budget is spent").await;
    let controls: Vec<_> = reader.controls().cloned().collect();
    let raising = async {
        tokio::task::yield_now().await;
        controls.iter().for_each(|control| control.set_budget(RowBudget { rows: 3, bytes: 1 << 30 }));
    };
    let (delivery, ()) = tokio::join!(reader.next("a row under the raised budget"), raising);
    out.push(delivery);
    out.push(reader.expect(&events(), 2).await);
    reader.quiet("the raised budget is spent").await;
    for control in reader.controls() {
        control.set_budget(RowBudget { rows: 1, bytes: 1 << 30 });
    }
    out.remove(0).ack();
    out.remove(0).ack();
    reader.quiet("one is out, which is all that the lowered budget lets out").await;
    out.remove(0).ack();
    reader.expect(&events(), 3).await.ack();
}

fn depth_of(broker: &SharedBroker, table: &TableRef) -> Option<(u64, Option<wavehouse_core::Timestamp>)> {
    let depths = broker.depths();
    let mut of_table = depths.iter().filter(|depth| depth.table == *table);
    let depth = of_table.next()?;
    assert!(of_table.next().is_none(), "one entry a table");
    assert!(depth.unwritten_bytes > 0);
    Some((depth.unwritten_rows, depth.oldest_unwritten))
}

pub(super) async fn depths(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let other = table("acme", "events");
    assert_eq!(broker.depths(), []);
    publish(&broker, numbered(&events(), 10..13)).await;
    publish(&broker, numbered(&events(), 20..24)).await;
    publish(&broker, numbered(&other, 5..6)).await;
    assert_eq!(depth_of(&broker, &events()), Some((7, Some(at(10)))));
    assert_eq!(depth_of(&broker, &other), Some((1, Some(at(5)))));
    let mut reader = Reader::open(&broker, AMPLE).await;
    let out = reader.take(8).await;
    assert_eq!(depth_of(&broker, &events()), Some((7, Some(at(10)))), "handed out is not settled");
    let mut late = Vec::new();
    for delivery in out {
        if delivered_numbers(&delivery)[0] == 20 { late.push(delivery) } else { delivery.ack() }
    }
    reader.release().await;
    assert_eq!(depth_of(&broker, &events()), Some((4, Some(at(20)))));
    assert_eq!(depth_of(&broker, &other), None, "a table that has nothing waiting is left out");
    fixture.restart().await;
    assert_eq!(depth_of(&fixture.broker(), &events()), Some((4, Some(at(20)))));
    assert_eq!(fixture.broker().depths().len(), 1);
}

pub(super) async fn sweep_spares_unsettled(fixture: &mut dyn BrokerFixture) {
    let stuck = table("acme", "stuck");
    let broker = fixture.broker();
    publish_each(&broker, &stuck, 0..3).await;
    let settled = publish_settled(&broker, &events()).await;
    publish_each(&broker, &stuck, 3..5).await;
    publish_each(&broker, &events(), settled..settled + 2).await;
    for _again in 0..3 {
        within("the sweep", broker.sweep(much_later())).await;
    }
    fixture.crash().await;
    let mut reader = Reader::open(&fixture.broker(), AMPLE).await;
    let (mut of_stuck, mut of_events) = (Vec::new(), Vec::new());
    for delivery in reader.take(7).await {
        let list = if delivery.table() == &stuck { &mut of_stuck } else { &mut of_events };
        list.extend(delivered_numbers(&delivery));
        delivery.ack();
    }
    assert_eq!((of_stuck, of_events), (vec![0, 1, 2, 3, 4], vec![settled, settled + 1]));
    reader.quiet("what was settled stays settled").await;
}

pub(super) async fn stuck_table_frees_others(fixture: &mut dyn BrokerFixture) {
    let stuck = table("acme", "stuck");
    let broker = fixture.broker();
    let mut freed_bytes = 0;
    publish_each(&broker, &stuck, 0..1).await;
    for round in 1..=2 {
        publish_settled(&broker, &events()).await;
        publish_each(&broker, &stuck, round..round + 1).await;
        freed_bytes += within("the sweep", broker.sweep(much_later())).await.freed_bytes;
    }
    assert!(freed_bytes >= 8 << 20, "one table's rows keep no other's space: {freed_bytes} bytes freed");
    let mut reader = Reader::open(&broker, AMPLE).await;
    for number in 0..3 {
        reader.expect(&stuck, number).await.ack();
    }
}

pub(super) async fn healthy(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..3).await;
    assert_eq!(*broker.health().borrow(), BrokerHealth::Good);
    fixture.restart().await;
    assert_eq!(*fixture.broker().health().borrow(), BrokerHealth::Good);
}
