//! Units that another count of partitions or shards left on the servers: found, read, and given up when they are gone.

use serde_json::json;
use wavehouse_broker::Broker;
use wavehouse_broker_nats::NatsBroker;
use wavehouse_core::{PartitionId, ShardId, UnitId, encode_block};
use wavehouse_topology::{Desired, TopologyInput, permissions};

use crate::fixture::{make_durable, make_stream, options};
use crate::publish::{rows, table};
use crate::stage::{Stage, input, spec};
use crate::units::{AMPLE, next};

fn unit(partition: u16, shard: u16) -> UnitId {
    UnitId { partition: PartitionId(partition), shard: ShardId(shard) }
}

#[tokio::test]
async fn units_of_a_larger_count_are_found_read_and_forgotten() {
    let small = spec(TopologyInput { partitions: 1, shards: 1, ..input() });
    let large = spec(TopologyInput { partitions: 2, shards: 2, ..input() });
    let stage = Stage::bare_with(&small, &permissions(&large)).await;
    stage.provision().await;
    let left = Desired::new(&large).expect("it fits the store");
    let [(first, first_durables), (second, second_durables)] = &left.partitions[..] else {
        panic!("two partitions")
    };
    make_durable(&stage.operator, &first.name, &first_durables[1]).await;
    make_stream(&stage.operator, second).await;
    for durable in second_durables {
        make_durable(&stage.operator, &second.name, durable).await;
    }
    let mut block = Vec::new();
    encode_block(&rows(&table("t"), 0..3), &mut block);
    stage.operator.publish("wh.ingest.1.1.0.t", None, block.into()).await.expect("stored");

    let options = options(&small, &stage.server, vec![stage.server.url()]);
    let broker = NatsBroker::open(options).await.expect("what is left over is only recommended");
    let sharing = broker.sharing().expect("units are shared");
    assert_eq!(sharing.extras(), [], "nobody looked yet");
    sharing.refresh_extras().await.unwrap();
    assert_eq!(sharing.extras(), [unit(0, 1), unit(1, 0), unit(1, 1)]);
    assert_eq!(broker.units(), [unit(0, 0)], "they are no configured ones");
    assert_eq!(sharing.unread(&sharing.extras()).await.unwrap(), [unit(1, 1)]);

    let mut opened = broker.open_unit(unit(1, 1), AMPLE).await.unwrap();
    let delivery = next(&mut opened).await;
    assert_eq!((delivery.table(), delivery.stored().block.rows()), (&table("t"), 3));
    delivery.ack();
    opened.control.release().await;
    let durable = stage.operator.consumer_info("WH_INGEST_1", "wh-ingest-1").await.unwrap();
    assert_eq!((durable.num_pending, durable.num_ack_pending), (0, 0), "written");

    stage.call("CONSUMER.DELETE.WH_INGEST_0.wh-ingest-1", &json!({})).await.unwrap();
    stage.call("STREAM.DELETE.WH_INGEST_1", &json!({})).await.unwrap();
    sharing.refresh_extras().await.unwrap();
    assert_eq!(sharing.extras(), [], "they are gone");
    assert!(broker.open_unit(unit(1, 1), AMPLE).await.is_err());
    broker.close().await.unwrap();
}
