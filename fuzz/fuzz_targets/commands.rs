//! The reading of command lines: whatever text an agent makes of them.

#![no_main]

use cofferdam_core::commands::see_shell;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let seen = see_shell(&text);
    assert!(seen.steps <= 20 * (text.len() + 1024), "the work is not linear");
});
