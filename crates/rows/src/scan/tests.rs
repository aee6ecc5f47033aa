//! The grammar against serde_json's, and the word-wide string scan against the plain one.

use super::{Cursor, Token, decode};

/// Scalars, right and wrong.
const SCALARS: &[&str] = &[
    "1",
    "-1",
    "0",
    "-0",
    "01",
    "-01",
    "1.",
    ".5",
    "1.5",
    "1.5.5",
    "1e5",
    "1e",
    "1e+",
    "1E-05",
    "+1",
    "-",
    "--1",
    "0x1",
    "1 2",
    "nan",
    "NaN",
    "Infinity",
    "true",
    "tru",
    "truex",
    "True",
    "false",
    "null",
    "nul",
    "",
    " ",
    "\"\"",
    "\"a\"",
    "\"",
    "\"a",
    "'a'",
    "\"\\\"",
    "\"\\\"\"",
    "\"\\q\"",
    "\"\\u12\"",
    "\"\\u12g4\"",
    "\"\\u0041\"",
    "\"\t\"",
    "\"\n\"",
    "\"\0\"",
    "\"\u{7f}\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\\ude00\"",
    "\"\\ud83d\\u0041\"",
    "\"\\ud83dx\"",
    "\"é😀\"",
    "\u{feff}1",
    "/*x*/1",
    "1//x",
    "\"abcdefgh\"",
    "\"abcdefg\\n\"",
    "\"abcdefgh\u{1}\"",
    "\"aaaaaaaaaaaaaaaa\\\"\"",
    "\u{a0}1",
    "\u{b}1",
];

/// Containers, right and wrong.
const CONTAINERS: &[&str] = &[
    "[]",
    "[ ]",
    "[1]",
    "[1,]",
    "[,1]",
    "[,]",
    "[1 2]",
    "[",
    "]",
    "[1",
    "[1,",
    "[[]]",
    "[[]",
    "[]]",
    "{}",
    "{ }",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1}",
    "{\"a\":1,}",
    "{,}",
    "{\"a\":1 \"b\":2}",
    "{a:1}",
    "{1:1}",
    "{\"a\":1]",
    "[1}",
    "{\"a\"::1}",
    "{\"a\" : [ 1 , { } ] }",
    "{\"a\":{\"b\":[{}]}}",
];

/// Whether the whole text is one JSON value; surrogates apart, just what serde_json says.
fn is_json(text: &str) -> bool {
    let mut cursor = Cursor::new(text.as_bytes(), 100, false);
    cursor.space();
    let read = cursor.skip();
    cursor.space();
    read.is_ok() && cursor.is_at_end() && !cursor.lone_surrogate
}

#[test]
fn grammar_is_that_of_the_rfc() {
    for text in SCALARS.iter().chain(CONTAINERS) {
        let serde = serde_json::from_str::<serde_json::Value>(text).is_ok();
        assert_eq!(is_json(text), serde, "{text:?}");
    }
    // Too large for a float, yet a number.
    assert!(is_json("1e999"));
}

#[test]
fn strings_end_where_they_end() {
    for length in 0..40 {
        for stop in ["\"", "\\n\"", "\\\\\"", "\\u00e9\""] {
            let text = format!("\"{}{stop}, \"next\"", "x".repeat(length));
            let mut cursor = Cursor::new(text.as_bytes(), 100, false);
            let read = cursor.string().unwrap();
            assert_eq!(read.raw.len(), length + stop.len() - 1, "{text}");
            assert_eq!(read.escaped, stop.len() > 1, "{text}");
            assert!(cursor.rest().starts_with(b", "), "{text}");
        }
        for control in [0u8, 1, 9, 10, 13, 31] {
            let text = format!("\"{}{}\"", "é".repeat(length), char::from(control));
            let error = Cursor::new(text.as_bytes(), 100, false).string().unwrap_err();
            assert_eq!(error.at, 1 + 2 * length, "{control}");
        }
    }
}

#[test]
fn escapes_mean_what_they_mean() {
    for text in
        [r"a\n\t\r\b\f\/\\\x22z", r"\u0041\u00e9\u20ac\ud83d\ude00", "plain", "", r"\\u0041", "é\\u00e9é"]
    {
        let text = text.replace("\\x22", "\\\"");
        let meant: String = serde_json::from_str(&format!("\"{text}\"")).unwrap();
        assert_eq!(decode(text.as_bytes()), meant.into_bytes(), "{text}");
    }
    assert_eq!(decode(br"\ud800x"), "\u{fffd}x".as_bytes());
}

#[test]
fn numbers_tell_their_magnitude() {
    let number = |text: &'static str| match Cursor::new(text.as_bytes(), 100, false).token().unwrap() {
        Token::Number(number) => (number.negative, number.magnitude, number.raw.len()),
        other => panic!("{other:?}"),
    };
    assert_eq!(number("-17,"), (true, Some(17), 3));
    assert_eq!(number("9999999999999999999"), (false, Some(9_999_999_999_999_999_999), 19));
    assert_eq!(number("18446744073709551615"), (false, None, 20));
    assert_eq!(number("1.5e3]"), (false, None, 5));
}

#[test]
fn depth_is_noticed_or_fatal() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let read = |depth: usize, fatal: bool| {
        let text = nested(depth);
        let mut cursor = Cursor::new(text.as_bytes(), 10, fatal);
        cursor.skip().map(|()| (cursor.too_deep, cursor.is_at_end()))
    };
    assert_eq!(read(10, true), Ok((false, true)));
    assert_eq!(read(11, false), Ok((true, true)));
    assert_eq!(read(1_000_000, false), Ok((true, true)));
    assert_eq!(read(11, true).unwrap_err().at, 11);
}
