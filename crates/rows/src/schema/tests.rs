//! What a table derives from its columns.

use super::{Column, DefaultKind, ServerFacts, TableSchema};

#[test]
fn columns_by_what_a_row_may_and_must_name() {
    let columns = vec![
        Column::new("a", "Int8", 1),
        Column::new("d", "Int8", 2).with_default(DefaultKind::Default, "1"),
        Column::new("m", "Int8", 3).with_default(DefaultKind::Materialized, "1"),
        Column::new("al", "Int8", 4).with_default(DefaultKind::Alias, "1"),
        Column::new("e", "Int8", 5).with_default(DefaultKind::Ephemeral, "1"),
        Column::new("n", "LowCardinality(Nullable(String))", 6),
    ];
    let facts = ServerFacts { version: (26, 7), time_zone: "UTC".to_owned() };
    let table = TableSchema::new("t".to_owned(), columns, facts.clone());
    let names =
        |columns: Vec<&Column>| columns.into_iter().map(|column| column.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(table.wire_columns().collect()), ["a", "d", "n"]);
    assert_eq!(names(table.insertable_columns().collect()), ["a", "d", "e", "n"]);
    assert_eq!(names(table.columns.iter().filter(|column| column.is_required()).collect()), ["a"]);
    assert!(table.needs_column_list());
    assert!(table.column("n").is_some_and(|column| column.is_nullable() && !column.has_default()));
    assert!(table.column("x").is_none() && !table.has_column_for_receipt_time());
    let plain = TableSchema::new("t".to_owned(), vec![Column::new("a", "Int8", 1)], facts);
    assert!(!plain.needs_column_list());
}

#[test]
fn default_kinds_as_the_server_spells_them() {
    for kind in [DefaultKind::Default, DefaultKind::Materialized, DefaultKind::Alias, DefaultKind::Ephemeral]
    {
        assert_eq!(DefaultKind::parse(kind.as_str()), Some(kind));
    }
    assert_eq!(DefaultKind::parse(""), None);
}
