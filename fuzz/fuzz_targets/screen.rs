//! Whatever a program writes, a screen shows something of its own size and keeps no more than it
//! may; cut in pieces it shows the same as at once, and what redraws it shows the same again.
//!
//! Input: one byte for the height, one for the width, one for the cut; then what is written.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cofferdam_fuzz::screen(bytes));
