//! The policy reader takes or refuses every text.
//!
//! Input: one byte for the format, then the text.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cofferdam_fuzz::policy(bytes));
