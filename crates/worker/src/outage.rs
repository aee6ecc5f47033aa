//! Something that takes no inserts for now, a ClickHouse or one table of it, and what is said about it.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::wait;

/// While an outage lasts it is logged again so often.
pub(crate) const REMIND_EVERY: Duration = Duration::from_secs(30);

/// One outage.
#[derive(Debug, Clone)]
pub(crate) struct Outage {
    /// When it began.
    pub(crate) since: Instant,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// No try before this.
    pub(crate) until: Instant,
    /// Why, as last seen.
    pub(crate) reason: String,
    reminded: Instant,
}

impl Outage {
    /// Begins, or goes on after another failure. `random` is in 0..=1.
    pub(crate) fn failed(before: Option<Self>, now: Instant, random: f64, reason: String) -> Self {
        let (since, failures, reminded) =
            before.map_or((now, 0, now), |outage| (outage.since, outage.failures, outage.reminded));
        let failures = failures.saturating_add(1);
        Self { since, failures, until: now + wait(failures, random), reason, reminded }
    }

    /// How long it has lasted, if it is time to say so again.
    pub(crate) fn remind(&mut self, now: Instant) -> Option<Duration> {
        (now >= self.remind_at()).then(|| {
            self.reminded = now;
            now.saturating_duration_since(self.since)
        })
    }

    /// When it is time to say so again.
    pub(crate) fn remind_at(&self) -> Instant {
        self.reminded + REMIND_EVERY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_and_reminds() {
        let start = Instant::now();
        let first = Outage::failed(None, start, 1.0, "a".to_owned());
        assert_eq!((first.failures, first.until), (1, start + Duration::from_secs(1)));
        let later = start + Duration::from_secs(31);
        let mut second = Outage::failed(Some(first), later, 1.0, "b".to_owned());
        assert_eq!((second.since, second.failures, second.until), (start, 2, later + Duration::from_secs(2)));
        assert_eq!(second.remind(later), Some(Duration::from_secs(31)));
        assert_eq!(second.remind(later), None);
    }
}
