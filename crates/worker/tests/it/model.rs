//! Whatever ClickHouse answers, and whenever the process dies: every row lands once, in order, or is buried once.

use std::time::Duration;

use proptest::prelude::*;

use crate::kit::{Answer, House, Scripted, block, constraint, lost, refused, table, unavailable};

#[derive(Debug, Clone)]
enum Step {
    /// Publishes blocks to tables: table, rows, which of them are bad.
    Publish(Vec<(u8, u8, u8)>),
    Sleep(u16),
    Crash,
    Stop,
}

#[derive(Debug, Clone, Copy)]
enum Mood {
    Good,
    Lost,
    Down,
    TableDown,
    Gone,
    Small,
}

fn step() -> impl Strategy<Value = Step> {
    let blocks = prop::collection::vec((0..3_u8, 0..12_u8, any::<u8>()), 1..6);
    prop_oneof![
        5 => blocks.prop_map(Step::Publish),
        4 => (1..4000_u16).prop_map(Step::Sleep),
        1 => Just(Step::Crash),
        1 => Just(Step::Stop),
    ]
}

fn mood() -> impl Strategy<Value = Mood> {
    prop_oneof![
        6 => Just(Mood::Good),
        2 => Just(Mood::Lost),
        2 => Just(Mood::Down),
        1 => Just(Mood::TableDown),
        1 => Just(Mood::Gone),
        1 => Just(Mood::Small),
    ]
}

fn sink(moods: Vec<Mood>, naming: bool, takes: u16) -> std::sync::Arc<Scripted> {
    let mut at = 0;
    Scripted::slow(Duration::from_millis(u64::from(takes)), move |batch, _| {
        at += 1;
        let answer = constraint(batch, naming);
        match (moods.get(at - 1).copied().unwrap_or(Mood::Good), &answer) {
            (Mood::Lost, Answer::Store) => Answer::StoreAndFail(lost()),
            (Mood::Down, _) => Answer::Fail(unavailable(None)),
            (Mood::TableDown, _) => Answer::Fail(unavailable(Some(252))),
            (Mood::Gone, _) => Answer::Fail(refused(60, "gone")),
            (Mood::Small, _) => Answer::Fail(unavailable(Some(241))),
            _ => answer,
        }
    })
}

async fn live(steps: Vec<Step>, sink: std::sync::Arc<Scripted>) {
    let mut house = House::new(sink);
    house.start();
    let tables = [table("a"), table("b"), table("c")];
    let mut sent = [const { Vec::<String>::new() }; 3];
    let mut number = 0_u32;
    for step in steps {
        match step {
            Step::Publish(blocks) => {
                for (to, rows, bad) in blocks {
                    let to = usize::from(to);
                    let lines: Vec<String> = (0..rows)
                        .map(|row| {
                            number += 1;
                            let bad = row < 8 && bad & bad.rotate_left(3) & (1 << row) != 0;
                            if bad { format!("{{\"bad\":{number}}}") } else { format!("{{\"n\":{number}}}") }
                        })
                        .collect();
                    sent[to].extend(lines.clone());
                    house.publish(vec![block(&tables[to], lines)]).await;
                }
            }
            Step::Sleep(ms) => tokio::time::sleep(Duration::from_millis(u64::from(ms))).await,
            Step::Crash => {
                house.crash().await;
                house.start();
            }
            Step::Stop => {
                house.stop().await.unwrap();
                house.start();
            }
        }
    }
    house.drained(Duration::from_secs(3000)).await;
    house.stop().await.unwrap();
    let letters = house.letters().await;
    for (t, sent) in tables.iter().zip(sent) {
        let (bad, good): (Vec<String>, Vec<String>) = sent.into_iter().partition(|line| line.contains("bad"));
        assert_eq!(house.sink.rows(t), good, "{t}");
        let of_table = letters.iter().filter(|letter| letter.table == *t);
        let buried: Vec<&[u8]> = of_table.map(|letter| &letter.line[..]).collect();
        assert_eq!(buried, bad.iter().map(String::as_bytes).collect::<Vec<_>>(), "{t}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn every_row_lands_once_and_in_order(
        steps in prop::collection::vec(step(), 1..25),
        moods in prop::collection::vec(mood(), 0..40),
        naming in any::<bool>(),
        takes in prop_oneof![Just(0_u16), 1..3000_u16],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(live(steps, sink(moods, naming, takes)));
    }
}
