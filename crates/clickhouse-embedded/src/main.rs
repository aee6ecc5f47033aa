//! The real ClickHouse engine (libchdb) behind ClickHouse's own HTTP protocol, as a program of its own.
fn main() {}
