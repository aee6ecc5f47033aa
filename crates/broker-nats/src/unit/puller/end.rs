//! How a pull ends, and what is missing of it. Pure.

use wavehouse_nats::PullStatus;

/// How a pull ended.
pub(super) enum End {
    /// As it should.
    Done,
    /// By another reader's pin, or by the lapse of one's own.
    PinLost,
    /// Something is amiss, and nothing was lost by it.
    Pause(String),
    /// Nobody answers for the durable.
    Nobody,
    /// Blocks may have been sent that did not come.
    Unanswered,
    /// Delivery is over.
    Over(String),
}

impl End {
    /// Of a pull that lacks deliveries: they may not be passed over, however it ended.
    pub(super) fn of_a_pull(self, is_whole: bool) -> Self {
        match self {
            Self::PinLost | Self::Over(_) => self,
            _ if is_whole => self,
            _ => Self::Unanswered,
        }
    }
}

/// How a pull ended, as the server tells it.
pub(super) fn end_of(status: PullStatus) -> End {
    match status {
        PullStatus::Heartbeat
        | PullStatus::NothingNow
        | PullStatus::Expired
        | PullStatus::OverMaxBytes
        | PullStatus::BatchComplete => End::Done,
        PullStatus::PinLost => End::PinLost,
        PullStatus::NoResponders => End::Nobody,
        PullStatus::ConsumerDeleted => End::Over("its durable was deleted".to_owned()),
        PullStatus::NotPull => End::Over("its durable does not take pulls".to_owned()),
        PullStatus::BadRequest(text) => End::Over(format!("the server does not understand a pull: {text}")),
        PullStatus::LeadershipChange => End::Pause("another server leads the durable now".to_owned()),
        PullStatus::ServerShutdown => End::Pause("the server is stopping".to_owned()),
        PullStatus::OverLimit(text) => End::Pause(text),
        PullStatus::Other { status, text } => End::Pause(format!("{status} {text}")),
    }
}

/// Whether this delivery is the next after the last, which it is then.
pub(super) fn follows(last: &mut Option<u64>, number: u64) -> bool {
    let follows = last.is_none_or(|last| number == last + 1);
    if follows {
        *last = Some(number);
    }
    follows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_that_does_not_follow_is_told_from_one_that_does() {
        let mut last = Some(0);
        assert!(follows(&mut last, 1) && follows(&mut last, 2));
        assert!(!follows(&mut last, 4), "the third was lost");
        assert!(!follows(&mut last, 1) && !follows(&mut last, 2), "the durable was put back by another");
        assert_eq!(last, Some(2));
        let mut unknown = None;
        assert!(follows(&mut unknown, 7) && follows(&mut unknown, 8));
    }

    #[test]
    fn a_pull_that_lacks_deliveries_is_no_good_end() {
        let recovers = |end: End| matches!(end.of_a_pull(false), End::Unanswered | End::PinLost);
        assert!(recovers(End::Done) && recovers(End::Pause(String::new())) && recovers(End::Nobody));
        assert!(recovers(End::PinLost) && !recovers(End::Over(String::new())));
        assert!(matches!(End::Done.of_a_pull(true), End::Done));
    }
}
