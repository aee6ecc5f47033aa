//! How long to wait after the nth failure in a row: 1 s doubling to 30 s, jittered down to half of it, so that many
//! processes do not come back at once.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// Failures in a row of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Counts a failure and says how long to wait. `random` is any number.
    pub(crate) fn fail(&mut self, random: u64) -> Duration {
        let full = FIRST.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX)).min(LONGEST);
        self.failures = self.failures.saturating_add(1).min(31);
        let half_ms = u64::try_from(full.as_millis() / 2).unwrap_or(u64::MAX);
        Duration::from_millis(half_ms + random % (half_ms + 1))
    }

    /// Forgets the failures.
    pub(crate) fn succeed(&mut self) {
        self.failures = 0;
    }

    /// Whether the last try failed.
    pub(crate) fn is_failing(self) -> bool {
        self.failures > 0
    }
}

/// A small generator for jitter (xorshift64*, Vigna 2014); not for secrets.
#[derive(Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_half_a_minute_and_starts_again() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..8).map(|_| backoff.fail(u64::MAX).as_secs()).collect();
        assert!(waits.iter().all(|wait| *wait <= 30));
        for (nth, full) in [1_u64, 2, 4, 8, 16, 30, 30].into_iter().enumerate() {
            let mut backoff = Backoff { failures: u32::try_from(nth).unwrap() };
            assert_eq!(backoff.fail(0).as_millis(), u128::from(full * 500));
            let mut backoff = Backoff { failures: u32::try_from(nth).unwrap() };
            assert_eq!(backoff.fail(full * 500).as_millis(), u128::from(full * 1000));
        }
        backoff.succeed();
        assert!(!backoff.is_failing());
        assert!(backoff.fail(0).as_millis() == 500 && backoff.is_failing());
    }

    proptest::proptest! {
        #[test]
        fn always_between_half_and_all(failures in 0_u32..40, random: u64) {
            let mut backoff = Backoff { failures };
            let wait = backoff.fail(random);
            proptest::prop_assert!(wait >= FIRST / 2 && wait <= LONGEST);
        }
    }
}
