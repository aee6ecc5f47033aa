//! JSON values as a client may write them: the tree keeps spelling, so that nothing has to be parsed again to know what
//! was meant.

/// A value and its spelling.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// The digits as written.
    Number(String),
    Text(Text),
    Array(Vec<Json>),
    /// Keys may come twice.
    Object(Vec<(Text, Json)>),
    /// JSON whose meaning cannot be said: half a surrogate pair.
    Broken(&'static str),
}

/// A string.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Text {
    /// What it means.
    pub(super) value: String,
    /// The character, counted from 0, that is written as `\uXXXX` for no need.
    escaped: Option<usize>,
}

impl Text {
    pub(super) fn plain(value: impl Into<String>) -> Self {
        Self { value: value.into(), escaped: None }
    }

    /// Whether a character is written as `\uXXXX` for no need.
    pub(super) fn is_escaped(&self) -> bool {
        self.escaped.is_some()
    }

    pub(super) fn with_escape(value: impl Into<String>, at: usize) -> Self {
        Self { value: value.into(), escaped: Some(at) }
    }

    fn written(&self) -> String {
        let mut out = String::from("\"");
        for (at, c) in self.value.chars().enumerate() {
            match c {
                _ if self.escaped == Some(at) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => out.push(c),
            }
        }
        out + "\""
    }
}

/// A string without needless escapes.
pub(super) fn text(value: impl Into<String>) -> Json {
    Json::Text(Text::plain(value))
}

/// A bare number.
pub(super) fn number(digits: impl Into<String>) -> Json {
    Json::Number(digits.into())
}

impl Json {
    /// The spelling, on one line.
    pub(super) fn written(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Number(digits) => digits.clone(),
            Self::Text(text) => text.written(),
            Self::Array(items) => {
                format!("[{}]", items.iter().map(Self::written).collect::<Vec<_>>().join(","))
            }
            Self::Object(pairs) => {
                let pair = |(key, value): &(Text, Self)| format!("{}: {}", key.written(), value.written());
                format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(", "))
            }
            Self::Broken(written) => (*written).to_owned(),
        }
    }

    /// The text of a string, or the digits of a bare number.
    pub(super) fn scalar(&self) -> Option<&str> {
        match self {
            Self::Number(digits) => Some(digits),
            Self::Text(text) => Some(&text.value),
            _ => None,
        }
    }
}
