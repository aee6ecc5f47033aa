//! The row of every figure: one JSON event of nine fields, 256 bytes unless told otherwise, no two alike.

/// Shortest row that the nine fields fit into, in bytes.
pub(super) const ROW_BYTES_MIN: usize = 230;
/// Digits of the field that differs in each row.
pub(super) const ID_DIGITS: usize = 16;
/// What stands before those digits, and nowhere else in a row.
pub(super) const ID_BEFORE: &[u8] = b"\"event_id\":\"";

/// The statement that makes a table for these rows.
pub(super) fn create_table(table: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS `{table}` (event_id String, session String, user_id UInt64, \
         event LowCardinality(String), url String, country LowCardinality(String), duration_ms UInt32, \
         price Float64, ts DateTime64(3)) ENGINE = MergeTree ORDER BY (event, ts) \
         SETTINGS non_replicated_deduplication_window = 1000"
    )
}

/// How rows are put into a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// One object; with several rows a request, NDJSON.
    Auto,
    /// Lines.
    Ndjson,
    /// A JSON array.
    Array,
}

/// A request that is sent again and again, with fresh ids each time.
#[derive(Clone, Debug)]
pub(super) struct Template {
    bytes: Vec<u8>,
    ids: Vec<usize>,
}

/// What a request looks like apart from its rows.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Paths and queries, in turn.
    pub(super) paths: Vec<String>,
    /// `host:port`.
    pub(super) host: String,
    /// Further header lines, without line ends.
    pub(super) headers: Vec<String>,
    /// Rows in each request.
    pub(super) rows: usize,
    /// Bytes of each row.
    pub(super) row_bytes: usize,
    /// What is in the body.
    pub(super) body: Body,
}

impl Shape {
    /// Where the requests go, in words.
    pub(super) fn target(&self) -> String {
        match self.paths.as_slice() {
            [one] => one.clone(),
            paths => format!("{} and {} others", paths.first().map_or("", String::as_str), paths.len() - 1),
        }
    }
}

/// What is posted.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// Rows, each with an id of its own.
    Rows(Format),
    /// The same JSON text each time.
    Text(Vec<u8>),
    /// Nothing: the request is a GET.
    None,
}

impl Template {
    /// Builds one request to `path`; `seed` decides the values.
    pub(super) fn new(shape: &Shape, path: &str, seed: u64) -> Self {
        let (body, mut ids, kind) = match &shape.body {
            Body::Rows(format) => rows(shape, *format, seed),
            Body::Text(text) => (text.clone(), Vec::new(), "application/json"),
            Body::None => (Vec::new(), Vec::new(), "application/json"),
        };
        let method = if matches!(shape.body, Body::None) { "GET" } else { "POST" };
        let mut bytes = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n",
            shape.host,
            body.len()
        );
        for header in &shape.headers {
            bytes.push_str(header);
            bytes.push_str("\r\n");
        }
        bytes.push_str("\r\n");
        for id in &mut ids {
            *id += bytes.len();
        }
        let mut bytes = bytes.into_bytes();
        bytes.extend_from_slice(&body);
        Self { bytes, ids }
    }

    /// The request with new ids, counted on from `next_id`.
    pub(super) fn fresh(&mut self, next_id: &mut u64) -> &[u8] {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        for &at in &self.ids {
            let mut left = *next_id;
            for digit in self.bytes[at..at + ID_DIGITS].iter_mut().rev() {
                *digit = HEX[(left & 15) as usize];
                left >>= 4;
            }
            *next_id += 1;
        }
        &self.bytes
    }
}

/// A body of rows, where their ids stand, and its content type.
fn rows(shape: &Shape, format: Format, seed: u64) -> (Vec<u8>, Vec<usize>, &'static str) {
    let mut random = Random::new(seed);
    let (open, between, close, kind) = match format {
        Format::Auto if shape.rows == 1 => ("", "", "", "application/json"),
        Format::Auto | Format::Ndjson => ("", "\n", "\n", "application/x-ndjson"),
        Format::Array => ("[", ",", "]", "application/json"),
    };
    let mut body = open.as_bytes().to_vec();
    let mut ids = Vec::with_capacity(shape.rows);
    for row in 0..shape.rows {
        if row > 0 {
            body.extend_from_slice(between.as_bytes());
        }
        ids.push(body.len() + ID_BEFORE.len() + 1);
        push_row(&mut body, shape.row_bytes, &mut random);
    }
    body.extend_from_slice(close.as_bytes());
    (body, ids, kind)
}

/// So many rows as lines, for a message.
pub(super) fn lines(rows: u32, row_bytes: usize) -> Vec<u8> {
    let mut random = Random::new(1);
    let mut lines = Vec::new();
    for _row in 0..rows {
        push_row(&mut lines, row_bytes, &mut random);
        lines.push(b'\n');
    }
    lines
}

fn push_row(body: &mut Vec<u8>, row_bytes: usize, random: &mut Random) {
    const EVENTS: [&str; 4] = ["page_view", "add_to_cart", "checkout", "search"];
    const COUNTRIES: [&str; 5] = ["DE", "FR", "US", "JP", "BR"];
    let start = body.len();
    let head = format!(
        "{{\"event_id\":\"{:0ID_DIGITS$}\",\"session\":\"s-{:08x}\",\"user_id\":{},\"event\":\"{}\",\"country\":\"{}\",\
         \"duration_ms\":{},\"price\":{}.{:02},\"ts\":\"2026-01-{:02} {:02}:{:02}:{:02}.{:03}\",\"url\":\"https://shop.example/",
        0,
        random.below(1 << 32),
        random.below(90_000_000) + 10_000_000,
        EVENTS[random.below(4) as usize],
        COUNTRIES[random.below(5) as usize],
        random.below(60_000),
        random.below(1_000),
        random.below(100),
        random.below(28) + 1,
        random.below(24),
        random.below(60),
        random.below(60),
        random.below(1_000),
    );
    body.extend_from_slice(head.as_bytes());
    while body.len() - start < row_bytes - 2 {
        body.push(b'a' + random.below(26) as u8);
    }
    body.extend_from_slice(b"\"}");
}

/// A small generator, so that two runs send the same values.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn shape(rows: usize, row_bytes: usize, format: Format) -> Shape {
        Shape {
            paths: vec!["/p".into()],
            host: "h".into(),
            headers: vec!["X-A: b".into()],
            rows,
            row_bytes,
            body: Body::Rows(format),
        }
    }

    fn body(request: &[u8]) -> &str {
        let text = std::str::from_utf8(request).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())) && head.contains("\r\nX-A: b"));
        body
    }

    #[test]
    fn rows_have_nine_fields_the_asked_length_and_ids_of_their_own() {
        let mut next_id = 0;
        let mut seen = BTreeSet::new();
        for row_bytes in [ROW_BYTES_MIN, 256, 1_000] {
            for seed in 0..200 {
                let mut template = Template::new(&shape(3, row_bytes, Format::Ndjson), "/p", seed);
                for line in body(template.fresh(&mut next_id)).lines() {
                    assert_eq!(line.len(), row_bytes);
                    let row: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
                    assert_eq!(row.len(), 9);
                    assert!(seen.insert(row["event_id"].to_string()));
                }
            }
        }
    }

    #[test]
    fn each_format_is_what_it_says() {
        let mut next_id = 7;
        let mut one = Template::new(&shape(1, 256, Format::Auto), "/p", 1);
        assert!(body(one.fresh(&mut next_id)).starts_with("{\"event_id\":\"0000000000000007\""));
        let mut array = Template::new(&shape(2, 256, Format::Array), "/p", 1);
        let rows: Vec<serde_json::Value> = serde_json::from_str(body(array.fresh(&mut next_id))).unwrap();
        assert_eq!(rows.len(), 2);
    }
}
