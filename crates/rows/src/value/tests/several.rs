//! Types that hold one of several: geo types, variants, and what the server finds a type for by itself.

use super::cases;

#[test]
fn points_and_what_is_made_of_them() {
    cases(
        "Point",
        &["[1,2]", r#"["1.5",-0.25]"#],
        &["1", "[1]", "[1,2,3]", "[1,null]", "[1,\"x\"]", "{}", "null"],
    );
    cases("Ring", &["[]", "[[1,2],[3,4]]"], &["[1,2]", "[[1]]", "[null]"]);
    cases("MultiPolygon", &["[[[[1,2]]]]"], &["[[[1,2]]]"]);
    cases(
        "Geometry",
        &["null", "[1,2]", "[[1,2]]", "[[[[1,2]]]]", "[]", r#"[["1",2]]"#],
        &["1", r#""x""#, "{}", "[[1,2],[[1,2]]]"],
    );
}

#[test]
fn variants_take_what_a_member_takes() {
    cases("Variant(String, Int8)", &["null", "300", "1", "true", "[1]"], &[]);
    let accepted = ["null", "1", r#""2026-01-31""#, "[1,2]", "40000"];
    cases("Variant(Array(Int64), Date, Int8)", &accepted, &["-129", "[1.5]", r#""x""#, "{}", "70000"]);
    cases("Variant(Decimal(9, 2), Bool)", &["1.5", "true"], &[r#""1.5""#, "1e9"]);
    cases("Variant(String, UInt8)", &[r#""x""#, "-1"], &[r#""""#, r#""true""#, r#""False""#]);
    cases("Variant(String, Date)", &[r#""x""#, "-1"], &[r#""2026-02-31""#, "true"]);
    cases("Variant(String, Array(Int8))", &["[1]", "{}", "[300]"], &["[null]", r#"[""]"#]);
    cases("Variant(Float64, Array(Decimal(9, 2)))", &["1.5", "[]"], &["[1.5]"]);
    cases("Array(Variant(Bool, UUID))", &["[true,null]", "[]"], &["[true,5]", "null"]);
    cases("Map(Variant(Bool, String), Int8)", &[r#"{"a":1}"#], &["1"]);
}

#[test]
fn values_whose_type_the_server_finds() {
    let both = [
        r#"{"a":[1,"x",null],"b":{"a":1},"a.b":2}"#,
        r#"{"n":[18446744073709551615,-9223372036854775808,1.5,1e300,-0]}"#,
        r#"{"x":[{"a":1},{"a":2}],"y":[]}"#,
        "{}",
    ];
    let neither = [
        r#"{"a":1,"a":2}"#,
        r#"{"x":[{"a":{"b":[{"c":1,"c":2}]}}]}"#,
        r#"{"a.b":1,"a":{"b":2}}"#,
        r#"{"x":[[{"a..b":1,"a":{".b":2}}]]}"#,
        r#"{"":{"a":1},".a":2}"#,
        "{\"a\":18446744073709551616}",
        "{\"a\":-9223372036854775809}",
        "{\"a\":[1e400]}",
    ];
    for ty in ["JSON", "JSON(max_dynamic_paths = 5)", "Nullable(JSON)", "Dynamic"] {
        cases(ty, &both, &neither);
    }
    cases("JSON", &[r#"{"a":[null,1,"x"]}"#], &[r#"{"a":[{},null]}"#, r#"{"a":[[[1],null]]}"#]);
    let only_json = [
        r#"{"x":[{},"x"]}"#,
        r#"{"":1}"#,
        r#"{"\u0061":1}"#,
        r#"{"x":[{"a":1},{"b":2}]}"#,
        r#"{"x":[[{"a":1}],[{}]]}"#,
    ];
    cases("JSON", &only_json, &["1", r#""{}""#, "[]", "null", r#"{"a":1,"\u0061":1}"#]);
    let nested = r#"[{"a":{"x":1}},{"a":{"y":1}}]"#;
    cases(
        "Dynamic",
        &["1", r#""x""#, "[]", "null", "[1,[2],{\"a\":[1,\"x\"]}]"],
        &[
            &only_json[..],
            &[nested, "1e400", "[null,[1]]", r#"{"x":[{"a":null},{"a":{}}]}"#, r#"[{"a":1},{"a":"x"}]"#],
        ]
        .concat(),
    );
    cases("Nullable(JSON)", &["null"], &["1"]);
    let deep = format!("{{\"x\":{}1{}}}", "[".repeat(98), "]".repeat(98));
    cases("JSON", &[&deep], &[]);
}
