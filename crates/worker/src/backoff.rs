//! How long to wait after failures in a row.

use std::time::Duration;

/// The first wait.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);

/// The wait after so many failures in a row (at least 1): a bound that doubles from 1 s to 30 s, jittered down to half
/// of it. `random` is in 0..=1.
pub(crate) fn wait(failures: u32, random: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let bound = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    bound.mul_f64(0.5 + random / 2.0)
}

/// Numbers for jitter: SplitMix64, which is enough to keep servers from being asked in step.
#[derive(Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number in 0..1.
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let high = u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap_or(0);
        f64::from(high) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_half_a_minute() {
        let bounds: Vec<u64> = (1..8).map(|failures| wait(failures, 1.0).as_secs()).collect();
        assert_eq!(bounds, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(wait(1, 0.0), Duration::from_millis(500));
        assert_eq!(wait(u32::MAX, 0.0), Duration::from_secs(15));
    }

    #[test]
    fn jitter_is_a_fraction_and_varies() {
        let mut jitter = Jitter::new(7);
        let numbers: Vec<f64> = (0..1000).map(|_| jitter.next()).collect();
        assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
        let mean = numbers.iter().sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }
}
