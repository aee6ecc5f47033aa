//! How long to wait before reading the schema again.

use std::time::Duration;

/// First bound of the wait after a failure before the first success.
const RETRY_FIRST: Duration = Duration::from_secs(2);
/// Last bound of it.
const RETRY_LAST: Duration = Duration::from_secs(60);

/// The wait after so many failures in a row (at least 1): somewhere in the upper half of a bound that doubles.
/// `random` is in 0..1.
pub(crate) fn retry_wait(failures: u32, random: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let bound = RETRY_FIRST.saturating_mul(1 << doublings).min(RETRY_LAST);
    bound.mul_f64(0.5 + random / 2.0)
}

/// A number in 0..1; a fixed one where the system has no randomness to give.
pub(crate) fn random() -> f64 {
    let number = getrandom::u32().unwrap_or(u32::MAX / 2);
    f64::from(number) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute() {
        let bounds: Vec<u64> = (1..8).map(|n| retry_wait(n, 1.0).as_secs()).collect();
        assert_eq!(bounds, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(retry_wait(1, 0.0), Duration::from_secs(1));
        assert_eq!(retry_wait(u32::MAX, 0.0), Duration::from_secs(30));
    }

    #[test]
    fn random_is_a_fraction() {
        assert!((0..100).map(|_| random()).all(|number| (0.0..1.0).contains(&number)));
    }
}
