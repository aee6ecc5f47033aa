//! The wavehouse program: configuration, wiring, supervisor, operator commands.
fn main() {}
