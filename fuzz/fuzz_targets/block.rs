//! Stored bytes into blocks.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wavehouse_fuzz::block(data));
