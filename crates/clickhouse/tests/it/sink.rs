//! Inserting batches: what the worker relies on.

use wavehouse_clickhouse::{BATCH_ROWS_LIMIT, Class, Scope, refusal};

use crate::kit::{House, numbers};

const PLAIN: &str = "CREATE TABLE t (n UInt32) ENGINE = MergeTree ORDER BY n \
    SETTINGS non_replicated_deduplication_window = 100";

#[tokio::test]
async fn rows_land_once_a_token() {
    let house = House::new(&[PLAIN]).await;
    house.insert("t", "a", &numbers(0..100)).await.unwrap();
    house.insert("t", "a", &numbers(0..100)).await.unwrap();
    assert_eq!(house.count("t").await, "100");
    // The same content under another token is other rows.
    house.insert("t", "b", &numbers(0..100)).await.unwrap();
    assert_eq!(house.count("t").await, "200");
}

#[tokio::test]
async fn a_large_batch_is_one_block_even_over_many_partitions() {
    let house = House::new(&[
        PLAIN,
        "CREATE TABLE wide (n UInt32) ENGINE = MergeTree PARTITION BY n % 300 ORDER BY n",
    ])
    .await;
    house.insert("t", "a", &numbers(0..BATCH_ROWS_LIMIT)).await.unwrap();
    let parts = "SELECT count(), sum(rows) FROM system.parts WHERE table = 't' AND active";
    assert_eq!(house.engine.query(parts).await.trim(), format!("1\t{BATCH_ROWS_LIMIT}"));
    house.insert("wide", "a", &numbers(0..3000)).await.unwrap();
    assert_eq!(house.count("wide").await, "3000");
}

#[tokio::test]
async fn the_bad_row_is_named_from_one_wherever_it_stands() {
    let house = House::new(&[
        PLAIN,
        "CREATE TABLE checked (n UInt32, CONSTRAINT small CHECK n < 1000000) ENGINE = MergeTree ORDER BY n",
    ])
    .await;
    for (total, bad) in [(1, 0), (2, 1), (10, 0), (10, 4), (20_000, 19_999), (300_000, 299_999)] {
        let mut lines = numbers(0..total);
        let mut refused = Vec::new();
        for wrong in ["{\"n\":\"x\"}", "{\"n\":-1}", "{\"m\":1}", "{\"n\":1,\"n\":2}", "{\"n\":[1]}"] {
            wrong.clone_into(&mut lines[bad]);
            refused.push(("t", wrong, house.insert("t", "a", &lines).await.unwrap_err()));
        }
        let wrong = "{\"n\":1000000}";
        wrong.clone_into(&mut lines[bad]);
        refused.push(("checked", wrong, house.insert("checked", "a", &lines).await.unwrap_err()));
        for (table, wrong, error) in refused {
            assert_eq!(error.class, Class::Rejected, "{error}");
            assert_eq!(error.bad_row(), Some(bad as u64 + 1), "{table} {wrong} {bad} of {total}: {error}");
            assert_eq!(refusal(error.code, error.bad_row()), Scope::Row, "{error}");
            assert!(!error.may_be_stored());
            assert_eq!(house.count(table).await, "0", "{wrong}");
        }
    }
}

#[tokio::test]
async fn the_first_of_several_bad_rows_is_named() {
    let house = House::new(&[
        "CREATE TABLE checked (n UInt32, CONSTRAINT small CHECK n < 1000000) ENGINE = MergeTree ORDER BY n",
    ])
    .await;
    let mut lines = numbers(0..100);
    for bad in [70, 30] {
        "{\"n\":1000000}".clone_into(&mut lines[bad]);
    }
    assert_eq!(house.insert("checked", "a", &lines).await.unwrap_err().bad_row(), Some(31));
}

#[tokio::test]
async fn what_speaks_of_the_table() {
    let house = House::new(&[PLAIN]).await;
    let gone = house.insert("gone", "a", &numbers(0..3)).await.unwrap_err();
    assert_eq!((gone.code, gone.class), (Some(60), Class::Rejected), "{gone}");
    assert_eq!(refusal(gone.code, gone.bad_row()), Scope::Table);
    house.engine.query("CREATE TABLE s (n UInt32) ENGINE = MergeTree ORDER BY n").await;
    house.engine.query("CREATE TABLE d (m UInt32) ENGINE = MergeTree ORDER BY m").await;
    house.engine.query("CREATE MATERIALIZED VIEW v TO d AS SELECT n AS m FROM s").await;
    house.engine.query("DROP TABLE d").await;
    let broken = house.insert("s", "a", &numbers(0..3)).await.unwrap_err();
    assert_eq!(refusal(broken.code, broken.bad_row()), Scope::Table, "{broken}");
    assert_eq!(house.count("s").await, "0");
}

#[tokio::test]
async fn a_view_that_refuses_a_row_gets_it_later_without_twins() {
    let house = House::new(&[
        "CREATE TABLE s (n UInt32) ENGINE = MergeTree ORDER BY n SETTINGS non_replicated_deduplication_window = 9",
        "CREATE TABLE d (m UInt32) ENGINE = MergeTree ORDER BY m",
        "CREATE MATERIALIZED VIEW v TO d AS SELECT throwIf(n = 50) + n AS m FROM s",
    ])
    .await;
    for _ in 0..2 {
        let refused = house.insert("s", "a", &numbers(0..100)).await.unwrap_err();
        assert!(
            refused.in_view() && refused.may_be_stored() && refused.class == Class::Rejected,
            "{refused}"
        );
        // The table itself has its rows, once.
        assert_eq!((house.count("s").await, house.count("d").await), ("100".to_owned(), "0".to_owned()));
    }
    house.engine.query("DROP VIEW v").await;
    house.engine.query("CREATE MATERIALIZED VIEW v TO d AS SELECT n AS m FROM s").await;
    house.insert("s", "a", &numbers(0..100)).await.unwrap();
    assert_eq!((house.count("s").await, house.count("d").await), ("100".to_owned(), "100".to_owned()));
}

#[tokio::test]
async fn values_are_read_as_they_were_checked() {
    let house = House::new(&[
        "CREATE TABLE t (a Nullable(UInt8), b String DEFAULT 'omitted', c DateTime('UTC'), d UInt8 DEFAULT 7) \
         ENGINE = MergeTree ORDER BY b",
    ])
    .await;
    let lines = [
        "{\"a\":null,\"c\":\"2026-01-02T03:04:05.678+01:00\",\"d\":null}".to_owned(),
        "{\"a\":1,\"b\":\"x\",\"c\":1767322800,\"d\":2}".to_owned(),
    ];
    house.insert("t", "a", &lines).await.unwrap();
    let rows = house.engine.query("SELECT a, b, c, d FROM t ORDER BY d").await;
    assert_eq!(rows, "1\tx\t2026-01-02 03:00:00\t2\n\\N\tomitted\t2026-01-02 02:04:05\t7\n");
}

#[tokio::test]
async fn any_name_is_a_table() {
    let house = House::new(&["CREATE TABLE `a b\\`c\\\\d'` (n UInt32) ENGINE = MergeTree ORDER BY n"]).await;
    house.insert("a b`c\\d'", "a", &numbers(0..3)).await.unwrap();
    assert_eq!(house.engine.query("SELECT count() FROM `a b\\`c\\\\d'`").await.trim(), "3");
}

#[tokio::test]
async fn an_engine_that_dies_in_the_middle_leaves_all_or_nothing() {
    let mut house = House::new(&[PLAIN]).await;
    house.engine.stop_signal();
    let sink = house.sink.clone();
    let batch = crate::kit::batch("t", "a", &numbers(0..500_000));
    let write = async { wavehouse_clickhouse::RowSink::write(&sink, &batch).await };
    let (outcome, ()) = tokio::join!(write, async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        house.engine.cont();
        house.engine.kill9();
    });
    let error = outcome.unwrap_err();
    assert_eq!(error.class(), Class::Unavailable, "{error:?}");
    let refused = house.sink.clone();
    let error = wavehouse_clickhouse::RowSink::write(&refused, &batch).await.unwrap_err();
    assert_eq!(error.clickhouse().unwrap().cause, wavehouse_clickhouse::Cause::Connect, "{error:?}");
    house.engine.restart().await;
    house.insert("t", "a", &numbers(0..500_000)).await.unwrap();
    assert_eq!(house.count("t").await, "500000");
}
