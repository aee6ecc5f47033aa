//! The history on a real server: each row once, in order, over restarts and losses, and no gap that is not told.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wavehouse_broker::{HistoryError, HistoryEvent, HistoryFilter, HistoryStart, HistoryStream};
use wavehouse_broker_nats::History;
use wavehouse_core::{
    LogId, Position, RowBlock, Scope, Sequence, TableName, TableRef, TenantId, Timestamp, Topic, encode_block,
};
use wavehouse_nats::JetStream;
use wavehouse_testkit::wait_for;
use wavehouse_topology::TopologyInput;

use crate::stage::{LONG, Stage, input};

/// A history and who publishes into it.
struct Kit {
    stage: Stage,
    user: JetStream,
    history: History,
    closed: CancellationToken,
}

fn table(name: &str) -> TableRef {
    TableRef::new(TenantId::default(), TableName::parse(name).expect("a name"))
}

fn block(table: &TableRef, scope: &str, number: u64) -> RowBlock {
    let scope = Scope::parse(scope).expect("a scope");
    let lines = format!("{{\"n\":{number}}}\n{{\"n\":{number}}}\n");
    RowBlock::new(table.clone(), now(), scope, 2, lines.into())
}

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Timestamp(u64::try_from(since.as_nanos()).expect("before 2554"))
}

impl Kit {
    async fn start(input: TopologyInput) -> Self {
        Self::over(Stage::start(input).await).await
    }

    async fn over(stage: Stage) -> Self {
        let user = stage.user().await.jetstream();
        let closed = CancellationToken::new();
        let history = History::new(user.clone(), Arc::clone(&stage.spec), closed.clone());
        Self { stage, user, history, closed }
    }

    /// Publishes a block of two rows; its sequence.
    async fn publish_scoped(&self, table: &TableRef, scope: &str, number: u64) -> u64 {
        let block = block(table, scope, number);
        let topic = Topic { table: table.clone(), scope: Scope::parse(scope).expect("a scope") };
        let subject = self.stage.spec.prefix().ingest(self.stage.spec.placement().unit_for(table), &topic);
        let mut bytes = Vec::new();
        encode_block(&block, &mut bytes);
        self.publish_bytes(&subject, bytes.into()).await
    }

    async fn publish_bytes(&self, subject: &str, bytes: Bytes) -> u64 {
        self.user.publish(subject, None, bytes).await.expect("stored").sequence
    }

    async fn publish(&self, table: &TableRef, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.publish_scoped(table, "", number).await;
        }
    }

    async fn open(&self, start: HistoryStart, filter: HistoryFilter) -> Tail {
        let stream = self.history.open(start, filter).await.expect("the history opens");
        Tail { stream, said: Vec::new(), positions: Vec::new() }
    }

    async fn open_table(&self, start: HistoryStart) -> Tail {
        self.open(start, HistoryFilter::Table(table("t"))).await
    }
}

/// What a reader has said: block numbers with their first row, holes, and that it is caught up.
struct Tail {
    stream: Box<dyn HistoryStream>,
    said: Vec<String>,
    positions: Vec<Position>,
}

impl Tail {
    async fn step(&mut self) {
        let event = timeout(LONG, self.stream.next()).await;
        let event = event.unwrap_or_else(|_| panic!("nothing comes after {:?}", self.said));
        self.said.push(match event.expect("the history goes on") {
            HistoryEvent::CaughtUp => "caught up".to_owned(),
            HistoryEvent::Hole { table, .. } => format!("hole {}", table.table),
            HistoryEvent::Block { stored, from_row } => {
                self.positions.push(stored.position(0));
                let line =
                    String::from_utf8_lossy(stored.block.lines().next().unwrap_or_default()).into_owned();
                let number = line.trim_matches(|c: char| !c.is_ascii_digit()).to_owned();
                format!(
                    "{}{number}{}",
                    if stored.block.table == table("t") { "" } else { "u" },
                    if from_row > 0 { "'" } else { "" }
                )
            }
        });
    }

    async fn until(&mut self, last: &str) {
        while self.said.last().is_none_or(|said| said != last) {
            self.step().await;
        }
    }

    /// What was said so far, in one line, and forgotten.
    fn told(&mut self) -> String {
        std::mem::take(&mut self.said).join(" ")
    }
}

fn numbers(range: std::ops::Range<u64>) -> String {
    range.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}

const EPOCH: HistoryStart = HistoryStart::Since(Timestamp(0));

#[tokio::test]
async fn case_58_rows_are_named_by_their_originals_in_every_process() {
    let kit = Kit::start(input()).await;
    let another = History::new(
        kit.stage.user().await.jetstream(),
        Arc::clone(&kit.stage.spec),
        CancellationToken::new(),
    );
    let (mut one, mut two) =
        (kit.open(HistoryStart::Live, HistoryFilter::All).await, kit.open_table(HistoryStart::Live).await);
    let stream = another.open(HistoryStart::Live, HistoryFilter::All).await.expect("it opens");
    let mut third = Tail { stream, said: Vec::new(), positions: Vec::new() };
    kit.publish_scoped(&table("t"), "", 1).await;
    kit.publish_scoped(&table("t"), "eu west", 2).await;
    let odd = table("a.b");
    kit.publish_scoped(&odd, "", 3).await;
    for tail in [&mut one, &mut third] {
        tail.until("u3").await;
        assert_eq!(tail.told(), "caught up 1 2 u3");
    }
    two.until("2").await;
    assert_eq!(two.told(), "caught up 1 2", "all scopes of the table");
    assert_eq!(one.positions, third.positions);
    assert_eq!(one.positions[..2], two.positions[..]);
    assert!(one.positions.iter().all(|position| position.stored_ms > 0));
    let copy = kit.stage.operator.message("WH_HISTORY", 3).await.expect("an answer").expect("a copy");
    assert_eq!(copy.subject, "wh.hist.0.a%2Eb");
    // Nothing of this is left with the servers when nobody reads any more.
    drop((one, two, third));
    let gone = async || kit.stage.operator.consumer_names("WH_HISTORY").await.expect("names").is_empty();
    wait_for("the consumers to be let go", LONG, gone).await;
}

#[tokio::test]
async fn a_reader_resumes_after_any_row() {
    let kit = Kit::start(input()).await;
    kit.publish(&table("t"), 0..3).await;
    kit.publish(&table("u"), 0..3).await;
    kit.publish(&table("t"), 3..6).await;
    let mut all = kit.open_table(EPOCH).await;
    all.until("caught up").await;
    assert_eq!(all.told(), "0 1 2 3 4 5 caught up");
    for (at, position) in (0..).zip(all.positions) {
        for undated in [false, true] {
            let stored_ms = if undated { 0 } else { position.stored_ms };
            let inside = Position { stored_ms, ..position };
            let mut tail = kit.open_table(HistoryStart::After(inside)).await;
            tail.until("caught up").await;
            let rest = if at < 5 { format!(" {}", numbers(at + 1..6)) } else { String::new() };
            assert_eq!(tail.told(), format!("{at}'{rest} caught up"), "after the first row of {at}");
            let whole = Position { row: 1, ..inside };
            let mut tail = kit.open_table(HistoryStart::After(whole)).await;
            tail.until("caught up").await;
            assert_eq!(tail.told(), format!("{rest} caught up").trim_start(), "after {at}");
        }
    }
}

#[tokio::test]
async fn strange_positions_are_a_hole_and_then_everything() {
    let kit = Kit::start(input()).await;
    kit.publish(&table("u"), 0..2).await;
    kit.publish(&table("t"), 0..3).await;
    let mut all = kit.open_table(EPOCH).await;
    all.until("caught up").await;
    let last = *all.positions.last().expect("it came");
    let strange =
        [Position { log: LogId(5), ..last }, Position { sequence: Sequence(last.sequence.0 + 7), ..last }];
    for position in strange {
        let mut tail = kit.open_table(HistoryStart::After(position)).await;
        tail.until("caught up").await;
        assert_eq!(tail.told(), "hole t 0 1 2 caught up", "{position}");
    }
    // Another table's row: what is past it is read.
    let others = Position { sequence: Sequence(1), ..last };
    let mut tail = kit.open_table(HistoryStart::After(others)).await;
    tail.until("caught up").await;
    assert_eq!(tail.told(), "hole t 0 1 2 caught up");
    let unheard = kit.open(HistoryStart::After(last), HistoryFilter::Table(table("unheard of")));
    let mut tail = unheard.await;
    tail.until("caught up").await;
    assert_eq!(tail.told(), "hole unheard of caught up");
}

#[tokio::test]
async fn case_59_a_replay_catches_up_once_while_rows_arrive() {
    let kit = Kit::start(input()).await;
    kit.publish(&table("t"), 0..100).await;
    let publisher = async { kit.publish(&table("t"), 100..400).await };
    let reader = async {
        let mut tail = kit.open_table(EPOCH).await;
        tail.until("399").await;
        let caught_up = tail.said.iter().filter(|said| *said == "caught up").count();
        tail.said.retain(|said| said != "caught up");
        (caught_up, tail.told())
    };
    let ((), (caught_up, told)) = tokio::join!(publisher, reader);
    assert_eq!((caught_up, told), (1, numbers(0..400)));
}

#[tokio::test]
async fn case_60_a_long_replay_through_a_slow_reader_arrives_whole() {
    let kit = Kit::start(input()).await;
    kit.publish(&table("t"), 0..700).await;
    let mut tail = kit.open_table(EPOCH).await;
    for _ in 0..20 {
        tail.step().await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tail.until("caught up").await;
    assert_eq!(tail.told(), format!("{} caught up", numbers(0..700)));
}

#[tokio::test]
async fn live_goes_on_over_a_restart_of_the_server_without_gap_or_twin() {
    let mut kit = Kit::start(input()).await;
    kit.publish(&table("t"), 0..2).await;
    let mut live = kit.open_table(HistoryStart::Live).await;
    let mut all = kit.open(HistoryStart::Live, HistoryFilter::All).await;
    let mut quiet = kit.open(HistoryStart::Live, HistoryFilter::Table(table("u"))).await;
    kit.publish(&table("t"), 2..5).await;
    live.until("4").await;
    for round in 0..2 {
        kit.stage.server.restart().await;
        // The operator's link and the product's come back by themselves.
        wait_for("the server to be back", LONG, async || kit.user.stream_info("WH_HISTORY").await.is_ok())
            .await;
        kit.publish(&table("t"), 5 + round * 3..8 + round * 3).await;
        // A server that dies between storing a row and its copy loses the copy, which is told as a hole.
        live.until(&(7 + round * 3).to_string()).await;
    }
    assert_eq!(live.told(), format!("caught up {}", numbers(2..11)));
    all.until("10").await;
    assert_eq!(all.told(), format!("caught up {}", numbers(2..11)));
    kit.publish(&table("u"), 1..2).await;
    quiet.until("u1").await;
    assert_eq!(quiet.told(), "caught up u1");
}

#[tokio::test]
async fn a_replay_goes_on_over_a_restart_and_does_not_end_early() {
    let mut kit = Kit::start(input()).await;
    kit.publish(&table("t"), 0..600).await;
    kit.open_table(EPOCH).await.until("599").await;
    let mut tail = kit.open_table(EPOCH).await;
    tail.until("50").await;
    kit.stage.server.restart().await;
    tail.until("caught up").await;
    assert_eq!(tail.told(), format!("{} caught up", numbers(0..600)));
}

#[tokio::test]
async fn a_consumer_that_is_taken_away_is_made_anew() {
    let kit = Kit::start(input()).await;
    let mut live = kit.open_table(HistoryStart::Live).await;
    kit.publish(&table("t"), 0..2).await;
    live.until("1").await;
    for name in kit.stage.operator.consumer_names("WH_HISTORY").await.expect("names") {
        kit.stage.operator.delete_consumer("WH_HISTORY", &name).await.expect("deleted");
    }
    kit.publish(&table("t"), 2..4).await;
    live.until("3").await;
    assert_eq!(live.told(), "caught up 0 1 2 3");
}

#[tokio::test]
async fn a_history_made_anew_is_a_hole_and_no_twin() {
    let kit = Kit::start(input()).await;
    let mut live = kit.open_table(HistoryStart::Live).await;
    kit.publish(&table("t"), 0..3).await;
    live.until("2").await;
    let last = *live.positions.last().expect("it came");
    kit.stage.call("STREAM.DELETE.WH_HISTORY", &json!({})).await.expect("deleted");
    kit.publish(&table("t"), 3..5).await;
    kit.stage.make_stream(&wavehouse_topology::Desired::new(&kit.stage.spec).expect("it fits").history).await;
    kit.publish(&table("t"), 5..7).await;
    live.until("6").await;
    assert_eq!(live.told(), "caught up 0 1 2 hole t 5 6");
    let mut tail = kit.open_table(HistoryStart::After(last)).await;
    tail.until("caught up").await;
    assert_eq!(tail.told(), "hole t 5 6 caught up", "rows keep their names");
}

#[tokio::test]
async fn a_row_that_never_reached_the_history_is_a_hole() {
    let kit = Kit::start(input()).await;
    let mut live = kit.open_table(HistoryStart::Live).await;
    kit.publish(&table("t"), 0..2).await;
    live.until("1").await;
    let mut config = wavehouse_topology::Desired::new(&kit.stage.spec).expect("it fits").history;
    config.subjects = vec!["elsewhere.>".to_owned()];
    kit.stage.call("STREAM.UPDATE.WH_HISTORY", &json!(config)).await.expect("changed");
    kit.publish(&table("t"), 2..3).await;
    config.subjects = vec!["wh.hist.>".to_owned()];
    kit.stage.call("STREAM.UPDATE.WH_HISTORY", &json!(config)).await.expect("changed");
    kit.publish(&table("t"), 3..5).await;
    live.until("4").await;
    assert_eq!(live.told(), "caught up 0 1 hole t 3 4");
}

#[tokio::test]
async fn what_has_left_the_history_is_a_hole() {
    let kit = Kit::start(input()).await;
    kit.publish(&table("t"), 0..3).await;
    let mut all = kit.open_table(EPOCH).await;
    all.until("caught up").await;
    let first = all.positions[0];
    kit.publish(&table("t"), 3..6).await;
    kit.stage.call("STREAM.PURGE.WH_HISTORY", &json!({"seq": 5})).await.expect("purged");
    let mut tail = kit.open_table(HistoryStart::After(first)).await;
    tail.until("caught up").await;
    assert_eq!(tail.told(), "hole t 4 5 caught up");
    let mut tail = kit.open_table(EPOCH).await;
    tail.until("caught up").await;
    assert_eq!(tail.told(), "hole t 4 5 caught up");
    kit.stage.call("STREAM.PURGE.WH_HISTORY", &json!({})).await.expect("purged");
    let mut tail = kit.open_table(HistoryStart::After(first)).await;
    tail.until("caught up").await;
    assert_eq!(tail.told(), "hole t caught up");
}

#[tokio::test]
async fn a_partition_made_anew_is_another_log() {
    let kit = Kit::start(input()).await;
    let mut live = kit.open_table(HistoryStart::Live).await;
    kit.publish(&table("t"), 0..3).await;
    live.until("2").await;
    kit.stage.call("STREAM.DELETE.WH_INGEST_0", &json!({})).await.expect("deleted");
    let desired = wavehouse_topology::Desired::new(&kit.stage.spec).expect("it fits");
    kit.stage.make_stream(&desired.partitions[0].0).await;
    kit.publish(&table("t"), 3..6).await;
    live.until("5").await;
    assert_eq!(live.told(), "caught up 0 1 2 3 4 5");
    assert_ne!(live.positions[2].log, live.positions[3].log);
    assert!(live.positions[..3].iter().all(|position| position.log == live.positions[0].log));
}

#[tokio::test]
async fn odd_messages_and_empty_blocks_are_passed_over() {
    let kit = Kit::start(input()).await;
    let mut live = kit.open_table(HistoryStart::Live).await;
    kit.publish(&table("t"), 0..1).await;
    let unit = kit.stage.spec.placement().unit_for(&table("t"));
    let subject = format!("wh.ingest.{unit}.0.t");
    let nothing = RowBlock { table: table("t"), segments: Vec::new(), lines: Bytes::new() };
    let mut empty = Vec::new();
    encode_block(&nothing, &mut empty);
    kit.publish_bytes(&subject, empty.into()).await;
    kit.publish_bytes(&subject, Bytes::from_static(b"no block")).await;
    kit.stage.operator.publish("wh.hist.0.t", None, Bytes::from_static(b"forged")).await.expect("stored");
    kit.publish(&table("t"), 1..2).await;
    live.until("1").await;
    assert_eq!(live.told(), "caught up 0 1");
    assert_eq!(kit.history.counts().unreadable.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[tokio::test]
async fn closing_ends_readers_with_an_error() {
    let kit = Kit::start(input()).await;
    let mut live = kit.open_table(HistoryStart::Live).await;
    live.step().await;
    kit.closed.cancel();
    assert_eq!(timeout(LONG, live.stream.next()).await.expect("at once"), Err(HistoryError::Closed));
    let refused = kit.history.open(EPOCH, HistoryFilter::All).await;
    assert!(matches!(refused, Err(HistoryError::Closed)));
    timeout(LONG, kit.history.finish()).await.expect("readers end");
    assert_eq!(kit.stage.operator.consumer_names("WH_HISTORY").await.expect("names"), Vec::<String>::new());
}
