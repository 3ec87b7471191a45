//! A head names one host, and the host that is judged is the one that the server is told.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cofferdam_fuzz::egress_head(bytes));
