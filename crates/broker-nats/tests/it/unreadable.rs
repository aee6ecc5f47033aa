//! Messages that are no blocks, on a real server: they become dead letters and hold nothing up.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::time::timeout;
use wavehouse_broker::{Broker, Cut, DeadLetter, LetterFilter};
use wavehouse_broker_nats::{NatsBroker, UnreadableCount};
use wavehouse_core::{BLOCK_VERSION, Sequence, TenantId, encode_block};
use wavehouse_testkit::wait_for;
use wavehouse_topology::TopologyInput;

use crate::fixture::{LONG, Servers, input, try_stream};
use crate::publish::{rows, table};
use crate::units::{AMPLE, cut_of, next, send};

async fn one_unit() -> Servers {
    Servers::start_with(TopologyInput { partitions: 1, shards: 1, ..input() }, "").await
}

fn block() -> Vec<u8> {
    let mut block = Vec::new();
    encode_block(&rows(&table("t"), 0..1), &mut block);
    block
}

async fn put(servers: &Servers, subject: &str, bytes: impl Into<Bytes>) {
    servers.operator.publish(subject, None, bytes.into()).await.expect("stored");
}

async fn letters(broker: &NatsBroker) -> Vec<DeadLetter> {
    let filter =
        LetterFilter { tenant: TenantId::default(), table: None, code: None, from: None, until: None };
    broker.letters(&filter, None, 100).await.expect("letters").letters
}

/// Messages of the only unit that are not acked.
async fn unacked(servers: &Servers) -> u64 {
    let info = servers.operator.consumer_info("WH_INGEST_0", "wh-ingest-0").await.unwrap();
    info.num_pending + info.num_ack_pending
}

#[tokio::test]
async fn what_cannot_be_read_becomes_a_dead_letter_and_holds_nothing_up() {
    let servers = one_unit().await;
    let broker = servers.open().await;
    let t = table("t");
    send(&broker, &t, 0..1).await;
    put(&servers, "wh.ingest.0.0.0.t", &b"{\"n\":1}"[..]).await;
    let mut torn = block();
    torn.pop();
    put(&servers, "wh.ingest.0.0.0.t", torn.clone()).await;
    put(&servers, "wh.ingest.0.0.0.bad%zz", block()).await;
    send(&broker, &t, 1..2).await;

    let mut opened = broker.open_unit(broker.units()[0], AMPLE).await.unwrap();
    for sequence in [1, 5] {
        let delivery = next(&mut opened).await;
        assert_eq!(delivery.sequence().0, sequence);
        assert!(!opened.control.damaged(&t, delivery.sequence(), delivery.sequence()));
        delivery.ack();
    }
    wait_for("all to be acked", LONG, async || unacked(&servers).await == 0).await;
    let letters = letters(&broker).await;
    let mut told: Vec<_> = letters
        .iter()
        .map(|letter| (letter.position.sequence.0, letter.line.to_vec(), letter.reason.as_str()))
        .collect();
    told.sort();
    let magic = "message cannot be read: block does not begin with its magic bytes";
    let torn_reason = "message cannot be read: block does not match its checksum";
    assert_eq!(
        told,
        [
            (2, b"{\"n\":1}".to_vec(), magic),
            (3, torn, torn_reason),
            (4, block(), "message's subject names no table")
        ]
    );
    let count = |reason: &'static str, table: &str| {
        let (tenant, table) = ("0".to_owned(), table.to_owned());
        (UnreadableCount { tenant, table, reason, disposition: "parked" }, 1)
    };
    let counts = broker.unreadable().counts();
    assert!(counts.contains(&count("unknown_format", "t")) && counts.contains(&count("malformed", "t")));
    assert_eq!(counts.iter().map(|(_, messages)| messages).sum::<u64>(), 3, "{counts:?}");
    opened.control.release().await;
    broker.close().await.unwrap();
}

#[tokio::test]
async fn a_block_of_a_later_version_waits_for_a_process_that_reads_it() {
    let servers = one_unit().await;
    let broker = servers.open().await;
    let mut later = block();
    let version = later.iter().position(|byte| *byte == BLOCK_VERSION).expect("a version");
    later[version] = BLOCK_VERSION + 1;
    put(&servers, "wh.ingest.0.0.0.t", later).await;
    send(&broker, &table("t"), 0..1).await;
    let mut opened = broker.open_unit(broker.units()[0], AMPLE).await.unwrap();
    next(&mut opened).await.ack();
    opened.control.release().await;
    assert_eq!(unacked(&servers).await, 1, "it stays in the queue");
    assert_eq!(letters(&broker).await, []);
    let counts = broker.unreadable().counts();
    assert!(counts.iter().all(|(count, _)| count.disposition == "kept") && counts.len() == 1, "{counts:?}");
    broker.close().await.unwrap();
}

#[tokio::test]
async fn what_lies_within_a_recorded_batch_is_buried_after_the_next_one() {
    let servers = one_unit().await;
    let broker = servers.open().await;
    let (t, unit) = (table("t"), broker.units()[0]);
    let mut opened = broker.open_unit(unit, AMPLE).await.unwrap();
    send(&broker, &t, 0..1).await;
    let first = next(&mut opened).await;
    let cut = Cut { last: Sequence(3), blocks: 2, ..cut_of(&first) };
    opened.control.record_cut(cut.clone()).await.unwrap();
    put(&servers, "wh.ingest.0.0.0.t", &b"no block"[..]).await;
    send(&broker, &t, 1..2).await;
    let third = next(&mut opened).await;
    assert!(opened.control.damaged(&t, first.sequence(), third.sequence()), "the batch cannot be whole");
    first.ack();
    third.ack();
    opened.control.release().await;
    assert_eq!((unacked(&servers).await, letters(&broker).await), (1, Vec::new()), "it is kept");

    let mut opened = broker.open_unit(unit, AMPLE).await.unwrap();
    assert_eq!(opened.cuts, [cut]);
    send(&broker, &t, 2..3).await;
    let fourth = next(&mut opened).await;
    assert!(
        opened.control.damaged(&t, Sequence(1), Sequence(3)),
        "it was not acked as a part of what is stored"
    );
    opened.control.record_cut(cut_of(&fourth)).await.unwrap();
    fourth.ack();
    opened.control.release().await;
    assert_eq!((unacked(&servers).await, letters(&broker).await), (1, Vec::new()), "still");

    let opened = broker.open_unit(unit, AMPLE).await.unwrap();
    wait_for("its burial", LONG, async || unacked(&servers).await == 0).await;
    assert_eq!(letters(&broker).await.len(), 1);
    opened.control.release().await;
    broker.close().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_buried_is_not_acked() {
    let servers = one_unit().await;
    let broker = servers.open().await;
    let name = servers.spec.dlq_stream();
    let config = servers.operator.stream_info(&name).await.unwrap().config;
    servers.call(&format!("STREAM.DELETE.{name}"), &json!({})).await;
    put(&servers, "wh.ingest.0.0.0.t", &b"no block"[..]).await;
    send(&broker, &table("t"), 0..1).await;
    let unit = broker.units()[0];
    let mut opened = broker.open_unit(unit, AMPLE).await.unwrap();
    let delivery = timeout(Duration::from_secs(10), opened.deliveries.next()).await.expect("not held up");
    delivery.unwrap().expect("a block").ack();
    wait_for("the block's ack", LONG, async || unacked(&servers).await == 1).await;
    opened.control.release().await;
    try_stream(&servers.operator, &config).await.expect("the stream is made anew");
    let opened = broker.open_unit(unit, AMPLE).await.unwrap();
    wait_for("its burial", LONG, async || unacked(&servers).await == 0).await;
    assert_eq!(letters(&broker).await.len(), 1);
    opened.control.release().await;
    broker.close().await.unwrap();
}
