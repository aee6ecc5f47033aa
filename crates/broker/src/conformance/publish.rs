//! What publishing promises: durable, one result a block, definite errors, nothing lost in merging.

#![expect(clippy::expect_used, reason = "a case fails by panicking, and says what it expected")]

use std::collections::BTreeSet;

use wavehouse_core::{FaultKind, RowBlock, Sequence};

use super::BrokerFixture;
use super::kit::{
    AMPLE, ODD_TABLES, Reader, at, by_position, delivered_numbers, events, lines, numbered, numbers, padded,
    publish, publish_each, rows_of, table, try_publish, within,
};
use crate::errors::{PublishError, Stored};

pub(super) async fn round_trip(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let mut sent = Vec::new();
    let long = "x".repeat(255);
    for (index, name) in ODD_TABLES.into_iter().chain([long.as_str()]).enumerate() {
        for tenant in ["0", "acme", "A-b_9"] {
            let scope = ["", "eu/west 1", "*.>", "\u{e9}"][index % 4];
            let first = format!("{{\"text\":\"{name}\",\"of\":\"{tenant}\"}}");
            let block =
                lines(&table(tenant, name), scope, at(index as u64), &[&first, "{}", "{\"a\":[1, 2]}"]);
            sent.push(block.clone());
            publish(&broker, block).await;
        }
    }
    let mut reader = Reader::open(&broker, AMPLE).await;
    let got = reader.take_acked(sent.len() * 3).await;
    let mut got: Vec<_> = got.iter().flat_map(|stored| rows_of(&stored.block)).collect();
    let mut sent: Vec<_> = sent.iter().flat_map(rows_of).collect();
    // Rows of a table keep their order; tables come in any.
    got.sort_by(|a, b| a.table.cmp(&b.table));
    sent.sort_by(|a, b| a.table.cmp(&b.table));
    assert_eq!(got, sent);
}

pub(super) async fn one_result_a_block(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let (a, b) = (events(), table("acme", "events"));
    let blocks = vec![
        numbered(&a, 0..3),
        numbered(&b, 3..4),
        numbered(&b, 4..6),
        numbered(&a, 6..7),
        numbered(&a, 7..12),
        lines(&a, "other scope", at(12), &["{\"n\":12}"]),
    ];
    let results = within("results", broker.submit(blocks.clone())).await;
    assert_eq!(results.len(), blocks.len());
    let mut reader = Reader::open(&broker, AMPLE).await;
    let rows = by_position(&reader.take_acked(13).await);
    for (block, result) in blocks.iter().zip(results) {
        let first = result.expect("accepted").first;
        for (offset, row) in (0..).zip(rows_of(block)) {
            let position = wavehouse_core::Position { row: first.row + offset, ..first };
            assert_eq!(rows.get(&(block.table.clone(), position)), Some(&row), "what the receipt says");
        }
    }
    assert!(within("no results", broker.submit(Vec::new())).await.is_empty(), "no block, no result");
}

pub(super) async fn refused_block_alone(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let large = padded(&events(), 1, broker.block_bytes_max() + 1);
    let blocks = vec![numbered(&events(), 0..1), large, numbered(&events(), 2..3), numbered(&events(), 3..4)];
    let results = within("results", broker.submit(blocks)).await;
    assert!([0, 2, 3].iter().all(|taken| results[*taken].is_ok()), "the others are taken: {results:?}");
    let error = results[1].clone().expect_err("too large");
    assert!(matches!(error, PublishError::TooLarge { .. }), "{error:?}");
    assert_eq!((error.fault(), error.stored()), (FaultKind::Reject, Stored::No));
    let mut reader = Reader::open(&broker, AMPLE).await;
    let got = reader.take_acked(3).await;
    assert_eq!(got.iter().flat_map(|stored| numbers(&stored.block)).collect::<Vec<_>>(), [0, 2, 3]);
    reader.quiet("the block was refused as certainly not stored").await;
}

pub(super) async fn largest_block(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let head = padded(&events(), 0, 64).encoded_len() - 64;
    let block = padded(&events(), 1, broker.block_bytes_max() - head);
    assert_eq!(block.encoded_len(), broker.block_bytes_max());
    publish(&broker, numbered(&events(), 0..1)).await;
    publish(&broker, block.clone()).await;
    publish(&broker, numbered(&events(), 2..3)).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let got = reader.take_acked(3).await;
    assert!(got[1].block == block, "the largest block comes out as it went in");
}

pub(super) async fn empty_block(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let none = RowBlock { table: events(), segments: Vec::new(), lines: bytes::Bytes::new() };
    let no_rows = lines(&events(), "scope", at(1), &[]);
    let blocks = vec![none.clone(), numbered(&events(), 0..1), no_rows.clone(), numbered(&events(), 1..2)];
    for result in within("results", broker.submit(blocks)).await {
        result.expect("an empty block is legal");
    }
    publish(&broker, none).await;
    publish(&broker, no_rows).await;
    publish(&broker, numbered(&events(), 2..3)).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let got = reader.take_acked(3).await;
    assert_eq!(got.iter().flat_map(|stored| numbers(&stored.block)).collect::<Vec<_>>(), [0, 1, 2]);
    reader.release().await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    reader.quiet("every block is acked").await;
    assert_eq!(broker.depths(), [], "an empty block leaves nothing that waits");
}

pub(super) async fn durable_over_restart(fixture: &mut dyn BrokerFixture) {
    let others = table("acme", "page views");
    let receipts = publish_each(&fixture.broker(), &events(), 0..20).await;
    publish_each(&fixture.broker(), &others, 0..20).await;
    fixture.restart().await;
    assert_all_there(fixture, &receipts).await;
}

pub(super) async fn durable_over_crash(fixture: &mut dyn BrokerFixture) {
    let others = table("acme", "page views");
    let receipts = publish_each(&fixture.broker(), &events(), 0..20).await;
    publish_each(&fixture.broker(), &others, 0..20).await;
    fixture.crash().await;
    assert_all_there(fixture, &receipts).await;
}

async fn assert_all_there(fixture: &mut dyn BrokerFixture, receipts: &[crate::Receipt]) {
    let mut reader = Reader::open(&fixture.broker(), AMPLE).await;
    let got = reader.take_acked(40).await;
    let of_events: Vec<_> = got.iter().filter(|stored| stored.block.table == events()).collect();
    assert_eq!(
        of_events.iter().flat_map(|s| numbers(&s.block)).collect::<Vec<_>>(),
        (0..20).collect::<Vec<_>>()
    );
    let rows = by_position(of_events);
    for receipt in receipts {
        assert!(rows.contains_key(&(events(), receipt.first)), "a receipt outlives the process");
    }
}

pub(super) async fn dropped_result_keeps_rows(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    drop(broker.submit(vec![numbered(&events(), 0..1)]));
    let mut polled = broker.submit(vec![numbered(&events(), 1..2)]);
    let _outcome = tokio::time::timeout(std::time::Duration::ZERO, &mut polled).await;
    drop(polled);
    let mut reader = Reader::open(&broker, AMPLE).await;
    let got = reader.take_acked(2).await;
    assert_eq!(got.iter().flat_map(|stored| numbers(&stored.block)).collect::<Vec<_>>(), [0, 1]);
}

pub(super) async fn merged_rows_keep_their_segment(fixture: &mut dyn BrokerFixture) {
    const SENDERS: u64 = 8;
    const EACH: u64 = 50;
    let broker = fixture.broker();
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..SENDERS {
        let broker = broker.clone();
        senders.spawn(async move {
            let mut receipts = Vec::new();
            for number in sender * EACH..(sender + 1) * EACH {
                let line = format!("{{\"n\":{number}}}");
                let block = lines(&events(), &format!("scope {number}"), at(number), &[&line, &line]);
                receipts.push((number, try_publish(&broker, block).await.expect("accepted")));
            }
            receipts
        });
    }
    let mut receipts = Vec::new();
    while let Some(sent) = within("the senders", senders.join_next()).await {
        receipts.extend(sent.expect("a sender ends well"));
    }
    let mut reader = Reader::open(&broker, AMPLE).await;
    let total = usize::try_from(SENDERS * EACH * 2).expect("small");
    let rows = by_position(&reader.take_acked(total).await);
    for (number, receipt) in receipts {
        let row = &rows[&(events(), receipt.first)];
        assert_eq!(row.line, format!("{{\"n\":{number}}}"));
        assert_eq!((row.scope.as_str(), row.received_at), (&*format!("scope {number}"), at(number)));
    }
}

pub(super) async fn sequences_without_gaps(fixture: &mut dyn BrokerFixture) {
    let tables = [events(), table("acme", "events"), table("0", "page views")];
    let mut sequences = vec![BTreeSet::new(); 3];
    for round in 0..3 {
        for number in 0..10 {
            for (table, sequences) in tables.iter().zip(&mut sequences) {
                let receipt = publish(&fixture.broker(), numbered(table, number..number + 1)).await;
                sequences.insert(receipt.first.sequence);
            }
        }
        match round {
            0 => fixture.restart().await,
            1 => fixture.crash().await,
            _ => {}
        }
    }
    let expected: BTreeSet<_> = (1..=30).map(Sequence).collect();
    for of_table in sequences {
        assert_eq!(of_table, expected, "sequences of a table run from 1 without gaps, over restarts too");
    }
}

pub(super) async fn mixed_sizes(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let sizes = [20, 100_000, 20, 20, 300_000, 1_000_000, 20, 127 << 10, 129 << 10, 20];
    let blocks: Vec<_> = (0..).zip(sizes).map(|(number, bytes)| padded(&events(), number, bytes)).collect();
    for result in within("results", broker.submit(blocks.clone())).await {
        result.expect("accepted");
    }
    let mut reader = Reader::open(&broker, AMPLE).await;
    let got: Vec<_> = reader.take(sizes.len()).await;
    let order: Vec<_> = got.iter().flat_map(delivered_numbers).collect();
    assert_eq!(order, (0..10).collect::<Vec<_>>());
    let got: Vec<u8> = got.iter().flat_map(|delivery| delivery.stored().block.lines.to_vec()).collect();
    let sent: Vec<u8> = blocks.iter().flat_map(|block| block.lines.to_vec()).collect();
    assert!(got == sent, "the bytes of every row come out as they went in");
}
