//! Durations as operators of JetStream write and read them: Go's way.

use std::time::Duration;

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It is not one or more of a number and a unit.
    #[error("{0:?} is not a duration such as 5s, 1m30s or 250ms")]
    Malformed(String),
    /// It is below zero.
    #[error("{0:?} is below zero")]
    Negative(String),
    /// It is longer than 2^63 nanoseconds, some 292 years.
    #[error("{0:?} is longer than 292 years")]
    TooLong(String),
}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration: `5s`, `1m30s`, `1.5h`, `250ms`, `0`.
///
/// # Errors
/// [`DurationError`] when it is no duration, below zero, or too long.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let malformed = || DurationError::Malformed(text.to_owned());
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return Err(malformed());
    }
    let mut total_ns = 0_u128;
    if rest == "0" {
        rest = "";
    }
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after) = split_where(after, |c| c.is_ascii_digit() || c == '.');
        let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(malformed)?;
        let ns = scaled(number, *unit_ns).ok_or_else(malformed)?;
        total_ns = total_ns.saturating_add(ns);
        rest = after;
    }
    if negative && total_ns > 0 {
        return Err(DurationError::Negative(text.to_owned()));
    }
    let within = u64::try_from(total_ns).ok().filter(|ns| i64::try_from(*ns).is_ok());
    within.map(Duration::from_nanos).ok_or_else(|| DurationError::TooLong(text.to_owned()))
}

fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// A decimal number of units; what is smaller than a nanosecond is cut off. Too large saturates.
fn scaled(number: &str, unit_ns: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let digits = |text: &str| {
        text.bytes().fold(0_u128, |sum, c| sum.saturating_mul(10).saturating_add(u128::from(c - b'0')))
    };
    // Fifteen digits are more than any unit has nanoseconds.
    let fraction = fraction.get(..15).unwrap_or(fraction);
    let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or_default());
    Some(digits(whole).saturating_mul(unit_ns.into()) + digits(fraction) * u128::from(unit_ns) / scale)
}

/// Writes a duration: whole hours, else whole minutes, else Go's form (`10s`, `2m1s`, `15.5s`, `250ms`).
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let (seconds, ns) = (duration.as_secs(), duration.subsec_nanos());
    if ns == 0 && seconds % 3600 == 0 {
        return format!("{}h", seconds / 3600);
    }
    if ns == 0 && seconds % 60 == 0 {
        return format!("{}m", seconds / 60);
    }
    if seconds == 0 {
        return match ns {
            1_000_000.. => format!("{}ms", decimal(0, ns, 1_000_000)),
            1_000.. => format!("{}µs", decimal(0, ns, 1_000)),
            _ => format!("{ns}ns"),
        };
    }
    let tail = format!("{}s", decimal(seconds % 60, ns, 1_000_000_000));
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => tail,
        (0, minutes) => format!("{minutes}m{tail}"),
        (hours, minutes) => format!("{hours}h{minutes}m{tail}"),
    }
}

/// `whole` and the fraction `ns / unit`, without zeros at the end.
fn decimal(whole: u64, ns: u32, unit: u32) -> String {
    let whole = whole + u64::from(ns / unit);
    let width = usize::try_from(unit.ilog10()).unwrap_or_default();
    let fraction = format!("{:0width$}", ns % unit);
    match fraction.trim_end_matches('0') {
        "" => whole.to_string(),
        fraction => format!("{whole}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_written_as_go_does() {
        let cases = [
            (0, "0h"),
            (3_600_000_000_000, "1h"),
            (5_400_000_000_000, "90m"),
            (120_000_000_000, "2m"),
            (10_000_000_000, "10s"),
            (90_000_000_000, "1m30s"),
            (121_000_000_000, "2m1s"),
            (15_500_000_000, "15.5s"),
            (3_601_000_000_000, "1h0m1s"),
            (250_000_000, "250ms"),
            (1_500_000, "1.5ms"),
            (1_500, "1.5µs"),
            (7, "7ns"),
        ];
        for (ns, text) in cases {
            assert_eq!(format_duration(Duration::from_nanos(ns)), text);
        }
    }

    #[test]
    fn durations_are_read_as_go_does() {
        for (text, ms) in [
            ("5s", 5_000),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("+2ms", 2),
            ("0", 0),
            ("-0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "5", "s", "5 s", "1.2.3s", ".s", "5sec", "-", "5s3", "1e3s", "٣s"] {
            assert_eq!(parse_duration(bad), Err(DurationError::Malformed(bad.to_owned())), "{bad}");
        }
        assert_eq!(parse_duration("-1s"), Err(DurationError::Negative("-1s".to_owned())));
        for long in ["300000000h", "99999999999999999999999999999999999999999999h"] {
            assert_eq!(parse_duration(long), Err(DurationError::TooLong(long.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(ns in 0..=u64::try_from(i64::MAX).unwrap()) {
            let duration = Duration::from_nanos(ns);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn reading_never_panics(text in any::<String>()) {
            let _read = parse_duration(&text);
        }
    }
}
