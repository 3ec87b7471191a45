//! The policy reader takes or refuses every text.
//!
//! Input: one byte for the format, then the text.

#![no_main]

use cofferdam_core::policy::{Layer, PolicyFormat, read_policy};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((format, text)) = bytes.split_first() else {
        return;
    };
    let format = match format % 2 {
        0 => PolicyFormat::Toml,
        _ => PolicyFormat::Json,
    };
    if let Ok(text) = std::str::from_utf8(text) {
        let _ = read_policy(text, format, Layer::User, "fuzz");
    }
});
