//! Rows that ClickHouse refuses.

use std::time::Duration;

use crate::kit::{Answer, House, Scripted, block, constraint, lines, refused, table, unavailable};

const S: Duration = Duration::from_secs(1);
const BAD: [u32; 7] = [0, 1, 17, 4999, 5000, 8123, 9999];

fn mixed() -> Vec<String> {
    let line = |number: u32| {
        let bad = if BAD.contains(&number) { ",\"bad\":1" } else { "" };
        format!("{{\"n\":{number}{bad}}}")
    };
    (0..10_000).map(line).collect()
}

async fn seven_of_ten_thousand(naming: bool) -> usize {
    let mut house = House::new(Scripted::new(move |batch, _| constraint(batch, naming)));
    house.start();
    let t = table("t");
    let rows = mixed();
    house.publish(rows.chunks(700).map(|rows| block(&t, rows.to_vec())).collect()).await;
    house.drained(30 * S).await;
    let good: Vec<String> = rows.iter().filter(|line| !line.contains("bad")).cloned().collect();
    assert_eq!(house.sink.rows(&t), good);
    let letters = house.letters().await;
    let buried: Vec<String> =
        letters.iter().map(|letter| String::from_utf8(letter.line.to_vec()).unwrap()).collect();
    assert_eq!(buried, rows.iter().filter(|line| line.contains("bad")).cloned().collect::<Vec<_>>());
    for (letter, number) in letters.iter().zip(BAD) {
        assert_eq!((letter.code, letter.position.row), (Some(469), number % 700));
        assert_eq!(letter.position.sequence.0, u64::from(number / 700) + 1);
        assert_eq!(letter.received_at.as_millis(), 1);
        assert!(letter.reason.starts_with("Constraint `good` is violated"), "{}", letter.reason);
    }
    house.sink.calls().len()
}

#[tokio::test(start_paused = true)]
async fn seven_bad_rows_are_buried_by_their_number() {
    let inserts = seven_of_ten_thousand(true).await;
    assert!(inserts <= 22, "{inserts} inserts");
}

#[tokio::test(start_paused = true)]
async fn seven_bad_rows_are_buried_by_halving() {
    let inserts = seven_of_ten_thousand(false).await;
    assert!(inserts <= 200, "{inserts} inserts");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_refuses_everything_slows_down_and_harms_no_other() {
    let mut house = House::new(Scripted::new(|batch, _| match batch.table.table.as_str() {
        "broken" => {
            Answer::Fail(refused(117, "Unknown field found while parsing JSONEachRow format: x: (at row 1)"))
        }
        _ => Answer::Store,
    }));
    house.start();
    let broken = table("broken");
    house.publish((0..5).map(|n| block(&broken, lines(n * 1000..(n + 1) * 1000))).collect()).await;
    let healthy: Vec<_> = (0..20).map(|number| table(&format!("t{number}"))).collect();
    for second in 0..60 {
        house
            .publish(healthy.iter().map(|t| block(t, lines(second * 10..(second + 1) * 10))).collect())
            .await;
        tokio::time::sleep(S).await;
    }
    tokio::time::sleep(2 * S).await;
    for t in &healthy {
        assert_eq!(house.sink.rows(t), lines(0..600), "{t}");
    }
    let letters = house.letters().await.len();
    assert!((1000..1020).contains(&letters), "{letters} buried");
    assert_eq!(house.unwritten(), 5000);
    // Repaired, it goes on by itself, and nothing but what was buried is missing.
    house.sink.set(|_, _| Answer::Store);
    house.drained(60 * S).await;
    let letters = u32::try_from(house.letters().await.len()).unwrap();
    assert_eq!(house.sink.rows(&broken), lines(letters..5000));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_table_buries_nothing() {
    let mut house = House::new(Scripted::new(|_, _| Answer::Fail(refused(60, "Table does not exist"))));
    house.start();
    let t = table("t");
    house.publish(vec![block(&t, lines(0..100))]).await;
    tokio::time::sleep(120 * S).await;
    assert_eq!((house.letters().await.len(), house.unwritten()), (0, 100));
    house.sink.set(|_, _| Answer::Store);
    house.drained(40 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..100));
}

#[tokio::test(start_paused = true)]
async fn memory_limits_halve_the_batch_and_bury_nothing() {
    let mut house = House::new(Scripted::new(|batch, _| match batch.rows {
        0..=1000 => Answer::Store,
        _ => Answer::Fail(unavailable(Some(241))),
    }));
    house.start();
    let t = table("t");
    house.publish(vec![block(&t, lines(0..10_000))]).await;
    house.drained(20 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..10_000));
    house.sink.set(|_, _| Answer::Fail(unavailable(Some(241))));
    house.publish(vec![block(&t, lines(10_000..10_010))]).await;
    tokio::time::sleep(90 * S).await;
    assert_eq!((house.letters().await.len(), house.unwritten()), (0, 10));
    house.sink.set(|_, _| Answer::Store);
    house.drained(40 * S).await;
    assert_eq!(house.sink.rows(&t), lines(0..10_010));
}
