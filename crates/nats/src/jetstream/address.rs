//! The reply subject of a delivered message: it says where the message stands, in one of two layouts.
//!
//! ```text
//! $JS.ACK.<stream>.<consumer>.<attempt>.<stream seq>.<consumer seq>.<time>.<pending>
//! $JS.ACK.<domain>.<account>.<stream>.<consumer>.<attempt>.<stream seq>.<consumer seq>.<time>.<pending>[.…]
//! ```

use wavehouse_core::Timestamp;

/// Tokens of the layout without a domain.
const SHORT: usize = 9;
/// The least tokens of the layout with one.
const LONG: usize = 11;

/// Where a delivered message stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckAddress {
    /// The stream's domain, when it has one.
    pub domain: Option<String>,
    /// The stream.
    pub stream: String,
    /// The consumer.
    pub consumer: String,
    /// How often the message has been delivered, this time included.
    pub attempt: u64,
    /// Its sequence in the stream.
    pub stream_sequence: u64,
    /// Its number among the consumer's deliveries.
    pub consumer_sequence: u64,
    /// When it was stored.
    pub time: Timestamp,
    /// Messages still to be delivered after it.
    pub pending: u64,
}

impl AckAddress {
    /// Reads a reply subject; none when it is no such address.
    #[must_use]
    pub fn parse(reply: &str) -> Option<Self> {
        let tokens: Vec<&str> = reply.split('.').collect();
        let (domain, rest) = match tokens.as_slice() {
            ["$JS", "ACK", rest @ ..] if tokens.len() == SHORT => (None, rest),
            ["$JS", "ACK", domain, _account, rest @ ..] if tokens.len() >= LONG => (Some(*domain), rest),
            _ => return None,
        };
        let [stream, consumer, attempt, stream_sequence, consumer_sequence, time, pending, ..] = rest else {
            return None;
        };
        Some(Self {
            // An underscore stands for none.
            domain: domain.filter(|domain| *domain != "_").map(str::to_owned),
            stream: (*stream).to_owned(),
            consumer: (*consumer).to_owned(),
            attempt: attempt.parse().ok()?,
            stream_sequence: stream_sequence.parse().ok()?,
            consumer_sequence: consumer_sequence.parse().ok()?,
            time: Timestamp(time.parse().ok()?),
            pending: pending.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_are_read() {
        let short = AckAddress::parse("$JS.ACK.S.C.2.30.4.1700000000000000005.6").expect("an address");
        let expected = AckAddress {
            domain: None,
            stream: "S".to_owned(),
            consumer: "C".to_owned(),
            attempt: 2,
            stream_sequence: 30,
            consumer_sequence: 4,
            time: Timestamp(1_700_000_000_000_000_005),
            pending: 6,
        };
        assert_eq!(short, expected);
        for long in [
            "$JS.ACK._.hash.S.C.2.30.4.1700000000000000005.6",
            "$JS.ACK._.hash.S.C.2.30.4.1700000000000000005.6.x",
        ] {
            assert_eq!(AckAddress::parse(long).as_ref(), Some(&expected), "{long}");
        }
        let hub = AckAddress::parse("$JS.ACK.hub.hash.S.C.2.30.4.5.6").expect("an address");
        assert_eq!(hub.domain.as_deref(), Some("hub"));
    }

    #[test]
    fn other_subjects_are_none() {
        for other in
            ["", "_INBOX.x.y", "$JS.ACK.S.C.2.30.4.5", "$JS.ACK.S.C.2.30.4.5.6.7", "$JS.ACK.S.C.x.30.4.5.6"]
        {
            assert_eq!(AckAddress::parse(other), None, "{other}");
        }
    }
}
