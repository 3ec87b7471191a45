//! The reading of command lines: whatever text an agent makes of them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cofferdam_fuzz::commands(bytes));
