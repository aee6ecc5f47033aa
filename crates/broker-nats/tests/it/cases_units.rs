//! Units as they lie on the servers: which there are, which nobody reads, which are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use tokio::time::timeout;
use wavehouse_broker::{Broker, OpenUnitError, RowBudget};
use wavehouse_broker_nats::NatsBroker;
use wavehouse_core::UnitId;
use wavehouse_topology::TopologyInput;

use crate::fixture::{LONG, Servers, input};
use crate::publish::{publish, rows, table};

const AMPLE: RowBudget = RowBudget { rows: 10_000, bytes: 8 << 20 };

async fn start(partitions: u64, shards: u64) -> (Servers, Arc<NatsBroker>) {
    let servers = Servers::start_with(TopologyInput { partitions, shards, ..input() }, "").await;
    let broker = servers.open().await;
    (servers, broker)
}

#[tokio::test]
async fn case_62_units_come_in_order_and_each_row_waits_on_its_own() {
    let (servers, broker) = start(2, 16).await;
    let units = broker.units();
    let placed: Vec<_> = units.iter().map(|unit| (unit.partition.0, unit.shard.0)).collect();
    let expected: Vec<_> =
        (0..2).flat_map(|partition| (0..16).map(move |shard| (partition, shard))).collect();
    assert_eq!(placed, expected);
    let mut waiting: BTreeMap<UnitId, u64> = BTreeMap::new();
    for number in 0..60 {
        let table = table(&format!("t{number}"));
        publish(&broker, rows(&table, 0..1)).await.unwrap();
        *waiting.entry(servers.spec.placement().unit_for(&table)).or_default() += 1;
    }
    assert!(waiting.len() > 20, "tables lie all over: {}", waiting.len());
    for unit in units {
        let (stream, durable) = (format!("WH_INGEST_{}", unit.partition.0), servers.spec.durable(unit.shard));
        let info = servers.operator.consumer_info(&stream, &durable).await.expect("a durable");
        assert_eq!(info.num_pending, waiting.get(&unit).copied().unwrap_or_default(), "{stream}/{durable}");
    }
}

#[tokio::test]
async fn case_67_a_unit_with_rows_that_nobody_reads_is_counted() {
    let (_servers, broker) = start(1, 2).await;
    let units = broker.units();
    let sharing = broker.sharing().expect("units are shared");
    assert_eq!(sharing.unread(&units).await.unwrap(), [], "there is nothing to read");
    publish(&broker, rows(&table("t"), 0..1)).await.unwrap();
    let unread = sharing.unread(&units).await.unwrap();
    assert_eq!(unread.len(), 1, "{unread:?}");
    let mut opened = broker.open_unit(unread[0], AMPLE).await.unwrap();
    let held = timeout(LONG, opened.deliveries.next()).await.expect("in time").unwrap().expect("a block");
    assert_eq!(sharing.unread(&units).await.unwrap(), [], "it is held");
    held.ack();
    opened.control.release().await;
}

#[tokio::test]
async fn case_72_a_unit_whose_durable_or_stream_is_gone_is_not_found_and_not_made() {
    let (servers, broker) = start(1, 2).await;
    let units = broker.units();
    servers.call("CONSUMER.DELETE.WH_INGEST_0.wh-ingest-0", &json!({})).await;
    assert_eq!(broker.open_unit(units[0], AMPLE).await.err(), Some(OpenUnitError::Unknown(units[0])));
    assert_eq!(servers.operator.consumer_names("WH_INGEST_0").await.expect("names"), ["wh-ingest-1"]);
    servers.call("STREAM.DELETE.WH_INGEST_0", &json!({})).await;
    assert_eq!(broker.open_unit(units[1], AMPLE).await.err(), Some(OpenUnitError::Unknown(units[1])));
    assert!(servers.operator.stream_info("WH_INGEST_0").await.is_err_and(|error| error.is_stream_gone()));
}
