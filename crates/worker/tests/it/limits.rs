//! What is in hand stays bounded, whoever floods.

use std::time::Duration;

use crate::kit::{Answer, House, Scripted, block, lines, table, unavailable};

const S: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_table_leaves_room_for_the_others() {
    let mut house = House::new(Scripted::slow(20 * S, |_, _| Answer::Store));
    house.options.batch_bytes_max = 4 << 20;
    house.options.held_bytes = 8 << 20;
    house.start();
    let (flood, other) = (table("flood"), table("other"));
    let fat = |number: u32| format!("{{\"n\":{number},\"s\":\"{}\"}}", "x".repeat(1 << 20));
    house.publish((0..60).map(|number| block(&flood, [fat(number)])).collect()).await;
    tokio::time::sleep(3 * S).await;
    house.publish(vec![block(&other, lines(0..10))]).await;
    tokio::time::sleep(25 * S).await;
    assert_eq!(house.sink.rows(&other), lines(0..10));
    house.drained(2000 * S).await;
    assert_eq!(house.sink.rows(&flood).len(), 60);
}

#[tokio::test(start_paused = true)]
async fn tables_of_a_dead_clickhouse_hold_nothing_that_another_one_needs() {
    use wavehouse_core::{TableName, TableRef, TenantId};
    let mut house = House::new(Scripted::new(|batch, _| match batch.table.tenant.as_str() {
        "0" => Answer::Store,
        _ => Answer::Fail(unavailable(None)),
    }));
    house.options.batch_bytes_max = 1 << 20;
    house.options.held_bytes = 2 << 20;
    house.start();
    let fat = |number: u32| format!("{{\"n\":{number},\"s\":\"{}\"}}", "x".repeat(1 << 20));
    for number in 0..30 {
        let name = TableName::parse(&format!("t{number}")).unwrap();
        let dead = TableRef::new(TenantId::parse("dead").unwrap(), name);
        house.publish((0..6).map(|number| block(&dead, [fat(number)])).collect()).await;
    }
    let t = table("t");
    for second in 0..30 {
        house.publish(vec![block(&t, lines(second * 10..(second + 1) * 10))]).await;
        tokio::time::sleep(S).await;
    }
    tokio::time::sleep(2 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..300));
    house.sink.set(|_, _| Answer::Store);
    house.drained(200 * S).await;
}
