//! What a keeper on the host puts back when its plane dies in the middle of a command.
//!
//! The plane shares a memory file with it: a number of running commands, then a table of what stood
//! at protected names before they started. A plane that ends a place in order sets the number to
//! zero first. What is in the way is moved to a quarantine under a name that says which line of the
//! table it belongs to; what cannot be put back is left to the next start, which looks again.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, fchmod, fstat, mkdirat, openat,
    readlinkat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::protocol::Bytes;

/// Bytes before the table: the number of running commands, and the name of a directory of the
/// quarantine, padded with zeros.
pub const UNDO_HEAD: usize = 8 + 64;

/// What stood at protected names when a command started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoTable {
    /// An absolute directory in which one is made for what is in the way, when it is needed.
    pub quarantine: Bytes,
    /// The names, in the plane's order.
    pub names: Vec<UndoName>,
}

impl UndoTable {
    /// Writes the head of the memory file: how many commands run, and the name of a directory for
    /// what they leave in the way, of at most 64 bytes.
    pub fn head(running: u64, directory: &str) -> [u8; UNDO_HEAD] {
        let mut head = [0; UNDO_HEAD];
        head[..8].copy_from_slice(&running.to_le_bytes());
        for (to, from) in head[8..].iter_mut().zip(directory.bytes()) {
            *to = from;
        }
        head
    }

    /// Writes the table itself, which follows the head; `None` when it cannot be told.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        postcard::to_stdvec(self).ok()
    }
}

/// One protected name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoName {
    /// Its absolute path.
    pub path: Bytes,
    /// How many components of the path existed.
    pub existing: u32,
    /// What stood there.
    pub was: UndoNode,
}

/// What stood somewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum UndoNode {
    /// Nothing.
    Absent,
    /// A file.
    File {
        /// Its permission bits.
        mode: u32,
        /// What was in it.
        content: Bytes,
    },
    /// A symbolic link.
    Symlink {
        /// Where it led.
        target: Bytes,
    },
    /// A directory.
    Directory {
        /// Its permission bits.
        mode: u32,
        /// All that was in it.
        entries: Vec<(Bytes, Self)>,
    },
    /// Something that is not put back.
    Unknown,
}

/// Puts back what is not as it was, if a command ran. For when nothing runs any more.
pub(crate) fn put_back(shared: &File) {
    let mut head = [0; UNDO_HEAD];
    if shared.read_exact_at(&mut head, 0).is_err() || head[..8] == [0; 8] {
        return;
    }
    let Ok(size) = shared.metadata().map(|found| found.len()) else {
        return;
    };
    let mut text = vec![0; (size as usize).saturating_sub(UNDO_HEAD)];
    if shared.read_exact_at(&mut text, UNDO_HEAD as u64).is_err() {
        return;
    }
    let name = head[8..]
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    if name.is_empty() || name.contains(&b'/') {
        return;
    }
    if let Ok(mut table) = postcard::from_bytes::<UndoTable>(&text) {
        table.quarantine.push(b'/');
        table.quarantine.extend_from_slice(name);
        restore(&table);
    }
}

fn restore(table: &UndoTable) {
    let mut away = Away {
        path: &table.quarantine,
        directory: None,
        index: 0,
        count: 0,
    };
    for (index, name) in table.names.iter().enumerate() {
        away.index = index;
        // The next start looks at every name again, and says what it cannot put back.
        let _ = restore_name(&mut away, name);
    }
}

fn restore_name(away: &mut Away<'_>, name: &UndoName) -> Result<(), Errno> {
    let mut parts = name
        .path
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty());
    let Some(last) = parts.next_back() else {
        return Ok(());
    };
    let mut way = vec![(b"/".as_slice(), open_directory(CWD, b"/")?)];
    for part in parts {
        let (_, above) = way.last().ok_or(Errno::INVAL)?;
        match open_directory(above, part) {
            Ok(next) => way.push((part, next)),
            Err(Errno::NOENT) => return Ok(()),
            // A link in place of a directory that was not there would lead to another one.
            Err(_) if name.was == UndoNode::Absent && way.len() > name.existing as usize => {
                return away.take(above, part);
            }
            Err(error) => return Err(error),
        }
    }
    let (_, above) = way.last().ok_or(Errno::INVAL)?;
    let is_changed = fix(away, above, last, &name.was)?;
    if is_changed && name.was == UndoNode::Absent {
        // Directories that were made for it go, too, as far as they are empty.
        while way.len() > name.existing as usize + 1 {
            let Some((made, _)) = way.pop() else { break };
            let Some((_, above)) = way.last() else { break };
            if unlinkat(above, made, AtFlags::REMOVEDIR).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// Makes a name what it was; tells whether it was not.
fn fix(away: &mut Away<'_>, at: impl AsFd, name: &[u8], was: &UndoNode) -> Result<bool, Errno> {
    let at = at.as_fd();
    if let UndoNode::Unknown = was {
        return Ok(false);
    }
    let is = match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat),
        Err(Errno::NOENT) => None,
        Err(error) => return Err(error),
    };
    let kind = is
        .as_ref()
        .map(|stat| FileType::from_raw_mode(stat.st_mode));
    if let (UndoNode::Directory { mode, entries }, Some(FileType::Directory)) = (was, kind) {
        return fix_directory(away, &open_directory(at, name)?, *mode, entries);
    }
    let same = match (was, kind) {
        (UndoNode::Absent, None) => true,
        (UndoNode::File { mode, content }, Some(FileType::RegularFile)) => {
            same_file(at, name, *mode, content)?
        }
        (UndoNode::Symlink { target }, Some(FileType::Symlink)) => {
            readlinkat(at, name, Vec::new())?.as_bytes() == target
        }
        _ => false,
    };
    if same {
        return Ok(false);
    }
    if kind.is_some() {
        away.take(at, name)?;
    } else {
        away.note()?;
    }
    make(at, name, was)?;
    Ok(true)
}

fn fix_directory(
    away: &mut Away<'_>,
    directory: &OwnedFd,
    mode: u32,
    entries: &[(Bytes, UndoNode)],
) -> Result<bool, Errno> {
    let mut is_changed = false;
    for found in Dir::read_from(directory)? {
        let found = found?;
        let name = found.file_name().to_bytes();
        let is_known = entries.iter().any(|(known, _)| known == name);
        if name != b"." && name != b".." && !is_known {
            away.take(directory, name)?;
            is_changed = true;
        }
    }
    for (name, was) in entries {
        is_changed |= fix(away, directory, name, was)?;
    }
    if fstat(directory)?.st_mode & 0o7777 != mode & 0o7777 {
        fchmod(directory, Mode::from_raw_mode(mode))?;
        is_changed = true;
    }
    Ok(is_changed)
}

fn same_file(at: BorrowedFd<'_>, name: &[u8], mode: u32, content: &[u8]) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(at, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        // It could be read before.
        Err(Errno::ACCESS) => return Ok(false),
        Err(error) => return Err(error),
    };
    let stat = fstat(&file)?;
    if stat.st_mode & 0o7777 != mode & 0o7777 || stat.st_size as usize != content.len() {
        return Ok(false);
    }
    let mut is = Vec::with_capacity(content.len());
    file.take(content.len() as u64 + 1)
        .read_to_end(&mut is)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(is == content)
}

fn make(at: BorrowedFd<'_>, name: &[u8], was: &UndoNode) -> Result<(), Errno> {
    match was {
        UndoNode::Absent | UndoNode::Unknown => Ok(()),
        UndoNode::Symlink { target } => symlinkat(target.as_slice(), at, name),
        UndoNode::File { mode, content } => {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(openat(at, name, flags, Mode::RUSR | Mode::WUSR)?);
            file.write_all(content)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            fchmod(&file, Mode::from_raw_mode(*mode))
        }
        UndoNode::Directory { mode, entries } => {
            mkdirat(at, name, Mode::RWXU)?;
            let directory = open_directory(at, name)?;
            for (name, was) in entries {
                make(directory.as_fd(), name, was)?;
            }
            fchmod(&directory, Mode::from_raw_mode(*mode))
        }
    }
}

/// Where things go that are in the way.
struct Away<'a> {
    path: &'a [u8],
    directory: Option<OwnedFd>,
    /// The line of the table.
    index: usize,
    count: usize,
}

impl Away<'_> {
    fn directory(&mut self) -> Result<&OwnedFd, Errno> {
        if self.directory.is_none() {
            let slash = self.path.iter().rposition(|byte| *byte == b'/');
            let above = &self.path[..slash.unwrap_or(0)];
            for place in [above, self.path] {
                match mkdirat(CWD, place, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
            }
            self.directory = Some(open_directory(CWD, self.path)?);
        }
        self.directory.as_ref().ok_or(Errno::INVAL)
    }

    fn name(&mut self, of: &[u8]) -> Vec<u8> {
        self.count += 1;
        let mut name = format!("keeper-{}-{}-", self.index, self.count).into_bytes();
        name.extend_from_slice(of);
        name
    }

    fn take(&mut self, at: impl AsFd, name: &[u8]) -> Result<(), Errno> {
        let to = self.name(name);
        renameat_with(at, name, self.directory()?, to, RenameFlags::NOREPLACE)
    }

    /// Leaves word of what was taken away by the command itself.
    fn note(&mut self) -> Result<(), Errno> {
        let name = self.name(b"removed");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        openat(self.directory()?, name, flags, Mode::RUSR).map(drop)
    }
}

fn open_directory(at: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn share(running: u64, table: &UndoTable) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        let head = UndoTable::head(running, "cmd");
        file.write_all(&head).expect("written");
        let text = table.to_bytes().expect("a table");
        file.write_all(&text).expect("written");
        file
    }

    #[test]
    fn what_was_planted_changed_and_removed_is_as_before_and_nothing_is_lost() {
        let top = tempfile::tempdir().expect("a directory");
        let at = |name: &str| top.path().join(name);
        let bytes = |name: &str| at(name).as_os_str().as_bytes().to_vec();
        let depth = at("x").components().count() as u32 - 2;
        let name = |path: &str, was| UndoName {
            path: bytes(path),
            existing: depth,
            was,
        };
        let file = |content: &str| UndoNode::File {
            mode: 0o640,
            content: content.into(),
        };
        let hooks = UndoNode::Directory {
            mode: 0o755,
            entries: vec![(b"sample".to_vec(), file("s"))],
        };
        let table = UndoTable {
            quarantine: bytes("data/quarantine"),
            names: vec![
                name("a/b/planted", UndoNode::Absent),
                name("config", file("before")),
                name("gone", file("was here")),
                name("hooks", hooks),
                name(
                    "link",
                    UndoNode::Symlink {
                        target: b"x".to_vec(),
                    },
                ),
                name("untouched", UndoNode::Absent),
            ],
        };
        let plant = || {
            fs::create_dir_all(at("data")).expect("made");
            fs::create_dir_all(at("a/b")).expect("made");
            fs::write(at("a/b/planted"), "p").expect("written");
            fs::write(at("config"), "after!").expect("written");
            fs::create_dir_all(at("hooks")).expect("made");
            fs::write(at("hooks/sample"), "other").expect("written");
            fs::write(at("hooks/pre-commit"), "evil").expect("written");
            fs::write(at("link"), "no link").expect("written");
        };
        plant();
        // Nothing runs: nothing is touched.
        put_back(&share(0, &table));
        assert!(at("a/b/planted").exists());
        put_back(&share(1, &table));
        assert!(!at("a").exists(), "the directories made for it go as well");
        assert_eq!(fs::read_to_string(at("config")).expect("there"), "before");
        let mode = fs::metadata(at("config"))
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(fs::read_to_string(at("gone")).expect("there"), "was here");
        assert_eq!(fs::read_to_string(at("hooks/sample")).expect("there"), "s");
        assert!(!at("hooks/pre-commit").exists());
        assert_eq!(fs::read_link(at("link")).expect("there").as_os_str(), "x");
        let mut kept: Vec<_> = fs::read_dir(at("data/quarantine/cmd"))
            .expect("there")
            .map(|one| {
                one.expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .map(|name| name.split('-').nth(1).unwrap_or_default().to_owned())
            .collect();
        kept.sort();
        assert_eq!(kept, ["0", "1", "2", "3", "3", "4"]);
        // Once more: it is all as it was.
        put_back(&share(1, &table));
        let again = fs::read_dir(at("data/quarantine/cmd"))
            .expect("there")
            .count();
        assert_eq!(again, 6);
    }

    #[test]
    fn a_link_on_the_way_is_taken_and_not_followed() {
        let top = tempfile::tempdir().expect("a directory");
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("outside")).expect("made");
        fs::create_dir(at("data")).expect("made");
        fs::write(at("outside/settings"), "theirs").expect("written");
        std::os::unix::fs::symlink(at("outside"), at("dir")).expect("linked");
        let table = UndoTable {
            quarantine: at("data/quarantine").as_os_str().as_bytes().to_vec(),
            names: vec![UndoName {
                path: at("dir/settings").as_os_str().as_bytes().to_vec(),
                existing: at("x").components().count() as u32 - 2,
                was: UndoNode::Absent,
            }],
        };
        put_back(&share(1, &table));
        assert!(fs::symlink_metadata(at("dir")).is_err());
        assert!(at("outside/settings").exists());
    }
}
