//! Values that look for edges: the limits of each type, odd spellings of good values, and values of other types.

mod times;

use super::decimal::{beside, power_of_two};
use super::json::{Json, Text, number, text};
use super::types::{Ty, point};
use times::{date, moment, time_of_day};

/// Numbers from a seed (SplitMix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A value for a column of the type: mostly one that may fit.
pub(super) fn value(random: &mut Random, ty: &Ty) -> Json {
    match random.below(100) {
        0..62 => fitting(random, ty),
        62..85 => {
            let good = fitting(random, ty);
            bent(random, good)
        }
        _ => anything(random, 2),
    }
}

/// Texts that some reader takes for something.
const ODD: [&str; 50] = [
    "",
    " ",
    "0",
    "1",
    "-1",
    "007",
    "+5",
    "1.0",
    "1e3",
    "0x10",
    "0b1",
    "1_000",
    "1,5",
    "--1",
    "+-1",
    "- 1",
    "1 ",
    " 1",
    "NaN",
    "nan",
    "inf",
    "-inf",
    "+Infinity",
    "null",
    "NULL",
    "\\N",
    "true",
    "True",
    "false",
    "yes",
    "t",
    "[]",
    "{}",
    "[1,2]",
    "2026-01-31",
    "1.2.3.4",
    "::1",
    "61f0c404-5cb3-11e7-907b-a6006ad3dba0",
    "a",
    "é",
    "'",
    "\"",
    "\0",
    "\n",
    "01/02/2026",
    "Jan 5 2026",
    "2026-02-31",
    "10:00:00",
    "2026-01-31T10:00:00.5+02:00",
    "20260131",
];

/// Any JSON, not deep.
fn anything(random: &mut Random, depth: usize) -> Json {
    match random.below(if depth == 0 { 8 } else { 10 }) {
        0 => Json::Null,
        1 => Json::Bool(random.chance(50)),
        2 | 3 => number_like(random, true),
        4..7 => text(random.pick(&ODD)),
        7 => Json::Broken(random.pick(&["\"\\ud800\"", "\"a\\udc00\"", "\"\\ud800\\u0041\""])),
        8 => Json::Array((0..random.below(4)).map(|_| anything(random, depth - 1)).collect()),
        _ => Json::Object(
            (0..random.below(3))
                .map(|at| (Text::plain(["a", "b c", "7"][at]), anything(random, depth - 1)))
                .collect(),
        ),
    }
}

fn digits(random: &mut Random) -> String {
    match random.below(10) {
        0..3 => random.pick(&["0", "1", "2", "7", "9", "10", "12", "99", "100"]).to_owned(),
        3..7 => {
            let bits = random.pick(&[7, 8, 15, 16, 31, 32, 53, 63, 64, 127, 128, 255, 256]);
            let power = power_of_two(bits);
            match random.below(3) {
                0 => beside(&power, false),
                1 => beside(&power, true),
                _ => power,
            }
        }
        7 => "9".repeat(1 + random.below(78)),
        8 => format!("1{}", "0".repeat(random.below(78))),
        _ => {
            let limit = if random.chance(60) { 6 } else { 78 };
            let length = 1 + random.below(limit);
            let first = random.pick(b"123456789");
            let rest = (1..length).map(|_| random.pick(b"0123456789"));
            std::iter::once(first).chain(rest.collect::<Vec<_>>()).map(char::from).collect()
        }
    }
}

/// A number in one of its spellings; bare ones keep to JSON's grammar.
fn number_like(random: &mut Random, fraction: bool) -> Json {
    let mut written = digits(random);
    let is_bare = random.chance(60);
    if fraction && random.chance(45) {
        written = format!("{written}.{}", digits(random));
        if random.chance(20) {
            written = format!("0.{}{}", "0".repeat(random.below(12)), digits(random));
        }
    }
    if fraction && random.chance(30) {
        let exponent =
            [0, 1, 2, 5, 9, 17, 18, 37, 38, 39, 75, 76, 307, 308, 309, 330, 400, 10_000, 99_999_999_999u64];
        let sign = random.pick(&["", "+", "-", "-"]);
        written = format!("{written}{}{sign}{}", random.pick(&["e", "E"]), random.pick(&exponent));
    }
    if random.chance(30) {
        written.insert(0, '-');
    }
    if is_bare {
        return number(written);
    }
    if random.chance(10) {
        written = match written.strip_prefix('-') {
            Some(rest) => format!("-0{rest}"),
            None => format!("{}{written}", random.pick(&["+", "0", "00", "+0"])),
        };
    }
    if fraction && random.chance(8) {
        written = random.pick(&[".5", "5.", "-.25", "+.5e1", "nan", "-inf", "Infinity", "iNf"]).to_owned();
    }
    text(written)
}

/// The same value, spelt or built a little differently.
fn bent(random: &mut Random, json: Json) -> Json {
    match json {
        Json::Text(good) if random.chance(25) && !good.value.is_empty() => {
            let at = random.below(good.value.chars().count());
            Json::Text(Text::with_escape(good.value, at))
        }
        Json::Text(good) => text(bent_text(random, &good.value)),
        Json::Number(digits) if random.chance(50) => text(digits),
        Json::Number(_) => number_like(random, true),
        Json::Array(mut items) => {
            let at = random.below(items.len());
            match random.below(5) {
                0 => items.push(anything(random, 1)),
                1 if !items.is_empty() => drop(items.remove(at)),
                _ if items.is_empty() => items.push(Json::Null),
                2 => items[at] = Json::Null,
                _ => items[at] = bent(random, items[at].clone()),
            }
            Json::Array(items)
        }
        Json::Object(mut pairs) => {
            let at = random.below(pairs.len());
            match random.below(7) {
                0 => pairs.push((Text::plain("unknown"), anything(random, 1))),
                1 if !pairs.is_empty() => drop(pairs.remove(at)),
                _ if pairs.is_empty() => {}
                2 => pairs.push(pairs[at].clone()),
                3 => pairs[at].1 = Json::Null,
                4 => pairs[at].0 = Text::with_escape(pairs[at].0.value.clone(), 0),
                5 => {
                    pairs[at].0 = Text::plain(bent_text(random, &pairs[at].0.value.clone()).replace('.', "_"))
                }
                _ => pairs[at].1 = bent(random, pairs[at].1.clone()),
            }
            Json::Object(pairs)
        }
        Json::Bool(value) => text(value.to_string()),
        other => other,
    }
}

fn bent_text(random: &mut Random, good: &str) -> String {
    let mut chars: Vec<char> = good.chars().collect();
    for _ in 0..1 + random.below(2) {
        let at = random.below(chars.len() + 1);
        let odd: Vec<char> = " 0159-+.:/,TZzeE'\"\\xn%{é\0\n\t".chars().collect();
        match random.below(6) {
            0 => chars.insert(at, random.pick(&odd)),
            1 if at < chars.len() => drop(chars.remove(at)),
            2 if at < chars.len() => chars[at] = random.pick(&odd),
            3 if at < chars.len() => chars[at] = chars[at].to_ascii_uppercase(),
            4 => chars.extend(random.pick(&[" ", "0", "Z", " UTC", "+01", ".5", "/32", "e1", "x"]).chars()),
            _ => chars.insert(0, random.pick(&[' ', '+', '-', '0', '{'])),
        }
    }
    chars.into_iter().collect()
}

/// A value that the type may hold, near its limits or a little beyond.
fn fitting(random: &mut Random, ty: &Ty) -> Json {
    match ty {
        Ty::Int { .. } | Ty::Interval(_) => number_like(random, false),
        Ty::Float(_) => number_like(random, true),
        Ty::Decimal { precision, scale } => decimal(random, *precision, *scale),
        Ty::Bool => random.pick(&[true, false].map(Json::Bool).each_ref()).clone(),
        Ty::String => match random.below(10) {
            0..2 => anything(random, 2),
            2 => text("ÿ\u{1F600}\u{FFFD}\u{1}/".repeat(random.below(9))),
            _ => text(random.pick(&ODD)),
        },
        Ty::Fixed(bytes) => {
            let length = random.below(bytes + 2);
            let letter = random.pick(&["a", "Z", "\0", "\\", "é"]);
            text(letter.repeat(length / letter.len()))
        }
        Ty::Uuid => uuid(random),
        Ty::Ipv4 => text(ipv4(random)),
        Ty::Ipv6 => text(ipv6(random)),
        Ty::Enum(_, values) => {
            let (name, value) = random.pick(values);
            match random.below(4) {
                0 => number(value.to_string()),
                1 => text(value.to_string()),
                _ => text(name),
            }
        }
        Ty::Date | Ty::Date32 => {
            match random.below(5) {
                0 => number(random.pick(&[
                    "0", "1", "20458", "65535", "65536", "-1", "-25567", "-25568", "120529", "120530",
                ])),
                _ => text(date(random)),
            }
        }
        Ty::DateTime(_) | Ty::DateTime64(..) => moment(random),
        Ty::Time | Ty::Time64(_) => time_of_day(random),
        Ty::Nullable(_) if random.chance(20) => Json::Null,
        Ty::Nullable(inner) | Ty::LowCardinality(inner) | Ty::Named(_, inner) => fitting(random, inner),
        Ty::Array(inner) => Json::Array(several(random, |random| good(random, inner))),
        Ty::Map(key, item) => Json::Object(several(random, |random| {
            let name = match good(random, key) {
                Json::Text(name) => name,
                other => Text::plain(other.written()),
            };
            (name, good(random, item))
        })),
        Ty::Tuple(elements) => tuple(random, elements),
        Ty::Nested(elements) => Json::Array(several(random, |random| tuple(random, elements))),
        Ty::Variant(members) => {
            let at = random.below(members.len());
            good(random, &members[at])
        }
        Ty::Geometry => {
            let mut ty = point();
            for _ in 0..random.below(4) {
                ty = Ty::Array(Box::new(ty));
            }
            good(random, &ty)
        }
        Ty::Json => Json::Object(several(random, |random| {
            (Text::plain(random.pick(&["a", "b", "c.d", "é", ""])), anything(random, 2))
        })),
        Ty::Dynamic => anything(random, 3),
    }
}

/// A part of something: spelt plainly most of the time, so that the whole is often taken.
fn good(random: &mut Random, ty: &Ty) -> Json {
    match ty {
        Ty::Int { .. } if random.chance(90) => number(random.pick(&["0", "1", "12", "99", "127"])),
        Ty::Float(_) if random.chance(90) => number(random.pick(&["0", "1", "-1.5", "99.25", "1e5"])),
        Ty::Decimal { .. } if random.chance(90) => number(random.pick(&["0", "1.5", "-2.25", "99.99"])),
        Ty::DateTime(_) | Ty::DateTime64(..) if random.chance(90) => text("2026-01-31 12:00:00"),
        Ty::Date | Ty::Date32 if random.chance(90) => text("2026-01-31"),
        Ty::Fixed(_) if random.chance(90) => text("abc"),
        Ty::Ipv4 if random.chance(90) => text("1.2.3.4"),
        _ => fitting(random, ty),
    }
}

fn several<T>(random: &mut Random, mut one: impl FnMut(&mut Random) -> T) -> Vec<T> {
    (0..random.below(4)).map(|_| one(random)).collect()
}

fn tuple(random: &mut Random, elements: &[(Option<&'static str>, Ty)]) -> Json {
    let items: Vec<_> = elements.iter().map(|(name, ty)| (*name, good(random, ty))).collect();
    if items.iter().all(|(name, _)| name.is_some()) && random.chance(97) {
        let turn = random.below(items.len());
        let mut pairs: Vec<_> =
            items.into_iter().map(|(name, item)| (Text::plain(name.unwrap_or_default()), item)).collect();
        pairs.rotate_left(turn);
        return Json::Object(pairs);
    }
    Json::Array(items.into_iter().map(|(_, item)| item).collect())
}

fn decimal(random: &mut Random, precision: usize, scale: usize) -> Json {
    if random.chance(40) {
        return number_like(random, true);
    }
    let nines = |count: usize| "9".repeat(count);
    let whole = (precision - scale + random.below(3)).saturating_sub(1);
    let written = format!("0{}.{}", nines(whole), nines(1 + random.below(scale + 3)));
    let written = written
        .strip_prefix("0")
        .filter(|rest| !rest.starts_with('.'))
        .map_or(written.clone(), str::to_owned);
    match random.below(4) {
        0 => text(written),
        1 => number(format!("-{written}")),
        2 => number(format!("{written}e{}{}", random.pick(&["", "-"]), random.below(4))),
        _ => number(written),
    }
}

fn uuid(random: &mut Random) -> Json {
    let digits: String = (0..32).map(|_| char::from(random.pick(b"0123456789abcdefABCDEF"))).collect();
    match random.below(4) {
        0 => text(digits),
        1 => text(format!("{{{}}}", hyphens(&digits))),
        _ => text(hyphens(&digits)),
    }
}

fn hyphens(digits: &str) -> String {
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

fn ipv4(random: &mut Random) -> String {
    let count = if random.chance(90) { 4 } else { 3 };
    let parts: Vec<_> = (0..count)
        .map(|_| random.pick(&["0", "1", "9", "10", "127", "255", "256", "00", "01", "010"]))
        .collect();
    parts.join(".")
}

fn ipv6(random: &mut Random) -> String {
    let group =
        |random: &mut Random| random.pick(&["0", "1", "00", "0000", "db8", "FFFF", "ffff", "abcd", "12345"]);
    match random.below(5) {
        0 => ipv4(random),
        1 => format!(
            "{}{}",
            random.pick(&["::ffff:", "::", "1::", "::FFFF:0:", "0:0:0:0:0:ffff:"]),
            ipv4(random)
        ),
        2 => (0..8).map(|_| group(random)).collect::<Vec<_>>().join(":"),
        3 => random
            .pick(&["::", "::1", "1::", "1::2::3", ":1", "1:", ":::", "fe80::1%eth0", "[::1]"])
            .to_owned(),
        _ => {
            let front: Vec<_> = several(random, group);
            let back: Vec<_> = several(random, group);
            format!("{}::{}", front.join(":"), back.join(":"))
        }
    }
}
