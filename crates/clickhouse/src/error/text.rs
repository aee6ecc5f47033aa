//! Reading what ClickHouse says: the exception code, the bad row, an exception at the end of a broken answer.

/// What begins and ends an exception inside a streamed answer, on servers that tag it.
const MARK: &str = "__exception__";

/// The number after `Code: ` at the start of a message.
pub(crate) fn code_of(message: &str) -> Option<u32> {
    digits(message.trim_start().strip_prefix("Code: ")?)?.parse().ok()
}

/// The row that a message of a refused insert names, from 1.
///
/// Seen: `(at row 3)` for values and fields that cannot be read, `violated at row 3` for constraints. Both count from 1
/// in the order of the rows sent, as long as one insert is one block and is parsed by one thread, which is how
/// [`ClickHouseSink`](crate::ClickHouseSink) inserts. The number is a hint: what is cut out by it is tried again alone.
#[must_use]
pub fn bad_row(message: &str) -> Option<u64> {
    let (_, rest) = message.rsplit_once("at row ")?;
    digits(rest)?.parse().ok().filter(|row| *row > 0)
}

fn digits(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end).filter(|digits| !digits.is_empty())
}

/// The exception that a streamed answer ends with, if it ends with one. With `tag`, the server's own mark of this answer,
/// it is certain; without, the last `Code: N. DB::Exception` is taken, which only a broken answer may be asked for.
pub(crate) fn exception_in_tail(tail: &str, tag: Option<&str>) -> Option<String> {
    if let Some(tag) = tag {
        let open = format!("{MARK}\r\n{tag}\r\n");
        let (_, rest) = tail.rsplit_once(&open)?;
        let text = rest.rsplit_once(MARK).map_or(rest, |(text, _)| text);
        // What is left ends in a line with the text's length and the tag.
        let text = text.trim_end();
        let text = text
            .strip_suffix(tag)
            .map_or(text, |text| text.trim_end().trim_end_matches(|c: char| c.is_ascii_digit()));
        return Some(text.trim().to_owned());
    }
    let at = tail.rfind("Code: ")?;
    let text = tail.get(at..)?;
    (code_of(text).is_some() && text.contains("DB::Exception")).then(|| text.trim_end().to_owned())
}

/// At most `bytes_max` bytes of a text, cut between characters, without the white space at its ends.
pub(crate) fn shortened(text: &str, bytes_max: usize) -> String {
    let text = text.trim();
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes() {
        assert_eq!(code_of("Code: 117. DB::Exception: x"), Some(117));
        assert_eq!(code_of("Code: 60, e.displayText() = x"), Some(60));
        assert_eq!(code_of("502 Bad Gateway"), None);
        assert_eq!(code_of("Code: x"), None);
    }

    #[test]
    fn the_last_row_named_counts() {
        let text =
            "Code: 27. DB::Exception: Cannot parse input: expected ',' before: 'at row 9': (at row 2)\n: ...";
        assert_eq!(bad_row(text), Some(2));
        let text = "Code: 469. DB::Exception: Constraint `c` for table t is violated at row 12. Expression: (n > 0).";
        assert_eq!(bad_row(text), Some(12));
        for none in ["", "at row ", "at row x", "at row 0", "at row 99999999999999999999999"] {
            assert_eq!(bad_row(none), None, "{none}");
        }
    }

    #[test]
    fn an_exception_behind_data() {
        let tail = "{\"a\":1}\n__exception__\r\nabcdefghijklmnop\r\nCode: 395. DB::Exception: boom\n29 abcdefghijklmnop\r\n__exception__\r\n";
        assert_eq!(
            exception_in_tail(tail, Some("abcdefghijklmnop")).as_deref(),
            Some("Code: 395. DB::Exception: boom")
        );
        assert_eq!(exception_in_tail("{\"a\":1}\n", Some("abcdefghijklmnop")), None);
        let tail = "{\"a\":1}\nCode: 395. DB::Exception: boom";
        assert_eq!(exception_in_tail(tail, None).as_deref(), Some("Code: 395. DB::Exception: boom"));
        assert_eq!(exception_in_tail("Code: none of it", None), None);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(shortened(" aé ", 2), "a");
        assert_eq!(shortened("aé\n", 9), "aé");
    }
}
