//! Masking keeps the length, however the bytes are cut, and says the same in pieces as at once.
//!
//! Input: secrets up to a 0xff byte, separated by 0xfe; then one byte for the cut; then the text.

#![no_main]

use cofferdam_core::mask::Masker;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|byte| *byte == 0xff);
    let (secrets, rest) = bytes.split_at(end.unwrap_or(0));
    let [_, cut, text @ ..] = rest else { return };
    let masker = Masker::new(secrets.split(|byte| *byte == 0xfe));
    let (whole, _) = masker.mask_bytes(text);
    assert_eq!(whole.len(), text.len());
    let mut pieces = Vec::new();
    let mut stream = masker.stream();
    for piece in text.chunks(usize::from(*cut).max(1)) {
        stream.feed(piece, &mut pieces);
        assert!(pieces.len() + stream.held() <= text.len());
    }
    stream.finish(&mut pieces);
    assert_eq!(pieces, whole.as_ref());
});
