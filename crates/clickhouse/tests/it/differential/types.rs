//! The types under test: how they are declared, how a stored value is read back without loss, and what they are made of.

use super::json::{Json, Text};

/// A type, built here and not parsed, so that no parser of ours is trusted.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ty {
    Int {
        bits: u32,
        signed: bool,
    },
    /// Bits: 16 is BFloat16.
    Float(u32),
    Decimal {
        precision: usize,
        scale: usize,
    },
    Bool,
    String,
    Fixed(usize),
    Uuid,
    Ipv4,
    Ipv6,
    Enum(&'static str, &'static [(&'static str, i16)]),
    Date,
    Date32,
    DateTime(&'static str),
    DateTime64(u32, &'static str),
    Time,
    Time64(u32),
    Interval(&'static str),
    Nullable(Box<Ty>),
    LowCardinality(Box<Ty>),
    Array(Box<Ty>),
    Map(Box<Ty>, Box<Ty>),
    Tuple(Vec<(Option<&'static str>, Ty)>),
    Nested(Vec<(Option<&'static str>, Ty)>),
    /// A name for another type.
    Named(&'static str, Box<Ty>),
    /// The first member that a value fits, or null.
    Variant(Vec<Ty>),
    /// `Geometry`: a variant that has a name.
    Geometry,
    Json,
    Dynamic,
}

use Ty::{
    Array, Bool, Date, Date32, Decimal, Float, Ipv4, Ipv6, LowCardinality, Map, Nullable, String, Tuple, Uuid,
};

fn boxed(ty: Ty) -> Box<Ty> {
    Box::new(ty)
}

fn int(bits: u32, signed: bool) -> Ty {
    Ty::Int { bits, signed }
}

/// What a `Point` is.
pub(super) fn point() -> Ty {
    Tuple(vec![(None, Float(64)), (None, Float(64))])
}

/// A family's name in the document, and its types.
pub(super) fn families() -> Vec<(&'static str, Vec<Ty>)> {
    let widths = [8, 16, 32, 64, 128, 256];
    let decimal = |(precision, scale)| Decimal { precision, scale };
    vec![
        ("Int", widths.map(|bits| int(bits, true)).to_vec()),
        ("UInt", widths.map(|bits| int(bits, false)).to_vec()),
        ("Float", [16, 32, 64].map(Float).to_vec()),
        ("Decimal", [(9, 2), (18, 18), (38, 5), (76, 0), (76, 40), (3, 3)].map(decimal).to_vec()),
        ("Bool", vec![Bool]),
        ("String", vec![String]),
        ("FixedString", vec![Ty::Fixed(3), Ty::Fixed(16)]),
        ("UUID", vec![Uuid]),
        ("IPv4", vec![Ipv4]),
        ("IPv6", vec![Ipv6]),
        (
            "Enum",
            vec![
                Ty::Enum("Enum8", &[("a", 1), ("b'c", 2), ("7", -3), ("", 0), ("é", 127)]),
                Ty::Enum("Enum16", &[("low", -300), ("high", 300), ("12", 5)]),
            ],
        ),
        ("Date", vec![Date]),
        ("Date32", vec![Date32]),
        (
            "DateTime",
            ["", "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"].map(Ty::DateTime).to_vec(),
        ),
        (
            "DateTime64",
            [(0, "UTC"), (3, "UTC"), (3, "Europe/Berlin"), (6, "America/New_York"), (9, "UTC"), (9, "")]
                .map(|(scale, zone)| Ty::DateTime64(scale, zone))
                .to_vec(),
        ),
        ("Time", vec![Ty::Time]),
        ("Time64", [0, 3, 9].map(Ty::Time64).to_vec()),
        ("Interval", ["Nanosecond", "Day", "Year"].map(Ty::Interval).to_vec()),
        (
            "Nullable",
            [int(8, true), String, Float(64), Date, Uuid, Bool].map(|ty| Nullable(boxed(ty))).to_vec(),
        ),
        ("LowCardinality", low_cardinality()),
        ("Array", arrays()),
        ("Map", maps()),
        ("Tuple", tuples()),
        ("Nested", vec![Ty::Nested(vec![(Some("a"), int(8, true)), (Some("b"), Nullable(boxed(String)))])]),
        (
            "SimpleAggregateFunction",
            vec![Ty::Named("SimpleAggregateFunction(sum, UInt64)", boxed(int(64, false)))],
        ),
        ("Geo", geo()),
        ("Variant", variants()),
        ("JSON", vec![Ty::Json]),
        ("Dynamic", vec![Ty::Dynamic]),
    ]
}

fn low_cardinality() -> Vec<Ty> {
    let inner = [String, Nullable(boxed(String)), Ty::Fixed(3), int(32, false), Date, Ty::DateTime("UTC")];
    inner.map(|ty| LowCardinality(boxed(ty))).to_vec()
}

fn arrays() -> Vec<Ty> {
    let inner = [
        int(8, true),
        String,
        Nullable(boxed(int(32, false))),
        Array(boxed(String)),
        Ty::DateTime64(3, "UTC"),
        LowCardinality(boxed(String)),
        Tuple(vec![(None, int(8, false)), (None, String)]),
        Decimal { precision: 9, scale: 2 },
    ];
    inner.map(|ty| Array(boxed(ty))).to_vec()
}

fn maps() -> Vec<Ty> {
    let keys = [
        String,
        LowCardinality(boxed(String)),
        int(8, true),
        int(64, false),
        Date,
        Uuid,
        Ty::DateTime("UTC"),
        Ty::Enum("Enum8", &[("a", 1), ("7", -3)]),
        Ty::Fixed(3),
        Ipv4,
        Bool,
        Float(64),
        Decimal { precision: 9, scale: 2 },
    ];
    let mut types: Vec<_> = keys.map(|key| Map(boxed(key), boxed(int(16, true)))).to_vec();
    types.push(Map(boxed(String), boxed(Array(boxed(Nullable(boxed(String)))))));
    types.push(Map(boxed(String), boxed(Map(boxed(String), boxed(Date32)))));
    types
}

fn tuples() -> Vec<Ty> {
    let named =
        vec![(Some("a"), int(8, true)), (Some("b c"), String), (Some("n"), Nullable(boxed(Float(64))))];
    let unnamed = vec![(None, int(8, true)), (None, String), (None, Nullable(boxed(Float(64))))];
    let inner = Tuple(vec![(Some("x"), Date), (Some("y"), Array(boxed(int(8, false))))]);
    let deep = Tuple(vec![(Some("t"), inner), (Some("m"), Map(boxed(String), boxed(Bool)))]);
    vec![Tuple(named), Tuple(unnamed), deep, Tuple(vec![(None, Ipv4)])]
}

fn geo() -> Vec<Ty> {
    let line = Array(boxed(point()));
    let lines = Array(boxed(line.clone()));
    vec![
        Ty::Named("Point", boxed(point())),
        Ty::Named("Ring", boxed(line.clone())),
        Ty::Named("LineString", boxed(line)),
        Ty::Named("MultiLineString", boxed(lines.clone())),
        Ty::Named("Polygon", boxed(lines.clone())),
        Ty::Named("MultiPolygon", boxed(Array(boxed(lines)))),
        Ty::Geometry,
    ]
}

fn variants() -> Vec<Ty> {
    vec![
        Ty::Variant(vec![String, int(64, false)]),
        Ty::Variant(vec![int(8, true), Date, Array(boxed(int(64, true)))]),
        Ty::Variant(vec![Bool, Uuid, Decimal { precision: 9, scale: 2 }]),
        Ty::Variant(vec![Float(64), Ipv6, Array(boxed(Decimal { precision: 9, scale: 2 }))]),
        Ty::Variant(vec![int(128, true), Date32, Map(boxed(String), boxed(int(8, true)))]),
        Ty::Variant(vec![Ty::Enum("Enum8", &[("7", -3), ("a", 1)]), Ty::DateTime64(3, "UTC")]),
        Ty::Variant(vec![Ty::Fixed(3), Ipv4, Tuple(vec![(Some("a"), int(8, true)), (Some("b"), Ty::Time)])]),
    ]
}

impl Ty {
    /// The declaration.
    pub(super) fn sql(&self) -> std::string::String {
        let zoned = |name: &str, scale: Option<u32>, zone: &str| {
            let zone = (!zone.is_empty()).then(|| format!("'{zone}'"));
            let parts: Vec<_> = scale.map(|scale| scale.to_string()).into_iter().chain(zone).collect();
            if parts.is_empty() { name.to_owned() } else { format!("{name}({})", parts.join(", ")) }
        };
        match self {
            Self::Int { bits, signed } => format!("{}Int{bits}", if *signed { "" } else { "U" }),
            Float(16) => "BFloat16".to_owned(),
            Float(bits) => format!("Float{bits}"),
            Decimal { precision, scale } => format!("Decimal({precision}, {scale})"),
            Bool | String | Date | Date32 | Self::Time | Self::Dynamic | Self::Geometry => {
                format!("{self:?}")
            }
            Self::Fixed(bytes) => format!("FixedString({bytes})"),
            Uuid => "UUID".to_owned(),
            Ipv4 => "IPv4".to_owned(),
            Ipv6 => "IPv6".to_owned(),
            Self::Json => "JSON".to_owned(),
            Self::Enum(name, values) => {
                let value =
                    |(name, number): &(&str, i16)| format!("'{}' = {number}", name.replace('\'', "\\'"));
                format!("{name}({})", values.iter().map(value).collect::<Vec<_>>().join(", "))
            }
            Self::DateTime(zone) => zoned("DateTime", None, zone),
            Self::DateTime64(scale, zone) => zoned("DateTime64", Some(*scale), zone),
            Self::Time64(scale) => format!("Time64({scale})"),
            Self::Interval(unit) => format!("Interval{unit}"),
            Nullable(inner) => format!("Nullable({})", inner.sql()),
            LowCardinality(inner) => format!("LowCardinality({})", inner.sql()),
            Array(inner) => format!("Array({})", inner.sql()),
            Map(key, value) => format!("Map({}, {})", key.sql(), value.sql()),
            Tuple(elements) => format!("Tuple({})", elements_sql(elements)),
            Self::Nested(elements) => format!("Nested({})", elements_sql(elements)),
            Self::Named(name, _) => (*name).to_owned(),
            Self::Variant(members) => {
                format!("Variant({})", members.iter().map(Self::sql).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// An expression that reads `value` with nothing lost: strings, and arrays and nulls of them.
    pub(super) fn exact(&self, value: &str) -> std::string::String {
        // Longer than what it is made from, so no two nested names are the same.
        let name = |letter: &str| letter.repeat(value.len() + 1);
        match self {
            Self::Int { .. }
            | Decimal { .. }
            | Uuid
            | Self::Time
            | Self::Time64(_)
            | Self::Interval(_)
            | Bool => {
                format!("toString({value})")
            }
            Float(bits) => {
                format!("if(isNaN({value}), 'nan', toString(reinterpret({value}, 'UInt{bits}')))")
            }
            String | Self::Fixed(_) | Ipv6 => format!("hex({value})"),
            Ipv4 => format!("toString(toUInt32({value}))"),
            Self::Enum(..) => format!("toString(CAST({value}, 'Int16'))"),
            Date | Date32 => format!("toString(toInt32({value}))"),
            Self::DateTime(_) => format!("toString(toUnixTimestamp({value}))"),
            Self::DateTime64(..) => format!("toString(reinterpretAsInt64({value}))"),
            Nullable(inner) => {
                let exact = inner.exact(&format!("assumeNotNull({value})"));
                format!("if(isNull({value}), NULL, {exact})")
            }
            LowCardinality(inner) => inner.exact(&cast(value, inner)),
            Array(inner) => format!("arrayMap({0} -> {1}, {value})", name("x"), inner.exact(&name("x"))),
            Map(key, item) => format!(
                "arrayMap(({0}, {1}) -> ({2}, {3}), mapKeys({value}), mapValues({value}))",
                name("k"),
                name("x"),
                key.exact(&name("k")),
                item.exact(&name("x")),
            ),
            Tuple(elements) => {
                let part = |(at, (_, ty)): (usize, &(Option<&str>, Self))| {
                    ty.exact(&format!("tupleElement({value}, {})", at + 1))
                };
                format!("tuple({})", elements.iter().enumerate().map(part).collect::<Vec<_>>().join(", "))
            }
            Self::Nested(elements) => Array(boxed(Tuple(elements.clone()))).exact(value),
            Self::Named(_, inner) => inner.exact(&cast(value, inner)),
            Self::Variant(members) => {
                let member = |ty: &Self| {
                    let name = ty.sql().replace('\'', "\\'");
                    let exact = ty.exact(&format!("assumeNotNull(variantElement({value}, '{name}'))"));
                    format!("toString(variantType({value})) = '{name}', toJSONString({exact})")
                };
                format!("multiIf({}, NULL)", members.iter().map(member).collect::<Vec<_>>().join(", "))
            }
            Self::Geometry | Self::Json | Self::Dynamic => value.to_owned(),
        }
    }

    /// Whether the server finds a type for each value by itself, so that stored values are compared by sense.
    pub(super) fn is_inferred(&self) -> bool {
        matches!(self, Self::Geometry | Self::Json | Self::Dynamic)
    }

    /// The parts of a value with their types, if it is one of several parts.
    pub(super) fn parts<'a>(&'a self, json: &'a Json) -> Vec<(&'a Ty, Json)> {
        match (self, json) {
            (Nullable(inner) | LowCardinality(inner) | Self::Named(_, inner), _) => {
                vec![(&**inner, json.clone())]
            }
            (Array(inner), Json::Array(items)) => items.iter().map(|item| (&**inner, item.clone())).collect(),
            (Map(key, value), Json::Object(pairs)) => {
                let both = |(name, item): &(Text, Json)| {
                    [(&**key, Json::Text(name.clone())), (&**value, item.clone())]
                };
                pairs.iter().flat_map(both).collect()
            }
            (Tuple(elements), Json::Array(items)) => {
                elements.iter().zip(items).map(|((_, ty), item)| (ty, item.clone())).collect()
            }
            (Tuple(elements), Json::Object(pairs)) => named_parts(elements, pairs),
            (Self::Nested(elements), Json::Array(items)) => items
                .iter()
                .filter_map(|item| if let Json::Object(pairs) = item { Some(pairs) } else { None })
                .flat_map(|pairs| named_parts(elements, pairs))
                .collect(),
            _ => Vec::new(),
        }
    }
}

fn named_parts<'a>(
    elements: &'a [(Option<&'static str>, Ty)],
    pairs: &[(Text, Json)],
) -> Vec<(&'a Ty, Json)> {
    let find = |(key, item): &(Text, Json)| {
        let found = elements.iter().find(|(name, _)| *name == Some(key.value.as_str()) && !key.is_escaped());
        found.map(|(_, ty)| (ty, item.clone()))
    };
    pairs.iter().filter_map(find).collect()
}

fn cast(value: &str, ty: &Ty) -> std::string::String {
    format!("CAST({value}, '{}')", ty.sql().replace('\\', "\\\\").replace('\'', "\\'"))
}

fn elements_sql(elements: &[(Option<&'static str>, Ty)]) -> std::string::String {
    let one = |(name, ty): &(Option<&str>, Ty)| match name {
        Some(name) if !name.contains(' ') => format!("{name} {}", ty.sql()),
        Some(name) => format!("`{name}` {}", ty.sql()),
        None => ty.sql(),
    };
    elements.iter().map(one).collect::<Vec<_>>().join(", ")
}
