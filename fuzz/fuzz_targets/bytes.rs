//! The written form of bytes reads back as the same bytes.

#![no_main]

use cofferdam_core::bytes::BytePath;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = BytePath::from_bytes(bytes);
    assert_eq!(BytePath::parse(&path.to_string()).as_ref(), Ok(&path));
    if let Some(parent) = path.parent() {
        assert!(path.is_within(&parent) || !path.is_absolute());
    }
    let _ = (path.file_name(), path.depth());
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(parsed) = BytePath::parse(text)
    {
        assert_eq!(BytePath::parse(&parsed.to_string()), Ok(parsed));
    }
});
