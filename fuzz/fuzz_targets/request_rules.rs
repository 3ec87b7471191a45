//! A path that passes leads nowhere else, and a pattern has one meaning.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cofferdam_fuzz::request_rules(bytes));
