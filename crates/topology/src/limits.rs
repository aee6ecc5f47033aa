//! The numbers that processes and servers must agree on.

use std::time::Duration;

/// The group that a durable's readers pin themselves in.
pub const PRIORITY_GROUP: &str = "wavehouse";
/// How often a reader pulls at least, so that it keeps its pin.
pub const PIN_RENEWAL: Duration = Duration::from_secs(5);
/// Shortest pinned time: a reader may miss one renewal.
pub const PINNED_TTL_MIN: Duration = Duration::from_secs(10);
/// How long a member's lease lasts. A pin that outlives it delays every takeover.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long the worker may hold a row unsettled.
pub const ACK_WAIT: Duration = Duration::from_secs(60);
/// Messages that a durable lets out unsettled.
pub const ACK_PENDING_MAX: i64 = 10_000;
/// Most messages that one pull asks for.
pub const PULL_MESSAGES_MAX: i64 = 500;
/// Most bytes that one pull asks for, unless the broker says otherwise. Never below the largest legal message: such a
/// message would never be delivered, and nothing behind it either.
pub const PULL_BYTES: u64 = 2 << 20;
/// Fewest pulls that must be able to wait at a durable: one of each member, while units change hands.
pub const PULLS_WAITING_MIN: i64 = 64;
/// Messages of one topic in a partition; the next is refused.
pub const TOPIC_MESSAGES_MAX: i64 = 1_000_000;
/// Dead letters of one topic; the oldest give way.
pub const TOPIC_LETTERS_MAX: i64 = 100_000;
/// How long the history keeps rows, unless told otherwise.
pub const HISTORY_AGE: Duration = Duration::from_secs(15 * 60);
/// How long a publish waits for its answer, unless told otherwise.
pub const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a publish is tried again.
pub const PUBLISH_RETRIES: u32 = 2;
/// How long a publish waits before it is tried again.
pub const PUBLISH_RETRY_WAIT: Duration = Duration::from_millis(250);
/// How long the claim of a row id lasts while its publish has no outcome, unless told otherwise.
pub const DEDUPE_LEASE: Duration = Duration::from_secs(30);
/// Shortest duplicate window that is generated.
pub const DUPLICATE_WINDOW_MIN: Duration = Duration::from_secs(120);
/// Replicas of every stream and of the bucket, unless told otherwise.
pub const REPLICAS: u32 = 3;
/// Most replicas that a server takes.
pub const REPLICAS_MAX: u32 = 5;
/// Smallest `max_payload` of a server that blocks fit in, in bytes: twice the size that blocks are closed at.
pub const PAYLOAD_BYTES_MIN: u64 = 256 << 10;
/// A server's usual `max_payload`, in bytes; with less, rows are refused that are taken elsewhere.
pub const PAYLOAD_BYTES: u64 = 1 << 20;
/// Longest name of a stream, durable, bucket or domain that is taken, in bytes. Servers stop at 255, suffixes included.
pub const NAME_BYTES_MAX: usize = 200;

/// Shortest duplicate window in which every attempt of one publish falls.
#[must_use]
pub fn publish_floor(publish_timeout: Duration) -> Duration {
    (publish_timeout * (PUBLISH_RETRIES + 1)).saturating_add(PUBLISH_RETRY_WAIT * PUBLISH_RETRIES)
}

/// Shortest duplicate window that outlasts the claim of a row id: the lease, then a client's wait (the lease in whole
/// seconds), then the second by which a claim can outlive its lease. `None` without claims.
#[must_use]
pub fn dedupe_floor(dedupe_lease: Duration) -> Option<Duration> {
    let up = u64::from(dedupe_lease.subsec_nanos() > 0);
    let rounded = Duration::from_secs(dedupe_lease.as_secs().saturating_add(up));
    let floor = dedupe_lease.saturating_add(rounded).saturating_add(Duration::from_secs(1));
    (!dedupe_lease.is_zero()).then_some(floor)
}

/// The duplicate window of a generated partition.
#[must_use]
pub fn duplicate_window(publish_timeout: Duration, dedupe_lease: Duration) -> Duration {
    let floor = publish_floor(publish_timeout).max(DUPLICATE_WINDOW_MIN);
    dedupe_floor(dedupe_lease).map_or(floor, |dedupe| dedupe.max(floor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_covers_attempts_and_claims() {
        let s = Duration::from_secs;
        assert_eq!(publish_floor(s(5)), Duration::from_millis(15_500));
        assert_eq!(dedupe_floor(s(30)), Some(s(61)));
        assert_eq!(dedupe_floor(Duration::from_millis(1_500)), Some(Duration::from_millis(4_500)));
        assert_eq!(dedupe_floor(Duration::ZERO), None);
        for (publish_s, lease_s, window_ms) in
            [(5, 30, 120_000), (5, 59, 120_000), (5, 60, 121_000), (60, 0, 180_500), (60, 90, 181_000)]
        {
            let window = duplicate_window(s(publish_s), s(lease_s));
            assert_eq!(window, Duration::from_millis(window_ms), "{publish_s} {lease_s}");
        }
    }
}
