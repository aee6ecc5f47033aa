//! Who takes and gives up what, as members come and go.

use proptest::prelude::*;
use wavehouse_core::{PartitionId, Placement, ShardId};

use super::*;

fn view(partitions: u64, shards: u64) -> View {
    View(Placement::new(partitions, shards).unwrap())
}

fn member(slot: u16, session: &str) -> Member {
    Member { slot: MemberSlot(slot), session: session.to_owned(), view: None, held: BTreeSet::new() }
}

fn name(unit: UnitId) -> String {
    format!("WH_INGEST_{}/wh-ingest-{}", unit.partition.0, unit.shard.0)
}

/// One process and what it has.
struct Me {
    session: &'static str,
    view: View,
    memory: Memory,
    held: BTreeSet<UnitId>,
    leaving: BTreeSet<UnitId>,
}

impl Me {
    fn new(session: &'static str, view: View) -> Self {
        let (held, leaving) = (BTreeSet::new(), BTreeSet::new());
        Self { session, view, memory: Memory::default(), held, leaving }
    }

    /// Plans, and plans again when the others can read what it claims.
    fn look(&mut self, members: &[Member], former: &[Former], extras: &[UnitId]) -> Plan {
        let first = self.plan(members, former, extras);
        assert!(first.take.is_empty(), "taken before it was said");
        let mut said = members.to_vec();
        for me in said.iter_mut().filter(|member| member.session == self.session) {
            me.held.extend(&first.claim);
        }
        let second = self.plan(&said, former, extras);
        assert!(second.claim.is_empty() && second.give_up.is_empty());
        Plan { give_up: first.give_up, ..second }
    }

    fn plan(&mut self, members: &[Member], former: &[Former], extras: &[UnitId]) -> Plan {
        let world = World {
            view: self.view,
            extras,
            members,
            former,
            session: self.session,
            held: &self.held,
            leaving: &self.leaving,
        };
        let plan = plan(&mut self.memory, &world, &name);
        for unit in &plan.give_up {
            self.held.remove(unit);
            self.leaving.insert(*unit);
        }
        self.held.extend(plan.take.iter().map(|(unit, _)| *unit));
        plan
    }

    fn as_member(&self, slot: u16) -> Member {
        let held = self.held.union(&self.leaving).copied().collect();
        Member { held, ..member(slot, self.session) }
    }
}

fn fences(plan: &Plan) -> Vec<Option<TakeOver>> {
    plan.take.iter().map(|(_, how)| *how).collect()
}

fn former(member: Member, how: TakeOver) -> Former {
    Former { member, how }
}

#[test]
fn alone_everything_is_taken_over_and_then_kept() {
    let mut a = Me::new("a", view(2, 4));
    let members = [member(0, "a")];
    let first = a.look(&members, &[], &[]);
    assert_eq!(fences(&first), [Some(TakeOver::Lapsed); 8]);
    assert!(first.lowest && first.give_up.is_empty());
    assert_eq!(a.look(&members, &[], &[]), Plan { lowest: true, ..Plan::default() });
}

#[test]
fn before_it_has_a_slot_it_takes_nothing_and_is_still_alone_when_it_has_one() {
    let mut a = Me::new("a", view(1, 2));
    assert_eq!(a.look(&[], &[], &[]), Plan::default());
    assert_eq!(fences(&a.look(&[member(0, "a")], &[], &[])), [Some(TakeOver::Lapsed); 2]);
}

#[test]
fn what_another_has_is_waited_for_until_it_is_given_up() {
    let (mut a, mut b) = (Me::new("a", view(2, 4)), Me::new("b", view(2, 4)));
    a.look(&[member(0, "a")], &[], &[]);
    let members = [a.as_member(0), member(1, "b")];
    assert_eq!(b.look(&members, &[], &[]), Plan::default(), "all of it is held");
    let given = a.look(&members, &[], &[]).give_up;
    assert_eq!(given.len(), 4);
    assert_eq!(b.look(&[a.as_member(0), member(1, "b")], &[], &[]), Plan::default(), "not yet released");
    a.leaving.clear();
    let taken = b.look(&[a.as_member(0), member(1, "b")], &[], &[]);
    assert_eq!(taken.take.iter().map(|(unit, _)| *unit).collect::<Vec<_>>(), given);
    assert_eq!(fences(&taken), [None; 4], "a handover needs no fence");
    assert!(!taken.lowest);
}

#[test]
fn the_units_of_one_that_is_gone_are_taken_over_as_it_is_gone() {
    for how in [TakeOver::Lapsed, TakeOver::Suspected] {
        let mut b = Me::new("b", view(2, 4));
        b.look(&[member(0, "a"), member(1, "b")], &[], &[]);
        let plan = b.look(&[member(1, "b")], &[former(member(0, "a"), how)], &[]);
        assert_eq!(fences(&plan), [Some(how); 4]);
    }
}

#[test]
fn one_that_has_given_its_slot_back_needs_no_fence_and_one_whose_slot_is_anothers_does() {
    let mut b = Me::new("b", view(2, 4));
    b.look(&[member(0, "a"), member(1, "b")], &[], &[]);
    assert_eq!(fences(&b.look(&[member(1, "b")], &[], &[])), [None; 4]);
    let (mut b, mut c) = (Me::new("b", view(2, 4)), Me::new("c", view(2, 4)));
    for me in [&mut b, &mut c] {
        me.look(&[member(0, "a"), member(1, me.session)], &[], &[]);
    }
    let taken = b.look(&[member(0, "c"), member(1, "b")], &[], &[]);
    assert_eq!(taken.take, [], "the split is the same");
    let taken = b.look(&[member(1, "b")], &[former(member(0, "c"), TakeOver::Suspected)], &[]);
    assert_eq!(fences(&taken), [Some(TakeOver::Suspected); 4]);
    let taken = c.look(&[member(0, "c"), member(1, "b")], &[], &[]);
    assert!(fences(&taken).iter().all(|fence| *fence == Some(TakeOver::Lapsed)), "{taken:?}");
}

#[test]
fn one_that_dies_during_a_handover_is_fenced_off() {
    let (mut a, mut b) = (Me::new("a", view(2, 4)), Me::new("b", view(2, 4)));
    a.look(&[member(0, "a")], &[], &[]);
    b.look(&[a.as_member(0), member(1, "b")], &[], &[]);
    b.look(&[a.as_member(0), member(1, "b")], &[], &[]);
    let plan = b.look(&[member(1, "b")], &[former(member(0, "a"), TakeOver::Suspected)], &[]);
    assert_eq!(fences(&plan), [Some(TakeOver::Suspected); 8]);
}

#[test]
fn a_successor_in_the_same_slot_fences_its_former_life_off() {
    let mut again = Me::new("a2", view(1, 4));
    assert_eq!(again.look(&[member(0, "a1"), member(1, "b")], &[], &[]), Plan::default());
    let gone = former(member(0, "a1"), TakeOver::Suspected);
    let plan = again.look(&[member(0, "a2"), member(1, "b")], &[gone], &[]);
    assert_eq!(fences(&plan), [Some(TakeOver::Suspected); 2]);
}

#[test]
fn a_unit_that_was_lost_is_fenced_before_it_is_opened_again() {
    let mut a = Me::new("a", view(1, 2));
    let members = [member(0, "a"), member(1, "b")];
    let unit = a.look(&members, &[], &[]).take[0].0;
    a.held.remove(&unit);
    a.memory.lost(unit);
    assert_eq!(a.look(&members, &[], &[]).take, [(unit, Some(TakeOver::Lapsed))]);
    // What is another's by then is forgotten.
    a.held.remove(&unit);
    a.memory.lost(unit);
    a.look(&[member(1, "b")], &[], &[]);
    assert_eq!(a.look(&members, &[], &[]).take, [(unit, None)]);
}

#[test]
fn without_a_slot_everything_is_given_up() {
    let mut a = Me::new("a", view(1, 4));
    a.look(&[member(0, "a")], &[], &[]);
    assert_eq!(a.look(&[member(1, "b")], &[], &[]).give_up.len(), 4);
}

#[test]
fn extras_are_shared_out_apart() {
    let extra = |shard| UnitId { partition: PartitionId(0), shard: ShardId(shard) };
    let members = [member(0, "a"), member(1, "b")];
    let configured = |extras: &[UnitId]| {
        let mut a = Me::new("a", view(1, 4));
        let taken = a.look(&members, &[], extras).take;
        taken.into_iter().map(|(unit, _)| unit).filter(|unit| unit.shard.0 < 4).collect::<Vec<_>>()
    };
    assert_eq!(configured(&[]), configured(&[extra(5), extra(6), extra(7)]));
    let (mut a, mut b) = (Me::new("a", view(1, 4)), Me::new("b", view(1, 4)));
    let extras = [extra(4), extra(5)];
    a.look(&members, &[], &extras);
    b.look(&members, &[], &extras);
    assert!(a.held.len() == 3 && b.held.len() == 3 && a.held.is_disjoint(&b.held));
}

proptest! {
    /// However the counts are mixed: all units of all views are read, each by one who knows it.
    #[test]
    fn mixed_views_cover_every_unit_once(
        counts in prop::collection::vec((1_u64..4, 1_u64..9), 1..5),
    ) {
        let sessions = ["a", "b", "c", "d"];
        let view_of = |at: usize| view(counts[at].0, counts[at].1);
        let members: Vec<Member> = (0..counts.len())
            .map(|at| Member { view: Some(view_of(at)), ..member(u16::try_from(at).unwrap(), sessions[at]) })
            .collect();
        let mut read = BTreeSet::new();
        for (at, session) in sessions.iter().enumerate().take(counts.len()) {
            let mut me = Me::new(session, view_of(at));
            me.look(&members, &[], &[]);
            for unit in &me.held {
                prop_assert!(view_of(at).contains(*unit));
                prop_assert!(read.insert(*unit), "{unit} is read twice");
            }
        }
        let all: BTreeSet<UnitId> = (0..counts.len()).flat_map(|at| view_of(at).0.units()).collect();
        prop_assert_eq!(read, all);
    }

    /// Processes that look one after the other, with releases in between, come to the same division.
    #[test]
    fn every_order_of_joining_ends_in_one_division(order in Just([0_usize, 1, 2, 3]).prop_shuffle(), joined in 1_usize..5) {
        let sessions = ["a", "b", "c", "d"];
        let mut all: Vec<Me> = sessions.iter().map(|session| Me::new(session, view(2, 6))).collect();
        let mut present: Vec<usize> = Vec::new();
        for newcomer in order.into_iter().take(joined) {
            present.push(newcomer);
            for _round in 0..3 {
                for at in present.clone() {
                    let members: Vec<Member> =
                        present.iter().map(|at| all[*at].as_member(u16::try_from(*at).unwrap())).collect();
                    all[at].look(&members, &[], &[]);
                    all[at].leaving.clear();
                }
            }
        }
        let cap = 12_usize.div_ceil(present.len());
        let held: Vec<usize> = present.iter().map(|at| all[*at].held.len()).collect();
        prop_assert_eq!(held.iter().sum::<usize>(), 12);
        prop_assert!(held.iter().all(|held| *held <= cap), "{:?}", held);
        let distinct: BTreeSet<UnitId> = present.iter().flat_map(|at| all[*at].held.clone()).collect();
        prop_assert_eq!(distinct.len(), 12);
    }
}
