//! What must hold whatever the bytes: one function a target. The fuzzer calls them with bytes of its own making, and a
//! test with the inputs that are kept in `corpus/`.

mod block_codec;
mod body;
mod http_request;
mod value;

// The engine's server is a program, not a library; these are the parts of it that decide purely, as they lie there.
#[path = "../../crates/clickhouse-embedded/src/auth.rs"]
mod auth;
#[path = "../../crates/clickhouse-embedded/src/fault.rs"]
#[expect(dead_code, reason = "not all of it is fuzzed")]
mod fault;
#[path = "../../crates/clickhouse-embedded/src/lexer.rs"]
mod lexer;
#[path = "../../crates/clickhouse-embedded/src/params.rs"]
mod params;
#[path = "../../crates/clickhouse-embedded/src/statement.rs"]
mod statement;

pub use block_codec::block;
pub use body::lines;
pub use http_request::request;
pub use value::values;

/// Takes the first byte off; 0 when there is none.
fn first(data: &[u8]) -> (u8, &[u8]) {
    data.split_first().map_or((0, data), |(first, rest)| (*first, rest))
}
