//! The embedded queue as a whole, on a real disk and on one that fails.

mod kit;
mod log;
