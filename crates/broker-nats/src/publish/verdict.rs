//! What the end of an attempt means: stored, refused, or to be tried again. Pure.

use wavehouse_broker::PublishError;
use wavehouse_nats::{CallError, codes};

/// What to do after an attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The servers said no: by itself certainly not stored.
    Refused(PublishError),
    /// The same, and something that must be on the servers is not as it must be.
    Broken(PublishError),
    /// Try again; nobody listens on the subject, so the stream may be gone.
    Nobody,
    /// Try again: it did not arrive.
    NotSent,
    /// Try again: it may have been stored.
    Unanswered,
}

/// No more fits an account.
const ACCOUNT_FULL: u32 = 10_002;
/// A message over the stream's own bound.
const MESSAGE_TOO_LARGE: u32 = 10_054;

/// Errors of the servers' stores, and whether more room would help.
const STORES: [(u32, bool); 5] = [
    // The account's limits over all of its streams.
    (ACCOUNT_FULL, true),
    // The server has no room for the stream's replicas.
    (codes::INSUFFICIENT_RESOURCES, true),
    // The server's memory for streams; none of ours lies there, so it is the server that is short.
    (codes::MEMORY_EXCEEDED, false),
    // The server's store for files.
    (codes::STORAGE_EXCEEDED, true),
    // Another failure to store than one of the stream's bounds, which are told apart before: the disk.
    (codes::STREAM_STORE_FAILED, false),
];

/// Judges an attempt that failed.
pub(super) fn judge(error: &CallError, bytes: u64, bytes_max: u64) -> Verdict {
    let reason = error.to_string();
    match error {
        CallError::NoResponders { .. } => Verdict::Nobody,
        CallError::NotConnected { .. } => Verdict::NotSent,
        CallError::Lost { .. } | CallError::NoAnswer { .. } | CallError::Malformed { .. } => {
            Verdict::Unanswered
        }
        CallError::Closed { .. } => Verdict::Refused(PublishError::Closed),
        CallError::TooLarge { .. } => Verdict::Refused(PublishError::TooLarge { bytes, bytes_max }),
        CallError::Refused { .. } | CallError::BadSubject { .. } => {
            Verdict::Broken(PublishError::Unavailable { reason })
        }
        // An earlier attempt that was not answered.
        error if error.is_in_process() => Verdict::Unanswered,
        error if error.is_stream_full() => Verdict::Refused(PublishError::Full { reason }),
        error if error.is_stream_gone() || error.code() == Some(codes::STREAM_NOT_EXPECTED) => {
            Verdict::Broken(PublishError::Unavailable { reason })
        }
        CallError::JetStream { code: MESSAGE_TOO_LARGE, .. } => {
            Verdict::Refused(PublishError::TooLarge { bytes, bytes_max })
        }
        CallError::JetStream { code, status, .. } => match STORES.iter().find(|(store, _)| store == code) {
            Some((_, true)) => Verdict::Refused(PublishError::Full { reason }),
            Some((_, false)) => Verdict::Refused(PublishError::Unavailable { reason }),
            // The system is busy with itself; an error that was told is an answer: not stored.
            None if *status >= 500 => Verdict::NotSent,
            None => Verdict::Refused(PublishError::Unavailable { reason }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, code: u32, text: &str) -> CallError {
        CallError::JetStream { subject: "s".to_owned(), status, code, text: text.to_owned() }
    }

    fn verdict(error: &CallError) -> &'static str {
        match judge(error, 5, 4) {
            Verdict::Refused(PublishError::Full { .. }) => "full",
            Verdict::Refused(PublishError::Unavailable { .. }) => "unavailable",
            Verdict::Refused(PublishError::TooLarge { bytes: 5, bytes_max: 4 }) => "too large",
            Verdict::Refused(PublishError::Closed) => "closed",
            Verdict::Refused(_) => "another refusal",
            Verdict::Broken(_) => "broken",
            Verdict::Nobody => "nobody",
            Verdict::NotSent => "not sent",
            Verdict::Unanswered => "unanswered",
        }
    }

    // Cases 47, 49, 50.
    #[test]
    fn every_end_has_its_meaning() {
        let subject = || "s".to_owned();
        let cases = [
            (answered(400, 10_077, "maximum bytes exceeded"), "full"),
            (answered(503, 10_077, "maximum messages per subject exceeded"), "full"),
            (answered(503, 10_077, "no space left on device"), "unavailable"),
            (answered(400, 10_002, "resource limits exceeded for account"), "full"),
            (answered(503, 10_023, "insufficient resources"), "full"),
            (answered(500, 10_028, "insufficient memory resources available"), "unavailable"),
            (answered(500, 10_047, "insufficient storage resources available"), "full"),
            (answered(400, 10_054, "message size exceeds maximum allowed"), "too large"),
            (answered(400, 10_060, "expected stream does not match"), "broken"),
            (answered(404, 10_059, "stream not found"), "broken"),
            (answered(503, 10_008, "JetStream system temporarily unavailable"), "not sent"),
            (answered(409, 10_158, "duplicate message id is in process"), "unanswered"),
            (answered(400, 10_003, "bad request"), "unavailable"),
            (CallError::NoResponders { subject: subject() }, "nobody"),
            (CallError::NotConnected { subject: subject() }, "not sent"),
            (CallError::Lost { subject: subject() }, "unanswered"),
            (CallError::NoAnswer { subject: subject(), waited_ms: 1 }, "unanswered"),
            (CallError::Refused { subject: subject() }, "broken"),
            (CallError::TooLarge { subject: subject() }, "too large"),
            (CallError::Closed { subject: subject() }, "closed"),
        ];
        for (error, expected) in cases {
            assert_eq!(verdict(&error), expected, "{error}");
        }
    }
}
