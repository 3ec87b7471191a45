//! The written form of bytes reads back as the same bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cofferdam_fuzz::bytes(bytes));
