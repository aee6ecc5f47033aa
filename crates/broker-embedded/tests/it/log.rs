//! Publishing, delivery, and coming back after the end of the process.

use std::time::Duration;

use wavehouse_broker::{Broker, Cut, InsertToken};
use wavehouse_broker_embedded::{EmbeddedBroker, Metrics, OpenError};
use wavehouse_core::Sequence;

use crate::kit::{block, next, numbered, numbers, open, open_unit, options, submit, table, within};

#[tokio::test]
async fn what_is_stored_comes_out_again_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let (events, clicks) = (table("events"), table("clicks"));
    {
        let broker = open(&options);
        for n in 0..10 {
            assert_eq!(
                submit(&broker, numbered(&events, n, 10)).await.unwrap().first.sequence,
                Sequence(n + 1)
            );
        }
        submit(&broker, block(&clicks, 3, "hi")).await.unwrap();
        let mut unit = open_unit(&broker).await;
        let mut seen = 0;
        while seen < 11 {
            let delivery = next(&mut unit).await;
            seen += 1;
            if *delivery.table() == events && delivery.sequence().0 <= 4 {
                delivery.ack();
            }
        }
        let cut = Cut {
            table: events.clone(),
            first: Sequence(5),
            last: Sequence(7),
            blocks: 3,
            splits: vec![2],
            done_rows: 1,
            token: InsertToken(99),
        };
        unit.control.record_cut(cut).await.unwrap();
        broker.close().await.unwrap();
    }
    let broker = open(&options);
    let depths = broker.depths();
    assert_eq!(depths.iter().map(|depth| depth.unwritten_rows).collect::<Vec<_>>(), [6, 3]);
    let mut unit = open_unit(&broker).await;
    assert_eq!(unit.cuts.len(), 1);
    assert_eq!((unit.cuts[0].first, unit.cuts[0].splits.as_slice()), (Sequence(5), &[2][..]));
    let mut rows = Vec::new();
    for _ in 0..7 {
        let delivery = next(&mut unit).await;
        if *delivery.table() == events {
            rows.extend(numbers(&delivery.stored().block));
        }
        delivery.ack();
    }
    assert_eq!(rows, [4, 5, 6, 7, 8, 9]);
    assert_eq!(broker.depths(), []);
    unit.control.release().await;
    assert_eq!(open_unit(&broker).await.cuts, []);
}

#[tokio::test]
async fn many_files_are_written_read_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let events = table("events");
    let count = 300;
    {
        let broker = open(&options);
        let stored: Vec<_> = (0..count).map(|n| broker.submit(vec![numbered(&events, n, 30_000)])).collect();
        for stored in stored {
            within(stored).await.remove(0).unwrap();
        }
    }
    for reopened in 0..2 {
        let broker = open(&options);
        let mut unit = open_unit(&broker).await;
        let (mut rows, mut held) = (Vec::new(), Vec::new());
        while rows.len() < count as usize {
            let delivery = next(&mut unit).await;
            rows.extend(numbers(&delivery.stored().block));
            held.push(delivery);
        }
        assert_eq!(rows, (0..count).collect::<Vec<_>>(), "opening {reopened}");
    }
}

#[tokio::test]
async fn a_directory_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let broker = open(&options);
    let Err(OpenError::Locked { holder, .. }) = EmbeddedBroker::open(&options, Metrics::default()) else {
        panic!("two owners");
    };
    assert_eq!(holder, format!("process {}", std::process::id()));
    broker.close().await.unwrap();
    let again = open(&options);
    assert_eq!(again.log(), broker.log(), "the log keeps its id");
    drop(again);
    std::fs::remove_dir_all(dir.path()).unwrap();
    let anew = open(&options);
    assert_ne!(anew.log(), broker.log(), "a new directory begins a new log");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_settled_in_time_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path());
    options.ack_wait = Duration::from_secs(60);
    let broker = open(&options);
    let events = table("events");
    // No timeouts here: the paused clock would run into them while the disk works.
    broker.submit(vec![numbered(&events, 1, 0)]).await.remove(0).unwrap();
    let mut unit = open_unit(&broker).await;
    let first = unit.deliveries.next().await.unwrap().unwrap();
    let start = tokio::time::Instant::now();
    let second = unit.deliveries.next().await.unwrap().unwrap();
    assert_eq!((first.attempt(), second.attempt(), second.sequence()), (1, 2, Sequence(1)));
    assert_eq!(start.elapsed().as_secs(), 60);
    first.ack();
    drop(second);
    assert_eq!(broker.depths(), [], "an ack is true however late");
}
