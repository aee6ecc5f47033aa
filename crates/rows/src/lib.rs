//! What a row is: ClickHouse types, splitting bodies into rows, and checking each row against its table. Pure.
