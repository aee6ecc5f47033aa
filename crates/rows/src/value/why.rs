//! The reasons for refusing a value, in words.

use std::fmt;

/// Why a value cannot go into its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Null,
    NotWhole,
    NotNumber,
    Range,
    TooManyDigits,
    NotBool,
    NotText,
    TooLong,
    NotUuid,
    NotIpv4,
    NotIpv6,
    NotInEnum,
    NotDate,
    NotDateTime,
    SkippedTime,
    NotTime,
    NotArray,
    NotObject,
    TupleLength,
    ElementMissing,
    ElementUnknown,
    ElementTwice,
    ElementEscaped,
    NoMember,
    Guessed,
    KeyTwice,
    KeyEmpty,
    KeyEscaped,
    KeysDiffer,
    NullBeside,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "is null where null is not allowed",
            Self::NotWhole => "is not a whole number in plain digits",
            Self::NotNumber => "is not a number",
            Self::Range => "is out of range",
            Self::TooManyDigits => "has more digits before the point than fit",
            Self::NotBool => "is not true or false",
            Self::NotText => "is not a string",
            Self::TooLong => "is too long",
            Self::NotUuid => "is not a UUID",
            Self::NotIpv4 => "is not an IPv4 address",
            Self::NotIpv6 => "is not an IPv6 address",
            Self::NotInEnum => "is not one of the enum's values",
            Self::NotDate => "is not a calendar date in the form 2026-01-31",
            Self::NotDateTime => {
                "is not a date and time in an accepted form: 2026-01-31T12:00:00.5Z, with an offset like +02:00, \
                 2026-01-31 12:00:00, 2026-01-31, or unix seconds"
            }
            Self::SkippedTime => "is a local time that does not exist in the column's time zone",
            Self::NotTime => "is not a time of day in the form 12:00:00",
            Self::NotArray => "is not an array",
            Self::NotObject => "is not an object",
            Self::TupleLength => "has another number of elements than the tuple",
            Self::ElementMissing => "lacks an element of the tuple",
            Self::ElementUnknown => "names an element that the tuple does not have",
            Self::ElementTwice => "names an element of the tuple twice",
            Self::ElementEscaped => "names an element of the tuple with escapes",
            Self::NoMember => "fits no member of the variant",
            Self::Guessed => "is what a member of the variant takes for another value",
            Self::KeyTwice => "holds the same key or path twice",
            Self::KeyEmpty => "holds an empty key",
            Self::KeyEscaped => "holds a key with escapes",
            Self::KeysDiffer => "holds an array of objects with different keys or kinds of values",
            Self::NullBeside => "holds an array with null beside arrays or objects",
        })
    }
}
