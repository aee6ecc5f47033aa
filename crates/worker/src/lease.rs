//! Leases: how processes agree, over a bucket that knows nothing of time, on who holds a name.
//!
//! The holder writes the key again and again. Whoever would have the name watches the key's revision by its own clock and
//! takes it when the revision has not moved for as long as the holder's value says. No clock of another machine counts.
//!
//! What is decided is decided purely: `sight` watches keys, `term` is one's own time with a name. `drive` is the only part
//! that waits. What a lease says is in `value`.

mod drive;
mod sight;
mod term;
mod told;
mod value;

pub(crate) use drive::{Ended, hold, resign, take};
pub(crate) use sight::{Sightings, Way, way};
pub(crate) use term::Term;
pub use told::MemberTold;
pub(crate) use value::{LeaseValue, View};

use std::time::Duration;

/// A lease counts for so long after it was last seen to change.
const DURATION: Duration = Duration::from_secs(15);
/// A holder that could not renew for so long gives up.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// A holder renews so often, and so often others look.
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// A lease that was not renewed for so long makes others ask whether its holder is there.
const ASK_AFTER: Duration = Duration::from_secs(4);

/// How leases are timed. All processes of a deployment should have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimings {
    duration: Duration,
    renew_deadline: Duration,
    renew_every: Duration,
}

/// Timings that would let two processes hold the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "lease timings must shrink: duration {duration_ms} ms, renew deadline {renew_deadline_ms} ms, renewal every {renew_every_ms} ms"
)]
pub struct LeaseTimingsError {
    duration_ms: u128,
    renew_deadline_ms: u128,
    renew_every_ms: u128,
}

impl Default for LeaseTimings {
    fn default() -> Self {
        Self { duration: DURATION, renew_deadline: RENEW_DEADLINE, renew_every: RENEW_EVERY }
    }
}

impl LeaseTimings {
    /// Checks and takes timings: how long a lease counts (15 s), after how long without a renewal its holder gives up
    /// (10 s), how often it renews and looks at the others (2 s).
    ///
    /// # Errors
    /// [`LeaseTimingsError`] unless each is shorter than the one before and none is zero.
    pub fn new(
        duration: Duration,
        renew_deadline: Duration,
        renew_every: Duration,
    ) -> Result<Self, LeaseTimingsError> {
        if duration > renew_deadline && renew_deadline > renew_every && !renew_every.is_zero() {
            return Ok(Self { duration, renew_deadline, renew_every });
        }
        Err(LeaseTimingsError {
            duration_ms: duration.as_millis(),
            renew_deadline_ms: renew_deadline.as_millis(),
            renew_every_ms: renew_every.as_millis(),
        })
    }

    pub(crate) fn duration(self) -> Duration {
        self.duration
    }

    pub(crate) fn renew_deadline(self) -> Duration {
        self.renew_deadline
    }

    pub(crate) fn renew_every(self) -> Duration {
        self.renew_every
    }

    /// After how long without a renewal others ask: twice the renewal period at least, and before the lease lapses.
    pub(crate) fn ask_after(self) -> Duration {
        ASK_AFTER.min(self.duration / 2).max(self.renew_every * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_shorter_than_the_one_before() {
        let new = |a, b, c| {
            LeaseTimings::new(Duration::from_secs(a), Duration::from_secs(b), Duration::from_secs(c)).is_ok()
        };
        for (timings, good) in [
            ((15, 10, 2), true),
            ((10, 10, 2), false),
            ((15, 2, 2), false),
            ((15, 10, 0), false),
            ((2, 10, 15), false),
        ] {
            assert_eq!(new(timings.0, timings.1, timings.2), good, "{timings:?}");
        }
        assert_eq!(LeaseTimings::new(DURATION, RENEW_DEADLINE, RENEW_EVERY), Ok(LeaseTimings::default()));
        assert_eq!(LeaseTimings::default().ask_after(), ASK_AFTER);
    }
}
