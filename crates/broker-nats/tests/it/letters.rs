//! Dead letters on a real server, as the restricted user.

use bytes::Bytes;
use tokio::sync::watch;
use wavehouse_broker::{DeadLetter, LetterCursor, LetterError, LetterFilter, REASON_BYTES_MAX};
use wavehouse_broker_nats::Letters;
use wavehouse_core::{LogId, Position, Sequence, TableName, TableRef, TenantId, Timestamp};
use wavehouse_nats::HeaderMap;

use crate::stage::{Stage, input};

async fn letters(stage: &Stage) -> Letters {
    Letters::new(stage.user().await.jetstream(), stage.spec.clone(), watch::Sender::new(true))
}

fn tenant() -> TenantId {
    TenantId::parse("acme").expect("a tenant")
}

fn letter(table: &str, sequence: u64) -> DeadLetter {
    DeadLetter {
        table: TableRef::new(tenant(), TableName::parse(table).expect("a name")),
        position: Position { stored_ms: 77, ..Position::new(LogId(7), Sequence(sequence), 3) },
        received_at: Timestamp(1_700_000_000_000_000_000 + sequence),
        buried_at: Timestamp(1_800_000_000_000_000_000 + sequence),
        code: sequence.is_multiple_of(2).then_some(469),
        reason: format!("row {sequence}\nis no row: \u{2260} 100 %"),
        line: format!("{{\"n\":{sequence}}}").into(),
    }
}

fn all() -> LetterFilter {
    LetterFilter { tenant: tenant(), table: None, code: None, from: None, until: None }
}

async fn read(letters: &Letters) -> Vec<DeadLetter> {
    let page = letters.page(&all(), None, 1000).await.expect("a page");
    assert!(!page.more);
    page.letters
}

#[tokio::test]
async fn letters_are_kept_whole_once_counted_paged_and_dropped() {
    let stage = Stage::start(input()).await;
    let letters = letters(&stage).await;
    let mut sent: Vec<_> =
        [9, 2, 11, 5].iter().flat_map(|n| [letter("a*b>c", *n), letter("events", *n)]).collect();
    sent[0].reason = "\u{20ac}".repeat(REASON_BYTES_MAX / 3);
    sent[1].line = "x".repeat(300_000).into();
    letters.bury(sent.iter().chain(&sent).cloned().collect()).await.expect("buried");
    letters.bury(vec![sent[3].clone()]).await.expect("buried again");
    sent.sort_by(|a, b| (&a.table, a.position).cmp(&(&b.table, b.position)));
    assert_eq!(read(&letters).await, sent);
    assert!(read(&letters).await.iter().all(|letter| letter.position.stored_ms == 77));
    let counts = letters.counts(&tenant()).await.expect("counts");
    assert_eq!(counts.tables.values().copied().collect::<Vec<_>>(), [4, 4]);
    assert_eq!(letters.counts(&TenantId::default()).await.expect("counts").total(), 0);

    let (mut got, mut after): (Vec<DeadLetter>, Option<LetterCursor>) = (Vec::new(), None);
    loop {
        let page = letters.page(&all(), after.as_ref(), 3).await.expect("a page");
        got.extend(page.letters);
        let Some(last) = got.last().filter(|_| page.more) else { break };
        after = Some(LetterCursor { table: last.table.table.clone(), position: last.position });
    }
    assert_eq!(got, sent, "pages of three");
    let coded = LetterFilter { code: Some(469), ..all() };
    assert_eq!(letters.page(&coded, None, 10).await.expect("a page").letters.len(), 2);

    let gone = [sent[4].position, sent[6].position, Position::new(LogId(7), Sequence(99), 3)];
    assert_eq!(letters.drop_letters(&sent[4].table, &gone).await, Ok(2));
    assert_eq!(letters.drop_letters(&sent[4].table, &gone).await, Ok(0));
    for _ in 0..2 {
        letters.bury(vec![sent[4].clone()]).await.expect("buried again after it was dropped");
    }
    assert_eq!(read(&letters).await.len(), 7, "one of them");
    assert_eq!(letters.drop_letters(&sent[4].table, &[sent[4].position]).await, Ok(1));
    letters.bury(vec![sent[4].clone()]).await.expect("and again");
    assert_eq!(read(&letters).await.len(), 7);
}

#[tokio::test]
async fn many_letters_are_read_from_several_places_and_twins_show_once() {
    let stage = Stage::start(input()).await;
    let letters = letters(&stage).await;
    let sent: Vec<_> = (1..=600).map(|n| letter("events", n)).collect();
    letters.bury(sent.clone()).await.expect("buried");
    assert_eq!(read(&letters).await, sent);
    // What was buried long ago has no id that the server remembers.
    let mut headers = HeaderMap::new();
    headers.insert("X-DLQ-Position", sent[0].position.to_string());
    headers.insert("X-DLQ-Error", "twin");
    let subject = "wh.dlq.acme.events.eu";
    stage.operator.publish(subject, Some(headers), Bytes::from_static(b"{}")).await.expect("stored");
    stage.operator.publish("wh.dlq.acme.events", None, Bytes::from_static(b"{}\n")).await.expect("stored");
    let kept = read(&letters).await;
    assert_eq!(kept.len(), 601, "the twin is hidden, what another program buried is shown");
    let strange = kept.iter().find(|letter| letter.reason.is_empty()).expect("it is there");
    assert_eq!(strange.line, "{}");
    let gone = [sent[0].position, strange.position];
    assert_eq!(letters.drop_letters(&strange.table, &gone).await, Ok(2));
    assert_eq!(letters.counts(&tenant()).await.expect("counts").total(), 599, "the twin is gone too");
}

#[tokio::test]
async fn a_row_that_fills_a_message_is_buried_with_a_short_reason() {
    let stage = Stage::start(input()).await;
    let letters = letters(&stage).await;
    let line = "x".repeat((1 << 20) - 2048);
    let big = DeadLetter { reason: "r".repeat(4000), line: line.into(), ..letter("events", 1) };
    letters.bury(vec![big.clone()]).await.expect("buried");
    let kept = read(&letters).await;
    assert!(big.reason.starts_with(&kept[0].reason) && !kept[0].reason.is_empty());
    assert_eq!(kept[0].line, big.line);
}

#[tokio::test]
async fn another_stream_than_the_named_one_is_noticed() {
    let stage = Stage::bare(input()).await;
    let mut config = wavehouse_topology::Desired::new(&stage.spec).expect("it fits").dead_letters;
    config.name = "OTHER".to_owned();
    stage.make_stream(&config).await;
    let ok = watch::Sender::new(true);
    let letters = Letters::new(stage.user().await.jetstream(), stage.spec.clone(), ok.clone());
    let refused = letters.bury(vec![letter("events", 1)]).await;
    assert!(matches!(refused, Err(LetterError::Unavailable { .. })), "{refused:?}");
    assert!(!*ok.borrow());
}
