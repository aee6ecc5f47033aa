//! The column types of ClickHouse, as far as checking a JSON value needs them.

mod parse;

use jiff::tz::TimeZone;

/// A parsed column type. What is not known is [`ColumnType::Opaque`] and its values pass unjudged.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnType {
    /// `Int8` to `Int256`, `UInt8` to `UInt256`.
    Int {
        /// 8, 16, 32, 64, 128 or 256.
        bits: u16,
        /// Whether below zero is possible.
        signed: bool,
    },
    /// `Float32`, `Float64`, `BFloat16`.
    Float(FloatType),
    /// `Decimal(P, S)` and its short names.
    Decimal {
        /// All digits, 1 to 76.
        precision: u8,
        /// Digits behind the point.
        scale: u8,
    },
    /// `Bool`.
    Bool,
    /// `String`.
    String,
    /// `FixedString(N)`, N in bytes.
    FixedString(usize),
    /// `UUID`.
    Uuid,
    /// `IPv4`.
    Ipv4,
    /// `IPv6`.
    Ipv6,
    /// `Date`: 1970-01-01 to 2149-06-06.
    Date,
    /// `Date32`: 1900-01-01 to 2299-12-31.
    Date32,
    /// `DateTime`, seconds from 1970-01-01 to 2106-02-07.
    DateTime(Zone),
    /// `DateTime64(scale)`.
    DateTime64 {
        /// Digits behind the second, 0 to 9.
        scale: u8,
        /// The zone of texts that name none.
        zone: Zone,
    },
    /// `Time`: seconds within ±999:59:59.
    Time,
    /// `Time64(scale)`.
    Time64 {
        /// Digits behind the second, 0 to 9.
        scale: u8,
    },
    /// `IntervalSecond` and its sisters: a signed 64-bit count.
    Interval,
    /// `Enum8`, `Enum16`.
    Enum(EnumValues),
    /// `Nullable(T)`.
    Nullable(Box<ColumnType>),
    /// `LowCardinality(T)`.
    LowCardinality(Box<ColumnType>),
    /// `Array(T)`.
    Array(Box<ColumnType>),
    /// `Map(K, V)`.
    Map(Box<ColumnType>, Box<ColumnType>),
    /// `Tuple(...)`; either all elements are named or none is.
    Tuple(Vec<Element>),
    /// `Nested(...)` that was not flattened: an array of named tuples.
    Nested(Vec<Element>),
    /// `JSON(...)`: any JSON object whose numbers and keys the server can hold.
    Json,
    /// `Variant(...)` and `Geometry`: `null`, or what some member takes.
    Variant(Vec<ColumnType>),
    /// `Dynamic`: `null`, or any JSON value that the server finds a type for.
    Dynamic,
    /// Everything else (states of aggregates, types to come): any JSON value but `null`.
    Opaque(String),
}

/// The floating-point types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatType {
    /// `BFloat16`: range of `Float32`, 8 bits of mantissa.
    BFloat16,
    /// `Float32`.
    Float32,
    /// `Float64`.
    Float64,
}

/// An element of a tuple.
#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    /// The name, or `None` in a tuple without names.
    pub name: Option<String>,
    /// The element's type.
    pub ty: ColumnType,
}

/// The names and values of an enum.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnumValues {
    by_name: Vec<(Box<[u8]>, i16)>,
    numbers: Vec<i16>,
}

impl EnumValues {
    pub(crate) fn new(mut pairs: Vec<(Box<[u8]>, i16)>) -> Self {
        let mut numbers: Vec<i16> = pairs.iter().map(|pair| pair.1).collect();
        numbers.sort_unstable();
        pairs.sort_unstable();
        Self { by_name: pairs, numbers }
    }

    /// Whether the enum has that name; names are bytes, as strings are in ClickHouse.
    pub fn has_name(&self, name: &[u8]) -> bool {
        self.by_name.binary_search_by(|pair| pair.0.as_ref().cmp(name)).is_ok()
    }

    /// Whether the enum has that number.
    pub fn has_number(&self, number: i64) -> bool {
        i16::try_from(number).is_ok_and(|number| self.numbers.binary_search(&number).is_ok())
    }
}

/// The zone in which a date-time column reads a text that names none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Zone {
    name: Option<Box<str>>,
    rules: Rules,
}

/// How a zone's local times become instants.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Rules {
    /// The zone's name is not known here.
    #[default]
    Unknown,
    /// Always this many seconds east of UTC.
    Fixed(i64),
    /// By the zone's history.
    Varying(TimeZone),
}

impl Zone {
    /// The server's zone.
    pub fn of_server() -> Self {
        Self::default()
    }

    /// A zone by its IANA name; an unknown name is kept without rules.
    pub fn named(name: &str) -> Self {
        Self { name: Some(name.into()), rules: Rules::of(name) }
    }

    /// The name the type gives, or `None` for the server's zone.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }
}

impl Rules {
    pub(crate) fn of(name: &str) -> Self {
        if matches!(name, "UTC" | "Etc/UTC" | "GMT" | "Etc/GMT" | "UCT" | "Zulu") {
            return Self::Fixed(0);
        }
        match TimeZone::get(name) {
            Ok(zone) => match zone.to_fixed_offset() {
                Ok(offset) => Self::Fixed(i64::from(offset.seconds())),
                Err(_) => Self::Varying(zone),
            },
            Err(_) => Self::Unknown,
        }
    }
}

impl ColumnType {
    /// Parses a type as ClickHouse prints it. Never fails: what is not known is `Opaque(text)`.
    pub fn parse(text: &str) -> Self {
        parse::parse(text)
    }

    /// Whether the type is `Nullable`, also inside `LowCardinality`.
    pub fn is_nullable(&self) -> bool {
        match self {
            Self::Nullable(_) => true,
            Self::LowCardinality(inner) => inner.is_nullable(),
            _ => false,
        }
    }

    /// Whether `null` is a value of the type.
    pub fn takes_null(&self) -> bool {
        matches!(self, Self::Variant(_) | Self::Dynamic) || self.is_nullable()
    }

    /// The type without `Nullable` and `LowCardinality` around it.
    pub fn bare(&self) -> &Self {
        match self {
            Self::Nullable(inner) | Self::LowCardinality(inner) => inner.bare(),
            other => other,
        }
    }

    pub(crate) fn holds_receipt_time(&self) -> bool {
        matches!(self.bare(), Self::DateTime(_) | Self::DateTime64 { .. } | Self::String)
    }
}

#[cfg(test)]
mod tests;
