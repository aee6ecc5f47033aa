//! A letter as a message: the row is the content, all else is in headers.

use std::fmt::Write;

use wavehouse_broker::DeadLetter;
use wavehouse_core::{Position, Sequence, TableName, TableRef, TenantId, Timestamp, TopicKey, escape_token};
use wavehouse_nats::{HeaderMap, StoredMessage};

use crate::logs::log_id;

const TABLE: &str = "X-DLQ-Table";
const ERROR: &str = "X-DLQ-Error";
const BURIED: &str = "X-DLQ-Timestamp";
const CODE: &str = "X-DLQ-Code";
const POSITION: &str = "X-DLQ-Position";
const RECEIVED: &str = "X-DLQ-Received";
const MESSAGE_ID: &str = "Nats-Msg-Id";
const EXPECTED_STREAM: &str = "Nats-Expected-Stream";

/// A letter and its number in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Buried {
    pub(super) letter: DeadLetter,
    pub(super) sequence: u64,
}

/// Names a letter: its table and position.
pub(super) fn message_id(letter: &DeadLetter) -> String {
    let Position { log, sequence, row, .. } = letter.position;
    let table = escape_token(letter.table.table.as_str());
    format!("{}.{table}.{log}-{sequence}-{row}", letter.table.tenant)
}

/// The headers of a letter.
pub(super) fn headers(letter: &DeadLetter, id: &str, stream: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(MESSAGE_ID, id);
    headers.insert(EXPECTED_STREAM, stream);
    headers.insert(TABLE, one_line(letter.table.table.as_str()));
    headers.insert(ERROR, one_line(&letter.reason));
    headers.insert(BURIED, letter.buried_at.to_string());
    headers.insert(POSITION, letter.position.to_string());
    headers.insert(RECEIVED, letter.received_at.to_string());
    if let Some(code) = letter.code {
        headers.insert(CODE, code.to_string());
    }
    headers
}

impl Buried {
    /// Reads a letter. What another program buried has less to say; it is named by its place in the stream.
    pub(super) fn read(message: StoredMessage, key: TopicKey, stream: &str) -> Self {
        let text = |name: &str| message.headers.get(name).map(|value| value.as_str().to_owned());
        let time = |name: &str| text(name).and_then(|text| Timestamp::parse_rfc3339(&text).ok());
        let stored = Timestamp::parse_rfc3339(&message.time).unwrap_or_default();
        let own = Position::new(log_id(stream, "letters"), Sequence(message.sequence), 0);
        let buried_at = time(BURIED).unwrap_or(stored);
        let position = text(POSITION).and_then(|text| text.parse().ok());
        // Other programs end a row's line; what this one buried is kept to the byte.
        let is_ended = position.is_none() && message.payload.ends_with(b"\n");
        let line = message.payload.len() - usize::from(is_ended);
        let letter = DeadLetter {
            table: table_of(key),
            position: position.unwrap_or(own),
            received_at: time(RECEIVED).unwrap_or(buried_at),
            buried_at,
            code: text(CODE).and_then(|text| text.parse().ok()),
            reason: text(ERROR).map(|text| many_lines(&text)).unwrap_or_default(),
            line: message.payload.slice(..line),
        };
        Self { letter, sequence: message.sequence }
    }
}

/// The table that a topic names; one made up of its text where it names none.
pub(crate) fn table_of(key: TopicKey) -> TableRef {
    match key {
        TopicKey::Known(topic) => topic.table,
        // Only subjects that name a table are ever read.
        TopicKey::Unknown(text) => {
            let name = TableName::parse(&escape_token(&text));
            name.map(|name| TableRef::new(TenantId::default(), name)).unwrap_or_else(|_| unnamed())
        }
    }
}

fn unnamed() -> TableRef {
    #[expect(clippy::expect_used, reason = "a constant that is a table's name")]
    let name = TableName::parse("?").expect("a name");
    TableRef::new(TenantId::default(), name)
}

/// A text as a header can hold it: control characters, `%`, and spaces at the ends are written as `%XX`.
fn one_line(text: &str) -> String {
    let inner = text.trim();
    let start = text.len() - text.trim_start().len();
    let mut line = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        let at_an_end = at < start || at >= start + inner.len();
        if character.is_control() || character == '%' || at_an_end {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a String cannot fail.
                let _written = write!(line, "%{byte:02X}");
            }
        } else {
            line.push(character);
        }
    }
    line
}

/// The text that [`one_line`] wrote; what is no `%XX` reads as itself.
fn many_lines(line: &str) -> String {
    let mut bytes = Vec::with_capacity(line.len());
    let mut rest = line.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped.filter(|_| first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wavehouse_core::{LogId, Scope, Topic};

    use super::*;

    fn letter() -> DeadLetter {
        DeadLetter {
            table: TableRef::new(TenantId::default(), TableName::parse("a*b>c").expect("a name")),
            position: Position { stored_ms: 5, ..Position::new(LogId(7), Sequence(9), 3) },
            received_at: Timestamp(1_700_000_000_000_000_001),
            buried_at: Timestamp(1_700_000_000_000_000_002),
            code: Some(469),
            reason: " 50 % of \"x\" \u{2260} y\r\nline two\t".to_owned(),
            line: Bytes::from_static(b"{\"n\":1}"),
        }
    }

    fn message(headers: HeaderMap) -> StoredMessage {
        let time = "2026-11-30T22:00:00.5Z".to_owned();
        let payload = letter().line;
        StoredMessage { subject: "wh.dlq.0.a%2Ab%3Ec".to_owned(), sequence: 4, time, headers, payload }
    }

    fn key() -> TopicKey {
        TopicKey::Known(Topic { table: letter().table, scope: Scope::default() })
    }

    #[test]
    fn a_letter_is_kept_whole() {
        let headers = headers(&letter(), "id", "WH_DLQ");
        for (name, values) in headers.iter() {
            for value in values {
                assert!(value.as_str().bytes().all(|byte| byte >= b' '), "{name}: one line");
            }
        }
        let buried = Buried::read(message(headers), key(), "WH_DLQ");
        assert_eq!((buried.letter.position.stored_ms, buried.sequence), (5, 4));
        assert_eq!(buried.letter, letter());
    }

    #[test]
    fn any_reason_survives() {
        for reason in ["", " ", "%", "%41", "a\u{7f}b", "\u{85}x", "\n\n", "\u{1f600}%zz", "a  b"] {
            let line = one_line(reason);
            assert_eq!((many_lines(&line).as_str(), line.trim()), (reason, line.as_str()), "{reason:?}");
        }
    }

    #[test]
    fn what_others_buried_is_named_by_its_place() {
        let mut headers = HeaderMap::new();
        headers.insert("X-DLQ-Table", "a*b>c");
        headers.insert("X-DLQ-Error", "it is no row");
        headers.insert("X-DLQ-Timestamp", "2026-11-30T22:00:00Z");
        let letter = Buried::read(message(headers), key(), "WH_DLQ").letter;
        assert_eq!((letter.reason.as_str(), letter.code), ("it is no row", None));
        assert_eq!(letter.position.sequence, Sequence(4));
        assert_eq!(letter.buried_at.to_rfc3339(0), "2026-11-30T22:00:00Z");
    }

    #[test]
    fn a_name_is_of_one_table_and_row() {
        let id = message_id(&letter());
        assert_eq!(id, "0.a%2Ab%3Ec.0000000000000007-9-3");
        assert_ne!(
            id,
            message_id(&DeadLetter { position: Position { row: 4, ..letter().position }, ..letter() })
        );
    }
}
