//! Rules and hosts have one spelling, and a denial wins.
//!
//! Input: lines; the first is a host with a port, the second a denial, the rest is allowed.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cofferdam_fuzz::host_rules(bytes));
