//! Dates and times: accepted in the forms that the server's best-effort reading takes as written, and within
//! the range that the column holds. The server turns 32 January into another day, 25:00 into the next
//! morning, and what is out of range into the nearest bound, all without a word: here they are refused.

mod clock;

use std::ops::RangeInclusive;

use clock::{FRACTION_DIGITS_MAX, days_of, moment, settle};

use super::{Why, text::plain};
use crate::scan::{Number, NumberKind, Token};
use crate::schema::Server;
use crate::types::Zone;

/// Days since 1970-01-01 that `Date` holds: to 2149-06-06.
pub(super) const DATE_DAYS: RangeInclusive<i64> = 0..=65_535;
/// Days since 1970-01-01 that `Date32` holds: 1900-01-01 to 2299-12-31.
pub(super) const DATE32_DAYS: RangeInclusive<i64> = -25_567..=120_529;
/// Unix seconds that `DateTime` holds: 1970-01-01 to 2106-02-07.
const SECONDS_32: RangeInclusive<i64> = 0..=4_294_967_295;
/// Unix seconds that `DateTime64` holds: 1900-01-01 to 2299-12-31 ...
const SECONDS_64: RangeInclusive<i64> = -2_208_988_800..=10_413_791_999;
/// ... and with nanoseconds, in 64 bits: to 2262-04-11.
const SECONDS_64_NANOS: RangeInclusive<i64> = -2_208_988_800..=9_223_372_035;
/// Seconds that `Time` and `Time64` hold, to both sides: 999:59:59.
const TIME_SECONDS_MAX: u64 = 3_599_999;

/// `2026-01-31`, or a bare count of days.
pub(super) fn date(token: Token<'_>, days: RangeInclusive<i64>) -> Result<(), Why> {
    let day = match token {
        // The server refuses even -0 where no date lies before 1970.
        Token::Number(number) if number.negative && *days.start() == 0 => return Err(Why::Range),
        Token::Number(number) => whole(&number).ok_or(Why::NotDate)?,
        _ => plain(token).and_then(days_of).ok_or(Why::NotDate)?,
    };
    if days.contains(&day) { Ok(()) } else { Err(Why::Range) }
}

/// A text, or bare unix seconds.
pub(super) fn date_time(token: Token<'_>, zone: &Zone, server: &Server) -> Result<(), Why> {
    if let Token::Number(number) = token {
        let seconds = seconds_of(&number, server).ok_or(Why::NotDateTime)?;
        return if SECONDS_32.contains(&seconds) { Ok(()) } else { Err(Why::Range) };
    }
    let text = plain(token).ok_or(Why::NotDateTime)?;
    date_time_text(text, zone, server, SECONDS_32, false)
}

/// A text; or a bare number, which servers before 26.8 read as ticks of the column's scale, later as seconds.
pub(super) fn date_time64(token: Token<'_>, scale: u8, zone: &Zone, server: &Server) -> Result<(), Why> {
    let range = if scale == 9 { SECONDS_64_NANOS } else { SECONDS_64 };
    if let Token::Number(number) = token {
        let seconds = if server.bare_seconds {
            seconds_of(&number, server)
        } else {
            whole(&number).map(|ticks| ticks.div_euclid(10i64.pow(u32::from(scale))))
        };
        let seconds = seconds.ok_or(Why::NotDateTime)?;
        return if range.contains(&seconds) { Ok(()) } else { Err(Why::Range) };
    }
    let text = plain(token).ok_or(Why::NotDateTime)?;
    date_time_text(text, zone, server, range, true)
}

fn date_time_text(
    text: &[u8],
    zone: &Zone,
    server: &Server,
    range: RangeInclusive<i64>,
    has_fraction: bool,
) -> Result<(), Why> {
    if let Some(seconds) = unix_text(text, has_fraction) {
        return if range.contains(&seconds) { Ok(()) } else { Err(Why::Range) };
    }
    let rules = if zone.name().is_some() { zone.rules() } else { &server.zone };
    let moment = moment(text).ok_or(Why::NotDateTime)?;
    settle(&moment, rules, &range)
}

/// 9 or 10 digits are seconds; 13, 16 and 19 are milli-, micro- and nanoseconds. With a fraction only where
/// the column has one: the server refuses it elsewhere.
fn unix_text(text: &[u8], has_fraction: bool) -> Option<i64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = || text[..digits].iter().fold(0i64, |sum, byte| sum * 10 + i64::from(byte - b'0'));
    let fraction = match &text[digits..] {
        [] => false,
        [b'.', rest @ ..] if has_fraction => {
            (1..=FRACTION_DIGITS_MAX).contains(&rest.len()) && rest.iter().all(u8::is_ascii_digit)
        }
        _ => return None,
    };
    match (digits, text.len() == digits || fraction) {
        (9 | 10, true) => Some(value()),
        (13, true) if !fraction => Some(value() / 1_000),
        (16, true) if !fraction => Some(value() / 1_000_000),
        // 19 digits may exceed 64 bits, but not as digits of a date that the column holds.
        (19, true) if !fraction && text[0] < b'9' => Some(value() / 1_000_000_000),
        _ => None,
    }
}

/// `[-]12:00:00` with one to three digits of hours.
pub(super) fn time(token: Token<'_>) -> Result<(), Why> {
    time_of(token, 0, false)
}

/// The same with a fraction; a bare number counts ticks of the column's scale.
pub(super) fn time64(token: Token<'_>, scale: u8) -> Result<(), Why> {
    time_of(token, scale, true)
}

fn time_of(token: Token<'_>, scale: u8, has_fraction: bool) -> Result<(), Why> {
    if let Token::Number(number) = token {
        let ticks = whole(&number).ok_or(Why::NotTime)?.unsigned_abs();
        let seconds = ticks / 10u64.pow(u32::from(scale));
        return if seconds <= TIME_SECONDS_MAX { Ok(()) } else { Err(Why::Range) };
    }
    let text = plain(token).ok_or(Why::NotTime)?;
    if clock::is_time(text, has_fraction) { Ok(()) } else { Err(Why::NotTime) }
}

/// The value of a bare whole number.
fn whole(number: &Number<'_>) -> Option<i64> {
    let magnitude = i64::try_from(number.magnitude?).ok()?;
    Some(if number.negative { -magnitude } else { magnitude })
}

/// Bare seconds. Servers since 26.8 take a fraction, earlier ones refuse it; whole seconds of it are judged.
fn seconds_of(number: &Number<'_>, server: &Server) -> Option<i64> {
    match number.kind {
        NumberKind::Whole => whole(number),
        NumberKind::Fraction if server.bare_seconds => {
            let point = number.raw.iter().position(|&byte| byte == b'.')?;
            let seconds: i64 = std::str::from_utf8(&number.raw[..point]).ok()?.parse().ok()?;
            Some(if number.negative { seconds - 1 } else { seconds })
        }
        NumberKind::Fraction | NumberKind::Exponent => None,
    }
}
