//! What a lease says: who holds it, for how long it counts, and how its holder sees the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wavehouse_core::{PartitionId, Placement, ShardId, UnitId};

/// Longest text of another process that is believed. Longer ones are cut off nowhere: the value counts as unreadable.
const TEXT_BYTES_MAX: usize = 1024;

/// How a process was told that the queue is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View(pub(crate) Placement);

impl View {
    pub(crate) fn contains(self, unit: UnitId) -> bool {
        self.0.contains(unit)
    }
}

/// Units of each partition: the bits of its shards, lowest first, four to a hexadecimal digit.
type Bits = BTreeMap<u16, String>;

/// Longest list of units that is told, in bytes; beyond it others do not wait for a unit to be given up.
const HELD_BYTES_MAX: usize = 32 << 10;

fn to_bits(units: &BTreeSet<UnitId>) -> Bits {
    let mut digits: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    for unit in units {
        let (at, bit) = (usize::from(unit.shard.0 / 4), unit.shard.0 % 4);
        let of_partition = digits.entry(unit.partition.0).or_default();
        of_partition.resize(of_partition.len().max(at + 1), 0);
        of_partition[at] |= 1 << bit;
    }
    let text = |digits: Vec<u8>| digits.into_iter().map(|digit| format!("{digit:x}")).collect();
    digits.into_iter().map(|(partition, digits)| (partition, text(digits))).collect()
}

fn from_bits(bits: &Bits) -> BTreeSet<UnitId> {
    let of_partition = |(partition, digits): (&u16, &String)| {
        let partition = PartitionId(*partition);
        let of_digit = move |(at, digit): (usize, char)| {
            let bits = digit.to_digit(16).unwrap_or(0);
            let set = (0..4).filter(move |bit| bits & (1 << bit) != 0);
            set.filter_map(move |bit| u16::try_from(at * 4 + bit).ok())
        };
        let shards: Vec<u16> = digits.chars().enumerate().flat_map(of_digit).collect();
        shards.into_iter().map(move |shard| UnitId { partition, shard: ShardId(shard) })
    };
    bits.iter().flat_map(of_partition).collect()
}

#[derive(Serialize, Deserialize)]
struct Json {
    holder: String,
    duration_ms: u64,
    session: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partitions: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shards: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    live: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    held: Bits,
}

/// A lease's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseValue {
    /// The instance id.
    pub(crate) holder: String,
    /// How long the lease counts after a change.
    pub(crate) duration: Duration,
    /// One life of one process: two processes of one instance id still compete.
    pub(crate) session: String,
    /// How the holder sees the queue; none if it does not say.
    pub(crate) view: Option<View>,
    /// The holder's version.
    pub(crate) version: Option<String>,
    /// The name under which the holder answers; none if it cannot.
    pub(crate) live: Option<String>,
    /// The units that the holder has, or is about to have or to give up. Whoever they are for waits until they are not in
    /// here any more, for opening a unit fences off whoever has it.
    pub(crate) held: BTreeSet<UnitId>,
}

impl LeaseValue {
    pub(crate) fn to_bytes(&self) -> Bytes {
        let held = Some(to_bits(&self.held))
            .filter(|bits| bits.values().map(|digits| digits.len() + 12).sum::<usize>() <= HELD_BYTES_MAX);
        let json = Json {
            held: held.unwrap_or_default(),
            holder: self.holder.clone(),
            duration_ms: u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX),
            session: self.session.clone(),
            partitions: self.view.map(|view| u64::from(view.0.partitions())),
            shards: self.view.map(|view| u64::from(view.0.shards())),
            version: self.version.clone(),
            live: self.live.clone(),
        };
        serde_json::to_vec(&json).unwrap_or_default().into()
    }

    /// Reads another's value. What cannot be read is held by somebody unknown for as long as ours would be.
    pub(crate) fn parse(bytes: &[u8], ours: Duration) -> Self {
        let unknown = |session: String| Self {
            holder: String::new(),
            duration: ours,
            session,
            view: None,
            version: None,
            live: None,
            held: BTreeSet::new(),
        };
        let Ok(json) = serde_json::from_slice::<Json>(bytes) else {
            return unknown(String::new());
        };
        if [&json.holder, &json.session].iter().any(|text| text.len() > TEXT_BYTES_MAX) {
            return unknown(String::new());
        }
        let placement = json.partitions.zip(json.shards).map(|(n, v)| Placement::new(n, v));
        Self {
            held: from_bits(&json.held),
            holder: json.holder,
            // Nobody keeps a name for long by saying so.
            duration: Some(Duration::from_millis(json.duration_ms))
                .filter(|said| !said.is_zero())
                .map_or(ours, |said| said.min(ours * 4)),
            session: json.session,
            view: placement.and_then(Result::ok).map(View),
            version: json.version,
            live: json.live.filter(|live| live.len() <= TEXT_BYTES_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Duration = Duration::from_secs(15);

    fn unit(partition: u16, shard: u16) -> UnitId {
        UnitId { partition: PartitionId(partition), shard: ShardId(shard) }
    }

    #[test]
    fn what_is_written_is_read() {
        let value = LeaseValue {
            holder: "host-1".to_owned(),
            duration: OURS,
            session: "abc".to_owned(),
            view: Some(View(Placement::new(4, 8).unwrap())),
            version: Some("1.2.3".to_owned()),
            live: Some("abc".to_owned()),
            held: [(0, 0), (0, 5), (3, 7)].map(|(p, s)| unit(p, s)).into(),
        };
        let text = String::from_utf8(value.to_bytes().to_vec()).unwrap();
        assert_eq!(
            text,
            r#"{"holder":"host-1","duration_ms":15000,"session":"abc","partitions":4,"shards":8,"version":"1.2.3","live":"abc","held":{"0":"12","3":"08"}}"#
        );
        assert_eq!(LeaseValue::parse(text.as_bytes(), OURS), value);
    }

    #[test]
    fn what_others_may_have_written() {
        let parse = |text: &str| LeaseValue::parse(text.as_bytes(), OURS);
        let bare = parse(r#"{"holder":"a","duration_ms":20000,"session":"s","more":1}"#);
        assert_eq!((bare.view, bare.live, bare.duration), (None, None, Duration::from_secs(20)));
        assert_eq!(parse(r#"{"holder":"a","duration_ms":0,"session":"s"}"#).duration, OURS);
        assert_eq!(parse(r#"{"holder":"a","duration_ms":9000000000,"session":"s"}"#).duration, OURS * 4);
        assert_eq!(
            parse(r#"{"holder":"a","duration_ms":1,"session":"s","partitions":0,"shards":9}"#).view,
            None
        );
        let held = parse(r#"{"holder":"a","duration_ms":1,"session":"s","held":{"2":"x1z"}}"#).held;
        assert_eq!(held, [unit(2, 4)].into());
        for junk in ["", "{}", "[1]", "\u{0}"] {
            let unknown = parse(junk);
            assert_eq!((unknown.holder.as_str(), unknown.duration), ("", OURS), "{junk}");
        }
    }
}
