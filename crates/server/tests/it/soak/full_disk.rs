//! The queue on a file system of 64 MiB, filled to the brim: what is full is refused, what was acknowledged is kept,
//! and room is used as soon as there is some.

use std::fs::{self, File};
use std::io::Write;
use std::time::Duration;

use wavehouse_testkit::{Engine, wait_for};

use super::ONE_AT_A_TIME;
use super::audit::audit;
use super::gateway::Gateway;
use super::load::{Load, create_table};

/// The budget of unwritten rows would stop the load long before the disk is full: it is set aside.
const VARIABLES: [(&str, &str); 2] = [("WH_MQ_MAX_BYTES_GB", "1"), ("WH_QUEUE_DISK_BYTES_MAX", "64MiB")];
const FULL: Duration = Duration::from_secs(120);
/// Log bytes that pass through before the engine stops: more than the disk holds, so history must have made room.
const HISTORY_BYTES: f64 = 100e6;

async fn start(engine: &Engine, table: &str) -> Gateway {
    let mut gateway = Gateway::serve(engine, &VARIABLES).on_tmpfs("64m");
    gateway.start().await;
    gateway.sql(&create_table(table)).await;
    gateway.refresh_schema().await;
    gateway
}

async fn refused_blocks(gateway: &Gateway) -> f64 {
    gateway.metric("wavehouse_queue_refused_blocks_total").await
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_disk_filled_while_the_engine_is_away() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let engine = Engine::start().await;
    let mut gateway = start(&engine, "brim").await;
    let load = Load::start(&gateway, &vec![("brim".to_owned(), 500); 4]);
    wait_for("more rows than the disk holds", FULL, async || {
        gateway.metric("wavehouse_queue_published_bytes_total").await > HISTORY_BYTES
    })
    .await;
    let while_healthy = refused_blocks(&gateway).await;

    engine.stop_signal();
    wait_for("the disk to be full", FULL, async || refused_blocks(&gateway).await > while_healthy).await;
    let history = gateway.metric("wavehouse_queue_history_bytes").await;
    tokio::time::sleep(Duration::from_secs(2)).await; // writers press on a full disk
    assert!(gateway.runs(), "a full disk ends nothing");
    let pid = gateway.pid();

    engine.cont();
    let published = gateway.metric("wavehouse_queue_published_rows_total").await;
    wait_for("rows to be taken again", FULL, async || {
        gateway.metric("wavehouse_queue_published_rows_total").await > published + 100_000.0
    })
    .await;
    let ledgers = load.finish().await;
    let report = audit(&gateway, &ledgers).await;
    println!("queue on 64 MiB, engine away: {history} bytes of history when full\n{report}");
    report.assert_kept();
    assert_eq!(gateway.pid(), pid, "no restart was needed");
    assert!(report.answers(|status| status == 503) > 0, "a full disk is a 503");
    assert_eq!(report.answers(|status| !matches!(status, 200 | 503)), 0, "and nothing else");
    assert_eq!(
        ledgers.iter().map(|ledger| ledger.bare_refusals).sum::<u64>(),
        0,
        "each 503 says when to come back"
    );
    assert!(history < 8e6, "history goes before anything is refused: {history} bytes were left");
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_disk_filled_by_someone_else() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let engine = Engine::start().await;
    let mut gateway = start(&engine, "crowd").await;
    engine.stop_signal();
    let load = Load::start(&gateway, &vec![("crowd".to_owned(), 200); 4]);
    let ballast = gateway.data_dir().join("ballast");
    fill(&ballast);
    wait_for("the disk to be full", FULL, async || refused_blocks(&gateway).await > 0.0).await;
    fill(&ballast); // what the queue left, to the last byte
    tokio::time::sleep(Duration::from_secs(1)).await;
    let published = gateway.metric("wavehouse_queue_published_rows_total").await;

    fs::remove_file(&ballast).expect("the ballast goes");
    wait_for("rows to be taken again", FULL, async || {
        gateway.metric("wavehouse_queue_published_rows_total").await > published + 1_000.0
    })
    .await;
    engine.cont();
    let ledgers = load.finish().await;
    let report = audit(&gateway, &ledgers).await;
    println!("queue on 64 MiB, disk filled by someone else\n{report}");
    report.assert_kept();
    assert!(gateway.runs(), "a full disk ends nothing");
    assert!(report.answers(|status| status == 503) > 0, "a full disk is a 503");
    assert_eq!(report.answers(|status| !matches!(status, 200 | 503)), 0, "and nothing else");
}

/// Writes until nothing more fits.
fn fill(path: &std::path::Path) {
    let mut file = File::options().create(true).append(true).open(path).expect("a file beside the queue");
    for size in [1 << 20, 4_096, 1] {
        let piece = vec![b'x'; size];
        while file.write_all(&piece).is_ok() {}
    }
}
