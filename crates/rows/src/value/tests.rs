//! Cases per type. What is accepted is stored by ClickHouse 26.7 as written (or with less precision); of what is
//! refused, the server refuses some and stores something else for the rest.

mod several;

use crate::check::{CheckOptions, DEPTH_MAX, Framing, check_body};
use crate::schema::{Column, ServerFacts, TableSchema};

/// Judges `value` in a column of that type, on a server of that version and zone.
fn judge_on(version: (u32, u32), zone: &str, ty: &str, value: &str) -> Result<(), String> {
    let server = ServerFacts { version, time_zone: zone.to_owned() };
    let table = TableSchema::new("t".to_owned(), vec![Column::new("v", ty, 1)], server);
    let options = CheckOptions { receipt_time: None, row_bytes_max: 1 << 20, depth_max: DEPTH_MAX };
    let body = format!("{{\"v\":{value}}}");
    let checked = check_body(body.as_bytes(), Framing::Auto, &table, &options).unwrap();
    assert_eq!(checked.total, 1);
    match checked.refused.into_iter().next() {
        Some((_, error)) => Err(error.message),
        None => Ok(()),
    }
}

fn cases_on(version: (u32, u32), zone: &str, ty: &str, accepted: &[&str], refused: &[&str]) {
    for value in accepted {
        assert_eq!(judge_on(version, zone, ty, value), Ok(()), "{ty} takes {value}");
    }
    for value in refused {
        let message = judge_on(version, zone, ty, value).expect_err(&format!("{ty} does not take {value}"));
        assert!(message.contains("\"v\""), "the message names the column: {message}");
    }
}

fn cases(ty: &str, accepted: &[&str], refused: &[&str]) {
    cases_on((26, 7), "UTC", ty, accepted, refused);
}

#[test]
fn small_integers_do_not_wrap() {
    let never = ["1.0", "1.5", "1e2", r#""1e2""#, r#""""#, r#"" 12""#, r#""12 ""#, r#""true""#, r#""--1""#];
    let accepted = ["1", "-0", "127", "-128", r#""12""#, r#""+12""#, r#""-128""#, r#""007""#, "true"];
    cases("Int8", &accepted, &never);
    cases("Int8", &[], &["null", "[]", "{}", "[1]", r#""0x1""#, r#""1_0""#, r#""-""#]);
    cases("Int8", &[], &["128", "-129", "300", r#""300""#, "99999999999999999999"]);
    cases("UInt8", &["0", "255", "false"], &["256", "-1", "-0", r#""-1""#, r#""-0""#]);
    cases("Int16", &["32767", "-32768"], &["32768", "-32769"]);
    cases("UInt16", &["65535"], &["65536"]);
    cases("Int32", &["2147483647", "-2147483648"], &["2147483648", "-2147483649"]);
    cases("UInt32", &["4294967295"], &["4294967296"]);
    cases("Nullable(Int8)", &["null", "1"], &["300", r#""null""#, r#""""#]);
    cases("IntervalDay", &["1", "-5", r#""7""#], &["1.5", "true", "null"]);
}

#[test]
fn wide_integers_do_not_wrap() {
    cases(
        "Int64",
        &["9223372036854775807", "-9223372036854775808", r#""-9223372036854775808""#],
        &["9223372036854775808", "-9223372036854775809", r#""9223372036854775808""#],
    );
    cases("UInt64", &["18446744073709551615", r#""018446744073709551615""#], &["18446744073709551616", "-1"]);
    cases(
        "Int128",
        &["170141183460469231731687303715884105727", "-170141183460469231731687303715884105728", "-1"],
        &["170141183460469231731687303715884105728", "-170141183460469231731687303715884105729"],
    );
    cases(
        "UInt128",
        &["340282366920938463463374607431768211455"],
        &["340282366920938463463374607431768211456"],
    );
    let max = "57896044618658097711785492504343953926634992332820282019728792003956564819967";
    let over = "57896044618658097711785492504343953926634992332820282019728792003956564819968";
    cases("Int256", &[max, &format!("-{over}")], &[over]);
    let max = "115792089237316195423570985008687907853269984665640564039457584007913129639935";
    let over = "115792089237316195423570985008687907853269984665640564039457584007913129639936";
    cases("UInt256", &[max], &[over, "-1"]);
}

#[test]
fn floats_lose_precision_but_do_not_become_infinite() {
    let both =
        ["1", "1.5", "-0.0", "1e-400", r#""1.5""#, r#""+1""#, r#"".5""#, r#""5.""#, r#""1E5""#, "true"];
    let special = [r#""nan""#, r#""inf""#, r#""-Infinity""#, "0e999999999999"];
    let never =
        ["null", r#""""#, r#""abc""#, r#""--1""#, r#""1.5.5""#, r#""1e""#, r#"".""#, r#""0x10""#, "[]"];
    for ty in ["Float32", "Float64", "BFloat16"] {
        cases(ty, &both, &never);
        cases(ty, &special, &["1e400", "-1e400", r#""1e400""#, "1e999999999999999999999", r#""1_0""#]);
    }
    cases("Float32", &["16777217", "3.4028235e38"], &["1e39", "3.5e38", &"9".repeat(40)]);
    cases("Float64", &["1e39", "1.7976931348623157e308", "0.0000000001e318"], &["1.7976931348623159e308"]);
}

#[test]
fn decimals_lose_scale_but_no_whole_digits() {
    let refused = ["10000000", "1e7", "1e8", "null", "true", r#""""#, r#""abc""#, r#""nan""#, "0e99"];
    let accepted = ["1", "1.239", "-9999999.999", "1e3", "1e-80", r#""1.5""#, r#""+1.5""#, r#""007""#, "0e0"];
    cases("Decimal(9, 2)", &accepted, &refused);
    let accepted =
        ["123456789e-2", "1.5e3", "0.5e1", "1.2345678901234e-7", r#""1.5E1""#, "0.000000000000001"];
    let refused = ["12345678901e-4", "0.000000000001e15", "1e-99999999999", "1e99999999999", r#""1e""#];
    cases("Decimal(9, 2)", &accepted, &refused);
    cases("Decimal(2, 2)", &["0.5", "0"], &["1", "-1.2"]);
    cases("Decimal64(3)", &["999999999999999.9999"], &["1000000000000000"]);
    cases("Decimal(76, 0)", &["1e40", &"9".repeat(76)], &["1e80", &"9".repeat(77)]);
}

#[test]
fn strings_take_whatever_has_a_text() {
    let accepted = [r#""x""#, r#""""#, r#""\u0000""#, r#""\ud83d\ude00""#, r#""a\/b""#, "1.50", "1e400"];
    cases("String", &accepted, &["null"]);
    cases("String", &["true", r#"{"a": [1]}"#, "[1, 2]", "123456789012345678901234567890"], &[]);
    cases("LowCardinality(String)", &[r#""a""#, "1"], &["null"]);
    cases("LowCardinality(Nullable(String))", &[r#""a""#, "null"], &[]);
    let table = TableSchema::new(
        "t".to_owned(),
        vec![Column::new("v", "String", 1)],
        ServerFacts { version: (26, 7), time_zone: "UTC".to_owned() },
    );
    let options = CheckOptions { receipt_time: None, row_bytes_max: 1 << 20, depth_max: DEPTH_MAX };
    for lone in [r#""\ud800""#, r#""\ud800x""#, r#""\udc00""#, r#""\ud800\u0041""#, r#"{"a":"\ud800"}"#] {
        let body = format!("{{\"v\":{lone}}}");
        let checked = check_body(body.as_bytes(), Framing::Auto, &table, &options).unwrap();
        assert_eq!(checked.refused.len(), 1, "{lone}");
    }
}

#[test]
fn texts_of_a_fixed_form() {
    let refused = [r#""abcd""#, r#""\u00e9\u00e9""#, "12", "true", "null", "{}"];
    cases("FixedString(3)", &[r#""ab""#, r#""abc""#, r#""\u0041bc""#, r#""é""#], &refused);
    cases("LowCardinality(FixedString(2))", &[r#""ab""#], &[r#""abc""#]);
    cases(
        "Bool",
        &["true", "false", "1", "0"],
        &["2", "-0", "1.0", "1e0", r#""true""#, r#""1""#, "null", "-1"],
    );
    let id = "61f0c404-5cb3-11e7-907b-a6006ad3dba0";
    let upper = id.to_uppercase();
    let accepted = [format!("\"{id}\""), format!("\"{upper}\""), format!("\"{}\"", id.replace('-', ""))];
    let refused = [format!("\"{{{id}}}\""), format!("\"urn:uuid:{id}\""), format!("\"{}g\"", &id[..35])];
    cases("UUID", &accepted.each_ref().map(String::as_str), &refused.each_ref().map(String::as_str));
    cases("UUID", &[], &["1", r#""""#, "null", r#""61f0c404-5cb311e7-907b-a6006ad3dba0""#]);
    let refused =
        [r#""256.1.1.1""#, r#""1.2.3""#, r#""1.2.3.4 ""#, r#""01.2.3.4""#, r#""1.2.3.4/32""#, "1", "null"];
    cases("IPv4", &[r#""1.2.3.4""#, r#""0.0.0.0""#], &refused);
    let accepted = [r#""::1""#, r#""1.2.3.4""#, r#""::ffff:1.2.3.4""#, r#""2001:DB8::1""#, r#""::""#];
    cases("IPv6", &accepted, &[r#""fe80::1%eth0""#, r#""1::2::3""#, r#""00001::""#, r#""""#, "1", "null"]);
}

#[test]
fn enums_take_their_names_and_numbers() {
    let ty = r"Enum8('a' = 1, 'b\'c' = 2, '3' = 7)";
    let accepted = [r#""a""#, r#""b'c""#, r#""\u0061""#, "1", "7", r#""3""#, r#""1""#, r#""7""#];
    cases(ty, &accepted, &[r#""c""#, "3", r#""8""#, "1.0", "true", "null", r#""""#, "[]"]);
    cases("Enum16('x' = -300, 'y' = 300)", &["-300", "300", r#""-300""#], &["5", "99999999999999999999"]);
}

#[test]
fn dates_exist_and_are_in_range() {
    let never = [r#""2026-13-45""#, r#""2026-02-30""#, r#""2026-02-29""#, r#""2026-1-5""#, r#""20260105""#];
    let forms = [r#""2026-01-05 10:11:12""#, r#""2026/01/05""#, r#""0000-00-00""#, r#""""#, "1.5", "null"];
    for ty in ["Date", "Date32"] {
        cases(ty, &[r#""2026-01-05""#, r#""2024-02-29""#, r#""1970-01-01""#, "20458"], &never);
        cases(ty, &[], &forms);
    }
    cases(
        "Date",
        &[r#""2149-06-06""#, "65535"],
        &[r#""2149-06-07""#, r#""1969-12-31""#, "65536", "-1", "-0"],
    );
    cases("DateTime", &["0", "-0"], &["-1"]);
    cases("Date32", &[r#""1900-01-01""#, r#""2299-12-31""#, "-25567", "120529"], &[]);
    cases("Date32", &[], &[r#""1899-12-31""#, r#""2300-01-01""#, "-25568", "120530", "1735689600"]);
}

#[test]
fn date_times_in_forms_that_mean_one_thing() {
    let accepted = [
        r#""2026-01-05""#,
        r#""2026-01-05 10:11""#,
        r#""2026-01-05 10:11:12""#,
        r#""2026-01-05T10:11:12""#,
        r#""2026-01-05T10:11:12Z""#,
        r#""2026-01-05T10:11:12.123456789Z""#,
        r#""2026-01-05T10:11:12.1234567890123456789Z""#,
        r#""2026-01-05T10:11:12+02:00""#,
        r#""2026-01-05T10:11:12.5-0230""#,
        r#""2026-01-05 10:11:12 UTC""#,
        r#""2026-01-05 10:11:12+02""#,
        r#""1735689600""#,
        r#""123456789""#,
        r#""1735689600123""#,
        r#""1735689600123456""#,
        r#""1735689600123456789""#,
    ];
    let refused = [
        r#""01/02/2026""#,
        r#""2026-01-05T10:11:12.12345678901234567890Z""#,
        r#""1735689600.12345678901234567890""#,
        r#""Jan 5 2026""#,
        r#""2026-1-5 1:2:3""#,
        r#""20260105""#,
        r#""20260105101112""#,
        r#""10:11:12""#,
        r#""2026-02-30 00:00:00""#,
        r#""2026-01-05 25:00:00""#,
        r#""2026-01-05 24:00:00""#,
        r#""2026-01-05 23:59:60""#,
        r#""2026-01-05 10:61:00""#,
        r#""2026-01-05 10:11:12 PM""#,
        r#""2026-01-05 10:11:12 EST""#,
        r#""2026-01-05 10:11:12,345""#,
        r#""2026-01-05T10:11:12+25:00""#,
        r#""2026-01-05T10:11:12+02:99""#,
        r#""2026-01-05t10:11:12z""#,
        r#""2026-01-05T10:11:12\u002B00:00""#,
        r#"" 2026-01-05""#,
        r#""2026-01-05 ""#,
        r#""0000-00-00 00:00:00""#,
        r#""12345678""#,
        r#""-1""#,
        r#""now""#,
        r#""""#,
        "null",
        "true",
        "[]",
        "1e9",
    ];
    for ty in ["DateTime('UTC')", "DateTime64(3, 'UTC')", "DateTime64(9, 'UTC')", "DateTime64(0)"] {
        cases(ty, &accepted, &refused);
    }
}

#[test]
fn date_times_are_in_range() {
    let refused =
        [r#""1969-12-31 23:59:59""#, r#""2106-02-07 06:28:16""#, r#""2300-01-01""#, r#""4294967296""#];
    let accepted = [r#""1970-01-01""#, r#""2106-02-07 06:28:15""#, r#""1969-12-31T23:00:00-05:00""#, "0"];
    cases("DateTime('UTC')", &accepted, &refused);
    cases("DateTime", &["4294967295"], &["4294967296", "-1", "1735689600.5", r#""1735689600.5""#]);
    let accepted = [r#""1900-01-01""#, r#""2299-12-31 23:59:59.999""#, r#""1735689600.5""#];
    cases("DateTime64(3, 'UTC')", &accepted, &[r#""1899-12-31""#, r#""2300-01-01""#]);
    let accepted = [r#""2262-04-11 23:47:15.9""#, r#""1900-01-01""#];
    cases("DateTime64(9, 'UTC')", &accepted, &[r#""2262-04-12""#, r#""9999999999999999999""#]);
}

#[test]
fn a_bare_number_in_date_time64_follows_the_server() {
    let ty = "DateTime64(3, 'UTC')";
    cases_on(
        (26, 7),
        "UTC",
        ty,
        &["1735689600123", "-500", "1735689600"],
        &["1735689600.5", "10413792000000"],
    );
    cases_on((26, 8), "UTC", ty, &["1735689600", "1735689600.5", "-1"], &["1735689600123", "1e9"]);
    let ty = "DateTime64(9)";
    cases_on((26, 7), "UTC", ty, &["1735689600123456789"], &[]);
    cases_on((26, 8), "UTC", ty, &["9223372035"], &["9223372037", "1735689600123"]);
    cases_on((26, 8), "UTC", "DateTime", &["1735689600.5"], &["4294967296", "-0.5"]);
}

#[test]
fn a_zone_decides_which_local_times_exist() {
    let skipped = r#""2026-03-29 02:30:00""#;
    cases("DateTime('UTC')", &[skipped], &[]);
    cases(
        "DateTime('Europe/Berlin')",
        &[r#""2026-10-25 02:30:00""#, r#""2026-03-29T02:30:00Z""#],
        &[skipped],
    );
    cases_on((26, 7), "Europe/Berlin", "DateTime64(3)", &[r#""2026-03-29 03:00:00""#], &[skipped]);
    let (before, after) = (r#""1970-01-01 00:30:00""#, r#""1970-01-01 01:00:00""#);
    cases("DateTime('Europe/Berlin')", &[after], &[before]);
    cases("DateTime('America/New_York')", &[r#""1969-12-31 19:00:00""#], &[r#""1969-12-31 18:59:59""#]);
    let near = [r#""1970-01-01 12:00:00""#, r#""2106-02-07 00:00:00""#];
    cases("DateTime('Nowhere/Else')", &[r#""2026-03-29 02:30:00""#, r#""1970-01-03""#], &near);
}

#[test]
fn times_of_day() {
    let accepted = [r#""10:11:12""#, r#""-10:11:12""#, r#""999:59:59""#, r#""1:02:03""#];
    let refused = [r#""10:61:12""#, r#""00:00:60""#, r#""1000:00:00""#, r#""1:2:3""#, r#""""#, "1.5", "null"];
    cases("Time", &accepted, &refused);
    cases("Time64(3)", &accepted, &refused);
    cases("Time", &["36672", "-3599999"], &["3600000", r#""00:00:05.5""#, r#""36672""#]);
    cases("Time64(3)", &["3599999999", r#""-00:00:05.5""#], &["3600000000", r#""10:11:12Z""#]);
}

#[test]
fn arrays_and_maps_element_by_element() {
    let refused = ["[1,null]", "[300]", "null", r#""[1,2]""#, "{}", "1", r#"["x"]"#, "[[1]]"];
    cases("Array(Int8)", &["[]", "[1, 2]", r#"["1"]"#], &refused);
    cases("Array(Nullable(String))", &[r#"["a",null,1,{"b":2}]"#], &["null"]);
    cases("Array(Array(Int8))", &["[[1],[]]"], &["[1]", "[[1],[300]]"]);
    let refused = [r#"{"a":null}"#, r#"{"a":300}"#, r#"[["a",1]]"#, "[]", r#""x""#, "null"];
    cases("Map(String, Int8)", &["{}", r#"{"a":1}"#, r#"{"a":1,"a":2}"#, r#"{"\u0061":"1"}"#], &refused);
    cases("Map(Int8, String)", &[r#"{"1":"a"}"#], &[r#"{"300":"a"}"#, r#"{"x":"a"}"#, r#"{"":"a"}"#]);
    cases("Map(LowCardinality(String), Array(Int8))", &[r#"{"a":[1]}"#], &[r#"{"a":[300]}"#]);
    cases("Map(Date, String)", &[r#"{"2026-01-05":"a"}"#], &[r#"{"2026-13-45":"a"}"#]);
}

#[test]
fn tuples_and_nested() {
    let refused = ["[1]", r#"[1,"a",2]"#, r#"{"a":1}"#, "null", "[1,null]", "[]", "1"];
    cases("Tuple(Int8, String)", &[r#"[1,"a"]"#, r#"["5",6]"#], &refused);
    cases("Tuple()", &["[]"], &["[1]"]);
    let accepted = [r#"{"a":1,"b":"x"}"#, r#"{"b":"x","a":1}"#];
    let refused = [
        r#"[1,"a"]"#,
        r#"{"a":1}"#,
        r#"{"a":1,"b":"x","c":3}"#,
        r#"{"a":1,"a":2,"b":"x"}"#,
        r#"{"a":null,"b":"x"}"#,
        r#"{"\u0061":1,"b":"x"}"#,
        "{}",
        "null",
    ];
    cases("Tuple(a Int8, b String)", &accepted, &refused);
    cases("Tuple(a Nullable(Int8), `b c` String)", &[r#"{"b c":"x"}"#, r#"{"a":null,"b c":"x"}"#], &["{}"]);
    let refused = [r#"[{"a":1}]"#, "[1]", r#"{"a":[1]}"#, "null", r#"[[1,"x"]]"#];
    for ty in ["Nested(a Int8, b String)", "Array(Tuple(a Int8, b String))"] {
        cases(ty, &["[]", r#"[{"a":1,"b":"x"},{"b":"y","a":2}]"#], &refused);
    }
}

#[test]
fn types_that_pass() {
    let any = ["1", r#""x""#, "{}", "[]", "true", r#"{"a":[{"b":null}]}"#];
    cases("AggregateFunction(sum, UInt64)", &any, &["null"]);
    cases("Brandnew(7)", &any, &["null"]);
    cases("SimpleAggregateFunction(sum, UInt64)", &["1"], &["-1", "null"]);
}

#[test]
fn messages_name_column_type_and_value() {
    let message = |ty, value| judge_on((26, 7), "UTC", ty, value).unwrap_err();
    assert_eq!(message("Int8", "300"), "type mismatch for column \"v\" (Int8): 300 is out of range");
    assert_eq!(
        message("Array(Int8)", "[1, null]"),
        concat!("type mismatch for column \"v\" (Array(Int8)): ", "null is null where null is not allowed")
    );
    assert_eq!(message("Int8", "null"), "null value for non-nullable column \"v\"");
    let long = format!("\"{}\"", "é".repeat(100));
    let message = message("Int8", &long);
    assert!(message.contains("é…") && message.len() < 140, "{message}");
}
