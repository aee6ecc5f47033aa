//! Exact decimal numbers of any length, on their digits.

use std::cmp::Ordering;
use std::fmt;

/// More than any column can tell from zero or hold.
const EXPONENT_MAX: i64 = 20_000;

/// Sign, digits, and where the point is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Number {
    negative: bool,
    /// Without zeros in front.
    whole: String,
    /// Without zeros behind.
    fraction: String,
}

impl Number {
    /// Reads `[+-]digits[.digits][e[+-]digits]`; one of the first two digit runs may be empty.
    pub(super) fn read(text: &str) -> Option<Self> {
        let negative = text.starts_with('-');
        let text = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let bare_exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if whole.len() + fraction.len() == 0 || !digits(whole) || !digits(fraction) {
            return None;
        }
        if bare_exponent.is_empty() || !digits(bare_exponent) {
            return None;
        }
        let magnitude = bare_exponent.parse::<i64>().unwrap_or(EXPONENT_MAX).min(EXPONENT_MAX);
        let shift = if exponent.starts_with('-') { -magnitude } else { magnitude };
        let all = format!("{whole}{fraction}");
        if all.bytes().all(|byte| byte == b'0') {
            return Some(Self { negative, whole: String::new(), fraction: String::new() });
        }
        let point = i64::try_from(whole.len()).ok()? + shift;
        let length = i64::try_from(all.len()).ok()?;
        let padded = match point {
            ..=0 => format!("{}{all}", "0".repeat(usize::try_from(-point).ok()?)),
            _ => format!("{all}{}", "0".repeat(usize::try_from((point - length).max(0)).ok()?)),
        };
        let (whole, fraction) = padded.split_at(usize::try_from(point.max(0)).ok()?);
        Some(Self {
            negative,
            whole: whole.trim_start_matches('0').to_owned(),
            fraction: fraction.trim_end_matches('0').to_owned(),
        })
    }

    /// The number with at most `scale` digits behind the point: more are cut off.
    pub(super) fn cut(&self, scale: usize) -> Option<Self> {
        let fraction = self.fraction.get(..scale.min(self.fraction.len()))?.trim_end_matches('0').to_owned();
        Some(Self { fraction, ..self.clone() })
    }

    /// Digits before the point, without zeros in front.
    pub(super) fn whole_digits(&self) -> usize {
        self.whole.len()
    }

    /// Whether it is a whole number within an integer type.
    pub(super) fn fits_integer(&self, bits: u32, signed: bool) -> bool {
        if !self.fraction.is_empty() {
            return false;
        }
        let below_zero = self.negative && !self.whole.is_empty();
        let limit = match (signed, below_zero) {
            (false, true) => return false,
            (false, false) => power_of_two(bits),
            (true, _) => power_of_two(bits - 1),
        };
        match (self.whole.len(), &self.whole).cmp(&(limit.len(), &limit)) {
            Ordering::Less => true,
            Ordering::Equal => below_zero,
            Ordering::Greater => false,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_zero = self.whole.is_empty() && self.fraction.is_empty();
        let sign = if self.negative && !is_zero { "-" } else { "" };
        let whole = if self.whole.is_empty() { "0" } else { &self.whole };
        let point = if self.fraction.is_empty() { "" } else { "." };
        write!(f, "{sign}{whole}{point}{}", self.fraction)
    }
}

/// The digits of 2 to the power of `bits`.
pub(super) fn power_of_two(bits: u32) -> String {
    let mut digits = vec![1u8];
    for _ in 0..bits {
        let mut carry = 0;
        for digit in &mut digits {
            let doubled = *digit * 2 + carry;
            (*digit, carry) = (doubled % 10, doubled / 10);
        }
        if carry > 0 {
            digits.push(carry);
        }
    }
    digits.iter().rev().map(|digit| char::from(b'0' + digit)).collect()
}

/// A whole number without sign and one more or less.
pub(super) fn beside(digits: &str, up: bool) -> String {
    let mut bytes = digits.as_bytes().to_vec();
    let (full, empty) = if up { (b'9', b'0') } else { (b'0', b'9') };
    for byte in bytes.iter_mut().rev() {
        if *byte != full {
            *byte = if up { *byte + 1 } else { *byte - 1 };
            return String::from_utf8(bytes).unwrap();
        }
        *byte = empty;
    }
    let rest = String::from_utf8(bytes).unwrap();
    if up { format!("1{rest}") } else { rest }
}

#[test]
fn numbers_are_exact() {
    let read = |text: &str| Number::read(text).map(|number| number.to_string());
    for (text, value) in
        [("007", "7"), ("-0", "0"), (".5", "0.5"), ("5.", "5"), ("-1.50e1", "-15"), ("12e-3", "0.012")]
    {
        assert_eq!(read(text).as_deref(), Some(value), "{text}");
    }
    assert!(["", ".", "e1", "1e", "--1", "1.2.3", " 1", "0x1"].iter().all(|text| read(text).is_none()));
    assert_eq!(Number::read("-1.239").unwrap().cut(2).unwrap().to_string(), "-1.23");
    assert_eq!(
        (power_of_two(64), beside("99", true), beside("100", false)),
        ("18446744073709551616".into(), "100".into(), "099".into())
    );
    let fits = |text: &str| Number::read(text).unwrap().fits_integer(8, true);
    assert!(fits("-128") && fits("127") && !fits("128") && !fits("-129") && !fits("1.5") && fits("1.0"));
}
