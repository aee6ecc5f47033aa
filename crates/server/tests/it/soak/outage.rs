//! The engine freezes under load: connections stay open and nothing answers. Ingest goes on as if nothing were wrong.

use std::time::{Duration, Instant};

use wavehouse_testkit::Engine;

use super::audit::audit;
use super::gateway::Gateway;
use super::load::{Load, create_table};
use super::{ONE_AT_A_TIME, kills};

/// How long the engine is frozen, in the short and in the long form.
const FROZEN: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(60)];
/// Most memory that the gateway may reach, in MiB: what it may hold by its configuration (256 MiB of rows and 256 MiB
/// of bodies, of which this load fills little) with room for the allocator.
const RSS_MIB_MAX: u64 = 768;

#[tokio::test(flavor = "multi_thread")]
async fn soak_engine_frozen_under_load() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (_, long) = kills();
    let engine = Engine::start().await;
    let mut gateway = Gateway::serve(&engine, &[]);
    gateway.start().await;
    let tables: Vec<String> = (0..4).map(|number| format!("outage_{number}")).collect();
    for table in &tables {
        gateway.sql(&create_table(table)).await;
    }
    gateway.refresh_schema().await;

    let plan: Vec<(String, u64)> =
        tables.iter().flat_map(|table| [(table.clone(), 1), (table.clone(), 50)]).collect();
    let load = Load::start(&gateway, &plan);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before_mib = gateway.rss_mib();
    engine.stop_signal();
    let (frozen, mut most_mib) = (Instant::now(), before_mib);
    while frozen.elapsed() < FROZEN[usize::from(long)] {
        most_mib = most_mib.max(gateway.rss_mib());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    engine.cont();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let ledgers = load.finish().await;
    let report = audit(&gateway, &ledgers).await;
    most_mib = most_mib.max(gateway.rss_mib());
    println!(
        "engine frozen for {:.0} s; memory {before_mib} MiB before, {most_mib} MiB at most\n{report}",
        FROZEN[usize::from(long)].as_secs_f64()
    );
    report.assert_kept();
    assert_eq!(report.answers(|status| status != 200), 0, "ingest answers 200 and nothing else");
    assert!(report.longest_gap < Duration::from_secs(5), "ingest keeps its pace");
    assert_eq!(gateway.metric("wavehouse_ingest_buried_rows_total").await, 0.0, "nothing is dead-lettered");
    assert!(most_mib < RSS_MIB_MAX, "memory is bounded: {most_mib} MiB");
}
