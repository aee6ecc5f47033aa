//! Publishing: what becomes of blocks, on servers that are well and on servers that are not.

use std::sync::Arc;

use wavehouse_broker::{Broker, PublishError, Receipt};
use wavehouse_broker_nats::NatsBroker;
use wavehouse_core::{RowBlock, Scope, TableName, TableRef, TenantId, Timestamp};

use crate::fixture::Servers;

pub(crate) fn table(name: &str) -> TableRef {
    TableRef::new(TenantId::default(), TableName::parse(name).unwrap())
}

pub(crate) fn rows(table: &TableRef, numbers: std::ops::Range<u64>) -> RowBlock {
    let count = u32::try_from(numbers.end - numbers.start).unwrap();
    let text: String = numbers.map(|number| format!("{{\"n\":{number}}}\n")).collect();
    RowBlock::new(table.clone(), Timestamp(1), Scope::default(), count, text.into())
}

pub(crate) async fn publish(broker: &Arc<NatsBroker>, block: RowBlock) -> Result<Receipt, PublishError> {
    broker.submit(vec![block]).await.remove(0)
}

#[tokio::test]
async fn what_waits_travels_together() {
    let servers = Servers::start().await;
    let broker = servers.open().await;
    let calls: Vec<_> = (0..500).map(|n| broker.submit(vec![rows(&table("t"), n..n + 1)])).collect();
    let mut places = Vec::new();
    for call in calls {
        let first = call.await.remove(0).unwrap().first;
        places.push((first.sequence.0, first.row));
    }
    assert!(places.is_sorted_by(|a, b| a < b), "in the order of the calls: {places:?}");
    let messages = places.last().unwrap().0;
    assert!(messages < 50, "500 rows in {messages} messages");
    broker.close().await.unwrap();
}
