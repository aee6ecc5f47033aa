//! Numbers into numeric columns: range and form, on the digits.

use std::cmp::Ordering;

use super::{Why, text::plain};
use crate::scan::{Number, NumberKind, Token};
use crate::types::FloatType;

/// The largest magnitudes of the wide integers, as digits: unsigned, signed positive, signed negative.
const LIMITS_64: [&[u8]; 3] = [b"18446744073709551615", b"9223372036854775807", b"9223372036854775808"];
const LIMITS_128: [&[u8]; 3] = [
    b"340282366920938463463374607431768211455",
    b"170141183460469231731687303715884105727",
    b"170141183460469231731687303715884105728",
];
const LIMITS_256: [&[u8]; 3] = [
    b"115792089237316195423570985008687907853269984665640564039457584007913129639935",
    b"57896044618658097711785492504343953926634992332820282019728792003956564819967",
    b"57896044618658097711785492504343953926634992332820282019728792003956564819968",
];

/// A whole number, bare or in quotes; `true` and `false` are 1 and 0. The server wraps what does not fit.
#[inline]
pub(super) fn int(bits: u16, signed: bool, token: Token<'_>) -> Result<(), Why> {
    let (negative, digits) = match token {
        Token::Number(Number { kind: NumberKind::Whole, negative, magnitude: Some(magnitude), .. }) => {
            return if fits(bits, signed, negative, magnitude) { Ok(()) } else { Err(Why::Range) };
        }
        Token::Number(Number { kind: NumberKind::Whole, raw, .. }) => signed_digits(raw, false),
        Token::Text(_) => signed_digits(plain(token).ok_or(Why::NotWhole)?, true),
        Token::Bool(_) => return Ok(()),
        _ => None,
    }
    .ok_or(Why::NotWhole)?;
    if digits_fit(bits, signed, negative, digits) { Ok(()) } else { Err(Why::Range) }
}

#[inline]
fn fits(bits: u16, signed: bool, negative: bool, magnitude: u64) -> bool {
    match (signed, negative) {
        // The server refuses even -0 here.
        (false, true) => false,
        (false, false) => bits >= 64 || magnitude >> bits == 0,
        (true, _) if bits > 64 => true,
        (true, negative) => magnitude < (1 << (bits - 1)) + u64::from(negative),
    }
}

/// Sign and digits of a whole number without leading zeros (zero has no digits left).
fn signed_digits(text: &[u8], plus: bool) -> Option<(bool, &[u8])> {
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' if plus => (false, &text[1..]),
        _ => (false, text),
    };
    let right = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    right.then(|| (negative, without_zeros(digits)))
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    &digits[zeros..]
}

fn digits_fit(bits: u16, signed: bool, negative: bool, digits: &[u8]) -> bool {
    if negative && !signed {
        return false;
    }
    if digits.len() <= 19 {
        let magnitude = digits.iter().fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        return fits(bits, signed, negative, magnitude);
    }
    let limits = match bits {
        64 => LIMITS_64,
        128 => LIMITS_128,
        256 => LIMITS_256,
        _ => return false,
    };
    let limit = limits[if signed { 1 + usize::from(negative) } else { 0 }];
    digits.len().cmp(&limit.len()).then_with(|| digits.cmp(limit)) != Ordering::Greater
}

/// The server refuses an exponent that overflows its own integer; no value needs one below this.
const DECIMAL_EXPONENT_MIN: i64 = -9_999;

/// A number with a point and an exponent, taken apart.
struct Parts<'a> {
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: Option<i64>,
}

/// Takes apart `[+-]digits[.digits][e[+-]digits]`; one of the first two digit runs may be empty.
fn parts(text: &[u8]) -> Option<Parts<'_>> {
    let text = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = match rest.strip_prefix(b".") {
        Some(rest) => split_digits(rest),
        None => (&rest[..0], rest),
    };
    let exponent = match rest {
        [] => None,
        [b'e' | b'E', exponent @ ..] => Some(read_exponent(exponent)?),
        _ => return None,
    };
    (!whole.is_empty() || !fraction.is_empty()).then_some(Parts { whole, fraction, exponent })
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

/// Saturates: what is beyond is out of every range anyway.
fn read_exponent(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: i64, digit: &u8| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    let magnitude = digits.iter().fold(0i64, add).min(i64::from(i32::MAX));
    Some(if text.starts_with(b"-") { -magnitude } else { magnitude })
}

fn length(digits: &[u8]) -> i64 {
    i64::try_from(digits.len()).unwrap_or(i64::MAX)
}

/// A number, bare or in quotes, also nan and inf in quotes. The server stores inf for what is too large.
pub(super) fn float(kind: FloatType, token: Token<'_>) -> Result<(), Why> {
    let text = match token {
        // 38 digits fit every float type.
        Token::Number(number) if number.kind == NumberKind::Whole && number.raw.len() <= 38 => return Ok(()),
        Token::Number(number) => number.raw,
        Token::Bool(_) => return Ok(()),
        _ => plain(token).ok_or(Why::NotNumber)?,
    };
    let Some(parts) = parts(text) else {
        return if is_special(text) { Ok(()) } else { Err(Why::NotNumber) };
    };
    if length(parts.whole) + parts.exponent.unwrap_or(0).max(0) <= 38 {
        return Ok(());
    }
    let text = std::str::from_utf8(text).map_err(|_| Why::NotNumber)?;
    let finite = match kind {
        FloatType::Float64 => text.parse::<f64>().is_ok_and(f64::is_finite),
        FloatType::Float32 | FloatType::BFloat16 => text.parse::<f32>().is_ok_and(f32::is_finite),
    };
    if finite { Ok(()) } else { Err(Why::Range) }
}

fn is_special(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    [&b"nan"[..], b"inf", b"infinity"].iter().any(|special| text.eq_ignore_ascii_case(special))
}

/// A number, bare or in quotes, whose digits before the point fit; more digits behind it are cut off.
pub(super) fn decimal(precision: u8, scale: u8, token: Token<'_>) -> Result<(), Why> {
    let text = match token {
        Token::Number(number) => number.raw,
        _ => plain(token).ok_or(Why::NotNumber)?,
    };
    let parts = parts(text).ok_or(Why::NotNumber)?;
    let whole_max = i64::from(precision) - i64::from(scale);
    let whole = length(without_zeros(parts.whole));
    let fits = match parts.exponent {
        None => whole <= whole_max,
        Some(exponent) => {
            // The server reads no more digits than the precision before it moves the point.
            let written = length(parts.whole).max(1) + length(parts.fraction);
            let read = whole <= i64::from(precision) && (exponent <= 0 || written <= i64::from(precision));
            read && whole + exponent <= whole_max && exponent >= DECIMAL_EXPONENT_MIN
        }
    };
    if fits { Ok(()) } else { Err(Why::TooManyDigits) }
}

/// true, false, and the bare numbers 1 and 0.
pub(super) fn boolean(token: Token<'_>) -> Result<(), Why> {
    match token {
        Token::Bool(_) => Ok(()),
        Token::Number(number) if matches!(number.raw, b"0" | b"1") => Ok(()),
        _ => Err(Why::NotBool),
    }
}
