//! How much of what a process may hold each of its units may: every unit has a little for sure, and borrows of the rest,
//! so that a flooded unit uses what the others leave without taking it all.

use crate::batcher::Load;

/// What every unit may hold, whatever the others do.
pub(crate) const GUARANTEED: Load = Load { rows: 1000, bytes: 1 << 20 };
/// A unit may borrow this part of what is free.
const BORROW: u64 = 4;

/// What each unit may hold, given what each holds now. Changes in steps of what is guaranteed, so that not every row
/// changes every unit's share.
pub(crate) fn shares(pool: Load, held: &[Load]) -> Vec<Load> {
    let rows: Vec<u64> = held.iter().map(|load| load.rows).collect();
    let bytes: Vec<u64> = held.iter().map(|load| load.bytes).collect();
    let rows = share_one(pool.rows, GUARANTEED.rows, &rows);
    let bytes = share_one(pool.bytes, GUARANTEED.bytes, &bytes);
    rows.into_iter().zip(bytes).map(|(rows, bytes)| Load { rows, bytes }).collect()
}

fn share_one(pool: u64, guaranteed: u64, held: &[u64]) -> Vec<u64> {
    let borrowed = |held: u64| held.saturating_sub(guaranteed);
    let lent: u64 = held.iter().map(|held| borrowed(*held)).sum();
    let free = pool.saturating_sub(guaranteed.saturating_mul(held.len() as u64));
    let share = |held: &u64| {
        let others = lent - borrowed(*held);
        let more = free.saturating_sub(others) / BORROW;
        guaranteed + more / guaranteed * guaranteed
    };
    held.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POOL: Load = Load { rows: 200_000, bytes: 256 << 20 };

    #[test]
    fn cases() {
        let none = Load::default();
        let of = |rows: u64| Load { rows, bytes: 0 };
        // Alone: a quarter of what is beyond its own.
        assert_eq!(shares(POOL, &[none])[0], Load { rows: 50_000, bytes: 64 << 20 });
        // Thirty-two that hold nothing.
        assert_eq!(shares(POOL, &[none; 32])[0].rows, 43_000);
        // What one has borrowed the others cannot.
        let shared = shares(POOL, &[of(43_000), none, none]);
        assert_eq!((shared[0].rows, shared[1].rows), (50_000, 39_000));
        // More units than the pool has room for: what is guaranteed stays.
        assert_eq!(shares(of(2000), &[of(900); 8])[0].rows, 1000);
    }

    proptest! {
        #[test]
        fn nobody_goes_without_and_the_pool_is_never_lent_twice(
            held in prop::collection::vec(0_u64..60_000, 1..40), pool in 1_000_u64..1_000_000,
        ) {
            let loads: Vec<Load> = held.iter().map(|rows| Load { rows: *rows, bytes: 0 }).collect();
            let rows: Vec<u64> = shares(Load { rows: pool, bytes: 0 }, &loads).iter().map(|share| share.rows).collect();
            prop_assert!(rows.iter().all(|rows| *rows >= GUARANTEED.rows));
            // One that fills its share leaves the sum within the pool, if it was.
            let sum = |held: &[u64]| held.iter().map(|rows| (*rows).max(GUARANTEED.rows)).sum::<u64>();
            if sum(&held) <= pool {
                for (at, share) in rows.iter().enumerate() {
                    let mut filled = held.clone();
                    filled[at] = filled[at].max(*share);
                    prop_assert!(sum(&filled) <= pool, "{:?} of {}", filled, pool);
                }
            }
        }
    }
}
