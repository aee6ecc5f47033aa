//! What dead letters promise: one a row, kept with everything, found again, gone when dropped, and no settle.

#![expect(clippy::expect_used, reason = "a case fails by panicking, and says what it expected")]

use std::sync::Arc;

use wavehouse_core::{LogId, Position, Sequence, TableRef};

use super::BrokerFixture;
use super::kit::{AMPLE, ODD_TABLES, Reader, at, events, publish_each, table, tenant, within};
use crate::contract::Broker;
use crate::letter::{DeadLetter, LetterCursor, LetterFilter, LetterPage, REASON_BYTES_MAX};

fn letter(table: &TableRef, sequence: u64, row: u32) -> DeadLetter {
    DeadLetter {
        table: table.clone(),
        position: Position::new(LogId(7), Sequence(sequence), row),
        received_at: at(sequence),
        buried_at: at(1000 + sequence),
        code: Some(469),
        reason: format!("Constraint `c` is violated at row {row}.\nExpression: (n > 0) \u{2260} \"x\""),
        line: format!("{{\"n\":{sequence},\"t\":\"\u{1f600} \\n\"}}").into(),
    }
}

fn all_of(tenant_id: &str) -> LetterFilter {
    LetterFilter { tenant: tenant(tenant_id), table: None, code: None, from: None, until: None }
}

async fn bury(broker: &Arc<dyn Broker>, letters: Vec<DeadLetter>) {
    within("a burial", broker.bury(letters)).await.expect("the letters are kept");
}

async fn page(
    broker: &Arc<dyn Broker>,
    filter: &LetterFilter,
    after: Option<&LetterCursor>,
    limit: usize,
) -> LetterPage {
    within("letters", broker.letters(filter, after, limit)).await.expect("letters can be read")
}

async fn letters(broker: &Arc<dyn Broker>, filter: &LetterFilter) -> Vec<DeadLetter> {
    let page = page(broker, filter, None, 1000).await;
    assert!(!page.more);
    page.letters
}

async fn counts(broker: &Arc<dyn Broker>, tenant_id: &str) -> Vec<(String, u64)> {
    let counts =
        within("counts", broker.letter_counts(&tenant(tenant_id))).await.expect("they can be counted");
    assert_eq!(counts.total(), counts.tables.values().sum());
    counts.tables.iter().map(|(table, count)| (table.to_string(), *count)).collect()
}

async fn drop_letters(broker: &Arc<dyn Broker>, of: &[&DeadLetter]) -> u64 {
    let positions: Vec<_> = of.iter().map(|letter| letter.position).collect();
    let dropping = broker.drop_letters(&of[0].table, &positions);
    within("a drop", dropping).await.expect("the letters are dropped")
}

pub(super) async fn kept_whole(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let mut sent: Vec<_> = (1..).zip(ODD_TABLES).map(|(n, name)| letter(&table("0", name), n, 3)).collect();
    sent[0].code = None;
    sent[1].reason = String::new();
    sent[2].line = "x".repeat(300_000).into();
    bury(&broker, sent.clone()).await;
    sent.sort_by(|a, b| a.table.cmp(&b.table));
    assert_eq!(letters(&broker, &all_of("0")).await, sent);
}

pub(super) async fn long_reason_cut(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    // Characters of three bytes, so that the limit falls inside one.
    let long = DeadLetter { reason: "\u{20ac}".repeat(REASON_BYTES_MAX), ..letter(&events(), 1, 0) };
    bury(&broker, vec![long.clone()]).await;
    let kept = letters(&broker, &all_of("0")).await;
    let reason = &kept[0].reason;
    assert!(long.reason.starts_with(reason.as_str()), "the beginning is kept");
    assert!((REASON_BYTES_MAX - 3..=REASON_BYTES_MAX).contains(&reason.len()), "{}", reason.len());
}

pub(super) async fn buried_twice_is_one(fixture: &mut dyn BrokerFixture) {
    let one = letter(&events(), 1, 0);
    let neighbours = [letter(&events(), 1, 1), letter(&events(), 2, 0), letter(&table("0", "other"), 1, 0)];
    let other_log = DeadLetter { position: Position { log: LogId(8), ..one.position }, ..one.clone() };
    let broker = fixture.broker();
    bury(&broker, vec![one.clone(), one.clone()]).await;
    bury(&broker, vec![one.clone()]).await;
    bury(&broker, neighbours.into_iter().chain([other_log]).collect()).await;
    fixture.restart().await;
    let broker = fixture.broker();
    bury(&broker, vec![one]).await;
    let kept = letters(&broker, &all_of("0")).await;
    assert_eq!(kept.len(), 5, "one of each table and position: {kept:?}");
    assert_eq!(counts(&broker, "0").await, [("events".to_owned(), 4), ("other".to_owned(), 1)]);
}

pub(super) async fn pages(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let tables = [events(), table("0", "b"), table("0", "x.y")];
    let mut sent = Vec::new();
    for sequence in [9, 2, 11, 5] {
        for table in &tables {
            sent.extend([letter(table, sequence, 10), letter(table, sequence, 2)]);
        }
    }
    bury(&broker, sent.clone()).await;
    sent.sort_by(|a, b| (&a.table, a.position).cmp(&(&b.table, b.position)));
    for limit in [1, 5, 8, 24, 100] {
        let (mut got, mut after) = (Vec::new(), None);
        loop {
            let page = page(&broker, &all_of("0"), after.as_ref(), limit).await;
            assert!(page.letters.len() <= limit);
            got.extend(page.letters);
            assert!(got.len() <= sent.len(), "each letter is on one page");
            assert_eq!(page.more, got.len() < sent.len(), "more says whether there are more");
            if !page.more {
                break;
            }
            let last = got.last().expect("a page before the end holds letters");
            after = Some(LetterCursor { table: last.table.table.clone(), position: last.position });
        }
        assert!(got == sent, "pages of {limit} are all letters, by table and position");
    }
    let gone = LetterCursor { table: tables[0].table.clone(), position: letter(&tables[0], 3, 0).position };
    let page = page(&broker, &all_of("0"), Some(&gone), 1).await;
    let next = sent.iter().find(|l| (&l.table.table, l.position) > (&gone.table, gone.position));
    assert_eq!(page.letters.first(), next, "a cursor need not be a letter that is there");
}

pub(super) async fn filtered(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let other = table("0", "other");
    let mut sent: Vec<_> = (1..=4).map(|sequence| letter(&events(), sequence, 0)).collect();
    sent.extend((1..=4).map(|sequence| letter(&other, sequence, 0)));
    for letter in &mut sent {
        letter.code = [Some(469), Some(6), None, Some(469)][letter.position.sequence.0 as usize - 1];
    }
    bury(&broker, sent.clone()).await;
    let all = all_of("0");
    let name = Some(other.table.clone());
    let cases = [
        (all.clone(), vec![1, 2, 3, 4, 1, 2, 3, 4]),
        (LetterFilter { table: name.clone(), ..all.clone() }, vec![1, 2, 3, 4]),
        (LetterFilter { table: Some(table("0", "oth").table), ..all.clone() }, vec![]),
        (LetterFilter { code: Some(469), ..all.clone() }, vec![1, 4, 1, 4]),
        (LetterFilter { code: Some(46), ..all.clone() }, vec![]),
        (LetterFilter { from: Some(at(1003)), ..all.clone() }, vec![3, 4, 3, 4]),
        (LetterFilter { until: Some(at(1003)), ..all.clone() }, vec![1, 2, 1, 2]),
        (LetterFilter { from: Some(at(1002)), until: Some(at(1004)), ..all.clone() }, vec![2, 3, 2, 3]),
        (LetterFilter { table: name, code: Some(469), from: Some(at(1002)), ..all }, vec![4]),
    ];
    for (filter, expected) in cases {
        let got = letters(&broker, &filter).await;
        let sequences: Vec<_> = got.iter().map(|letter| letter.position.sequence.0).collect();
        assert_eq!(sequences, expected, "{filter:?}");
        assert!(filter.table.is_none_or(|name| got.iter().all(|letter| letter.table.table == name)));
        let first = page(&broker, &LetterFilter { table: None, ..filter }, None, 1).await;
        assert!(first.letters.len() <= 1, "the limit counts letters that match");
    }
}

pub(super) async fn counted(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let other = table("0", "a*b>c");
    for sequence in 1..=3 {
        bury(&broker, vec![letter(&events(), sequence, 0), letter(&other, sequence, 0)]).await;
        let expected = [("a*b>c".to_owned(), sequence), ("events".to_owned(), sequence)];
        assert_eq!(counts(&broker, "0").await, expected);
    }
    assert_eq!(drop_letters(&broker, &[&letter(&events(), 2, 0)]).await, 1);
    assert_eq!(counts(&broker, "0").await, [("a*b>c".to_owned(), 3), ("events".to_owned(), 2)]);
    fixture.restart().await;
    assert_eq!(counts(&fixture.broker(), "0").await, [("a*b>c".to_owned(), 3), ("events".to_owned(), 2)]);
}

pub(super) async fn tenants_apart(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let (mine, theirs) = (letter(&events(), 1, 0), letter(&table("acme", "events"), 1, 0));
    bury(&broker, vec![mine.clone(), theirs.clone()]).await;
    assert_eq!(letters(&broker, &all_of("0")).await, std::slice::from_ref(&mine));
    assert_eq!(letters(&broker, &all_of("acme")).await, std::slice::from_ref(&theirs));
    assert_eq!(drop_letters(&broker, &[&mine]).await, 1);
    assert_eq!(letters(&broker, &all_of("0")).await, []);
    assert_eq!(letters(&broker, &all_of("acme")).await, [theirs]);
    assert_eq!(counts(&broker, "0").await, [], "a table without letters is not counted");
    assert_eq!(counts(&broker, "unheard-of").await, [], "a tenant that is not known has none");
    assert_eq!(letters(&broker, &all_of("unheard-of")).await, []);
}

pub(super) async fn dropped(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    let sent: Vec<_> = (1..=5).map(|sequence| letter(&events(), sequence, 1)).collect();
    bury(&broker, sent.clone()).await;
    let absent = [letter(&events(), 1, 0), letter(&events(), 99, 1)];
    assert_eq!(drop_letters(&broker, &[&sent[1], &absent[0], &sent[3], &absent[1]]).await, 2);
    assert_eq!(drop_letters(&broker, &[&sent[1]]).await, 0, "it is gone already");
    let left = [sent[0].clone(), sent[2].clone(), sent[4].clone()];
    assert_eq!(letters(&broker, &all_of("0")).await, left);
    bury(&broker, vec![sent[1].clone()]).await;
    assert_eq!(letters(&broker, &all_of("0")).await.len(), 4, "what was dropped may be buried again");
}

pub(super) async fn durable(fixture: &mut dyn BrokerFixture) {
    let sent: Vec<_> = (1..=3).map(|sequence| letter(&events(), sequence, 0)).collect();
    bury(&fixture.broker(), sent.clone()).await;
    fixture.crash().await;
    assert_eq!(letters(&fixture.broker(), &all_of("0")).await, sent, "a burial outlives a crash");
    assert_eq!(drop_letters(&fixture.broker(), &[&sent[0]]).await, 1);
    fixture.crash().await;
    assert_eq!(letters(&fixture.broker(), &all_of("0")).await, sent[1..], "so does a drop");
    fixture.restart().await;
    assert_eq!(letters(&fixture.broker(), &all_of("0")).await, sent[1..]);
}

pub(super) async fn no_settle(fixture: &mut dyn BrokerFixture) {
    let broker = fixture.broker();
    publish_each(&broker, &events(), 0..1).await;
    let mut reader = Reader::open(&broker, AMPLE).await;
    let delivery = reader.expect(&events(), 0).await;
    let position = delivery.stored().position(0);
    bury(&broker, vec![DeadLetter { position, ..letter(&events(), 1, 0) }]).await;
    delivery.retry(std::time::Duration::ZERO);
    let again = reader.expect(&events(), 0).await;
    assert_eq!(counts(&broker, "0").await, [("events".to_owned(), 1)]);
    assert_eq!(letters(&broker, &all_of("0")).await[0].position, position);
    again.ack();
    reader.quiet("it is acked").await;
    assert_eq!(counts(&broker, "0").await, [("events".to_owned(), 1)], "and an ack takes no letter away");
}
