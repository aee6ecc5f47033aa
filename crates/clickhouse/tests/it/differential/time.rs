//! What dates and times mean: read by another library, in the zone's own history.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use jiff::civil;
use jiff::tz::{AmbiguousOffset, TimeZone};

use super::decimal::Number;
use super::json::Json;
use super::meaning::Server;

/// `DateTime`: seconds in 32 bits.
const SECONDS_32: RangeInclusive<i128> = 0..=4_294_967_295;
/// `DateTime64`: seconds of 1900 to 2299 ...
const SECONDS_64: RangeInclusive<i128> = -2_208_988_800..=10_413_791_999;
/// ... and 64 bits of ticks.
const TICKS: RangeInclusive<i128> = i64::MIN as i128..=i64::MAX as i128;
/// `Time`: 999:59:59 to both sides.
const DAY_SECONDS_MAX: i128 = 3_599_999;
const NANOS: i128 = 1_000_000_000;

/// Days since 1970-01-01 of a calendar date or a count of days.
pub(super) fn days(json: &Json, range: RangeInclusive<i128>) -> Option<i128> {
    let days = match json {
        Json::Number(digits) => whole(digits)?,
        Json::Text(text) => {
            let date: civil::Date = text.value.parse().ok().filter(|_| !text.value.contains(':'))?;
            i128::from(civil::date(1970, 1, 1).until(date).ok()?.get_days())
        }
        _ => return None,
    };
    range.contains(&days).then_some(days)
}

fn whole(digits: &str) -> Option<i128> {
    // Far beyond every column, and far enough from the type's bounds to go on with.
    Number::read(digits)?.to_string().parse().ok().filter(|value: &i128| value.unsigned_abs() < 1 << 120)
}

/// Unix seconds; what is written behind the second is cut off.
pub(super) fn date_time(json: &Json, zone: &str, server: &Server) -> Option<i128> {
    let seconds = match json {
        Json::Number(digits) if server.version >= (26, 8) => seconds(digits)?.div_euclid(NANOS),
        Json::Number(digits) => whole(digits)?,
        Json::Text(text) => instant(&text.value, zone, server)?.div_euclid(NANOS),
        _ => return None,
    };
    SECONDS_32.contains(&seconds).then_some(seconds)
}

/// Ticks of the scale; finer digits are cut off.
pub(super) fn date_time64(json: &Json, scale: u32, zone: &str, server: &Server) -> Option<i128> {
    let tick = 10i128.pow(9 - scale);
    let ticks = match json {
        Json::Number(digits) if server.version >= (26, 8) => seconds(digits)?.div_euclid(tick),
        Json::Number(digits) => whole(digits)?,
        Json::Text(text) => instant(&text.value, zone, server)?.div_euclid(tick),
        _ => return None,
    };
    let seconds = ticks.div_euclid(10i128.pow(scale));
    (SECONDS_64.contains(&seconds) && TICKS.contains(&ticks)).then_some(ticks)
}

/// Nanoseconds of a decimal count of seconds.
fn seconds(digits: &str) -> Option<i128> {
    whole(&Number::read(&format!("{digits}e9")).or_else(|| Number::read(digits))?.cut(0)?.to_string())
}

/// Nanoseconds since 1970 of a text: a count of seconds or finer, an instant, or a local time.
pub(super) fn instant(text: &str, zone: &str, server: &Server) -> Option<i128> {
    if let Some(nanos) = counted(text) {
        return Some(nanos);
    }
    let text = cut_fraction(text);
    if text.contains(":60") || text.contains('[') {
        return None;
    }
    let with_offset =
        text.strip_suffix("UTC").map_or_else(|| text.clone(), |front| format!("{}Z", front.trim_end()));
    let closed = with_offset.replace(" +", "+").replace(" -", "-").replace(" Z", "Z");
    if let Ok(timestamp) = closed.parse::<Timestamp>() {
        return Some(timestamp.as_nanosecond());
    }
    let local: civil::DateTime = text.parse().ok()?;
    let zone = TimeZone::get(if zone.is_empty() { &server.zone } else { zone }).ok()?;
    let offset = match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset,
        // The hour that comes twice: the first of the two.
        AmbiguousOffset::Fold { before, .. } => before,
        AmbiguousOffset::Gap { .. } => return None,
    };
    Some(offset.to_timestamp(local).ok()?.as_nanosecond())
}

/// 9 or 10 digits count seconds, 13, 16 and 19 milli-, micro- and nanoseconds.
fn counted(text: &str) -> Option<i128> {
    let (digits, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let right = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !right(digits) || !right(fraction) {
        return None;
    }
    let value: i128 = digits.parse().ok()?;
    let fraction: i128 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    match digits.len() {
        9 | 10 => Some(value * NANOS + fraction),
        13 if !text.contains('.') => Some(value * 1_000_000),
        16 if !text.contains('.') => Some(value * 1_000),
        19 if !text.contains('.') => Some(value),
        _ => None,
    }
}

/// The text with at most nine digits behind the second, which is all that any column holds.
fn cut_fraction(text: &str) -> String {
    let Some((front, rest)) = text.split_once('.') else { return text.to_owned() };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (fraction, rest) = rest.split_at(digits);
    format!("{front}.{}{rest}", fraction.get(..9).unwrap_or(fraction))
}

/// A time as the server writes it: `[-]HH:MM:SS[.fraction]`.
pub(super) fn of_day(json: &Json, scale: u32) -> Option<String> {
    let unit = 10i128.pow(scale);
    let ticks = match json {
        Json::Number(digits) => whole(digits)?,
        Json::Text(text) => {
            let negative = text.value.starts_with('-');
            let rest = text.value.strip_prefix('-').unwrap_or(&text.value);
            let (clock, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
            let parts: Vec<_> = clock.split(':').collect();
            let &[hours, minutes, seconds] = parts.as_slice() else { return None };
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let sixtieth = |text: &str| digits(text) && text.len() == 2 && text < "60";
            if !digits(hours)
                || hours.len() > 3
                || !sixtieth(minutes)
                || !sixtieth(seconds)
                || !digits(fraction)
            {
                return None;
            }
            let number = |text: &str| text.parse::<i128>().ok();
            let whole = number(hours)? * 3_600 + number(minutes)? * 60 + number(seconds)?;
            let places = usize::try_from(scale).ok()?;
            let fraction = format!("{fraction:0<9}").get(..places).map_or("0", |cut| cut).to_owned();
            let ticks = whole * unit + number(&format!("0{fraction}"))?;
            if negative { -ticks } else { ticks }
        }
        _ => return None,
    };
    let (magnitude, sign) = (ticks.abs(), if ticks < 0 { "-" } else { "" });
    let seconds = magnitude / unit;
    let (hours, minutes, rest) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let clock = format!("{sign}{hours:02}:{minutes:02}:{rest:02}");
    let places = usize::try_from(scale).ok()?;
    let fraction = if scale == 0 { String::new() } else { format!(".{:0places$}", magnitude % unit) };
    (seconds <= DAY_SECONDS_MAX).then(|| clock + &fraction)
}
