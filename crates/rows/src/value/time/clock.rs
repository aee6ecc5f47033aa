//! Calendar texts: their grammar, their place on the time line, and the zone's say in it.

use std::ops::RangeInclusive;

use jiff::civil;
use jiff::tz::AmbiguousOffset;

use crate::types::Rules;
use crate::value::Why;

/// No zone is further from UTC, so this margin spares most texts a look into the zone's history.
const DAY_SECONDS: i64 = 86_400;
/// The server reads no more digits behind the second of a date and time, and refuses what follows them.
pub(super) const FRACTION_DIGITS_MAX: usize = 19;

/// A date and time as written: checked against the calendar, not yet against a zone or a column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    year: i64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    /// Seconds east of UTC, if the text says so.
    offset: Option<i64>,
}

/// Days since 1970-01-01 of a text like `2026-01-31`, if there is such a day.
pub(super) fn days_of(text: &[u8]) -> Option<i64> {
    let (year, month, day, rest) = split_date(text)?;
    rest.is_empty().then(|| days(year, month, day))
}

/// Reads `date[T| ]hh:mm[:ss[.fraction]][ ][offset]`, or a date alone.
pub(super) fn moment(text: &[u8]) -> Option<Moment> {
    let (year, month, day, rest) = split_date(text)?;
    let mut moment = Moment { year, month, day, hour: 0, minute: 0, second: 0, offset: None };
    if rest.is_empty() {
        return Some(moment);
    }
    let &[b'T' | b' ', h0, h1, b':', m0, m1, ref rest @ ..] = rest else { return None };
    moment.hour = two(h0, h1).filter(|&hour| hour < 24)?;
    moment.minute = sixtieth(m0, m1)?;
    let rest = match *rest {
        [b':', s0, s1, ref rest @ ..] => {
            moment.second = sixtieth(s0, s1)?;
            after_fraction(rest, FRACTION_DIGITS_MAX)?
        }
        _ => rest,
    };
    moment.offset = offset(rest)?;
    Some(moment)
}

/// Whether the text is `[-]h[h[h]]:mm:ss`, with a fraction where allowed.
pub(super) fn is_time(text: &[u8], has_fraction: bool) -> bool {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let hours = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let &[b':', m0, m1, b':', s0, s1, ref rest @ ..] = &text[hours..] else { return false };
    let whole = (1..=3).contains(&hours) && sixtieth(m0, m1).is_some() && sixtieth(s0, s1).is_some();
    let fraction =
        rest.is_empty() || (has_fraction && after_fraction(rest, usize::MAX).is_some_and(<[u8]>::is_empty));
    whole && fraction
}

/// Whether the moment exists in the zone and lies in the column's range of unix seconds.
pub(super) fn settle(moment: &Moment, rules: &Rules, range: &RangeInclusive<i64>) -> Result<(), Why> {
    let local = moment.local_seconds();
    let seconds = match (moment.offset, rules) {
        (Some(offset), _) => local - offset,
        (None, Rules::Fixed(offset)) => local - offset,
        (None, Rules::Varying(zone)) => {
            let time = moment.civil().ok_or(Why::Range)?;
            match zone.to_ambiguous_timestamp(time).offset() {
                AmbiguousOffset::Unambiguous { offset } => local - i64::from(offset.seconds()),
                AmbiguousOffset::Fold { before, .. } => local - i64::from(before.seconds()),
                AmbiguousOffset::Gap { .. } => return Err(Why::SkippedTime),
            }
        }
        (None, Rules::Unknown) => {
            let safe = range.contains(&(local - DAY_SECONDS)) && range.contains(&(local + DAY_SECONDS));
            return if safe { Ok(()) } else { Err(Why::Range) };
        }
    };
    if range.contains(&seconds) { Ok(()) } else { Err(Why::Range) }
}

impl Moment {
    fn local_seconds(&self) -> i64 {
        let clock = i64::from(self.hour) * 3_600 + i64::from(self.minute) * 60 + i64::from(self.second);
        days(self.year, self.month, self.day) * DAY_SECONDS + clock
    }

    fn civil(&self) -> Option<civil::DateTime> {
        let year = i16::try_from(self.year).ok()?;
        let small = |value: u8| i8::try_from(value).ok();
        let (month, day) = (small(self.month)?, small(self.day)?);
        let (hour, minute, second) = (small(self.hour)?, small(self.minute)?, small(self.second)?);
        civil::DateTime::new(year, month, day, hour, minute, second, 0).ok()
    }
}

/// A calendar date at the start of `text`, and what follows it.
#[inline]
fn split_date(text: &[u8]) -> Option<(i64, u8, u8, &[u8])> {
    let &[y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, ref rest @ ..] = text else { return None };
    let year = i64::from(two(y0, y1)?) * 100 + i64::from(two(y2, y3)?);
    let month = two(m0, m1).filter(|month| (1..=12).contains(month))?;
    let day = two(d0, d1).filter(|&day| day >= 1 && day <= month_length(year, month))?;
    Some((year, month, day, rest))
}

#[inline]
fn two(tens: u8, ones: u8) -> Option<u8> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens < 10 && ones < 10).then(|| tens * 10 + ones)
}

#[inline]
fn sixtieth(tens: u8, ones: u8) -> Option<u8> {
    two(tens, ones).filter(|&value| value < 60)
}

fn month_length(year: i64, month: u8) -> u8 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar; years count from March, so that leap days come last.
fn days(year: i64, month: u8, day: u8) -> i64 {
    let from_march = (i64::from(month) + 9) % 12;
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * from_march + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// What follows an optional fraction of at most so many digits; `None` if a point has no digits, or more.
fn after_fraction(rest: &[u8], digits_max: usize) -> Option<&[u8]> {
    let Some(rest) = rest.strip_prefix(b".") else { return Some(rest) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (1..=digits_max).contains(&digits).then(|| &rest[digits..])
}

/// The offset from UTC at the end of a text: none, `Z`, `UTC`, `+02`, `+0200`, `+02:00`, with a blank or without.
fn offset(rest: &[u8]) -> Option<Option<i64>> {
    if rest.is_empty() {
        return Some(None);
    }
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let (sign, digits) = match rest {
        b"Z" | b"UTC" => return Some(Some(0)),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match *digits {
        [h0, h1] => (two(h0, h1)?, 0),
        [h0, h1, m0, m1] | [h0, h1, b':', m0, m1] => (two(h0, h1)?, sixtieth(m0, m1)?),
        _ => return None,
    };
    (hours < 24).then(|| Some(sign * (i64::from(hours) * 3_600 + i64::from(minutes) * 60)))
}
