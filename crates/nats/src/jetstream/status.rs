//! How a pull ends without a message.

use async_nats::Message;

/// How a pull ends, or what is told of it on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullStatus {
    /// 100: it still waits.
    Heartbeat,
    /// 404: nothing was there, and it did not want to wait.
    NothingNow,
    /// 408: its time is over.
    Expired,
    /// 409: as many messages came as it may take in bytes, or the next one is larger than that.
    OverMaxBytes,
    /// 409: as many messages came as it asked for.
    BatchComplete,
    /// 409: another server leads the consumer now; ask again.
    LeadershipChange,
    /// 409: the server is stopping; ask again.
    ServerShutdown,
    /// 409: the consumer is gone.
    ConsumerDeleted,
    /// 409: it asks for more than the consumer gives a pull; says which limit.
    OverLimit(String),
    /// 409: the consumer does not take pulls.
    NotPull,
    /// 423: another puller is pinned, or this one's pin has lapsed.
    PinLost,
    /// 400: the server does not understand it; says why.
    BadRequest(String),
    /// 503: nobody answers for the consumer: it is gone, or electing a leader.
    NoResponders,
    /// Anything else.
    Other {
        /// The status.
        status: u16,
        /// Its words.
        text: String,
    },
}

impl PullStatus {
    /// Reads a status and its words.
    #[must_use]
    pub fn parse(status: u16, text: &str) -> Self {
        let lower = text.to_ascii_lowercase();
        let says = |words: &str| lower.contains(words);
        match status {
            100 => Self::Heartbeat,
            404 => Self::NothingNow,
            400 => Self::BadRequest(text.to_owned()),
            408 if says("bad request") => Self::BadRequest(text.to_owned()),
            408 => Self::Expired,
            409 if says("message size exceeds maxbytes") => Self::OverMaxBytes,
            409 if says("batch completed") => Self::BatchComplete,
            409 if says("leadership change") => Self::LeadershipChange,
            409 if says("server shutdown") => Self::ServerShutdown,
            409 if says("consumer deleted") => Self::ConsumerDeleted,
            409 if says("exceeded max") => Self::OverLimit(text.to_owned()),
            409 if says("push based") => Self::NotPull,
            423 => Self::PinLost,
            503 => Self::NoResponders,
            _ => Self::Other { status, text: text.to_owned() },
        }
    }

    /// The status that a message is; none for a message proper.
    #[must_use]
    pub fn of(message: &Message) -> Option<Self> {
        let status = message.status?.as_u16();
        Some(Self::parse(status, message.description.as_deref().unwrap_or_default()))
    }

    /// Whether the pull goes on.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        matches!(self, Self::Heartbeat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_the_conflicts_apart() {
        let limit = "Exceeded MaxRequestBatch of 5";
        let cases = [
            (100, "Idle Heartbeat", PullStatus::Heartbeat),
            (404, "No Messages", PullStatus::NothingNow),
            (408, "Request Timeout", PullStatus::Expired),
            (408, "Bad Request", PullStatus::BadRequest("Bad Request".to_owned())),
            (409, "Message Size Exceeds MaxBytes", PullStatus::OverMaxBytes),
            (409, "Batch Completed", PullStatus::BatchComplete),
            (409, "Leadership Change", PullStatus::LeadershipChange),
            (409, "Server Shutdown", PullStatus::ServerShutdown),
            (409, "Consumer Deleted", PullStatus::ConsumerDeleted),
            (409, limit, PullStatus::OverLimit(limit.to_owned())),
            (409, "Exceeded MaxWaiting", PullStatus::OverLimit("Exceeded MaxWaiting".to_owned())),
            (409, "Consumer is push based", PullStatus::NotPull),
            (409, "unheard of", PullStatus::Other { status: 409, text: "unheard of".to_owned() }),
            (423, "Nats-Pin-Id mismatch", PullStatus::PinLost),
            (
                400,
                "Bad Request - Priority Group missing",
                PullStatus::BadRequest("Bad Request - Priority Group missing".to_owned()),
            ),
            (503, "", PullStatus::NoResponders),
            (204, "EOB", PullStatus::Other { status: 204, text: "EOB".to_owned() }),
        ];
        for (status, text, expected) in cases {
            assert_eq!(PullStatus::parse(status, text), expected, "{status} {text}");
        }
    }
}
