//! A moment of wall-clock time, and its text: RFC 3339, UTC, with a fraction of fixed width, so that two texts of the
//! same width compare as their moments do.

use std::fmt;
use std::time::Duration;

/// Nanoseconds since 1970-01-01T00:00:00Z. Good until the year 2554.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp(pub u64);

/// Not an RFC 3339 time with an offset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an RFC 3339 time such as 2026-01-31T12:00:00.000Z")]
pub struct TimeError(pub String);

const NS_PER_S: u64 = 1_000_000_000;
const S_PER_DAY: u64 = 86_400;

impl Timestamp {
    /// The moment a number of milliseconds after the epoch.
    #[must_use]
    pub fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Whole milliseconds since the epoch.
    #[must_use]
    pub fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// This moment less a duration, not before the epoch.
    #[must_use]
    pub fn saturating_sub(self, back: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(back.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not after.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// RFC 3339 in UTC with exactly `digits` (0 to 9) digits of fraction, cut, not rounded.
    #[must_use]
    pub fn to_rfc3339(self, digits: usize) -> String {
        let digits = digits.min(9);
        let seconds = self.0 / NS_PER_S;
        let (year, month, day) = civil_from_days(seconds / S_PER_DAY);
        let of_day = seconds % S_PER_DAY;
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        if digits > 0 {
            let fraction = format!("{:09}", self.0 % NS_PER_S);
            text.push('.');
            text.push_str(fraction.get(..digits).unwrap_or(&fraction));
        }
        text.push('Z');
        text
    }

    /// Reads RFC 3339 with `Z` or an offset; a fraction past nanoseconds is cut.
    ///
    /// # Errors
    /// [`TimeError`] when the text is of another form, names no real date, or lies before 1970.
    pub fn parse_rfc3339(text: &str) -> Result<Self, TimeError> {
        parse(text).ok_or_else(|| TimeError(text.to_owned()))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_rfc3339(9))
    }
}

/// Year, month and day of a day count since the epoch.
/// Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Day count since the epoch of a date in 1970 or later. Source: as [`civil_from_days`].
fn days_from_civil(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if day == 0 || day > length {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let era = year / 400;
    let of_era = year % 400;
    let month_index = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * month_index + 2) / 5 + day - 1;
    (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).checked_sub(719_468)
}

fn number(text: &str, from: usize, to: usize) -> Option<u64> {
    let part = text.get(from..to)?;
    part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?
}

fn parse(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let at = |i: usize| bytes.get(i).copied();
    let separators =
        at(4) == Some(b'-') && at(7) == Some(b'-') && at(13) == Some(b':') && at(16) == Some(b':');
    if !separators || !matches!(at(10)?, b'T' | b't' | b' ') {
        return None;
    }
    let days = days_from_civil(number(text, 0, 4)?, number(text, 5, 7)?, number(text, 8, 10)?)?;
    let (hour, minute, second) = (number(text, 11, 13)?, number(text, 14, 16)?, number(text, 17, 19)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut ns = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let width = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if width == 0 {
            return None;
        }
        let kept = fraction.get(..width.min(9))?;
        ns = kept.parse::<u64>().ok()? * 10_u64.pow(u32::try_from(9 - kept.len()).ok()?);
        rest = fraction.get(width..)?;
    }
    let local = i64::try_from(days * S_PER_DAY + hour * 3600 + minute * 60 + second).ok()?;
    let utc = u64::try_from(local - offset_seconds(rest)?).ok()?;
    Some(Timestamp(utc.checked_mul(NS_PER_S)?.checked_add(ns)?))
}

fn offset_seconds(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    if text.len() != 6 || text.as_bytes().get(3) != Some(&b':') {
        return None;
    }
    let (hours, minutes) = (number(text, 1, 3)?, number(text, 4, 6)?);
    (hours < 24 && minutes < 60).then(|| sign * i64::try_from(hours * 3600 + minutes * 60).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        for (ns, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000000000Z"),
            (1_796_083_200_120_000_001, "2026-12-01T00:00:00.120000001Z"),
            (4_107_542_399_999_999_999, "2100-02-28T23:59:59.999999999Z"),
        ] {
            assert_eq!(Timestamp(ns).to_string(), text);
            assert_eq!(Timestamp::parse_rfc3339(text), Ok(Timestamp(ns)));
        }
        assert_eq!(Timestamp(1_120_000_000).to_rfc3339(3), "1970-01-01T00:00:01.120Z");
        assert_eq!(Timestamp(1_120_000_000).to_rfc3339(0), "1970-01-01T00:00:01Z");
        assert_eq!(Timestamp::parse_rfc3339("1970-01-01T02:00:01.5+02:00"), Ok(Timestamp(1_500_000_000)));
    }

    #[test]
    fn what_is_no_time() {
        for bad in [
            "",
            "now",
            "2026-02-30T00:00:00Z",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "1969-12-31T23:59:59Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+2:00",
        ] {
            assert!(Timestamp::parse_rfc3339(bad).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn text_and_back(ns in 0..u64::MAX) {
            proptest::prop_assert_eq!(Timestamp::parse_rfc3339(&Timestamp(ns).to_string()), Ok(Timestamp(ns)));
        }

        #[test]
        fn text_order_is_time_order(a in 0..u64::MAX, b in 0..u64::MAX) {
            proptest::prop_assert_eq!(Timestamp(a).to_string().cmp(&Timestamp(b).to_string()), a.cmp(&b));
        }

        #[test]
        fn parse_never_panics(text in ".{0,40}") {
            let _outcome = Timestamp::parse_rfc3339(&text);
        }
    }
}
