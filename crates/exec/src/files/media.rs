//! Images and videos, known by their first bytes.

/// Tells the type of an image or a video; `None` for anything else, whatever its name.
pub(super) fn mime_type(bytes: &[u8]) -> Option<&'static str> {
    // Signatures as the formats' own specifications give them; ISO media have a box type and a
    // brand after the box's length.
    let signatures: &[(&[u8], &str)] = &[
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"BM", "image/bmp"),
        (b"\x1a\x45\xdf\xa3", "video/webm"),
    ];
    if let Some((_, found)) = signatures
        .iter()
        .find(|(signature, _)| bytes.starts_with(signature))
    {
        return Some(found);
    }
    match (bytes.get(..4), bytes.get(4..8), bytes.get(8..12)) {
        (Some(b"RIFF"), _, Some(b"WEBP")) => Some("image/webp"),
        (Some(b"RIFF"), _, Some(b"AVI ")) => Some("video/x-msvideo"),
        (_, Some(b"ftyp"), Some(b"avif")) => Some("image/avif"),
        (_, Some(b"ftyp"), Some(b"heic")) => Some("image/heic"),
        (_, Some(b"ftyp"), Some(b"qt  ")) => Some("video/quicktime"),
        (_, Some(b"ftyp"), Some(_)) => Some("video/mp4"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_29_media_are_known_by_their_bytes() {
        assert_eq!(mime_type(b"\x89PNG\r\n\x1a\nrest"), Some("image/png"));
        assert_eq!(mime_type(b"RIFF\0\0\0\0WEBPVP8 "), Some("image/webp"));
        assert_eq!(mime_type(b"\0\0\0\x18ftypisom"), Some("video/mp4"));
        assert_eq!(mime_type(b"plain text"), None);
        assert_eq!(mime_type(b""), None);
    }
}
