//! What is on the shelf, and what goes out when.

use wavehouse_core::{LogId, RowBlock, Scope, Sequence, TableName, TenantId, Timestamp};

use super::*;

const S: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_secs(60);
const AMPLE: RowBudget = RowBudget { rows: 100, bytes: 1 << 20 };

fn table(name: &str) -> TableRef {
    TableRef::new(TenantId::default(), TableName::parse(name).unwrap())
}

fn stored(name: &str, sequence: u64) -> StoredBlock {
    let block = RowBlock::new(table(name), Timestamp(1), Scope::default(), 1, "{}\n".to_owned().into());
    StoredBlock { log: LogId(1), sequence: Sequence(sequence), stored_ms: 1, block }
}

/// A shelf with these blocks of tables.
fn shelf(budget: RowBudget, blocks: &[(&str, u64)], now: Instant) -> Shelf {
    let mut shelf = Shelf::new(budget, WAIT);
    for (name, sequence) in blocks {
        shelf.put(stored(name, *sequence), format!("reply.{sequence}"), now);
    }
    shelf
}

fn picked(shelf: &mut Shelf, now: Instant) -> Option<Ticket> {
    match shelf.pick(now) {
        Picked::Hand(_, ticket) => Some(ticket),
        Picked::Wait(_) => None,
    }
}

/// Everything that goes out now.
fn all(shelf: &mut Shelf, now: Instant) -> Vec<u64> {
    std::iter::from_fn(|| picked(shelf, now)).map(|ticket| ticket.sequence.0).collect()
}

const RETRY: Settlement = Settlement::Retry { after: Duration::ZERO };

#[test]
fn a_table_comes_in_sequence_and_tables_take_turns() {
    let now = Instant::now();
    let mut shelf = shelf(AMPLE, &[("a", 3), ("a", 1), ("a", 2), ("b", 9), ("b", 8)], now);
    assert_eq!(all(&mut shelf, now), [1, 8, 2, 9, 3]);
    assert_eq!(shelf.kept(), (5, RowBudget { rows: 5, bytes: 15 }));
}

#[test]
fn what_is_handed_back_comes_before_what_is_later_and_not_before_its_time() {
    let now = Instant::now();
    let mut shelf = shelf(AMPLE, &[("a", 1), ("a", 2), ("a", 3)], now);
    let (first, second) = (picked(&mut shelf, now).unwrap(), picked(&mut shelf, now).unwrap());
    shelf.settle(second, RETRY, now);
    shelf.settle(first, Settlement::Retry { after: S }, now);
    assert!(matches!(shelf.pick(now), Picked::Wait(Some(at)) if at == now + S));
    assert_eq!(all(&mut shelf, now + S), [1, 2, 3]);
}

#[test]
fn the_budget_counts_what_is_out_and_lets_one_block_out() {
    let now = Instant::now();
    let mut shelf = shelf(RowBudget { rows: 2, bytes: 1 << 20 }, &[("a", 1), ("a", 2), ("b", 3)], now);
    let (first, second) = (picked(&mut shelf, now).unwrap(), picked(&mut shelf, now).unwrap());
    assert_eq!(picked(&mut shelf, now), None);
    assert!(shelf.settle(first, Settlement::Ack, now));
    assert_eq!(picked(&mut shelf, now).map(|ticket| ticket.sequence.0), Some(2));
    shelf.set_budget(RowBudget { rows: 0, bytes: 0 });
    shelf.settle(second, RETRY, now);
    assert_eq!(picked(&mut shelf, now), None, "one is out");
}

#[test]
fn a_pause_stops_one_table() {
    let now = Instant::now();
    let mut shelf = shelf(AMPLE, &[("a", 1), ("b", 2)], now);
    shelf.pause(&table("a"), now + S);
    assert_eq!(all(&mut shelf, now), [2]);
    shelf.pause(&table("a"), now);
    assert_eq!(all(&mut shelf, now), [1]);
}

#[test]
fn what_is_not_settled_in_time_goes_out_again_and_only_its_ack_still_counts() {
    let now = Instant::now();
    let mut shelf = shelf(AMPLE, &[("a", 1), ("a", 2)], now);
    let (first, second) = (picked(&mut shelf, now).unwrap(), picked(&mut shelf, now).unwrap());
    let later = now + WAIT;
    assert_eq!(picked(&mut shelf, later).map(|ticket| (ticket.sequence.0, ticket.attempt)), Some((1, 2)));
    assert!(!shelf.settle(first, RETRY, later), "an overtaken attempt");
    assert!(shelf.settle(first, Settlement::Ack, later));
    assert!(shelf.settle(second, Settlement::Ack, later));
    assert!(!shelf.settle(second, Settlement::Ack, later), "once");
    assert_eq!((shelf.kept().0, all(&mut shelf, later)), (0, Vec::new()));
}

#[test]
fn a_delivery_that_comes_again_is_known() {
    let now = Instant::now();
    let mut shelf = shelf(AMPLE, &[("a", 1)], now);
    assert_eq!(shelf.meet(2, "reply"), Known::New);
    assert_eq!((shelf.meet(1, "another"), shelf.reply(1)), (Known::Held, Some("another")));
    let ticket = picked(&mut shelf, now).unwrap();
    shelf.settle(ticket, Settlement::Ack, now);
    assert_eq!(
        (shelf.meet(1, "third"), shelf.reply(1)),
        (Known::Acked, Some("third")),
        "it wants another ack"
    );
    shelf.confirmed(1);
    assert_eq!((shelf.meet(1, "fourth"), shelf.reply(1)), (Known::Acked, Some("fourth")), "a moment ago");
    shelf.confirmed(1);
    assert_eq!(shelf.reply(1), None);
}

#[test]
fn what_is_known_of_a_range() {
    let now = Instant::now();
    let mut shelf = shelf(AMPLE, &[("a", 2), ("a", 5), ("b", 3)], now);
    shelf.put_damaged(&table("a"), 7, "reply.7".to_owned(), now);
    let a = table("a");
    assert!(!shelf.is_acked(&a, 1, 2) && shelf.is_acked(&a, 3, 4) && !shelf.is_acked(&a, 6, 7));
    assert!(
        shelf.is_damaged(&a, 6, 9) && !shelf.is_damaged(&a, 1, 6) && !shelf.is_damaged(&table("b"), 1, 9)
    );
    assert!(!shelf.handed_up_to(&a, 2) && shelf.handed_up_to(&a, 1));
    let tickets: Vec<Ticket> = std::iter::from_fn(|| picked(&mut shelf, now)).collect();
    assert!(shelf.handed_up_to(&a, 5) && shelf.is_behind(&a, 4) && !shelf.is_behind(&a, 5));
    for ticket in tickets {
        shelf.settle(ticket, Settlement::Ack, now);
    }
    assert!(shelf.is_acked(&a, 1, 5) && shelf.is_acked(&table("b"), 1, 9));
}

#[test]
fn what_cannot_be_read_is_known_until_it_is_buried() {
    let now = Instant::now();
    let (mut shelf, a) = (shelf(AMPLE, &[("a", 2)], now), table("a"));
    shelf.put_damaged(&a, 7, "reply.7".to_owned(), now);
    assert_eq!((shelf.meet(7, "again"), shelf.kept().0), (Known::Held, 2));
    shelf.let_go(7);
    assert!(shelf.is_damaged(&a, 7, 7) && shelf.reply(7).is_none(), "it is to come again");
    assert_eq!((shelf.meet(7, "third"), shelf.kept().0), (Known::New, 1));
    shelf.put_damaged(&a, 7, "third".to_owned(), now);
    shelf.buried(&a, 7);
    assert!(!shelf.is_damaged(&a, 7, 7) && shelf.is_acked(&a, 7, 7));
    assert_eq!((shelf.reply(7), shelf.kept().0), (Some("third"), 1), "it wants its ack");
    shelf.confirmed(7);
    shelf.buried(&a, 2);
    shelf.let_go(2);
    assert_eq!(all(&mut shelf, now), [2], "a block that can be read is neither");
}

#[test]
fn the_server_is_told_of_what_is_in_hand_from_time_to_time() {
    let now = Instant::now();
    let mut shelf = shelf(AMPLE, &[("a", 1), ("a", 2)], now);
    assert!(shelf.untold(now + S, 20 * S).is_empty());
    let ticket = picked(&mut shelf, now).unwrap();
    shelf.settle(ticket, Settlement::Ack, now);
    assert_eq!(shelf.untold(now + 20 * S, 20 * S), ["reply.2"], "not of what is acked");
    assert!(shelf.untold(now + 39 * S, 20 * S).is_empty());
    assert_eq!(shelf.untold(now + 40 * S, 20 * S), ["reply.2"]);
}
