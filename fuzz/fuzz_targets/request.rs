//! A request of ClickHouse's HTTP protocol into a statement.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wavehouse_fuzz::request(data));
