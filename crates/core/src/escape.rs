//! One name as one subject token: what a subject cannot carry is written as `%` and two hexadecimal digits.
//!
//! Bytes are escaped, not characters, so that every name has exactly one escaped form. The kept bytes are the grammar of
//! a tenant id, so an id is its own escaped form.

use std::fmt::Write;

/// Why a token is no escaped name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnescapeError {
    /// A `%` without two hexadecimal digits after it.
    #[error("token {0:?} has a '%' without two hexadecimal digits")]
    Malformed(String),
    /// The bytes are not UTF-8.
    #[error("token {0:?} does not stand for UTF-8 text")]
    NotText(String),
}

/// Bytes that stand for themselves: ASCII letters, digits, `_` and `-`. Never `.` nor `%`.
fn is_kept(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Writes a name as one token; the empty name is the empty token.
#[must_use]
pub fn escape_token(name: &str) -> String {
    let mut token = String::with_capacity(name.len());
    for byte in name.bytes() {
        if is_kept(byte) {
            token.push(char::from(byte));
        } else {
            // Writing into a string cannot fail.
            let _written = write!(token, "%{byte:02X}");
        }
    }
    token
}

/// Reads a token back. Permissive: digits of either case, and any byte but `%` reads as itself, because older releases
/// escaped more than this one does.
///
/// # Errors
/// [`UnescapeError`] when a `%` is not followed by two hexadecimal digits, or the bytes are not text.
pub fn unescape_token(token: &str) -> Result<String, UnescapeError> {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Err(UnescapeError::Malformed(token.to_owned()));
        };
        // Two digits of base 16 are at most 255.
        bytes.push(u8::try_from(high * 16 + low).unwrap_or(u8::MAX));
    }
    String::from_utf8(bytes).map_err(|_| UnescapeError::NotText(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KNOWN: [(&str, &str); 7] = [
        ("a.b", "a%2Eb"),
        ("page views", "page%20views"),
        ("naïve", "na%C3%AFve"),
        ("a*b>c", "a%2Ab%3Ec"),
        ("", ""),
        ("A-z_09", "A-z_09"),
        ("100%", "100%25"),
    ];

    #[test]
    fn names_have_the_known_tokens() {
        for (name, token) in KNOWN {
            assert_eq!(escape_token(name), token);
            assert_eq!(unescape_token(token).as_deref(), Ok(name));
        }
    }

    #[test]
    fn reading_is_permissive() {
        for (token, name) in [("a%2Db", "a-b"), ("na%c3%afve", "naïve"), ("a*b", "a*b"), ("%41", "A")] {
            assert_eq!(unescape_token(token).as_deref(), Ok(name), "{token}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for token in ["%", "a%2", "%GG", "%+1", "%%41", "%é"] {
            assert_eq!(unescape_token(token), Err(UnescapeError::Malformed(token.to_owned())));
        }
        assert_eq!(unescape_token("%FF"), Err(UnescapeError::NotText("%FF".to_owned())));
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name in any::<String>()) {
            let token = escape_token(&name);
            prop_assert!(token.bytes().all(|byte| is_kept(byte) || byte == b'%'));
            prop_assert_eq!(unescape_token(&token), Ok(name));
        }

        #[test]
        fn reading_never_panics(token in any::<String>()) {
            let _read = unescape_token(&token);
        }
    }
}
