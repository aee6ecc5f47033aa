//! Which unit a table belongs to: a pure function of its name and the two counts.
//!
//! Every process computes it for itself, so it may never change. The scope has no part in it: all rows of a table stay
//! in one shard and in order.

use crate::escape::escape_token;
use crate::ids::{PartitionId, ShardId, TableRef, UnitId};

/// Most partitions of a queue. Each is a stream with its own bytes on disk.
pub const PARTITIONS_MAX: u16 = 1024;
/// Most shards of a partition. Permissions and Raft groups grow with it.
pub const SHARDS_MAX: u16 = 256;

/// A count that no queue can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// The number of partitions is out of bounds.
    #[error("{0} partitions is not 1 to {PARTITIONS_MAX}")]
    Partitions(u64),
    /// The number of shards is out of bounds.
    #[error("{0} shards is not 1 to {SHARDS_MAX}")]
    Shards(u64),
}

/// How a queue is divided: N partitions of V shards each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Placement {
    partitions: u16,
    shards: u16,
}

impl Placement {
    /// A queue that is not divided, as the embedded one: its only unit is [`UnitId::WHOLE`].
    pub const WHOLE: Self = Self { partitions: 1, shards: 1 };

    /// Checks and takes the two counts.
    ///
    /// # Errors
    /// [`PlacementError`] when a count is zero or over [`PARTITIONS_MAX`] or [`SHARDS_MAX`].
    pub fn new(partitions: u64, shards: u64) -> Result<Self, PlacementError> {
        let within =
            |count: u64, max: u16| u16::try_from(count).ok().filter(|count| (1..=max).contains(count));
        Ok(Self {
            partitions: within(partitions, PARTITIONS_MAX).ok_or(PlacementError::Partitions(partitions))?,
            shards: within(shards, SHARDS_MAX).ok_or(PlacementError::Shards(shards))?,
        })
    }

    /// The number of partitions, N.
    #[must_use]
    pub fn partitions(self) -> u16 {
        self.partitions
    }

    /// The number of shards in each partition, V.
    #[must_use]
    pub fn shards(self) -> u16 {
        self.shards
    }

    /// The unit that holds a table's rows.
    #[must_use]
    pub fn unit_for(self, table: &TableRef) -> UnitId {
        let key = route_key(table);
        UnitId {
            partition: PartitionId(jump(key, self.partitions)),
            shard: ShardId(jump(mix64(key), self.shards)),
        }
    }

    /// Every unit, partition by partition.
    pub fn units(self) -> impl Iterator<Item = UnitId> {
        (0..self.partitions).flat_map(move |partition| {
            (0..self.shards)
                .map(move |shard| UnitId { partition: PartitionId(partition), shard: ShardId(shard) })
        })
    }

    /// Whether a unit is one of this queue's.
    #[must_use]
    pub fn contains(self, unit: UnitId) -> bool {
        unit.partition.0 < self.partitions && unit.shard.0 < self.shards
    }
}

/// FNV-1a over 64 bits.
pub(crate) fn fnv1a(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The finalizer of splitmix64: without it, partition and shard would depend on each other and leave shards empty.
pub(crate) fn mix64(mut key: u64) -> u64 {
    key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

/// What a table is placed by: its subject tail. The tenant is its own escaped form.
fn route_key(table: &TableRef) -> u64 {
    fnv1a(&[table.tenant.as_str().as_bytes(), b".", escape_token(table.table.as_str()).as_bytes()])
}

/// Jump consistent hash (Lamping and Veach): growing from n to m buckets moves only what lands in the new ones.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the algorithm is defined on doubles that are cut off to integers; every value here is below 2^53"
)]
fn jump(mut key: u64, buckets: u16) -> u16 {
    let (mut bucket, mut candidate) = (0_u16, 0_i64);
    while candidate < i64::from(buckets) {
        bucket = u16::try_from(candidate).unwrap_or_default();
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let scale = 2_147_483_648.0 / ((key >> 33) + 1) as f64;
        candidate = ((f64::from(bucket) + 1.0) * scale) as i64;
    }
    bucket
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::{TableName, TenantId};

    fn table(tenant: &str, table: &str) -> TableRef {
        TableRef::new(TenantId::parse(tenant).unwrap(), TableName::parse(table).unwrap())
    }

    type Vector = (&'static str, &'static str, u64, u64, [(u16, u16); 6]);

    const COUNTS: [(u64, u64); 6] = [(1, 32), (2, 2), (4, 8), (4, 32), (8, 8), (5, 9)];
    const VECTORS: [Vector; 6] = [
        (
            "acme",
            "events",
            0xbb13_6c07_7452_5076,
            0xa9b3_3b15_b6f3_f0d8,
            [(0, 22), (0, 0), (2, 0), (2, 22), (2, 0), (2, 0)],
        ),
        (
            "acme",
            "orders",
            0x6845_9040_44b1_e8d2,
            0x28bb_fbb6_c710_881c,
            [(0, 13), (1, 0), (2, 5), (2, 13), (5, 5), (4, 5)],
        ),
        (
            "acme",
            "t",
            0x6a60_4646_dec3_6505,
            0x677c_ce71_e691_97c9,
            [(0, 15), (1, 1), (3, 6), (3, 15), (6, 6), (3, 6)],
        ),
        (
            "acme",
            "t0",
            0x84fc_9f6c_8604_f90f,
            0x8770_3a74_a23b_8a4f,
            [(0, 6), (0, 0), (3, 6), (3, 6), (5, 6), (3, 6)],
        ),
        (
            "globex",
            "events",
            0x5bcd_39cd_f3a7_bb81,
            0xc996_bd7f_2415_b245,
            [(0, 26), (1, 0), (3, 4), (3, 26), (3, 4), (3, 4)],
        ),
        (
            "initech",
            "a*b>c",
            0xca89_8bac_295c_84bc,
            0xd0c3_ee4f_2de4_10d9,
            [(0, 6), (1, 0), (1, 6), (1, 6), (1, 6), (1, 6)],
        ),
    ];

    #[test]
    fn tables_lie_where_they_have_always_lain() {
        for (tenant, name, key, mixed, units) in VECTORS {
            let table = table(tenant, name);
            assert_eq!((route_key(&table), mix64(key)), (key, mixed), "{table}");
            for ((partitions, shards), (p, s)) in COUNTS.into_iter().zip(units) {
                let unit = Placement::new(partitions, shards).unwrap().unit_for(&table);
                assert_eq!(
                    unit,
                    UnitId { partition: PartitionId(p), shard: ShardId(s) },
                    "{table} in {partitions}x{shards}"
                );
            }
        }
    }

    /// Percent of tables that move, and whether any lands in a partition that was there before.
    fn moved(before: u64, after: u64) -> (f64, bool) {
        const TABLES: u32 = 20_000;
        let [old, new] = [before, after].map(|count| Placement::new(count, 8).unwrap());
        let (mut moved, mut into_old) = (0, false);
        for i in 0..TABLES {
            let table = table("acme", &format!("t{i}"));
            let (from, to) = (old.unit_for(&table), new.unit_for(&table));
            assert_eq!(from.shard, to.shard, "the shard does not depend on the partitions");
            if from != to {
                moved += 1;
                into_old |= u64::from(to.partition.0) < before;
            }
        }
        (f64::from(moved) * 100.0 / f64::from(TABLES), into_old)
    }

    #[test]
    fn growth_moves_the_share_of_the_new_partitions_and_into_them_alone() {
        for (before, after, percent) in [(4, 5, 20.0), (4, 8, 50.0), (1, 4, 75.0)] {
            let (share, into_old) = moved(before, after);
            assert!((share - percent).abs() < 1.5, "{before} to {after} moved {share} %, not {percent}");
            assert!(!into_old, "{before} to {after}: a table moved between old partitions");
        }
    }

    #[test]
    fn shrinking_moves_the_tables_of_the_removed_partitions_alone() {
        let [old, new] = [8, 5].map(|count| Placement::new(count, 8).unwrap());
        for i in 0..5_000 {
            let table = table("acme", &format!("t{i}"));
            let (from, to) = (old.unit_for(&table), new.unit_for(&table));
            assert_eq!(from != to, from.partition.0 >= 5, "{table}");
        }
    }

    #[test]
    fn shards_move_the_same_way_and_partitions_stay() {
        let [old, new] = [8, 16].map(|count| Placement::new(4, count).unwrap());
        let mut moved = 0;
        for i in 0..10_000 {
            let table = table("acme", &format!("t{i}"));
            let (from, to) = (old.unit_for(&table), new.unit_for(&table));
            assert_eq!(from.partition, to.partition);
            assert!(from.shard == to.shard || to.shard.0 >= 8, "{table}");
            moved += u32::from(from != to);
        }
        assert!((4_800..5_200).contains(&moved), "{moved} of 10,000 moved");
    }

    #[test]
    fn no_unit_stays_empty() {
        let placement = Placement::new(4, 8).unwrap();
        let mut used = std::collections::BTreeSet::new();
        for i in 0..2_000 {
            used.insert(placement.unit_for(&table("acme", &format!("t{i}"))));
        }
        assert_eq!(used.into_iter().collect::<Vec<_>>(), placement.units().collect::<Vec<_>>());
    }

    // Case 117.
    #[test]
    fn counts_are_bounded() {
        assert_eq!(Placement::new(0, 1), Err(PlacementError::Partitions(0)));
        assert_eq!(Placement::new(1025, 1), Err(PlacementError::Partitions(1025)));
        assert_eq!(Placement::new(1, 0), Err(PlacementError::Shards(0)));
        assert_eq!(Placement::new(1, 257), Err(PlacementError::Shards(257)));
        assert_eq!(Placement::new(1, 1), Ok(Placement::WHOLE));
        assert_eq!(Placement::WHOLE.units().collect::<Vec<_>>(), [UnitId::WHOLE]);
    }

    proptest! {
        #[test]
        fn every_table_has_a_unit_of_the_queue(
            name in "[^\\p{Cc}]{1,20}", partitions in 1_u64..=1024, shards in 1_u64..=256,
        ) {
            let placement = Placement::new(partitions, shards).unwrap();
            prop_assert!(placement.contains(placement.unit_for(&table("0", &name))));
        }
    }
}
