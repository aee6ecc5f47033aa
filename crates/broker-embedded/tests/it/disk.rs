//! Disks that are full, do not sync, or have changed what was written.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use wavehouse_broker::{
    Broker, BrokerHealth, Cut, HistoryEvent, HistoryFilter, HistoryStart, InsertToken, PublishError,
};
use wavehouse_broker_embedded::files::Files;
use wavehouse_broker_embedded::{EmbeddedBroker, Metrics, Options};
use wavehouse_core::{Sequence, TableRef, Timestamp};

use crate::faulty::{Chance, Faulty};
use crate::kit::{next, numbered, numbers, open, open_on, open_unit, options, submit, table, until, within};

/// Rows large enough to fill a small disk soon, and not to be stored together.
const PADDING: usize = 100_000;

/// Publishes until no room is left. Returns how many rows were accepted.
async fn fill(broker: &EmbeddedBroker, table: &TableRef, first: u64) -> u64 {
    let mut number = first;
    loop {
        match submit(broker, numbered(table, number, PADDING)).await {
            Ok(_) => number += 1,
            Err(PublishError::DiskFull) => return number,
            Err(error) => panic!("{error}"),
        }
    }
}

fn cut(table: &TableRef, sequence: Sequence, token: u128) -> Cut {
    let (splits, token) = (vec![], InsertToken(token));
    Cut { table: table.clone(), first: sequence, last: sequence, blocks: 1, splits, done_rows: 0, token }
}

/// A disk is filled to the brim. Nothing accepted is lost, cuts and acks go on, and when the rows are written room comes
/// back by itself.
async fn fill_and_recover(broker: &EmbeddedBroker) {
    let events = table("events");
    let count = fill(broker, &events, 0).await;
    assert!(count > 50, "{count} rows fit");
    assert!(matches!(&*broker.health().borrow(), BrokerHealth::Refusing { .. }));
    let mut unit = open_unit(broker).await;
    for number in 0..count {
        let delivery = next(&mut unit).await;
        assert_eq!(numbers(&delivery.stored().block), [number]);
        unit.control.record_cut(cut(&events, delivery.sequence(), number.into())).await.unwrap();
        delivery.ack();
    }
    let mut health = broker.health();
    within(health.wait_for(|health| *health == BrokerHealth::Good)).await.unwrap();
    // All of it is history now, and goes for what is new.
    let again = fill(broker, &events, count).await;
    assert!(again - count > count / 2, "{} rows fit again", again - count);
    for number in count..again {
        let delivery = next(&mut unit).await;
        assert_eq!(numbers(&delivery.stored().block), [number]);
        delivery.ack();
    }
}

fn wide(dir: &Path) -> Options {
    let mut options = options(dir);
    options.disk_bytes_max = Some(1 << 40);
    options
}

#[tokio::test]
async fn a_full_disk_refuses_rows_and_recovers() {
    let files = Faulty::default();
    files.set_capacity(Some(12 << 20));
    let options = wide(Path::new("/nowhere"));
    let broker = open_on(&options, Arc::new(files.clone()));
    fill_and_recover(&broker).await;
    drop(broker);
    let broker = open_on(&options, Arc::new(files.kill()));
    assert_eq!(broker.depths(), []);
}

#[tokio::test]
async fn the_queues_own_limit_is_as_a_full_disk() {
    let mut options = options(Path::new("/nowhere"));
    options.disk_bytes_max = Some(12 << 20);
    let files = Faulty::default();
    let broker = open_on(&options, Arc::new(files.clone()));
    fill_and_recover(&broker).await;
    // The log files, and one that names the format.
    assert!(files.used() < (12 << 20) + 4096, "{} bytes are taken", files.used());
}

/// Not a test of its own: it runs where a small disk is mounted.
#[test]
#[ignore = "run by the test that mounts the disk"]
fn on_a_small_disk() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let broker = open(&wide(Path::new("mounted")));
        fill_and_recover(&broker).await;
        within(broker.close()).await.unwrap();
    });
}

#[test]
fn a_full_tmpfs_refuses_rows_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("mounted")).unwrap();
    let may = Command::new("unshare").args(["-rm", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        // The same on a disk in memory is tested above.
        return;
    }
    let script =
        "mount -t tmpfs -o size=24m none mounted && exec \"$0\" disk::on_a_small_disk --exact --ignored";
    let status = Command::new("unshare")
        .args(["-rm", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .current_dir(dir.path())
        .status()
        .unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn a_stuck_table_does_not_fill_the_disk() {
    let files = Faulty::default();
    files.set_capacity(Some(16 << 20));
    let broker = open_on(&wide(Path::new("/nowhere")), Arc::new(files));
    let (stuck, events) = (table("stuck"), table("events"));
    let mut unit = open_unit(&broker).await;
    let (mut sent, mut held, mut refused) = (0, Vec::new(), 0);
    // Five disks full go through beside rows of the stuck table, which are in every file.
    while sent < 800 {
        if sent % 8 == 0 {
            submit(&broker, numbered(&stuck, sent, 1_000)).await.unwrap();
            held.push(next(&mut unit).await);
        }
        match submit(&broker, numbered(&events, sent, PADDING)).await {
            Ok(_) => {
                let delivery = next(&mut unit).await;
                assert_eq!((delivery.table(), numbers(&delivery.stored().block)), (&events, vec![sent]));
                delivery.ack();
                sent += 1;
            }
            Err(PublishError::DiskFull) => {
                refused += 1;
                assert!(refused < 600, "after {sent} rows no room comes back");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    drop(held);
    for number in (0..800).step_by(8) {
        let delivery = next(&mut unit).await;
        assert_eq!((delivery.table(), numbers(&delivery.stored().block)), (&stuck, vec![number]));
        delivery.ack();
    }
}

#[tokio::test]
async fn a_disk_that_does_not_sync_ends_the_queue() {
    let files = Faulty::default();
    let options = options(Path::new("/nowhere"));
    let broker = open_on(&options, Arc::new(files.clone()));
    let events = table("events");
    submit(&broker, numbered(&events, 0, 0)).await.unwrap();
    let mut unit = open_unit(&broker).await;
    next(&mut unit).await.ack();
    let mut history = broker.open_history(HistoryStart::Live, HistoryFilter::All).await.unwrap();
    files.fail_sync_after(0);
    let unknown = submit(&broker, numbered(&events, 1, 0)).await;
    assert!(matches!(unknown, Err(PublishError::Unknown { .. })), "{unknown:?}");
    let refused = submit(&broker, numbered(&events, 2, 0)).await;
    assert!(matches!(refused, Err(PublishError::Unavailable { .. })), "{refused:?}");
    assert!(matches!(&*broker.health().borrow(), BrokerHealth::Failed { .. }));
    assert!(within(unit.deliveries.next()).await.is_err(), "delivery ends");
    assert!(within(unit.deliveries.next()).await.unwrap().is_none(), "and says so once");
    assert!(unit.control.record_cut(cut(&events, Sequence(1), 1)).await.is_err());
    assert_eq!(within(history.next()).await, Ok(HistoryEvent::CaughtUp));
    assert!(within(history.next()).await.is_err());
    assert!(broker.close().await.is_err());
    // What the disk has in the end may or may not hold the row whose fate was unknown; never the refused one.
    let broker = open_on(&options, Arc::new(files.kill()));
    submit(&broker, numbered(&events, 3, 0)).await.unwrap();
    let mut unit = open_unit(&broker).await;
    let mut rows = Vec::new();
    while rows.last() != Some(&3) {
        let delivery = next(&mut unit).await;
        rows.extend(numbers(&delivery.stored().block));
        delivery.ack();
    }
    rows.retain(|number| ![0, 1].contains(number));
    assert_eq!(rows, [3]);
}

#[tokio::test]
async fn what_a_killed_process_left_unsynced_is_durable_once_it_was_read() {
    let options = options(Path::new("/nowhere"));
    let events = table("events");
    for seed in 0..20 {
        let files = Faulty::default();
        let broker = open_on(&options, Arc::new(files.clone()));
        submit(&broker, numbered(&events, 0, 0)).await.unwrap();
        files.fail_sync_after(0);
        let unknown = submit(&broker, numbered(&events, 1, 0)).await;
        assert!(matches!(unknown, Err(PublishError::Unknown { .. })), "{unknown:?}");
        let files = files.kill();
        let broker = open_on(&options, Arc::new(files.clone()));
        let mut unit = open_unit(&broker).await;
        let mut rows = Vec::new();
        while !rows.contains(&1) {
            let delivery = next(&mut unit).await;
            rows.extend(numbers(&delivery.stored().block));
            std::mem::forget(delivery);
        }
        // The machine fails too. A position that was seen must go on naming the same row.
        let broker = open_on(&options, Arc::new(files.crash(&mut Chance::new(seed))));
        assert_eq!(broker.depths()[0].unwritten_rows, 2);
    }
}

/// Three tables of ten rows each; the fifth row of the first is damaged, in the newest file or in a sealed one.
async fn damaged(sealed: bool) {
    let files = Faulty::default();
    let options = options(Path::new("/nowhere"));
    let tables = ["a", "b", "c"].map(table);
    let broker = open_on(&options, Arc::new(files.clone()));
    for number in 0..10 {
        for table in &tables {
            submit(&broker, numbered(table, number, 100)).await.unwrap();
        }
    }
    if sealed {
        fill_one_file(&broker).await;
    }
    within(broker.close()).await.unwrap();
    let files = files.kill();
    let (path, at) = files.find(b"{\"n\":4,").unwrap();
    files.damage(&path, at + 20);
    let metrics = Metrics::default();
    let broker = EmbeddedBroker::open_on(&options, metrics, Arc::new(files.clone())).unwrap();
    let mut unit = open_unit(&broker).await;
    for table in &tables {
        unit.control.pause(table, tokio::time::Instant::now());
    }
    let mut rows: Vec<(TableRef, u64)> = Vec::new();
    while rows.len() < 29 || broker.depths().len() > 1 {
        let delivery = next(&mut unit).await;
        if delivery.table().table.as_str() != "filler" {
            rows.push((delivery.table().clone(), numbers(&delivery.stored().block)[0]));
        }
        delivery.ack();
    }
    let of = |name: &str| -> Vec<u64> {
        rows.iter().filter(|(table, _)| table.table.as_str() == name).map(|(_, number)| *number).collect()
    };
    assert_eq!(of("a"), [0, 1, 2, 3, 5, 6, 7, 8, 9], "the rest of the table goes on");
    assert_eq!((of("b"), of("c")), ((0..10).collect(), (0..10).collect()));
    let told = |first, last| unit.control.damaged(&tables[0], Sequence(first), Sequence(last));
    assert!(told(5, 5) && told(1, 10) && !told(1, 4) && !told(6, 10), "the worker is told which it was");
    // It is kept: neither given back nor counted as written.
    within(broker.sweep(Timestamp(u64::MAX / 2))).await;
    assert_eq!(broker.depths().len(), 1);
    assert!(files.find(b"{\"n\":4,").is_some(), "what is damaged is kept for people to look at");
    let start = HistoryStart::Since(Timestamp(0));
    let mut history = broker.open_history(start, HistoryFilter::Table(tables[0].clone())).await.unwrap();
    let (mut read, mut hole_after) = (Vec::new(), None);
    loop {
        match within(history.next()).await.unwrap() {
            HistoryEvent::Block { stored, .. } => read.extend(numbers(&stored.block)),
            HistoryEvent::Hole { .. } => hole_after = read.last().copied(),
            HistoryEvent::CaughtUp => break,
        }
    }
    assert_eq!((read, hole_after), (vec![0, 1, 2, 3, 5, 6, 7, 8, 9], Some(3)), "readers are told");
    within(broker.close()).await.unwrap();
}

#[tokio::test]
async fn a_cut_over_a_damaged_row_ends_with_the_last_readable_one() {
    let files = Faulty::default();
    let options = options(Path::new("/nowhere"));
    let broker = open_on(&options, Arc::new(files.clone()));
    let t = table("t");
    for number in 0..3 {
        submit(&broker, numbered(&t, number, 100)).await.unwrap();
    }
    let unit = open_unit(&broker).await;
    let recorded = Cut { last: Sequence(3), blocks: 3, ..cut(&t, Sequence(1), 7) };
    within(unit.control.record_cut(recorded.clone())).await.unwrap();
    within(broker.close()).await.unwrap();
    let files = files.kill();
    let (path, at) = files.find(b"{\"n\":1,").unwrap();
    files.damage(&path, at + 20);
    let broker = open_on(&options, Arc::new(files));
    let mut unit = open_unit(&broker).await;
    assert_eq!(unit.cuts, [recorded]);
    let (first, last) = (next(&mut unit).await, next(&mut unit).await);
    assert_eq!((first.sequence(), last.sequence()), (Sequence(1), Sequence(3)));
    first.ack();
    last.ack();
    within(unit.control.release()).await;
    assert_eq!(open_unit(&broker).await.cuts, [], "nothing of it is left to honour");
}

#[tokio::test]
async fn a_cut_over_a_lost_file_is_not_honoured() {
    let files = Faulty::default();
    let options = options(Path::new("/nowhere"));
    let broker = open_on(&options, Arc::new(files.clone()));
    let t = table("t");
    submit(&broker, numbered(&t, 0, 100)).await.unwrap();
    fill_one_file(&broker).await;
    for number in 1..3 {
        submit(&broker, numbered(&t, number, 100)).await.unwrap();
    }
    let unit = open_unit(&broker).await;
    let recorded = Cut { last: Sequence(3), blocks: 3, ..cut(&t, Sequence(1), 7) };
    within(unit.control.record_cut(recorded)).await.unwrap();
    within(broker.close()).await.unwrap();
    let files = files.kill();
    let (lost, _) = files.find(b"{\"n\":0,").unwrap();
    files.remove(&lost).unwrap();
    let broker = open_on(&options, Arc::new(files));
    assert_eq!(
        open_unit(&broker).await.cuts,
        [],
        "the two rows that are left must be inserted, not taken for stored"
    );
}

/// More than a log file holds, so that what came before is in a sealed one.
async fn fill_one_file(broker: &EmbeddedBroker) {
    for number in 0..12 {
        submit(broker, numbered(&table("filler"), number, PADDING)).await.unwrap();
    }
}

#[tokio::test]
async fn a_damaged_row_in_the_newest_file_harms_no_other() {
    damaged(false).await;
}

#[tokio::test]
async fn a_damaged_row_in_a_sealed_file_harms_no_other() {
    damaged(true).await;
}

#[tokio::test]
async fn a_block_larger_than_a_file_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let broker = open(&options);
    let events = table("events");
    submit(&broker, numbered(&events, 1, 10)).await.unwrap();
    submit(&broker, numbered(&events, 2, 5 << 20)).await.unwrap();
    submit(&broker, numbered(&events, 3, 10)).await.unwrap();
    drop(broker);
    let broker = open(&options);
    let mut unit = open_unit(&broker).await;
    for number in 1..=3 {
        let delivery = next(&mut unit).await;
        assert_eq!(numbers(&delivery.stored().block), [number]);
        delivery.ack();
    }
    until("the sweep gives back the large file", async || {
        broker.sweep(Timestamp(u64::MAX / 2)).await.freed_bytes > 5 << 20
    })
    .await;
}

#[tokio::test]
async fn many_tables_are_kept_apart() {
    const TABLES: u64 = 3_000;
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let broker = open(&options);
    let tables: Vec<_> = (0..TABLES).map(|number| table(&format!("table number {number}"))).collect();
    for round in 0..3 {
        let blocks = tables.iter().map(|table| numbered(table, round, 300)).collect();
        for stored in within(broker.submit(blocks)).await {
            assert_eq!(stored.unwrap().first.sequence, Sequence(round + 1));
        }
    }
    drop(broker);
    let broker = open(&options);
    assert_eq!(broker.depths().len() as u64, TABLES);
    let mut unit = open_unit(&broker).await;
    let mut seen = std::collections::HashMap::new();
    for _ in 0..TABLES * 3 {
        let delivery = next(&mut unit).await;
        let round: &mut u64 = seen.entry(delivery.table().clone()).or_default();
        assert_eq!(numbers(&delivery.stored().block), [*round]);
        *round += 1;
        delivery.ack();
    }
    assert_eq!(broker.depths(), []);
}
