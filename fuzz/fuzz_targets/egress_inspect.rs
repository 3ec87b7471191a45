//! A head that is written anew is read as the same request.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cofferdam_fuzz::egress_inspect(bytes));
