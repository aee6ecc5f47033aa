//! What history promises: each row once, in order, from where it was asked for, and no gap that is not told.

#![expect(clippy::expect_used, reason = "a case fails by panicking, and says what it expected")]

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use wavehouse_core::{LogId, Position, Sequence, TableRef, Timestamp};

use super::BrokerFixture;
use super::kit::{
    AMPLE, Reader, Row, at, events, lines, much_later, numbered, numbers, publish, publish_each,
    publish_settled, rows_of, table, within,
};
use crate::contract::Broker;
use crate::errors::HistoryError;
use crate::history::{HistoryEvent, HistoryFilter, HistoryStart, HistoryStream};
use crate::unit::StoredBlock;

/// A stream being read, and everything that it has said.
struct Tail {
    stream: Box<dyn HistoryStream>,
    /// What was read: the row's table, position, and number.
    read: Vec<(TableRef, Position, u64)>,
    rows: Vec<Row>,
    holes: Vec<TableRef>,
    /// How many rows were read when a hole was told.
    holes_after: Vec<usize>,
    caught_up: usize,
}

impl Tail {
    async fn open(broker: &Arc<dyn Broker>, start: HistoryStart, filter: HistoryFilter) -> Self {
        let opening = within("a history to open", broker.open_history(start, filter)).await;
        let stream = opening.expect("the history opens");
        Self {
            stream,
            read: Vec::new(),
            rows: Vec::new(),
            holes: Vec::new(),
            holes_after: Vec::new(),
            caught_up: 0,
        }
    }

    async fn of_events(broker: &Arc<dyn Broker>, start: HistoryStart) -> Self {
        Self::open(broker, start, HistoryFilter::Table(events())).await
    }

    fn take_in(&mut self, event: HistoryEvent) {
        match event {
            HistoryEvent::CaughtUp => self.caught_up += 1,
            HistoryEvent::Hole { table, .. } => {
                self.holes.push(table);
                self.holes_after.push(self.read.len());
                assert!(self.holes.len() <= 100, "a hole is told once");
            }
            HistoryEvent::Block { stored, from_row } => self.take_block(&stored, from_row),
        }
        assert!(self.caught_up <= 1, "told once");
    }

    fn take_block(&mut self, stored: &StoredBlock, from_row: u32) {
        assert!(from_row == 0 || from_row < stored.block.rows(), "rows that were asked for");
        let table = &stored.block.table;
        let rows = rows_of(&stored.block).into_iter().zip(numbers(&stored.block));
        for (index, (row, number)) in (0..).zip(rows).skip(from_row as usize) {
            let position = stored.position(index);
            let last = self.read.iter().rev().find(|(of, ..)| of == table);
            assert!(last.is_none_or(|(_, last, _)| *last < position), "each once, in order: {position}");
            self.read.push((table.clone(), position, number));
            self.rows.push(row);
        }
    }

    async fn step(&mut self, what: &str) {
        let event = within(what, self.stream.next()).await.expect("the history goes on");
        self.take_in(event);
    }

    async fn until_caught_up(&mut self) {
        while self.caught_up == 0 {
            self.step("the history to catch up").await;
        }
    }

    async fn until_rows(&mut self, rows: usize) {
        while self.read.len() < rows {
            let what = format!("{rows} rows of history, {} came", self.read.len());
            self.step(&what).await;
        }
    }

    fn numbers(&self) -> Vec<u64> {
        self.read.iter().map(|(.., number)| *number).collect()
    }

    fn numbers_of(&self, table: &TableRef) -> Vec<u64> {
        self.read.iter().filter(|(of, ..)| of == table).map(|(.., number)| *number).collect()
    }
}

fn count(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

pub(super) async fn live(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..3).await;
    let mut tail = Tail::of_events(&broker, HistoryStart::Live).await;
    tail.step("the first event").await;
    assert_eq!((tail.caught_up, tail.read.len()), (1, 0), "caught up at once, and nothing from before");
    publish_each(&broker, &table("acme", "events"), 0..3).await;
    publish_each(&broker, &events(), 3..6).await;
    tail.until_rows(3).await;
    assert_eq!((tail.numbers(), tail.holes), (vec![3, 4, 5], vec![]));
}

pub(super) async fn after_a_row(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let calls = broker.submit(vec![numbered(&events(), 0..5), numbered(&events(), 5..10)]);
    let results = within("results", calls).await;
    publish(&broker, numbered(&events(), 10..14)).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let mut positions = Vec::new();
    for delivery in reader.take(14).await {
        let rows = delivery.stored().block.rows();
        positions.extend((0..rows).map(|row| delivery.stored().position(row)));
        // Settled and unsettled rows are read alike.
        if positions.len() <= 10 {
            delivery.ack();
        }
    }
    assert_eq!(results[1].clone().expect("accepted").first, positions[5]);
    for (index, position) in (0..).zip(positions) {
        let mut tail = Tail::of_events(&broker, HistoryStart::After(position)).await;
        tail.until_caught_up().await;
        assert_eq!((tail.numbers(), tail.holes), (count(index + 1..14), vec![]), "after row {index}");
    }
}

pub(super) async fn after_the_last(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let last = publish_each(&broker, &events(), 0..3).await[2].first;
    let mut tail = Tail::of_events(&broker, HistoryStart::After(last)).await;
    tail.step("the first event").await;
    assert_eq!((tail.caught_up, tail.read.len()), (1, 0));
    publish_each(&broker, &events(), 3..5).await;
    tail.until_rows(2).await;
    assert_eq!((tail.numbers(), tail.holes), (vec![3, 4], vec![]));
}

pub(super) async fn since_a_moment(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    for number in 0..6 {
        let line = format!("{{\"n\":{number}}}");
        publish(&broker, lines(&events(), "", at(number * 1000), &[&line])).await;
    }
    let cases = [(at(0), 0), (at(1), 1), (at(2000), 2), (at(4001), 5), (at(5000), 5), (Timestamp(0), 0)];
    for (since, first) in cases {
        let mut tail = Tail::of_events(&broker, HistoryStart::Since(since)).await;
        tail.until_caught_up().await;
        assert_eq!((tail.numbers(), tail.holes), (count(first..6), vec![]), "since {since}");
    }
    let mut tail = Tail::of_events(&broker, HistoryStart::Since(much_later())).await;
    tail.until_caught_up().await;
    assert_eq!(tail.numbers(), [], "nothing is so late");
    publish(&broker, numbered(&events(), 9000..9001)).await;
    tail.until_rows(1).await;
    assert_eq!(tail.numbers(), [9000], "what is new comes");
}

pub(super) async fn filters(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let tables = [events(), table("acme", "events"), table("0", "events 2"), table("0", "event")];
    let mut sent = Vec::new();
    let mut live = Tail::open(&broker, HistoryStart::Live, HistoryFilter::All).await;
    for number in 0..10 {
        for (index, table) in (0..).zip(&tables) {
            let line = format!("{{\"n\":{}}}", number * 10 + index);
            let block = lines(table, ["", "eu", "us east"][index as usize % 3], at(number), &[&line]);
            sent.extend(rows_of(&block));
            publish(&broker, block).await;
        }
    }
    let mut all = Tail::open(&broker, HistoryStart::Since(at(0)), HistoryFilter::All).await;
    all.until_caught_up().await;
    live.until_rows(40).await;
    for (index, table) in (0..).zip(&tables) {
        let expected: Vec<_> = (0..10).map(|number| number * 10 + index).collect();
        let filter = HistoryFilter::Table(table.clone());
        let mut one = Tail::open(&broker, HistoryStart::Since(at(0)), filter).await;
        one.until_caught_up().await;
        assert_eq!(one.numbers(), expected, "{table} alone");
        let of_table: Vec<_> = sent.iter().filter(|row| row.table == *table).cloned().collect();
        assert_eq!(one.rows, of_table, "scope, receipt time and line are kept");
        assert_eq!((all.numbers_of(table), live.numbers_of(table)), (expected.clone(), expected));
    }
    assert_eq!((all.read.len(), all.holes, live.holes), (40, vec![], vec![]));
}

pub(super) async fn hole_for_strange_position(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let last = publish_each(&broker, &events(), 0..5).await[4].first;
    let strange = [
        Position::new(LogId(!last.log.0), Sequence(2), 0),
        Position::new(LogId(!last.log.0), Sequence(u64::MAX - 1), 0),
        Position { sequence: Sequence(last.sequence.0 + 7), ..last },
    ];
    for position in strange {
        let mut tail = Tail::of_events(&broker, HistoryStart::After(position)).await;
        tail.until_caught_up().await;
        assert_eq!((tail.holes, tail.holes_after), (vec![events()], vec![0]), "a hole first: {position}");
        assert_eq!(tail.read.len(), 5, "then everything that is kept");
    }
    let unheard = table("0", "unheard of");
    let filter = HistoryFilter::Table(unheard.clone());
    let mut tail = Tail::open(&broker, HistoryStart::After(last), filter).await;
    tail.until_caught_up().await;
    assert_eq!((tail.holes.clone(), tail.read.len()), (vec![unheard.clone()], 0));
    publish_each(&broker, &unheard, 0..2).await;
    tail.until_rows(2).await;
    assert_eq!((tail.numbers(), tail.holes), (vec![0, 1], vec![unheard]));
}

/// Settled rows, swept, then five that wait; the position of the very first row.
async fn swept(fixture: &dyn BrokerFixture) -> (u64, Position) {
    let broker = fixture.broker();
    let first = publish(&broker, numbered(&events(), 0..1)).await.first;
    let mut reader = Reader::open(&broker, AMPLE).await;
    reader.expect(&events(), 0).await.ack();
    reader.release().await;
    let settled = publish_settled(&broker, &events()).await;
    publish_each(&broker, &events(), settled..settled + 5).await;
    let report = within("the sweep", broker.sweep(much_later())).await;
    assert!(report.freed_bytes > 0, "settled rows older than the gap window are given back");
    (settled + 5, first)
}

pub(super) async fn hole_after_sweep(fixture: &mut dyn BrokerFixture) {
    let (end, first) = swept(fixture).await;
    for start in [HistoryStart::After(first), HistoryStart::Since(at(0))] {
        let mut tail = Tail::of_events(&fixture.broker(), start).await;
        tail.until_caught_up().await;
        assert_eq!((tail.holes.len(), &tail.holes_after), (1, &vec![0]), "{start:?}: what is gone is told");
        let read = tail.numbers();
        assert!(
            read.len() >= 5 && read == count(end - read.len() as u64..end),
            "the rest without gap: {read:?}"
        );
    }
    fixture.restart().await;
    let mut tail = Tail::of_events(&fixture.broker(), HistoryStart::After(first)).await;
    tail.until_caught_up().await;
    assert_eq!(tail.holes.len(), 1, "what is gone is told after a restart too");
    assert!(tail.read.len() >= 5);
}

pub(super) async fn sweep_under_a_reader(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let settled = publish_settled(&broker, &events()).await;
    let mut tail = Tail::of_events(&broker, HistoryStart::Since(at(0))).await;
    tail.until_rows(1).await;
    publish_each(&broker, &events(), settled..settled + 5).await;
    let report = within("the sweep", broker.sweep(much_later())).await;
    assert!(report.freed_bytes > 0);
    while tail.numbers().last() != Some(&(settled + 4)) {
        tail.step("the rest of the history").await;
    }
    let read = tail.numbers();
    let gaps = (1..read.len()).filter(|index| read[index - 1] + 1 != read[*index]);
    for gap in gaps {
        assert!(tail.holes_after.contains(&gap), "no gap that is not told: after {}", read[gap - 1]);
    }
}

pub(super) async fn each_row_once_while_publishing(fixture: &mut dyn BrokerFixture) {
    const BEFORE: u64 = 100;
    const ROWS: u64 = 400;
    let broker = fixture.broker();
    let first = publish_each(&broker, &events(), 0..BEFORE).await[0].first;
    let mut readers = JoinSet::new();
    let mut publisher = JoinSet::new();
    let sender = broker.clone();
    publisher.spawn(async move { publish_each(&sender, &events(), BEFORE..ROWS).await });
    for index in 0..6 {
        let broker = broker.clone();
        readers.spawn(async move {
            let since = HistoryStart::Since(at(0));
            let (start, expected) = if index % 2 == 0 { (since, 0) } else { (HistoryStart::After(first), 1) };
            let mut tail = Tail::of_events(&broker, start).await;
            tail.until_rows(usize::try_from(ROWS - expected).expect("small")).await;
            tail.until_caught_up().await;
            assert_eq!((tail.numbers(), tail.holes), (count(expected..ROWS), vec![]), "each row once");
        });
    }
    assert_eq!(within("the readers", readers.join_all()).await.len(), 6);
    assert_eq!(within("the publisher", publisher.join_all()).await.len(), 1);
}

pub(super) async fn next_may_be_cancelled(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..10).await;
    let mut tail = Tail::of_events(&broker, HistoryStart::Since(at(0))).await;
    for number in 10..60 {
        let submitted = broker.submit(vec![numbered(&events(), number..number + 1)]);
        for patience in [0, 0, 1] {
            if let Ok(event) = timeout(Duration::from_millis(patience), tail.stream.next()).await {
                tail.take_in(event.expect("the history goes on"));
            }
        }
        assert!(within("a result", submitted).await[0].is_ok());
    }
    tail.until_rows(60).await;
    tail.until_caught_up().await;
    assert_eq!((tail.numbers(), tail.holes), (count(0..60), vec![]));
}

pub(super) async fn settled_rows_stay(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let settled = publish_settled(&broker, &events()).await;
    within("the sweep", broker.sweep(at(1000))).await;
    let mut tail = Tail::of_events(&broker, HistoryStart::Since(at(0))).await;
    tail.until_caught_up().await;
    assert_eq!((tail.numbers(), tail.holes), (count(0..settled), vec![]), "kept for the gap window");
}

pub(super) async fn never_holds_up_publishing(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let mut tail = Tail::of_events(&broker, HistoryStart::Live).await;
    // Nobody reads while this is published, settled and given back.
    let settled = publish_settled(&broker, &events()).await;
    publish_each(&broker, &events(), settled..settled + 5).await;
    while tail.numbers().last() != Some(&(settled + 4)) {
        tail.step("the history that nobody read").await;
    }
    let read = tail.numbers();
    assert!(!tail.holes.is_empty() || read == count(0..settled + 5), "all, or a hole that is told");
}

pub(super) async fn over_a_restart(fixture: &mut dyn BrokerFixture) {
    let positions = publish_each(&fixture.broker(), &events(), 0..10).await;
    let mut reader = Reader::open(&fixture.broker(), AMPLE).await;
    for delivery in reader.take(10).await.into_iter().take(5) {
        delivery.ack();
    }
    reader.release().await;
    for round in 0..2 {
        match round {
            0 => fixture.restart().await,
            _ => fixture.crash().await,
        }
        let end = 10 + round * 5;
        for resumed in [2, 7] {
            let start = HistoryStart::After(positions[resumed].first);
            let mut tail = Tail::of_events(&fixture.broker(), start).await;
            tail.until_caught_up().await;
            let expected = count(resumed as u64 + 1..end);
            assert_eq!((tail.numbers(), tail.holes), (expected, vec![]), "a position outlives the process");
        }
        publish_each(&fixture.broker(), &events(), end..end + 5).await;
    }
}

pub(super) async fn close_is_an_error(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..50).await;
    let mut waiting = Tail::of_events(&broker, HistoryStart::Live).await;
    waiting.until_caught_up().await;
    let mut replaying = Tail::of_events(&broker, HistoryStart::Since(at(0))).await;
    replaying.until_rows(1).await;
    let (ended, closed) = tokio::join!(within("the tail to end", waiting.stream.next()), broker.close());
    closed.expect("a clean close");
    assert_eq!(ended, Err(HistoryError::Closed));
    // What had been read ahead may still come, but never the word that everything has been read.
    let error = loop {
        match within("the replay to end", replaying.stream.next()).await {
            Ok(event) => replaying.take_in(event),
            Err(error) => break error,
        }
    };
    assert_eq!(error, HistoryError::Closed);
    assert!(replaying.caught_up == 0 || replaying.read.len() == 50, "not caught up with rows unread");
}
