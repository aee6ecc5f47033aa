//! Which member holds which unit: rendezvous hashing with a cap.
//!
//! Every member computes the same answer from the same list, with nobody to ask. Each unit ranks the members by a hash of
//! the pair; units choose in the order of their best score, and nobody holds more than an even share, rounded up. A member
//! that joins or leaves therefore moves little more than its own share.

use std::collections::BTreeMap;

use crate::placement::{fnv1a, mix64};

/// Most members that share a queue's units. More processes may run; they wait for a free slot.
pub const MEMBERS_MAX: u16 = 64;

/// The place of one process among those that share the units.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MemberSlot(pub u16);

/// How well a unit and a slot fit; higher is better.
#[must_use]
pub fn score(unit: &str, slot: MemberSlot) -> u64 {
    mix64(fnv1a(&[unit.as_bytes(), &[0], slot.0.to_string().as_bytes()]))
}

/// Gives every unit to one of the slots. Depends on what is in the lists, not on their order; what is there twice counts
/// once. `eligible` says whether a member knows a unit at all: a unit goes to nobody else, over the cap if need be, and to
/// nobody when none is eligible.
#[must_use]
pub fn assign<'a>(
    units: &[&'a str],
    slots: &[MemberSlot],
    eligible: impl Fn(&str, MemberSlot) -> bool,
) -> BTreeMap<&'a str, MemberSlot> {
    let sorted_unique = |mut slots: Vec<MemberSlot>| {
        slots.sort_unstable();
        slots.dedup();
        slots
    };
    let slots = sorted_unique(slots.to_vec());
    let mut ranked: Vec<(&'a str, Vec<(u64, MemberSlot)>)> = Vec::new();
    for unit in units {
        let mut ranks: Vec<_> = slots.iter().map(|slot| (score(unit, *slot), *slot)).collect();
        ranks.sort_unstable_by_key(|(score, slot)| (std::cmp::Reverse(*score), *slot));
        ranked.push((unit, ranks));
    }
    let best = |ranks: &[(u64, MemberSlot)]| std::cmp::Reverse(ranks.first().map(|(score, _)| *score));
    ranked.sort_unstable_by(|(a, a_ranks), (b, b_ranks)| (best(a_ranks), a).cmp(&(best(b_ranks), b)));
    ranked.dedup_by(|(a, _), (b, _)| a == b);

    let cap = ranked.len().div_ceil(slots.len().max(1));
    let mut held: BTreeMap<MemberSlot, usize> = BTreeMap::new();
    let mut assignment = BTreeMap::new();
    for (unit, ranks) in ranked {
        let load = |slot: MemberSlot| held.get(&slot).copied().unwrap_or(0);
        let fit: Vec<_> = ranks.iter().map(|(_, slot)| *slot).filter(|slot| eligible(unit, *slot)).collect();
        let free = fit.iter().copied().find(|slot| load(*slot) < cap);
        // `min_by_key` keeps the first of equals, which is the better ranked.
        if let Some(slot) = free.or_else(|| fit.iter().copied().min_by_key(|slot| load(*slot))) {
            *held.entry(slot).or_default() += 1;
            assignment.insert(unit, slot);
        }
    }
    assignment
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unit_names(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("WH_INGEST_{}/wh-ingest-{}", i / 8, i % 8)).collect()
    }

    fn among(names: &[String], slots: &[u16]) -> BTreeMap<String, u16> {
        let units: Vec<_> = names.iter().map(String::as_str).collect();
        let slots: Vec<_> = slots.iter().map(|slot| MemberSlot(*slot)).collect();
        let assignment = assign(&units, &slots, |_, _| true);
        assignment.into_iter().map(|(unit, slot)| (unit.to_owned(), slot.0)).collect()
    }

    fn moved(from: &BTreeMap<String, u16>, to: &BTreeMap<String, u16>) -> usize {
        from.iter().filter(|(unit, slot)| to.get(*unit) != Some(*slot)).count()
    }

    fn loads(assignment: &BTreeMap<String, u16>, slots: u16) -> Vec<usize> {
        let of = |slot: u16| assignment.values().filter(|held| **held == slot).count();
        let mut loads: Vec<_> = (0..slots).map(of).collect();
        loads.sort_unstable_by(|a, b| b.cmp(a));
        loads
    }

    #[test]
    fn case_94_thirty_two_units_among_three() {
        let names = unit_names(32);
        let assignment = among(&names, &[0, 1, 2]);
        let found: Vec<_> = names.iter().map(|unit| assignment[unit]).collect();
        let golden =
            [1, 0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 2, 2, 2, 0, 1, 0, 1, 0, 2, 0, 1, 1, 1, 2, 0, 2, 1, 1, 2];
        assert_eq!(found, golden);
    }

    #[test]
    fn case_94_scores_are_the_known_ones() {
        assert_eq!(score("WH_INGEST_0/wh-ingest-0", MemberSlot(0)), 3_079_186_695_928_624_360);
        assert_eq!(score("WH_INGEST_0/wh-ingest-0", MemberSlot(1)), 15_468_724_262_673_297_845);
    }

    #[test]
    fn case_94_one_that_joins_moves_as_much_as_it_always_did() {
        let table: [(u16, usize, &[usize]); 12] = [
            (1, 16, &[16, 16]),
            (2, 11, &[11, 11, 10]),
            (3, 11, &[8; 4]),
            (4, 8, &[7, 7, 7, 6, 5]),
            (5, 7, &[6, 6, 6, 5, 5, 4]),
            (6, 6, &[5, 5, 5, 5, 4, 4, 4]),
            (7, 8, &[4; 8]),
            (8, 3, &[4, 4, 4, 4, 4, 4, 4, 3, 1]),
            (9, 6, &[4, 4, 4, 4, 4, 3, 3, 3, 2, 1]),
            (10, 10, &[3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2]),
            (15, 7, &[2; 16]),
            (31, 13, &[1; 32]),
        ];
        let names = unit_names(32);
        let with = |members: u16| among(&names, &(0..members).collect::<Vec<_>>());
        for (members, expected, expected_loads) in table {
            let (before, after) = (with(members), with(members + 1));
            assert_eq!(moved(&before, &after), expected, "{members} to {}", members + 1);
            assert_eq!(loads(&after, members + 1), expected_loads, "{} members", members + 1);
        }
    }

    #[test]
    fn case_94_up_to_six_members_little_more_than_the_ideal_moves() {
        let names = unit_names(32);
        for members in 1_u16..6 {
            let slots: Vec<_> = (0..=members).collect();
            let count = moved(&among(&names, &slots[..usize::from(members)]), &among(&names, &slots));
            assert!(count * 2 * slots.len() <= 3 * 32 + 2 * slots.len(), "{count} moved to {members} + 1");
        }
    }

    #[test]
    fn case_94_one_that_leaves_moves_its_own() {
        let names = unit_names(32);
        let (before, after) = (among(&names, &[0, 1, 2, 3, 4]), among(&names, &[0, 1, 3, 4]));
        assert_eq!(before.values().filter(|slot| **slot == 2).count(), 5);
        assert_eq!(moved(&before, &after), 5);
    }

    #[test]
    fn case_94_up_to_six_members_a_leaver_moves_at_most_twice_its_own() {
        let names = unit_names(32);
        for members in 2_u16..=6 {
            let before = among(&names, &(0..members).collect::<Vec<_>>());
            for leaver in 0..members {
                let rest: Vec<_> = (0..members).filter(|slot| *slot != leaver).collect();
                let own = before.values().filter(|slot| **slot == leaver).count();
                let count = moved(&before, &among(&names, &rest));
                assert!(count <= 2 * own, "{leaver} of {members} had {own}, and {count} moved");
            }
        }
    }

    #[test]
    fn a_unit_goes_only_to_members_who_know_it() {
        let units = ["a", "b", "c", "d"];
        let slots = [MemberSlot(0), MemberSlot(1)];
        let only_zero = assign(&units, &slots, |unit, slot| unit != "d" || slot == MemberSlot(0));
        assert_eq!((only_zero.len(), only_zero["d"]), (4, MemberSlot(0)));
        let none = assign(&units, &slots, |unit, _| unit != "d");
        assert_eq!((none.len(), none.get("d")), (3, None));
        let all_in_one = assign(&units, &slots, |_, slot| slot == MemberSlot(1));
        assert!(all_in_one.len() == 4 && all_in_one.values().all(|slot| *slot == MemberSlot(1)));
    }

    #[test]
    fn without_members_nothing_is_held() {
        assert!(assign(&["a"], &[], |_, _| true).is_empty());
        assert!(assign(&[], &[MemberSlot(0)], |_, _| true).is_empty());
    }

    proptest! {
        #[test]
        fn case_94_shares_are_capped_and_the_order_of_lists_does_not_matter(
            count in prop_oneof![Just(16_usize), Just(32), Just(64), 1_usize..80],
            slots in proptest::collection::btree_set(0_u16..64, 1..12),
            seed in any::<u64>(),
        ) {
            let names = unit_names(count);
            let slots: Vec<_> = slots.into_iter().collect();
            let assignment = among(&names, &slots);
            prop_assert_eq!(assignment.len(), count);
            let cap = count.div_ceil(slots.len());
            for slot in &slots {
                prop_assert!(assignment.values().filter(|held| *held == slot).count() <= cap);
            }
            let mut shuffled = names.clone();
            shuffled.sort_by_key(|name| fnv1a(&[name.as_bytes(), &seed.to_le_bytes()]));
            shuffled.push(names[0].clone());
            let reversed: Vec<_> = slots.iter().rev().chain(slots.first()).copied().collect();
            prop_assert_eq!(among(&shuffled, &reversed), assignment);
        }

        #[test]
        fn case_94_a_join_never_moves_more_than_half_from_two_on(members in 2_u16..20) {
            let names = unit_names(32);
            let slots: Vec<_> = (0..=members).collect();
            let before = among(&names, &slots[..usize::from(members)]);
            prop_assert!(moved(&before, &among(&names, &slots)) <= 16);
        }
    }
}
