//! Every start and every loss, on made-up copies.

use bytes::Bytes;
use wavehouse_core::{RowBlock, Scope, TableName, TenantId};

use super::super::copy::CopyHead;
use super::*;

const LOG: LogId = LogId(7);

fn table(name: &str) -> TableRef {
    TableRef::new(TenantId::default(), TableName::parse(name).expect("a name"))
}

/// A copy of two rows, received at second `sequence`.
fn copy(sequence: u64) -> Copy {
    let at = Timestamp(sequence * 1_000_000_000);
    let rows = Bytes::from_static(b"{}\n{}\n");
    let head = CopyHead {
        history: sequence * 10,
        copied: at,
        stream: "S".to_owned(),
        subject: "wh.ingest.0.0.0.t".to_owned(),
        sequence: Sequence(sequence),
        stored: at,
        before: Sequence(0),
        table: table("t"),
    };
    Copy { head, log: LOG, block: Some(RowBlock::new(table("t"), at, Scope::default(), 2, rows)) }
}

fn before(copy: Copy, before: u64) -> Copy {
    Copy { head: CopyHead { before: Sequence(before), ..copy.head.clone() }, ..copy }
}

/// What is told of copies, in short: sequences with their first row, and holes as zero.
fn told(cursor: &mut Cursor, copies: impl IntoIterator<Item = Copy>) -> Vec<(u64, u32)> {
    let mut told = Vec::new();
    for copy in copies {
        let Verdict::Tell(events) = cursor.take(copy) else { continue };
        told.extend(events.into_iter().map(|event| match event {
            HistoryEvent::Block { stored, from_row } => (stored.sequence.0, from_row),
            HistoryEvent::Hole { .. } => (0, 0),
            HistoryEvent::CaughtUp => (u64::MAX, 0),
        }));
    }
    told
}

fn position(sequence: u64, row: u32) -> Position {
    Position::new(LOG, Sequence(sequence), row)
}

#[test]
fn live_begins_past_what_was_stored() {
    let mut cursor = Cursor::new(Begin::Past(HashMap::from([(LOG, Sequence(3))])));
    let mut copies: Vec<_> = [2, 3, 4, 4, 6].map(copy).to_vec();
    copies.push(Copy { log: LogId(8), ..copy(1) });
    assert_eq!(
        told(&mut cursor, copies),
        [(4, 0), (6, 0), (1, 0)],
        "each once, and another log's from its start"
    );
}

#[test]
fn after_a_row_begins_inside_its_block() {
    for (row, expected) in [(0, vec![(3, 1), (4, 0)]), (1, vec![(4, 0)]), (9, vec![(4, 0)])] {
        let mut cursor = Cursor::new(Begin::After(position(3, row)));
        assert!(cursor.is_searching());
        let other = Copy { log: LogId(8), ..copy(9) };
        assert_eq!(told(&mut cursor, [copy(2), other, copy(3), copy(4)]), expected, "row {row}");
        assert!(!cursor.is_searching());
    }
}

#[test]
fn a_row_that_is_not_found_is_a_hole_and_then_what_is_past_it() {
    let mut cursor = Cursor::new(Begin::After(position(3, 0)));
    assert_eq!(told(&mut cursor, [copy(2), copy(4)]), []);
    cursor.give_up_search(&table("t"));
    assert!(!cursor.is_searching());
    assert_eq!(told(&mut cursor, [copy(2), copy(4), copy(5)]), [(0, 0), (4, 0), (5, 0)]);
    assert_eq!(cursor.take_holes(), []);
}

#[test]
fn a_hole_that_nothing_follows_is_told_all_the_same() {
    let mut cursor = Cursor::new(Begin::After(Position { stored_ms: 5, ..position(3, 0) }));
    cursor.give_up_search(&table("t"));
    let hole = HistoryEvent::Hole { table: table("t"), from: Some(Timestamp::from_millis(5)), to: None };
    assert_eq!(cursor.take_holes(), [hole]);
}

#[test]
fn since_a_moment_passes_over_what_is_older_until_the_first() {
    let since = |second: u64, end| Begin::Since { since: Timestamp(second * 1_000_000_000), end };
    let copies = || [copy(2), copy(4), copy(3), copy(5)];
    assert_eq!(
        told(&mut Cursor::new(since(4, 1000)), copies()),
        [(4, 0), (5, 0)],
        "3 is older than 4: a twin"
    );
    assert_eq!(told(&mut Cursor::new(since(0, 1000)), copies()), [(2, 0), (4, 0), (5, 0)]);
    assert_eq!(told(&mut Cursor::new(since(9, 20)), copies()), [(4, 0), (5, 0)], "what is new comes");
}

#[test]
fn what_never_came_is_a_hole() {
    let mut cursor = Cursor::new(Begin::Everything);
    let copies = [copy(2), before(copy(4), 2), before(copy(7), 5), before(copy(8), 7), before(copy(9), 0)];
    assert_eq!(told(&mut cursor, copies), [(2, 0), (4, 0), (0, 0), (7, 0), (8, 0), (9, 0)]);
    let mut cursor = Cursor::new(Begin::Past(HashMap::from([(LOG, Sequence(3))])));
    assert_eq!(told(&mut cursor, [before(copy(5), 4)]), [(0, 0), (5, 0)], "4 was asked for");
    let mut cursor = Cursor::new(Begin::Past(HashMap::from([(LOG, Sequence(4))])));
    assert_eq!(told(&mut cursor, [before(copy(5), 4)]), [(5, 0)], "4 was not");
    let mut cursor = Cursor::new(Begin::Since { since: Timestamp(0), end: 1000 });
    assert_eq!(told(&mut cursor, [before(copy(5), 4)]), [(5, 0)], "4 may be older");
    let mut cursor = Cursor::new(Begin::After(position(3, 1)));
    assert_eq!(told(&mut cursor, [copy(3), before(copy(5), 4)]), [(0, 0), (5, 0)]);
}

#[test]
fn blocks_without_rows_count_and_are_not_shown() {
    let mut cursor = Cursor::new(Begin::Everything);
    let empty = Copy {
        block: Some(RowBlock { segments: Vec::new(), lines: Bytes::new(), table: table("t") }),
        ..copy(3)
    };
    let unreadable = Copy { block: None, ..copy(4) };
    let copies = [copy(2), before(empty, 2), before(unreadable, 3), before(copy(5), 4)];
    assert_eq!(told(&mut cursor, copies), [(2, 0), (5, 0)], "and no hole");
}

#[test]
fn scopes_are_chained_apart() {
    let mut cursor = Cursor::new(Begin::Everything);
    let scoped = |mut copy: Copy| {
        copy.head.subject.push_str(".eu");
        copy
    };
    let copies =
        [copy(2), scoped(copy(3)), before(copy(4), 2), scoped(before(copy(6), 3)), before(copy(7), 5)];
    assert_eq!(told(&mut cursor, copies), [(2, 0), (3, 0), (4, 0), (6, 0), (0, 0), (7, 0)]);
}

#[test]
fn a_loss_everywhere_is_told_of_each_table() {
    let mut cursor = Cursor::new(Begin::Everything);
    let other = Copy { head: CopyHead { table: table("u"), ..copy(3).head }, ..copy(3) };
    assert_eq!(told(&mut cursor, [copy(2), other]), [(2, 0), (3, 0)]);
    cursor.open_hole_everywhere();
    cursor.open_hole_everywhere();
    assert_eq!(told(&mut cursor, [copy(5)]), [(0, 0), (5, 0)]);
    assert_eq!(cursor.take_holes().len(), 1);
}
