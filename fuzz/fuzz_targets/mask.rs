//! Masking keeps the length, however the bytes are cut, and says the same in pieces as at once.
//!
//! Input: secrets up to a 0xff byte, separated by 0xfe; then one byte for the cut; then the text.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cofferdam_fuzz::mask(bytes));
