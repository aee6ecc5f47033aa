//! How long an accepted row takes until ClickHouse shows it, from two curves: rows accepted and rows visible over
//! time. Rows of one table become visible in the order in which they were accepted, so the curves are enough.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::load::empty_histogram;

/// A count at an instant since the beginning of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// When it was read.
    pub(super) at: Duration,
    /// Rows so far.
    pub(super) rows: u64,
}

/// Nanoseconds from accepted to visible, once for every 1,000 rows. Rows that never became visible are left out.
pub(super) fn lag(accepted: &[Point], visible: &[Point]) -> Histogram<u64> {
    let mut histogram = empty_histogram();
    let mut seen = visible.iter().peekable();
    let mut before = 0;
    for point in accepted {
        while seen.peek().is_some_and(|later| later.rows < point.rows) {
            seen.next();
        }
        let Some(shown) = seen.peek() else { break };
        let lag = shown.at.saturating_sub(point.at);
        let weight = (point.rows - before).div_ceil(1_000);
        before = point.rows;
        // The histogram grows as needed, so recording cannot fail.
        let _grown = histogram.record_n(u64::try_from(lag.as_nanos()).unwrap_or(u64::MAX), weight);
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(list: &[(u64, u64)]) -> Vec<Point> {
        list.iter().map(|&(at_ms, rows)| Point { at: Duration::from_millis(at_ms), rows }).collect()
    }

    #[test]
    fn each_row_waits_for_the_first_reading_that_shows_it() {
        let accepted = points(&[(10, 1_000), (20, 2_000), (30, 4_000)]);
        let visible = points(&[(15, 0), (100, 1_000), (200, 4_000)]);
        let lag = lag(&accepted, &visible);
        assert_eq!(lag.len(), 4);
        let close = |ns: u64, ms: u64| ns.abs_diff(ms * 1_000_000) < 1_000_000;
        assert!(close(lag.min(), 90) && close(lag.max(), 180) && close(lag.value_at_quantile(0.5), 170));
    }

    #[test]
    fn rows_never_shown_are_left_out() {
        assert_eq!(lag(&points(&[(10, 1_000), (20, 9_000)]), &points(&[(15, 1_000)])).len(), 1);
        assert_eq!(lag(&points(&[(10, 5)]), &[]).len(), 0);
    }
}
