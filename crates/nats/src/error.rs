//! Why a request came to nothing, and what the caller should do about it.

use wavehouse_core::FaultKind;

/// JetStream's own numbers for what went wrong (`err_code`), as far as callers tell them apart.
pub mod codes {
    /// The stream's limits on the store of the server are reached.
    pub const INSUFFICIENT_RESOURCES: u32 = 10_023;
    /// Memory is out.
    pub const MEMORY_EXCEEDED: u32 = 10_028;
    /// The server's store for files is full.
    pub const STORAGE_EXCEEDED: u32 = 10_047;
    /// No consumer of this name.
    pub const CONSUMER_NOT_FOUND: u32 = 10_014;
    /// There is no such message.
    pub const MESSAGE_NOT_FOUND: u32 = 10_037;
    /// No stream of this name.
    pub const STREAM_NOT_FOUND: u32 = 10_059;
    /// The stream is not the one that the message expects.
    pub const STREAM_NOT_EXPECTED: u32 = 10_060;
    /// The subject's last sequence is not the one that the message expects.
    pub const WRONG_LAST_SEQUENCE: u32 = 10_071;
    /// The same, where a write of the same subject is on its way in a cluster.
    pub const WRONG_LAST_SEQUENCE_CONSTANT: u32 = 10_164;
    /// The stream would not store the message; its text says which limit.
    pub const STREAM_STORE_FAILED: u32 = 10_077;
    /// A consumer's filter overlaps another's on a work queue.
    pub const FILTERS_OVERLAP: u32 = 10_100;
    /// In a cluster, a message of the same id is on its way to be stored.
    pub const ID_IN_PROCESS: u32 = 10_158;
    /// A message could not be removed; the text says why.
    pub const MESSAGE_DELETE_FAILED: u32 = 10_057;
}

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No server is connected; nothing was sent.
    #[error("{subject}: no server is connected")]
    NotConnected {
        /// Where the request went.
        subject: String,
    },
    /// The connection broke before the answer; the request may have been carried out.
    #[error("{subject}: the connection broke before the answer")]
    Lost {
        /// Where the request went.
        subject: String,
    },
    /// No answer in time; the request may have been carried out.
    #[error("{subject}: no answer within {waited_ms} ms")]
    NoAnswer {
        /// Where the request went.
        subject: String,
        /// How long was waited, in milliseconds.
        waited_ms: u64,
    },
    /// Nobody listens there: no such object, or it is electing a leader.
    #[error("{subject}: nobody answers there")]
    NoResponders {
        /// Where the request went.
        subject: String,
    },
    /// The connecting user may not publish there.
    #[error("{subject}: the user may not publish there")]
    Refused {
        /// The subject, as the server named it.
        subject: String,
    },
    /// JetStream says no.
    #[error("{subject}: {text} (status {status}, error {code})")]
    JetStream {
        /// Where the request went.
        subject: String,
        /// Like an HTTP status.
        status: u16,
        /// What it is: see [`codes`]; 0 when only a status was given.
        code: u32,
        /// The same in words.
        text: String,
    },
    /// The message, with its headers, is larger than the server takes.
    #[error("{subject}: larger than the server takes")]
    TooLarge {
        /// Where the request went.
        subject: String,
    },
    /// The subject is none: empty, or with white space in it.
    #[error("{subject:?} is no subject")]
    BadSubject {
        /// The subject.
        subject: String,
    },
    /// The answer is of another form than expected.
    #[error("{subject}: the answer is not understood ({why})")]
    Malformed {
        /// Where the request went.
        subject: String,
        /// What is odd.
        why: String,
    },
    /// The connection was closed by us.
    #[error("{subject}: the connection is closed")]
    Closed {
        /// Where the request went.
        subject: String,
    },
}

impl CallError {
    /// What the caller should do, if nothing better is known about this request.
    #[must_use]
    pub fn fault(&self) -> FaultKind {
        match self {
            Self::TooLarge { .. } | Self::BadSubject { .. } => FaultKind::Reject,
            Self::Closed { .. } => FaultKind::Stop,
            Self::JetStream { code: codes::ID_IN_PROCESS, .. } => FaultKind::Retry { after: None },
            // The request is at fault. What was not found may be made again.
            Self::JetStream { status: 400..=403 | 405..=499, code, .. } if !is_full(*code) => {
                FaultKind::Reject
            }
            _ => FaultKind::Retry { after: None },
        }
    }

    /// JetStream's number for it, when JetStream answered.
    #[must_use]
    pub fn code(&self) -> Option<u32> {
        match self {
            Self::JetStream { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The stream is not there.
    #[must_use]
    pub fn is_stream_gone(&self) -> bool {
        self.code() == Some(codes::STREAM_NOT_FOUND)
    }

    /// The stream or the consumer is not there.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.is_stream_gone() || self.code() == Some(codes::CONSUMER_NOT_FOUND)
    }

    /// A compare-and-set found another revision.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self.code(), Some(codes::WRONG_LAST_SEQUENCE | codes::WRONG_LAST_SEQUENCE_CONSTANT))
    }

    /// A message of the same id is on its way: what becomes of it is known a moment later.
    #[must_use]
    pub fn is_in_process(&self) -> bool {
        self.code() == Some(codes::ID_IN_PROCESS)
    }

    /// The stream holds as much as it may, in all or of this subject.
    #[must_use]
    pub fn is_stream_full(&self) -> bool {
        let full =
            ["maximum bytes exceeded", "maximum messages per subject exceeded", "maximum messages exceeded"];
        matches!(self, Self::JetStream { text, .. } if full.iter().any(|words| text.contains(words)))
    }

    /// Whether the request may have been carried out in spite of the error.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::NoAnswer { .. } | Self::Malformed { .. })
    }
}

/// An answer about something that may not be there: nothing, when the stream or the consumer is gone.
///
/// # Errors
/// Every other error of the answer.
pub fn found<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Limits of the servers, which come and go.
fn is_full(code: u32) -> bool {
    [
        codes::INSUFFICIENT_RESOURCES,
        codes::MEMORY_EXCEEDED,
        codes::STORAGE_EXCEEDED,
        codes::STREAM_STORE_FAILED,
    ]
    .contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, code: u32, text: &str) -> CallError {
        CallError::JetStream { subject: "s".to_owned(), status, code, text: text.to_owned() }
    }

    #[test]
    fn faults_follow_what_is_at_fault() {
        let retry = FaultKind::Retry { after: None };
        let cases = [
            (answered(400, 10_003, "bad request"), FaultKind::Reject),
            (answered(400, codes::WRONG_LAST_SEQUENCE, "wrong last sequence: 3"), FaultKind::Reject),
            (answered(404, codes::STREAM_NOT_FOUND, "stream not found"), retry),
            (answered(503, codes::STREAM_STORE_FAILED, "maximum bytes exceeded"), retry),
            (answered(400, codes::STREAM_STORE_FAILED, "maximum bytes exceeded"), retry),
            (answered(503, 10_008, "system temporarily unavailable"), retry),
            (CallError::NoResponders { subject: "s".to_owned() }, retry),
            (CallError::TooLarge { subject: "s".to_owned() }, FaultKind::Reject),
            (CallError::Closed { subject: "s".to_owned() }, FaultKind::Stop),
        ];
        for (error, expected) in cases {
            assert_eq!(error.fault(), expected, "{error}");
        }
    }

    #[test]
    fn what_callers_tell_apart() {
        assert!(answered(404, codes::CONSUMER_NOT_FOUND, "consumer not found").is_gone());
        assert!(!answered(404, codes::MESSAGE_NOT_FOUND, "no message found").is_gone());
        assert!(answered(400, codes::WRONG_LAST_SEQUENCE, "").is_conflict());
        assert!(
            answered(503, codes::STREAM_STORE_FAILED, "maximum messages per subject exceeded")
                .is_stream_full()
        );
        assert!(CallError::Lost { subject: "s".to_owned() }.is_unknown());
        assert!(!CallError::NotConnected { subject: "s".to_owned() }.is_unknown());
    }
}
