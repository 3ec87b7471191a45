//! Small helpers for looking at files of others.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Reads a regular file of at most `limit` bytes; anything else is `None`.
///
/// Opening never waits: what stands there may be a FIFO that somebody planted.
pub(super) fn read_small(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let file = open_regular(path)?;
    if file.metadata().ok()?.len() > limit {
        return None;
    }
    let mut content = Vec::new();
    file.take(limit).read_to_end(&mut content).ok()?;
    Some(content)
}

/// Opens a regular file without waiting.
pub(super) fn open_regular(path: &Path) -> Option<File> {
    let file = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path)
        .ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// Gives the first line without its end.
pub(super) fn first_line(content: &[u8]) -> &[u8] {
    let end = content
        .iter()
        .position(|byte| *byte == b'\n' || *byte == b'\r')
        .unwrap_or(content.len());
    &content[..end]
}
