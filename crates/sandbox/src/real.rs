//! From a path as it is named to the place that it means, every symbolic link followed beneath the
//! root, and files opened exactly there.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::beneath::{FileKind, Metadata, Root, failed};
use crate::error::SandboxError;

/// Links that one path may lead over, as the kernel has it.
const MOST_LINKS: usize = 40;

/// A path on which no symbolic link stands, and what stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealPath {
    /// The path, relative to the root.
    pub path: Vec<u8>,
    /// `None` where nothing stands.
    pub metadata: Option<Metadata>,
}

impl Root {
    /// Follows every link of a path; that of its last name only where `follow` says so. `shown` is
    /// where the root stands for whoever made absolute links.
    ///
    /// # Errors
    ///
    /// `EXDEV` where the path leads out, `ELOOP` over too many links.
    pub fn real(&self, shown: &[u8], path: &[u8], follow: bool) -> Result<RealPath, SandboxError> {
        let named = tidy(path).ok_or_else(|| failed(path)(Errno::XDEV))?;
        match self.stand_at(&named) {
            Ok(Some(metadata)) if follow && metadata.kind == FileKind::Symlink => {}
            Err(error) if error.errno == Errno::LOOP.raw_os_error() => {}
            other => {
                return other.map(|metadata| RealPath {
                    path: named,
                    metadata,
                });
            }
        }
        let mut left: VecDeque<Vec<u8>> = pieces(&named).collect();
        let mut at: Vec<u8> = Vec::new();
        let mut links = 0;
        while let Some(piece) = left.pop_front() {
            let next = joined(&at, &piece);
            let found = self.stand_at(&next)?;
            let is_last = left.is_empty();
            match found {
                None => {
                    // Nothing below it can be there either, so no link can be on the way.
                    let missing = left.iter().fold(next, |path, piece| joined(&path, piece));
                    return Ok(RealPath {
                        path: missing,
                        metadata: None,
                    });
                }
                Some(metadata) if metadata.kind == FileKind::Symlink && (!is_last || follow) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(failed(path)(Errno::LOOP));
                    }
                    let target = self.read_link(&next)?;
                    let whole = if target.starts_with(b"/") {
                        below(&target, shown).map(<[u8]>::to_vec)
                    } else {
                        Some(joined(&at, &target))
                    };
                    let whole = whole.and_then(|whole| tidy(&whole));
                    let whole = whole.ok_or_else(|| failed(path)(Errno::XDEV))?;
                    left = pieces(&whole).chain(left).collect();
                    at.clear();
                }
                Some(metadata) if is_last => {
                    return Ok(RealPath {
                        path: next,
                        metadata: Some(metadata),
                    });
                }
                Some(_) => at = next,
            }
        }
        let metadata = self.stand_at(&at)?;
        Ok(RealPath { path: at, metadata })
    }

    /// Opens a regular file for reading, every link followed first; gives where it really stands.
    ///
    /// # Errors
    ///
    /// As [`Root::real`]; `ENODEV` for what is no file, `EISDIR` for a directory.
    pub fn read_real(
        &self,
        shown: &[u8],
        path: &[u8],
    ) -> Result<(OwnedFd, Vec<u8>, Metadata), SandboxError> {
        let mut real = tidy(path).ok_or_else(|| failed(path)(Errno::XDEV))?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match self.resolve_real(&real, flags, Mode::empty()) {
            Err(error) if error.errno == Errno::LOOP.raw_os_error() => {
                real = self.real(shown, path, true)?.path;
                self.resolve_real(&real, flags, Mode::empty())?
            }
            other => other?,
        };
        let stat: Stat = rustix::fs::fstat(&file).map_err(failed(path))?;
        let metadata = Metadata::from(&stat);
        match metadata.kind {
            FileKind::File => Ok((file, real, metadata)),
            FileKind::Directory => Err(failed(path)(Errno::ISDIR)),
            _ => Err(failed(path)(Errno::NODEV)),
        }
    }

    /// Looks at what stands at a path on which no link stands, the last name not followed.
    fn stand_at(&self, path: &[u8]) -> Result<Option<Metadata>, SandboxError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        match self.resolve_real(path, flags, Mode::empty()) {
            Ok(file) => {
                let stat = rustix::fs::fstat(&file).map_err(failed(path))?;
                Ok(Some(Metadata::from(&stat)))
            }
            Err(error) if error.errno == Errno::NOENT.raw_os_error() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn joined(path: &[u8], piece: &[u8]) -> Vec<u8> {
    let mut whole = path.to_vec();
    if !whole.is_empty() {
        whole.push(b'/');
    }
    whole.extend_from_slice(piece);
    whole
}

fn pieces(path: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    path.split(|byte| *byte == b'/')
        .filter(|piece| !piece.is_empty())
        .map(<[u8]>::to_vec)
}

/// Gives what follows a directory in an absolute path.
fn below<'p>(path: &'p [u8], directory: &[u8]) -> Option<&'p [u8]> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    match path.strip_prefix(directory)? {
        [] => Some(&[]),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// Takes `.`, empty pieces and `..` out of a relative path, by its words; `None` where it would
/// climb above its beginning, or is absolute.
fn tidy(path: &[u8]) -> Option<Vec<u8>> {
    if path.starts_with(b"/") {
        return None;
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    for piece in path.split(|byte| *byte == b'/') {
        match piece {
            b"" | b"." => {}
            b".." => {
                kept.pop()?;
            }
            name => kept.push(name),
        }
    }
    Some(kept.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn row_35_links_are_followed_to_where_they_really_lead() {
        let place = tempfile::tempdir().expect("a directory");
        let top = place.path();
        std::fs::create_dir_all(top.join("a/b")).expect("made");
        std::fs::write(top.join("a/b/file"), "x").expect("written");
        symlink("a/b", top.join("to-b")).expect("linked");
        symlink(top.join("a"), top.join("absolute")).expect("linked");
        symlink("../file", top.join("a/b/out-of-b")).expect("linked");
        symlink("/etc/passwd", top.join("out")).expect("linked");
        symlink("../..", top.join("a/up")).expect("linked");
        symlink("round", top.join("round")).expect("linked");
        let shown = std::os::unix::ffi::OsStrExt::as_bytes(top.as_os_str());
        let root = Root::open(shown).expect("opened");
        let real = |path: &str, follow| {
            root.real(shown, path.as_bytes(), follow)
                .map(|real| {
                    let path = String::from_utf8(real.path).expect("text");
                    (path, real.metadata.map(|metadata| metadata.kind))
                })
                .map_err(|error| Errno::from_raw_os_error(error.errno))
        };
        let file = Some(FileKind::File);
        assert_eq!(real("to-b/file", true), Ok(("a/b/file".to_owned(), file)));
        let through = real("absolute/b/../b/./file", true);
        assert_eq!(through, Ok(("a/b/file".to_owned(), file)));
        assert_eq!(
            real("to-b", false),
            Ok(("to-b".to_owned(), Some(FileKind::Symlink)))
        );
        assert_eq!(
            real("to-b/new/er", true),
            Ok(("a/b/new/er".to_owned(), None))
        );
        assert_eq!(real("a/b/out-of-b", true), Ok(("a/file".to_owned(), None)));
        assert_eq!(
            real("", true),
            Ok((String::new(), Some(FileKind::Directory)))
        );
        assert_eq!(real("out", true), Err(Errno::XDEV));
        assert_eq!(real("a/up/x", true), Err(Errno::XDEV));
        assert_eq!(real("..", true), Err(Errno::XDEV));
        assert_eq!(real("round", true), Err(Errno::LOOP));
        let (_, path, metadata) = root.read_real(shown, b"absolute/b/file").expect("read");
        assert_eq!((path.as_slice(), metadata.size), (&b"a/b/file"[..], 1));
        let errno = |path: &str| {
            root.read_real(shown, path.as_bytes())
                .expect_err("refused")
                .errno
        };
        assert_eq!(errno("out"), Errno::XDEV.raw_os_error());
        assert_eq!(errno("a"), Errno::ISDIR.raw_os_error());
    }
}
