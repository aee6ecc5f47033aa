//! Values that are texts of a fixed form: FixedString, UUID, addresses, enums.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Why, decode};
use crate::scan::{NumberKind, Text, Token};
use crate::types::EnumValues;

/// The server pads a shorter string with NULs, and refuses a longer one.
pub(super) fn fixed(length: usize, text: Text<'_>) -> Result<(), Why> {
    let fits = text.raw.len() <= length || (text.escaped && decode(text.raw).len() <= length);
    if fits { Ok(()) } else { Err(Why::TooLong) }
}

/// The text of a token whose type the server reads undecoded: with escapes it does not find its form there.
pub(super) fn plain<'a>(token: Token<'a>) -> Option<&'a [u8]> {
    match token {
        Token::Text(text) if !text.escaped => Some(text.raw),
        _ => None,
    }
}

/// 36 characters with hyphens, or 32 without.
pub(super) fn uuid(token: Token<'_>) -> Result<(), Why> {
    let text = plain(token).ok_or(Why::NotUuid)?;
    // Without early exits, so that all bytes are looked at at once.
    let hex = |ok: bool, byte: &u8| ok & byte.is_ascii_hexdigit();
    let right = if let Ok(text) = <&[u8; 36]>::try_from(text) {
        let hyphens = [text[8], text[13], text[18], text[23]] == *b"----";
        let hex_or_hyphen = |ok: bool, byte: &u8| ok & (byte.is_ascii_hexdigit() | (*byte == b'-'));
        let hyphen_count = text.iter().fold(0, |count, byte| count + u8::from(*byte == b'-'));
        hyphens & (hyphen_count == 4) & text.iter().fold(true, hex_or_hyphen)
    } else {
        <&[u8; 32]>::try_from(text).is_ok_and(|text| text.iter().fold(true, hex))
    };
    if right { Ok(()) } else { Err(Why::NotUuid) }
}

/// Four decimal numbers without leading zeros (which some read as octal).
pub(super) fn ipv4(token: Token<'_>) -> Result<(), Why> {
    parse_address::<Ipv4Addr>(token).ok_or(Why::NotIpv4)
}

/// Any text form; an IPv4 address is stored as its mapped form, which is what it means there.
pub(super) fn ipv6(token: Token<'_>) -> Result<(), Why> {
    parse_address::<Ipv6Addr>(token).or_else(|| parse_address::<Ipv4Addr>(token)).ok_or(Why::NotIpv6)
}

fn parse_address<A: std::str::FromStr>(token: Token<'_>) -> Option<()> {
    std::str::from_utf8(plain(token)?).ok()?.parse::<A>().ok().map(drop)
}

/// A name; or a number, bare or (where no name is spelt so) in quotes.
pub(super) fn enumeration(values: &EnumValues, token: Token<'_>) -> Result<(), Why> {
    let known = match token {
        Token::Text(text) if text.escaped => values.has_name(&decode(text.raw)),
        Token::Text(text) => values.has_name(text.raw) || quoted_number(values, text.raw),
        Token::Number(number) if number.kind == NumberKind::Whole => number
            .magnitude
            .and_then(|magnitude| i64::try_from(magnitude).ok())
            .is_some_and(|value| values.has_number(if number.negative { -value } else { value })),
        _ => false,
    };
    if known { Ok(()) } else { Err(Why::NotInEnum) }
}

fn quoted_number(values: &EnumValues, text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    plain && std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).is_some_and(|n| values.has_number(n))
}
