//! One value into a column of some type.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wavehouse_fuzz::values(data));
