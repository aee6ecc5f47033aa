//! What the cutter promises: the same records whatever the chunks, and a resumable offset after each.

use proptest::prelude::*;

use super::*;

type Found = Vec<(String, u64, Option<Problem>)>;

fn cut(scanner: &mut Scanner, text: &[u8], chunk_bytes: usize) -> (Found, Result<(), ScanError>) {
    let mut found = Vec::new();
    let mut take = |record: Record<'_>| {
        found.push((String::from_utf8_lossy(record.line).into_owned(), record.end, record.problem));
    };
    let mut result = Ok(());
    for chunk in text.chunks(chunk_bytes) {
        result = scanner.feed(chunk, &mut take);
        if result.is_err() {
            break;
        }
    }
    if result.is_ok() {
        result = scanner.finish(&mut take);
    }
    (found, result)
}

fn lines(text: &str) -> (Vec<String>, Result<(), ScanError>) {
    let (whole, result) = cut(&mut Scanner::new(), text.as_bytes(), usize::MAX >> 1);
    for chunk_bytes in 1..8 {
        let (pieces, same) = cut(&mut Scanner::new(), text.as_bytes(), chunk_bytes);
        assert_eq!((&pieces, &same), (&whole, &result), "chunks of {chunk_bytes} in {text:?}");
    }
    (whole.into_iter().map(|found| found.0).collect(), result)
}

#[test]
fn each_shape_gives_its_records_whatever_the_chunks() {
    let cases: &[(&str, &[&str])] = &[
        ("", &[]),
        ("  \n ", &[]),
        ("[]", &[]),
        (" [ ] \n", &[]),
        (r#"[{"a":1}]"#, &[r#"{"a":1}"#]),
        ("[{\"a\":1},\n {\"b\":\"]},{\"}\n]\n", &[r#"{"a":1}"#, r#"{"b":"]},{"}"#]),
        ("[{\n  \"a\": [1,\r\n 2]\n}]", &["{   \"a\": [1,   2] }"]),
        (r#"[1, "x,]", null, [2]]"#, &["1", r#""x,]""#, "null", "[2]"]),
        (r#"[{"a":"\"},{"},{"b":"\\"}]"#, &[r#"{"a":"\"},{"}"#, r#"{"b":"\\"}"#]),
        ("{\"a\":1}\n\n{\"b\":2}\r\n   \n{\"c\":3}", &[r#"{"a":1}"#, r#"{"b":2}"#, r#"{"c":3}"#]),
        ("\u{feff}{\"a\":1}\n", &[r#"{"a":1}"#]),
        ("\u{feff}[{\"a\":1}]", &[r#"{"a":1}"#]),
        ("{\n \"a\": 1\n}\n{ \"b\": 2 } {\"c\":3}", &["{  \"a\": 1 }", "{ \"b\": 2 }", r#"{"c":3}"#]),
        // A torn line costs that line alone.
        ("{\"a\":1}\n{\"b\":\n{\"c\":3}\n", &[r#"{"a":1}"#, "{\"b\":", r#"{"c":3}"#]),
    ];
    for (text, expected) in cases {
        assert_eq!(lines(text), (expected.iter().map(ToString::to_string).collect(), Ok(())), "{text:?}");
    }
}

#[test]
fn what_is_missing_is_said_after_what_was_there() {
    let cases: &[(&str, usize, ScanError)] = &[
        (r#"[{"a":1}"#, 1, ScanError::CutArray),
        (r#"[{"a":1},{"#, 1, ScanError::CutArray),
        (r#"[{"a":1},"#, 1, ScanError::CutArray),
        (r#"[{"a":1} {"b":2}]"#, 1, ScanError::NoComma { offset: 9, found: '{' }),
        (r#"[{"a":1},]"#, 1, ScanError::NoRecord { offset: 9, found: ']' }),
        (r#"[,{"a":1}]"#, 0, ScanError::NoRecord { offset: 1, found: ',' }),
        (r#"[{"a":1}] x"#, 1, ScanError::AfterArray { offset: 10 }),
        ("{\n\"a\":1}\n{\n", 1, ScanError::CutRecord),
    ];
    for (text, count, error) in cases {
        let (found, result) = lines(text);
        assert_eq!((found.len(), result), (*count, Err(error.clone())), "{text:?}");
    }
}

#[test]
fn a_record_that_cannot_be_sent_is_named_and_the_next_one_is_found() {
    let (found, result) = cut(&mut Scanner::new(), b"[{\"a\":\"x\ny\"},{\"b\":2}]", 3);
    assert_eq!(result, Ok(()));
    assert_eq!(found[0].2, Some(Problem::LineBreakInString));
    assert_eq!((found[1].0.as_str(), found[1].2), (r#"{"b":2}"#, None));

    for text in ["[{\"a\":\"0123456789\"},{\"b\":2}]", "{\"z\":1}\n{\"a\":\"0123456789\"}\n{\"b\":2}\n"] {
        let mut scanner = Scanner { record_bytes_max: 12, ..Scanner::new() };
        let (found, result) = cut(&mut scanner, text.as_bytes(), 5);
        assert_eq!(result, Ok(()));
        let large = found.len() - 2;
        assert_eq!((found[large].0.as_str(), found[large].2), ("", Some(Problem::TooLarge)), "{text}");
        assert_eq!((found[large + 1].0.as_str(), found[large + 1].2), (r#"{"b":2}"#, None), "{text}");
    }
}

fn record() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        any::<i32>().prop_map(serde_json::Value::from),
        any::<bool>().prop_map(serde_json::Value::from),
        r#"[a-z\[\]{},:"\\\n\r ]{0,12}"#.prop_map(serde_json::Value::from),
    ];
    let value = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::hash_map("[a-z\"{]{1,4}", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    });
    // Never empty: `{}` is printed on one line, and a first line that closes makes the file one of lines.
    prop::collection::hash_map("[a-z]{1,4}", value, 1..4)
        .prop_map(|map| serde_json::Value::Object(map.into_iter().collect()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn any_records_in_any_layout_come_back_and_resume_at_each_end(
        records in prop::collection::vec(record(), 1..6),
        layout in 0..4,
        chunk_bytes in 1..40_usize,
    ) {
        let text = match layout {
            0 => serde_json::to_string(&records).unwrap(),
            1 => serde_json::to_string_pretty(&records).unwrap(),
            2 => records.iter().map(|one| one.to_string() + "\n").collect(),
            _ => records.iter().map(|one| serde_json::to_string_pretty(one).unwrap() + "\n").collect(),
        };
        let mut scanner = Scanner::new();
        let (found, result) = cut(&mut scanner, text.as_bytes(), chunk_bytes);
        prop_assert_eq!(result, Ok(()));
        let parsed: Vec<serde_json::Value> =
            found.iter().map(|one| serde_json::from_str(&one.0).unwrap()).collect();
        prop_assert_eq!(&parsed, &records);
        prop_assert!(found.iter().all(|one| !one.0.contains('\n')));

        let shape = scanner.shape().unwrap();
        for (at, one) in found.iter().enumerate() {
            let mut rest = Scanner::resume(shape, one.1);
            let (later, result) = cut(&mut rest, &text.as_bytes()[one.1 as usize..], chunk_bytes);
            prop_assert_eq!(result, Ok(()));
            prop_assert_eq!(&later, &found[at + 1..].to_vec());
        }
    }
}
