//! What a durable's state says: pure.

use std::time::Duration;

use wavehouse_core::{SubjectPrefix, Timestamp};
use wavehouse_nats::{ConsumerInfo, SequenceInfo};
use wavehouse_topology::limits::PINNED_TTL_MIN;

/// Whether somebody is pinned.
pub(crate) fn is_pinned(info: &ConsumerInfo) -> bool {
    info.priority_groups.iter().any(|group| !group.pinned_client_id.is_empty())
}

/// Whether a row was delivered or acked a moment ago, by the servers' clock: within the pinned time, ten seconds at least.
pub(crate) fn is_active(info: &ConsumerInfo) -> bool {
    let pinned_ns = info.config.get("priority_timeout").and_then(serde_json::Value::as_u64).unwrap_or(0);
    let window = Duration::from_nanos(pinned_ns).max(PINNED_TTL_MIN);
    let Ok(now) = Timestamp::parse_rfc3339(&info.ts) else { return true };
    let within = |place: &SequenceInfo| {
        let at = place.last_active.as_deref().and_then(|text| Timestamp::parse_rfc3339(text).ok());
        at.is_some_and(|at| now.since(at) < window)
    };
    within(&info.delivered) || within(&info.ack_floor)
}

/// Whether it has rows that nobody reads.
pub(super) fn is_unread(info: &ConsumerInfo) -> bool {
    info.num_pending.saturating_add(info.num_ack_pending) > 0 && !is_pinned(info) && !is_active(info)
}

/// Which partition a stream holds, by its subjects.
pub(super) fn partition_of(config: &serde_json::Value, prefix: &SubjectPrefix) -> Option<u16> {
    let subjects = config.get("subjects")?.as_array()?;
    subjects.iter().filter_map(serde_json::Value::as_str).find_map(|subject| {
        let rest = subject.strip_prefix(prefix.as_str())?.strip_prefix(".ingest.")?;
        rest.strip_suffix(".>")?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn info(delivered_s: Option<u64>, acked_s: Option<u64>, ttl_s: u64) -> ConsumerInfo {
        let at = |second: Option<u64>| second.map(|second| Timestamp(second * 1_000_000_000).to_string());
        let info = json!({
            "stream_name": "S", "name": "d", "ts": Timestamp(1_000_000_000_000).to_string(),
            "config": {"priority_timeout": ttl_s * 1_000_000_000},
            "delivered": {"consumer_seq": 1, "stream_seq": 1, "last_active": at(delivered_s)},
            "ack_floor": {"consumer_seq": 1, "stream_seq": 1, "last_active": at(acked_s)},
            "num_pending": 1,
        });
        serde_json::from_value(info).expect("an answer")
    }

    #[test]
    fn activity_is_told_by_the_servers_clock() {
        for (delivered_s, acked_s, ttl_s, active) in [
            (None, None, 10, false),
            (Some(991), None, 10, true),
            (None, Some(991), 10, true),
            (Some(990), Some(900), 10, false),
            (Some(990), Some(900), 12, true),
            (Some(991), None, 1, true),
        ] {
            let info = info(delivered_s, acked_s, ttl_s);
            assert_eq!(is_active(&info), active, "{delivered_s:?} {acked_s:?} {ttl_s}");
            assert_eq!(is_unread(&info), !active);
        }
        let unreadable = ConsumerInfo { ts: String::new(), ..info(None, None, 10) };
        assert!(is_active(&unreadable), "nobody is robbed on a guess");
    }

    #[test]
    fn a_partition_is_told_by_its_subject() {
        let prefix = SubjectPrefix::parse("wh").expect("a prefix");
        for (subjects, partition) in [
            (json!(["wh.ingest.3.>"]), Some(3)),
            (json!(["x.>", "wh.ingest.0.>"]), Some(0)),
            (json!(["wh.ingest.>"]), None),
            (json!(["wh.ingest.x.>"]), None),
            (json!(["wh2.ingest.1.>"]), None),
        ] {
            assert_eq!(partition_of(&json!({"subjects": subjects}), &prefix), partition, "{subjects}");
        }
    }
}
