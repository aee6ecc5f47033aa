//! Live streams and replays while a cluster elects: each row once and in order, and no gap that is not told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{Broker, HistoryError, HistoryEvent, HistoryFilter, HistoryStart};
use wavehouse_broker_nats::NatsBroker;
use wavehouse_core::{Sequence, TableRef, Timestamp};
use wavehouse_testkit::NatsCluster;
use wavehouse_topology::{TopologyInput, permissions};

use crate::fixture::{accounts, input, operator, options, provision};
use crate::publish::{publish, rows, table};
use crate::three::{LONG, all_current, leader};

const EPOCH: HistoryStart = HistoryStart::Since(Timestamp(0));

/// Publishes blocks of a table until it is told to stop, and gives back the sequences of those that were taken.
async fn publish_on(broker: Arc<NatsBroker>, table: TableRef, stop: CancellationToken) -> BTreeSet<Sequence> {
    let (mut taken, mut number) = (BTreeSet::new(), 0);
    while !stop.is_cancelled() {
        if let Ok(receipt) = publish(&broker, rows(&table, number..number + 1)).await {
            taken.insert(receipt.first.sequence);
        }
        number += 1;
        sleep(Duration::from_millis(5)).await;
    }
    taken
}

/// What a reader was told, in order: sequences of blocks, and holes.
type Told = Vec<Option<Sequence>>;

/// Reads until a sequence has come.
async fn read(
    broker: Arc<NatsBroker>,
    start: HistoryStart,
    mut last: tokio::sync::watch::Receiver<Option<Sequence>>,
) -> Told {
    let filter = HistoryFilter::Table(table("t"));
    let mut stream = loop {
        match broker.open_history(start, filter.clone()).await {
            Ok(stream) => break stream,
            // While nobody leads, whoever asks is to ask again.
            Err(HistoryError::Unreadable { .. }) => sleep(Duration::from_millis(100)).await,
            Err(error) => panic!("{error}"),
        }
    };
    let (mut told, mut newest) = (Vec::new(), Sequence(0));
    loop {
        let end = *last.borrow_and_update();
        if end.is_some_and(|end| newest >= end) {
            return told;
        }
        tokio::select! {
            event = stream.next() => match event.expect("the history goes on") {
                HistoryEvent::Block { stored, from_row } => {
                    assert_eq!(from_row, 0);
                    newest = stored.sequence;
                    told.push(Some(newest));
                }
                HistoryEvent::Hole { .. } => told.push(None),
                HistoryEvent::CaughtUp => {}
            },
            _changed = last.changed() => {}
        }
    }
}

/// Each block that was taken comes once and in order, or lies where a hole was told; from the one after `before` on, or
/// from the first that came. What was taken `after` the elections comes without a hole.
fn is_whole(
    what: &str,
    told: &Told,
    (taken, after): (&BTreeSet<Sequence>, &BTreeSet<Sequence>),
    mut before: Option<Sequence>,
) {
    let (mut is_hole, mut missed) = (false, 0);
    for event in told {
        let Some(sequence) = event else {
            is_hole = true;
            continue;
        };
        if let Some(before) = before {
            assert!(before < *sequence, "{what}: {sequence:?} after {before:?}");
            let between = taken.range(before..*sequence).filter(|one| **one != before).count();
            assert!(between == 0 || is_hole, "{what}: {between} blocks before {sequence:?} are missing");
            missed += between;
        }
        (before, is_hole) = (Some(*sequence), false);
    }
    println!("{what}: {} events, {missed} of {} blocks were told as holes", told.len(), taken.len());
    let end: BTreeSet<Sequence> = told.iter().rev().take(after.len()).flatten().copied().collect();
    assert_eq!(end, *after, "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_replays_go_on_over_elections() {
    let spec = TopologyInput { partitions: 1, shards: 1, replicas: 3, ..input() };
    let spec = spec.check().expect("a legal topology");
    let mut cluster = NatsCluster::start(&accounts(&permissions(&spec))).await;
    provision(&operator(cluster.node(0)).await, &spec).await;
    let reach = options(&spec, cluster.node(0), cluster.urls());
    let (api, other) = (
        NatsBroker::open(reach.clone()).await.expect("the queue opens"),
        NatsBroker::open(reach).await.expect("the queue opens"),
    );
    let (stop, mut publisher) = (CancellationToken::new(), JoinSet::new());
    publisher.spawn(publish_on(Arc::clone(&api), table("t"), stop.clone()));
    let (last, end) = tokio::sync::watch::channel(None);
    let (mut live, mut replays) = (JoinSet::new(), JoinSet::new());
    live.spawn(read(Arc::clone(&other), HistoryStart::Live, end.clone()));
    for stream in ["WH_HISTORY", "WH_INGEST_0"] {
        sleep(Duration::from_secs(2)).await;
        // A replay that begins just before its history loses its leader.
        replays.spawn(read(Arc::clone(&other), EPOCH, end.clone()));
        let killed = leader(&cluster, stream).await;
        cluster.node_mut(killed).kill9();
        sleep(Duration::from_secs(3)).await;
        replays.spawn(read(Arc::clone(&other), EPOCH, end.clone()));
        cluster.node_mut(killed).restart().await;
        all_current(&cluster, &spec, (killed + 1) % 3).await;
    }
    stop.cancel();
    let taken = publisher.join_next().await.unwrap().unwrap();
    // What is stored once all have a leader again reaches the history, each row of it.
    let mut after = BTreeSet::new();
    for number in 0..20 {
        let receipt = publish(&api, rows(&table("t"), number..number + 1)).await.expect("taken");
        after.insert(receipt.first.sequence);
    }
    last.send_replace(after.last().copied());
    let told = timeout(LONG, live.join_next()).await.expect("the live one comes to the end");
    is_whole("live", &told.unwrap().unwrap(), (&taken, &after), None);
    while let Some(told) = timeout(LONG, replays.join_next()).await.expect("replays come to the end") {
        is_whole("replay", &told.unwrap(), (&taken, &after), Some(Sequence(0)));
    }
    other.close().await.unwrap();
    api.close().await.unwrap();
}
