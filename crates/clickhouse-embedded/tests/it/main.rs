//! The server against real clients and a real engine.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests fail by panicking, in their helpers, too"
)]

mod cancel;
mod clients;
mod life;
mod protocol;
mod raw;
mod stream;
