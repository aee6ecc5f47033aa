//! What the checker refuses although the server would store something: every such difference has a rule here, and the
//! document's table is made from these rules.

use super::json::{Json, Text, number, text};
use super::types::Ty;

/// What the server stores for a value that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stores {
    /// What was meant: the refusal is strictness.
    Same,
    /// Something else.
    Another,
    /// The one or the other.
    Either,
}

/// One difference.
pub(super) struct Rule {
    /// The types of the value itself, or of the part of it that is refused; none: every type.
    pub(super) families: &'static [&'static str],
    /// Which values, in words.
    pub(super) values: &'static str,
    /// One of them.
    pub(super) example: fn() -> (Ty, Json),
    /// What the refusal says.
    says: &'static [&'static str],
    pub(super) stores: Stores,
    /// What becomes of it on the server, and why it is refused.
    pub(super) reason: &'static str,
}

const INT8: Ty = Ty::Int { bits: 8, signed: true };
const ENUM: Ty = Ty::Enum("Enum8", &[("a", 1), ("b", 2)]);

fn pair() -> Vec<(Option<&'static str>, Ty)> {
    vec![(Some("a"), INT8), (Some("b"), Ty::String)]
}

fn object(pairs: Vec<(Text, Json)>) -> Json {
    Json::Object(pairs)
}

fn field(key: &str, value: Json) -> (Text, Json) {
    (Text::plain(key), value)
}

pub(super) static RULES: &[Rule] = &[
    Rule {
        families: &[],
        values: "`null` where the type has none, also inside arrays, maps and tuples",
        example: || (Ty::Array(Box::new(INT8)), Json::Array(vec![Json::Null])),
        says: &["null value for non-nullable column", "is null where null is not allowed"],
        stores: Stores::Another,
        reason: "becomes a zero or an empty value",
    },
    Rule {
        families: &[],
        values: "a string with half a surrogate pair",
        example: || (Ty::String, Json::Broken("\"a\\udc00\"")),
        says: &["half of a surrogate pair"],
        stores: Stores::Either,
        reason: "becomes bytes that are not UTF-8, which no JSON answer can carry; inside an object that goes into a String \
                 it is kept as written",
    },
    Rule {
        families: &["Int", "UInt", "Interval"],
        values: "out of range",
        example: || (INT8, number("300")),
        says: &["is out of range"],
        stores: Stores::Another,
        reason: "wraps around",
    },
    Rule {
        families: &["Int", "UInt", "Interval"],
        values: "`\"\"`, `\"true\"`, `\"false\"`; for Interval also `true` and `false`",
        example: || (INT8, text("")),
        says: &["is not a whole number in plain digits"],
        stores: Stores::Another,
        reason: "become 0 and 1",
    },
    Rule {
        families: &["Float"],
        values: "too large",
        example: || (Ty::Float(32), number("1e39")),
        says: &["is out of range"],
        stores: Stores::Another,
        reason: "becomes infinite",
    },
    Rule {
        families: &["Float"],
        values: "`\"true\"`, `\"--1\"` and the like in quotes",
        example: || (Ty::Float(64), text("true")),
        says: &["is not a number"],
        stores: Stores::Another,
        reason: "become some number",
    },
    Rule {
        families: &["Decimal"],
        values: "texts with two points or no digits",
        example: || (Ty::Decimal { precision: 38, scale: 5 }, text("1.2.3")),
        says: &["is not a number"],
        stores: Stores::Another,
        reason: "become some number",
    },
    Rule {
        families: &["Decimal"],
        values: "an exponent with more digits than the precision, or below -9999",
        example: || (Ty::Decimal { precision: 9, scale: 2 }, number("999999.99999e1")),
        says: &["has more digits before the point than fit"],
        stores: Stores::Either,
        reason: "whether the server reads such a number or refuses it depends on its digits; as a map's key it may become what \
                 another row had",
    },
    Rule {
        families: &["Enum"],
        values: "a number that is none of the enum's and has more bits",
        example: || (ENUM, number("257")),
        says: &["is not one of the enum's values"],
        stores: Stores::Another,
        reason: "wraps around to another name",
    },
    Rule {
        families: &["Enum"],
        values: "a number in quotes that is written with escapes, a plus or zeros in front",
        example: || (ENUM, Json::Text(Text::with_escape("2", 0))),
        says: &["is not one of the enum's values"],
        stores: Stores::Same,
        reason: "a name of the enum could be spelt so",
    },
    Rule {
        families: &["IPv4", "IPv6"],
        values: "leading zeros in an IPv4 address",
        example: || (Ty::Ipv4, text("10.010.0.1")),
        says: &["is not an IPv4 address", "is not an IPv6 address"],
        stores: Stores::Another,
        reason: "read as decimal, where other programs read octal",
    },
    Rule {
        families: &["Date", "Date32"],
        values: "days that do not exist, times, single digits, slashes",
        example: || (Ty::Date, text("2026-02-31")),
        says: &["is not a calendar date"],
        stores: Stores::Another,
        reason: "become another day, or are read as far as they go",
    },
    Rule {
        families: &["Date", "Date32"],
        values: "`\"20260131\"`",
        example: || (Ty::Date32, text("20260131")),
        says: &["is not a calendar date"],
        stores: Stores::Same,
        reason: "eight digits could be a count as well; one form is enough",
    },
    Rule {
        families: &["Date", "Date32"],
        values: "out of range",
        example: || (Ty::Date, text("2150-01-01")),
        says: &["is out of range"],
        stores: Stores::Another,
        reason: "becomes the nearest bound, or wraps around",
    },
    Rule {
        families: &["DateTime", "DateTime64"],
        values: "other forms: hour 24 and above, second 60, days that do not exist, single digits, slashes, words, other counts \
                 of digits",
        example: || (Ty::DateTime64(3, "UTC"), text("2026-01-31 25:00:00")),
        says: &["is not a date and time in an accepted form"],
        stores: Stores::Another,
        reason: "guessed: `25:00` becomes the next morning, `01/02/2026` the first of February",
    },
    Rule {
        families: &["DateTime", "DateTime64"],
        values: "ISO 8601 without hyphens or without minutes; offsets of a day and more; 19 digits above 8999…",
        example: || (Ty::DateTime("UTC"), text("20260131")),
        says: &["is not a date and time in an accepted form"],
        stores: Stores::Same,
        reason: "near to forms that are guessed; the accepted ones are enough",
    },
    Rule {
        families: &["DateTime", "DateTime64"],
        values: "out of range",
        example: || (Ty::DateTime("UTC"), text("1969-12-31 23:59:59")),
        says: &["is out of range"],
        stores: Stores::Another,
        reason: "becomes the nearest bound, or a time that is read back as another",
    },
    Rule {
        families: &["DateTime64"],
        values: "the last second of scale 9, from 2262-04-11 23:47:16 UTC",
        example: || (Ty::DateTime64(9, "UTC"), text("9223372036")),
        says: &["is out of range"],
        stores: Stores::Same,
        reason: "only the first 854 milliseconds of it fit",
    },
    Rule {
        families: &["DateTime", "DateTime64"],
        values: "local times that the column's zone skips",
        example: || (Ty::DateTime("Europe/Berlin"), text("2026-03-29 02:30:00")),
        says: &["is a local time that does not exist"],
        stores: Stores::Another,
        reason: "there is no such time; the server takes one an hour off",
    },
    Rule {
        families: &["Time", "Time64"],
        values: "minute or second 60 and above, no seconds, no minutes",
        example: || (Ty::Time, text("12:30")),
        says: &["is not a time of day"],
        stores: Stores::Another,
        reason: "become another time: `12:30` is read as 12 minutes and 30 seconds",
    },
    Rule {
        families: &["Time", "Time64"],
        values: "beyond 999:59:59",
        example: || (Ty::Time, number("3600000")),
        says: &["is out of range"],
        stores: Stores::Another,
        reason: "becomes the bound",
    },
    Rule {
        families: &["Tuple", "Nested"],
        values: "an object with elements that the tuple does not have",
        example: || {
            let known = [field("a", number("1")), field("b", text("x"))];
            (Ty::Tuple(pair()), object(known.into_iter().chain([field("c", number("1"))]).collect()))
        },
        says: &["names an element that the tuple does not have"],
        stores: Stores::Another,
        reason: "dropped",
    },
    Rule {
        families: &["Tuple", "Nested"],
        values: "an object that lacks an element that is not Nullable",
        example: || (Ty::Tuple(pair()), object(vec![field("a", number("1"))])),
        says: &["lacks an element of the tuple"],
        stores: Stores::Another,
        reason: "the element becomes a zero",
    },
    Rule {
        families: &["Tuple", "Nested"],
        values: "an object that names an element with escapes",
        example: || {
            let key = Text::with_escape("a", 0);
            (Ty::Tuple(pair()), object(vec![(key, number("1")), field("b", text("x"))]))
        },
        says: &["names an element of the tuple with escapes"],
        stores: Stores::Either,
        reason: "the server does not find the name, drops the value and stores a zero",
    },
    Rule {
        families: &["Geo"],
        values: "`null`, `true` or `false` inside a Geometry",
        example: || (Ty::Geometry, Json::Array(vec![number("1"), Json::Null])),
        says: &["fits no member of the variant", "is what a member of the variant takes for another value"],
        stores: Stores::Either,
        reason: "become 0, 1 or an empty array",
    },
    Rule {
        families: &["Variant"],
        values: "what fits one member and may be taken for something else by another: `\"\"` and `\"true\"` beside integers, \
                 texts with digits beside dates, arrays with `null`, objects beside tuples and maps",
        example: || (Ty::Variant(vec![Ty::String, Ty::Int { bits: 64, signed: false }]), text("true")),
        says: &["is what a member of the variant takes for another value"],
        stores: Stores::Either,
        reason: "the server tries the members in an order of its own and reads generously: the example becomes 1",
    },
    Rule {
        families: &["Variant"],
        values: "what fits no member; beside a Decimal also numbers in quotes, and arrays of decimals",
        example: || {
            let members = vec![Ty::Int { bits: 128, signed: true }, Ty::Uuid];
            (Ty::Variant(members), number(format!("1{}", "0".repeat(50))))
        },
        says: &["fits no member of the variant"],
        stores: Stores::Either,
        reason: "wraps around; the server reads decimals in a Variant only at times, mostly where they have an exponent",
    },
    Rule {
        families: &["JSON", "Dynamic"],
        values: "the same path twice, or spelt as `a.b` and as `a` with a `b` in it",
        example: || (Ty::Json, object(vec![field("a", object(vec![])), field("a", number("1"))])),
        says: &["holds the same key or path twice"],
        stores: Stores::Another,
        reason: "one of them is dropped; most such objects are refused, and in a Dynamic column some leave data that the server \
                 cannot read again",
    },
    Rule {
        families: &["JSON", "Dynamic"],
        values: "`null` beside arrays or objects in an array",
        example: || (Ty::Json, object(vec![field("a", Json::Array(vec![Json::Array(vec![]), Json::Null]))])),
        says: &["holds an array with null beside arrays or objects"],
        stores: Stores::Either,
        reason: "becomes an empty array or object",
    },
    Rule {
        families: &["Dynamic"],
        values: "whole numbers beyond 64 bits, others beyond Float64",
        example: || (Ty::Dynamic, number("1e400")),
        says: &["is out of range"],
        stores: Stores::Either,
        reason: "become a text, infinite, or what an earlier row's type makes of them, even `true`",
    },
    Rule {
        families: &["Dynamic"],
        values: "an object with escapes in a key",
        example: || (Ty::Dynamic, object(vec![(Text::with_escape("a", 0), number("1"))])),
        says: &["holds a key with escapes"],
        stores: Stores::Either,
        reason: "its value becomes a zero",
    },
    Rule {
        families: &["Dynamic"],
        values: "an array of objects with different keys, or with values of different kinds at one key, or with `{}` beside others",
        example: || {
            let items = ["a", "b"].map(|key| object(vec![field(key, number("1"))]));
            (Ty::Dynamic, Json::Array(items.to_vec()))
        },
        says: &["holds an array of objects with different keys"],
        stores: Stores::Either,
        reason: "missing keys come back as zeros",
    },
];

/// A value that is taken although it may come back as another.
pub(super) struct Exception {
    pub(super) family: &'static str,
    pub(super) values: &'static str,
    pub(super) reason: &'static str,
    fits: fn(&Json) -> bool,
}

pub(super) const EXCEPTIONS: &[Exception] = &[Exception {
    family: "JSON",
    values: "`null` in an array",
    reason: "where other rows have arrays or objects in the same path's array, the server keeps an empty one in its place",
    fits: has_null_in_array,
}];

fn has_null_in_array(json: &Json) -> bool {
    match json {
        Json::Array(items) => items.contains(&Json::Null) || items.iter().any(has_null_in_array),
        Json::Object(pairs) => pairs.iter().any(|(_, value)| has_null_in_array(value)),
        _ => false,
    }
}

/// The family of a type, as rules and the document call it.
pub(super) fn family(ty: &Ty) -> &'static str {
    match ty {
        Ty::Int { signed: true, .. } => "Int",
        Ty::Int { signed: false, .. } => "UInt",
        Ty::Float(_) => "Float",
        Ty::Decimal { .. } => "Decimal",
        Ty::Bool => "Bool",
        Ty::String => "String",
        Ty::Fixed(_) => "FixedString",
        Ty::Uuid => "UUID",
        Ty::Ipv4 => "IPv4",
        Ty::Ipv6 => "IPv6",
        Ty::Enum(..) => "Enum",
        Ty::Date => "Date",
        Ty::Date32 => "Date32",
        Ty::DateTime(_) => "DateTime",
        Ty::DateTime64(..) => "DateTime64",
        Ty::Time => "Time",
        Ty::Time64(_) => "Time64",
        Ty::Interval(_) => "Interval",
        Ty::Array(_) => "Array",
        Ty::Map(..) => "Map",
        Ty::Tuple(_) => "Tuple",
        Ty::Nested(_) => "Nested",
        Ty::Geometry => "Geo",
        Ty::Variant(_) => "Variant",
        Ty::Json => "JSON",
        Ty::Dynamic => "Dynamic",
        Ty::Nullable(inner) | Ty::LowCardinality(inner) | Ty::Named(_, inner) => family(inner),
    }
}

/// The rule for a value that was refused with `message` and of which the server stored the `same` or another.
pub(super) fn rule(ty: &Ty, message: &str, same: bool) -> Option<&'static Rule> {
    RULES.iter().find(|rule| {
        (rule.families.is_empty() || rule.families.contains(&family(ty)))
            && rule.says.iter().any(|says| message.contains(says))
            && match rule.stores {
                Stores::Same => same,
                Stores::Another => !same,
                Stores::Either => true,
            }
    })
}

/// Whether a value that was taken and came back as another is a known exception.
pub(super) fn is_exception(ty: &Ty, json: &Json) -> bool {
    EXCEPTIONS.iter().any(|exception| exception.family == family(ty) && (exception.fits)(json))
}

/// The document's table.
pub(super) fn table() -> String {
    let mut out = String::from(
        "| Types | Values | Example | The server stores | Why they are refused |\n| --- | --- | --- | --- | --- |\n",
    );
    for rule in RULES {
        let families = if rule.families.is_empty() { "all".to_owned() } else { rule.families.join(", ") };
        let (ty, json) = (rule.example)();
        let stores = match rule.stores {
            Stores::Same => "the same",
            Stores::Another => "something else",
            Stores::Either => "either",
        };
        out.push_str(&format!(
            "| {families} | {} | `{}`: `{}` | {stores} | {} |\n",
            rule.values,
            ty.sql(),
            shortened(&json.written()),
            rule.reason
        ));
    }
    out.push_str("\nTaken although another value may come back:\n\n");
    for exception in EXCEPTIONS {
        out.push_str(&format!("- {}, {}: {}.\n", exception.family, exception.values, exception.reason));
    }
    out
}

fn shortened(written: &str) -> String {
    written.get(..30).map_or_else(|| written.to_owned(), |front| format!("{front}…"))
}
