//! SOCKS5 messages never panic and never name a host with a control byte in it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cofferdam_fuzz::egress_socks(bytes));
