//! The four classes of failures, decided in one place from the exception code, else the HTTP status, else what the
//! transport saw.

/// What a failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The server is down, overloaded, or in no state to serve: the same request may work later.
    Unavailable,
    /// The account may not: an operator must act, and nothing is lost by waiting.
    Denied,
    /// The request itself is at fault.
    Rejected,
    /// Nobody can say.
    Unknown,
}

impl Class {
    /// The class as a metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
            Self::Rejected => "rejected",
            Self::Unknown => "unknown",
        }
    }
}

/// What was seen of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The server answered with an error.
    Answered,
    /// No connection: refused, reset, no such name.
    Connect,
    /// A connection, but no TLS over it.
    Tls,
    /// No answer, or no end of it, before the deadline.
    Timeout,
    /// The connection or the answer broke off.
    Broken,
    /// The answer is larger than the caller takes.
    TooLarge,
    /// The answer is not of the form that was asked for.
    Unreadable,
}

impl Cause {
    /// In words, after "clickhouse".
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "refused",
            Self::Connect => "cannot be reached",
            Self::Tls => "cannot be trusted",
            Self::Timeout => "did not answer in time",
            Self::Broken => "broke off",
            Self::TooLarge => "answered too much",
            Self::Unreadable => "answered something else",
        }
    }
}

/// Codes of a server that cannot serve now: timeouts, overload, memory, sockets, Keeper, replicas, read-only tables,
/// cancelled queries.
const UNAVAILABLE: [u32; 46] = [
    95, 96, 159, 160, 164, 173, 201, 202, 203, 209, 210, 225, 236, 241, 242, 243, 244, 252, 254, 265, 279,
    285, 286, 289, 297, 319, 364, 369, 394, 415, 425, 439, 499, 574, 692, 700, 735, 749, 762, 774, 776, 777,
    778, 904, 999, 1000,
];
/// Codes of an account that may not.
const DENIED: [u32; 8] = [192, 193, 194, 195, 291, 497, 516, 720];

/// Decides what a failure means.
#[must_use]
pub fn classify(status: Option<u16>, code: Option<u32>, cause: Cause) -> Class {
    if let Some(code) = code {
        return if UNAVAILABLE.contains(&code) {
            Class::Unavailable
        } else if DENIED.contains(&code) {
            Class::Denied
        } else {
            Class::Rejected
        };
    }
    match status {
        Some(408 | 429 | 502 | 503 | 504) => Class::Unavailable,
        Some(401 | 403 | 407) => Class::Denied,
        Some(413) => Class::Rejected,
        Some(_) => Class::Unknown,
        None => match cause {
            Cause::Connect | Cause::Timeout | Cause::Broken => Class::Unavailable,
            Cause::Answered | Cause::Tls | Cause::TooLarge | Cause::Unreadable => Class::Unknown,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        use Class::{Denied, Rejected, Unavailable, Unknown};
        let cases = [
            // The code decides, whatever the status.
            (Some(500), Some(241), Cause::Answered, Unavailable),
            (Some(404), Some(252), Cause::Answered, Unavailable),
            (Some(500), Some(1000), Cause::Answered, Unavailable),
            (Some(403), Some(516), Cause::Answered, Denied),
            (Some(500), Some(497), Cause::Answered, Denied),
            (Some(400), Some(117), Cause::Answered, Rejected),
            (Some(503), Some(60), Cause::Answered, Rejected),
            (Some(500), Some(49), Cause::Answered, Rejected),
            // An exception in mid-stream has a code under a status of 200.
            (Some(200), Some(159), Cause::Broken, Unavailable),
            // No code: the status.
            (Some(408), None, Cause::Answered, Unavailable),
            (Some(429), None, Cause::Answered, Unavailable),
            (Some(502), None, Cause::Answered, Unavailable),
            (Some(503), None, Cause::Answered, Unavailable),
            (Some(504), None, Cause::Answered, Unavailable),
            (Some(401), None, Cause::Answered, Denied),
            (Some(403), None, Cause::Answered, Denied),
            (Some(407), None, Cause::Answered, Denied),
            (Some(413), None, Cause::Answered, Rejected),
            (Some(500), None, Cause::Answered, Unknown),
            (Some(404), None, Cause::Answered, Unknown),
            (Some(302), None, Cause::Answered, Unknown),
            // No answer: the transport.
            (None, None, Cause::Connect, Unavailable),
            (None, None, Cause::Timeout, Unavailable),
            (None, None, Cause::Broken, Unavailable),
            (None, None, Cause::Tls, Unknown),
            (None, None, Cause::TooLarge, Unknown),
            (None, None, Cause::Unreadable, Unknown),
        ];
        for (status, code, cause, class) in cases {
            assert_eq!(classify(status, code, cause), class, "{status:?} {code:?} {cause:?}");
        }
    }

    #[test]
    fn the_lists_do_not_overlap_and_are_sorted() {
        assert!(UNAVAILABLE.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(DENIED.iter().all(|code| !UNAVAILABLE.contains(code)));
    }
}
