//! The catalogue follows what the server has.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wavehouse_testkit::{Engine, wait_for};

use crate::kit::{House, connect, numbers, target};

const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn tables_columns_and_windows() {
    let house = House::new(&[
        "CREATE TABLE rides (id String, at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC'), twice UInt8 MATERIALIZED 2, \
         note Nullable(String)) ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 55",
        "CREATE TABLE plain (n UInt8) ENGINE = Memory",
        "CREATE DATABASE other",
        "CREATE TABLE other.elsewhere (n UInt8) ENGINE = Memory",
    ])
    .await;
    let catalog = &house.connection.catalog;
    assert!(catalog.snapshot().is_none() && !catalog.status().borrow().loaded);
    let snapshot = catalog.refresh().await.unwrap();
    assert_eq!(snapshot.tables.keys().collect::<Vec<_>>(), ["plain", "rides"]);
    assert!(
        snapshot.server.version >= (26, 7) && !snapshot.server.time_zone.is_empty(),
        "{:?}",
        snapshot.server
    );
    let rides = catalog.table("rides").unwrap();
    assert_eq!((rides.engine.as_str(), rides.dedup_window), ("MergeTree", 55));
    let columns: Vec<_> = rides
        .schema
        .columns
        .iter()
        .map(|c| (c.position, c.name.as_str(), c.type_text.as_str(), c.is_nullable()))
        .collect();
    assert_eq!(
        columns,
        [
            (1, "id", "String", false),
            (2, "at", "DateTime64(3, 'UTC')", false),
            (3, "twice", "UInt8", false),
            (4, "note", "Nullable(String)", true)
        ]
    );
    let at = rides.schema.column("at").unwrap();
    assert_eq!(at.default_expression.as_deref(), Some("now64(3, 'UTC')"));
    assert!(!rides.schema.column("twice").unwrap().is_insertable());
    assert!(catalog.table("elsewhere").is_none());
}

#[tokio::test]
async fn a_refused_insert_brings_the_news() {
    let house = House::new(&["CREATE TABLE t (n UInt32, m UInt32) ENGINE = MergeTree ORDER BY n"]).await;
    let catalog = house.connection.catalog.clone();
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(catalog.clone().run(stop.clone()));
    wait_for("the first discovery", LIMIT, async || catalog.table("t")).await;
    house.engine.query("ALTER TABLE t DROP COLUMN m").await;
    let refused = house.insert("t", "a", &["{\"m\":1}".to_owned()]).await.unwrap_err();
    assert_eq!(refused.code, Some(117), "{refused}");
    // Long before the next refresh by the clock.
    wait_for("the dropped column to be gone", LIMIT, async || {
        catalog.table("t").unwrap().schema.column("m").is_none()
    })
    .await;
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
    house.insert("t", "a", &numbers(0..1)).await.unwrap();
}

#[tokio::test]
async fn a_server_that_comes_late_is_found() {
    let mut engine = Engine::start().await;
    engine.query("CREATE TABLE t (n UInt8) ENGINE = Memory").await;
    let catalog = connect(target(&engine)).catalog.clone();
    engine.kill9();
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(catalog.clone().run(stop.clone()));
    let mut status = catalog.status();
    tokio::time::timeout(LIMIT, status.wait_for(|status| status.last_error.is_some()))
        .await
        .unwrap()
        .unwrap();
    assert!(catalog.snapshot().is_none());
    engine.restart().await;
    tokio::time::timeout(LIMIT, status.wait_for(|status| status.loaded)).await.unwrap().unwrap();
    assert!(catalog.table("t").is_some() && catalog.status().borrow().last_error.is_none());
    // What is known stays known when the server goes again.
    engine.kill9();
    assert!(catalog.refresh().await.is_err());
    assert!(catalog.table("t").is_some() && catalog.status().borrow().loaded);
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
}

#[tokio::test]
async fn who_asks_sees_what_was_true_when_it_asked() {
    let house = House::new(&[]).await;
    let catalog = Arc::new(house.connection.catalog.clone());
    for number in 0..5 {
        house.engine.query(&format!("CREATE TABLE t{number} (n UInt8) ENGINE = Memory")).await;
        let mut asks = JoinSet::new();
        for _ in 0..8 {
            let catalog = Arc::clone(&catalog);
            asks.spawn(async move { catalog.refresh().await.unwrap().tables.len() });
        }
        assert!(asks.join_all().await.iter().all(|tables| *tables == number + 1));
    }
}
