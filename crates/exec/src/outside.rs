//! A file outside of the workspace, written in the owner's name once they have released it.
//!
//! It is looked at when it is proposed, and again when it is released: the bytes are written only
//! where the file still holds what it held, and the file is there before or after, never half. Every
//! step goes by the folder that was opened, no link on the way.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use cofferdam_core::approval::diff_lines;
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::limits::PROPOSED_FILE_BYTES;
use cofferdam_core::operation::WriteOutside;
use cofferdam_core::outbox::{FileBefore, Sent, SentAs, WriteOutsideEffect};
use cofferdam_core::policy::WantedPath;
use cofferdam_core::spec::{Digest, Identity};
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, ResolveFlags, fchmod, fchown, openat, openat2,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::files::take_content;
use crate::workspace::{WorkspaceError, as_identity};

/// Permissions of a file that is made, less what the owner's mask takes away.
const NEW_MODE: u32 = 0o644;
const NO_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);

/// Looks at what writing would do, and does nothing. The path was held against the policy before.
///
/// # Errors
///
/// `invalid_request`; `file_too_large`; `not_a_file`; `file_conflict` where the file is not what was
/// expected; `file_missing` for a folder that is not there; `io`.
pub fn plan_write_outside(
    workspace: &BytePath,
    wanted: &WantedPath,
    request: WriteOutside,
    identity: Option<&Identity>,
) -> Result<WriteOutsideEffect, Problem> {
    let after = take_content(request.content.clone(), request.encoding)?;
    if after.len() > PROPOSED_FILE_BYTES {
        let message = format!("a file that is proposed has at most {PROPOSED_FILE_BYTES} bytes");
        return Err(Problem::new(ErrorCode::FileTooLarge, message).with_field("content"));
    }
    let path = &wanted.real;
    let found = acting(identity, || look(path))?;
    let found_bytes = found.as_ref().map(|one| one.bytes.as_slice());
    if let Some(expected) = &request.expected_digest
        && !found_bytes.is_some_and(|bytes| expected.is_of(bytes))
    {
        return Err(conflict(path, "is not what was expected").with_field("expected_digest"));
    }
    if found_bytes == Some(after.as_slice()) {
        let message = format!("{path} holds that already");
        return Err(Problem::new(ErrorCode::InvalidRequest, message).with_field("content"));
    }
    let (diff, diff_cut) = diff_lines(found_bytes.unwrap_or_default(), &after);
    let mut cautions = Vec::new();
    if found.as_ref().is_some_and(|one| one.mode & 0o111 != 0) {
        cautions.push("it can be run as a program".to_owned());
    }
    Ok(WriteOutsideEffect {
        workspace: workspace.clone(),
        path: path.clone(),
        before: found.map(|one| one.told()),
        digest: Digest::of(&after),
        bytes: after.len() as u64,
        content: request.content,
        encoding: request.encoding,
        diff,
        diff_cut,
        cautions,
    })
}

/// Gives the bytes that would be written.
///
/// # Errors
///
/// `invalid_request` for what is no base64.
pub fn proposed_bytes(planned: &WriteOutsideEffect) -> Result<Vec<u8>, Problem> {
    take_content(planned.content.clone(), planned.encoding)
}

/// Refuses a file that is not as it was when it was proposed; does nothing else.
///
/// # Errors
///
/// `file_conflict`, and those of looking at it.
pub fn check_write_outside(
    planned: &WriteOutsideEffect,
    identity: Option<&Identity>,
) -> Result<(), Problem> {
    acting(identity, || {
        let found = look(&planned.path)?;
        check(planned, found.as_ref()).map(drop)
    })
}

/// Writes what was proposed, where the file still holds what it held.
///
/// # Errors
///
/// `file_conflict`; `io`, `storage_exhausted`. Nothing is changed then.
pub fn write_outside(
    planned: &WriteOutsideEffect,
    identity: Option<&Identity>,
) -> Result<Sent, Problem> {
    let after = proposed_bytes(planned)?;
    if Digest::of(&after) != planned.digest {
        let message = "what would be written is not what was proposed";
        return Err(Problem::new(ErrorCode::GrantRefused, message));
    }
    acting(identity, || write(planned, &after))
}

/// What stands in a file.
struct Found {
    bytes: Vec<u8>,
    mode: u32,
    owner: (u32, u32),
}

impl Found {
    fn told(&self) -> FileBefore {
        FileBefore {
            digest: Digest::of(&self.bytes),
            bytes: self.bytes.len() as u64,
            mode: self.mode,
        }
    }
}

fn acting<T: Send>(
    identity: Option<&Identity>,
    work: impl FnOnce() -> Result<T, Problem> + Send,
) -> Result<T, Problem> {
    as_identity(identity, || work().map_err(WorkspaceError::Inside)).map_err(Problem::from)
}

fn failed(path: &BytePath, error: &io::Error) -> Problem {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::StorageExhausted,
        io::ErrorKind::NotFound => ErrorCode::FileMissing,
        _ => ErrorCode::Io,
    };
    Problem::new(code, format!("{path} cannot be written: {error}")).with_field("path")
}

fn conflict(path: &BytePath, why: &str) -> Problem {
    Problem::new(
        ErrorCode::FileConflict,
        format!("{path} {why}: nothing is written"),
    )
    .with_hint("refuse it, and propose it anew as it is now")
}

/// Opens the folder of a path, no link on the way, and gives its last name.
fn folder(path: &BytePath) -> Result<(OwnedFd, &OsStr), Problem> {
    let path_there = path.as_path();
    let above = path_there.parent().unwrap_or(Path::new("/"));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat2(rustix::fs::CWD, above, flags, Mode::empty(), NO_LINKS);
    let folder = opened.map_err(|errno| failed(path, &errno.into()))?;
    let name = path_there.file_name().unwrap_or_default();
    Ok((folder, name))
}

fn look(path: &BytePath) -> Result<Option<Found>, Problem> {
    let (folder, name) = folder(path)?;
    look_in(folder.as_fd(), name, path)
}

fn look_in(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    path: &BytePath,
) -> Result<Option<Found>, Problem> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let no_file =
        |why: &str| Problem::new(ErrorCode::NotAFile, format!("{path} {why}")).with_field("path");
    let file = match openat(folder, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(no_file("is a link by now")),
        Err(Errno::NXIO | Errno::NODEV) => return Err(no_file("is no regular file")),
        Err(errno) => return Err(failed(path, &errno.into())),
    };
    let told = |error: io::Error| failed(path, &error);
    let metadata = file.metadata().map_err(told)?;
    if !metadata.is_file() {
        return Err(no_file("is no regular file"));
    }
    if metadata.nlink() > 1 {
        return Err(no_file(
            "has several names, of which the others would keep what they hold",
        ));
    }
    if metadata.mode() & 0o6000 != 0 {
        return Err(no_file("takes on another user or group when it is run"));
    }
    if metadata.len() > PROPOSED_FILE_BYTES as u64 {
        let message = format!("{path} holds more than {PROPOSED_FILE_BYTES} bytes");
        return Err(Problem::new(ErrorCode::FileTooLarge, message).with_field("path"));
    }
    let mut bytes = Vec::new();
    let mut bounded = file.take(PROPOSED_FILE_BYTES as u64 + 1);
    bounded.read_to_end(&mut bytes).map_err(told)?;
    Ok(Some(Found {
        bytes,
        mode: metadata.mode() & 0o777,
        owner: (metadata.uid(), metadata.gid()),
    }))
}

/// Tells whether it holds already what was proposed.
fn check(planned: &WriteOutsideEffect, found: Option<&Found>) -> Result<bool, Problem> {
    let now = found.map(Found::told);
    if now.as_ref().is_some_and(|now| now.digest == planned.digest) {
        return Ok(true);
    }
    if now == planned.before {
        return Ok(false);
    }
    Err(conflict(&planned.path, "has changed since it was proposed"))
}

fn write(planned: &WriteOutsideEffect, after: &[u8]) -> Result<Sent, Problem> {
    let path = &planned.path;
    let (folder, name) = folder(path)?;
    let found = look_in(folder.as_fd(), name, path)?;
    // The same name each time: what a release that was cut off has left goes with the next one.
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(
        ".cofferdam-{}",
        planned.digest.as_str().get(..8).unwrap_or_default()
    ));
    if statat(&folder, &beside, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        unlinkat(&folder, &beside, AtFlags::empty())
            .map_err(|errno| failed(path, &errno.into()))?;
    }
    if check(planned, found.as_ref())? {
        return Ok(Sent {
            sent_as: SentAs::Same,
            said: String::new(),
        });
    }
    let put = fill(folder.as_fd(), &beside, after, found.as_ref())
        .map_err(|error| failed(path, &error))
        .and_then(|()| swap(folder.as_fd(), name, &beside, planned));
    if put.is_err() {
        // What could not be put in place is taken away again.
        let _ = unlinkat(&folder, &beside, AtFlags::empty());
    }
    put?;
    rustix::fs::fsync(&folder).map_err(|errno| failed(path, &errno.into()))?;
    Ok(Sent {
        sent_as: SentAs::Written,
        said: String::new(),
    })
}

fn fill(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    bytes: &[u8],
    like: Option<&Found>,
) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = like.map_or(NEW_MODE, |_| 0o600);
    let mut file = File::from(openat(folder, name, flags, Mode::from_raw_mode(mode))?);
    file.write_all(bytes)?;
    if let Some(like) = like {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != like.owner {
            let (uid, gid) = like.owner;
            fchown(
                &file,
                Some(rustix::fs::Uid::from_raw(uid)),
                Some(rustix::fs::Gid::from_raw(gid)),
            )?;
        }
        fchmod(&file, Mode::from_raw_mode(like.mode))?;
    }
    file.sync_all()
}

/// Puts the new file in place; what it replaces is looked at once more when it is out of the way.
fn swap(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    beside: &OsStr,
    planned: &WriteOutsideEffect,
) -> Result<(), Problem> {
    let path = &planned.path;
    let told = |errno: Errno| failed(path, &errno.into());
    let changed = || conflict(path, "has changed since it was proposed");
    if planned.before.is_none() {
        return match renameat_with(folder, beside, folder, name, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(changed()),
            Err(errno) => Err(told(errno)),
        };
    }
    let exchange = || renameat_with(folder, beside, folder, name, RenameFlags::EXCHANGE);
    match exchange() {
        Ok(()) => {}
        Err(Errno::NOENT) => return Err(changed()),
        Err(errno) => return Err(told(errno)),
    }
    let out = look_in(folder, beside, path);
    if out.is_ok_and(|out| out.map(|one| one.told()) == planned.before) {
        return unlinkat(folder, beside, AtFlags::empty()).map_err(told);
    }
    // Somebody wrote in between: what they wrote goes back where it was.
    exchange().map_err(told)?;
    Err(changed())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use cofferdam_core::facts::PathKind;
    use cofferdam_core::operation::Encoding;
    use cofferdam_core::spec::Access;

    use super::*;

    fn plan(path: &Path, content: &str) -> Result<WriteOutsideEffect, Problem> {
        let wanted = WantedPath {
            real: path.into(),
            kind: PathKind::File,
            access: Access::Write,
            repositories: Vec::new(),
        };
        let request = WriteOutside {
            path: path.into(),
            content: content.to_owned(),
            encoding: Encoding::Utf8,
            expected_digest: None,
        };
        plan_write_outside(&BytePath::from("/w"), &wanted, request, None)
    }

    fn names(top: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(top).unwrap().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn row_147_a_file_is_replaced_whole_and_keeps_its_permissions() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().canonicalize().unwrap().join("a");
        std::fs::write(&path, "one\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let planned = plan(&path, "two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n");
        assert_eq!(planned.diff.len(), 2);
        assert_eq!(
            write_outside(&planned, None).unwrap().sent_as,
            SentAs::Written
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
        // The same again changes nothing.
        assert_eq!(write_outside(&planned, None).unwrap().sent_as, SentAs::Same);
        let made = plan(&path.with_file_name("b"), "new").unwrap();
        assert_eq!(made.before, None);
        write_outside(&made, None).unwrap();
        assert_eq!(names(top.path()), ["a", "b"]);
    }

    #[test]
    fn row_147_what_has_changed_since_is_a_conflict_and_stays() {
        let top = tempfile::tempdir().unwrap();
        let top_path = top.path().canonicalize().unwrap();
        let path = top_path.join("a");
        std::fs::write(&path, "one").unwrap();
        let planned = plan(&path, "two").unwrap();
        std::fs::write(&path, "other").unwrap();
        let code = |outcome: Result<Sent, Problem>| outcome.unwrap_err().code;
        assert_eq!(code(write_outside(&planned, None)), ErrorCode::FileConflict);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(code(write_outside(&planned, None)), ErrorCode::FileConflict);
        symlink("/etc/hostname", &path).unwrap();
        assert_eq!(code(write_outside(&planned, None)), ErrorCode::NotAFile);
        std::fs::remove_file(&path).unwrap();
        let made = plan(&path, "new").unwrap();
        std::fs::write(&path, "first").unwrap();
        assert_eq!(code(write_outside(&made, None)), ErrorCode::FileConflict);
        // Somebody who writes between the look and the exchange loses nothing.
        let planned = plan(&path, "two").unwrap();
        let (folder, name) = folder(&planned.path).unwrap();
        let found = look(&planned.path).unwrap();
        let beside = OsStr::new(".beside");
        fill(folder.as_fd(), beside, b"two", found.as_ref()).unwrap();
        std::fs::write(&path, "between").unwrap();
        let late = swap(folder.as_fd(), name, beside, &planned).unwrap_err();
        assert_eq!(late.code, ErrorCode::FileConflict);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "between");
    }

    #[test]
    fn row_147_only_plain_files_of_one_name_are_proposed() {
        let top = tempfile::tempdir().unwrap();
        let top_path = top.path().canonicalize().unwrap();
        let code = |path: &Path| plan(path, "x").unwrap_err().code;
        let file = top_path.join("a");
        std::fs::write(&file, "one").unwrap();
        std::fs::hard_link(&file, top_path.join("b")).unwrap();
        assert_eq!(code(&file), ErrorCode::NotAFile);
        let fifo = top_path.join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::from_raw_mode(0o600)).unwrap();
        assert_eq!(code(&fifo), ErrorCode::NotAFile);
        assert_eq!(code(&top_path), ErrorCode::NotAFile);
        let link = top_path.join("link");
        symlink(&file, &link).unwrap();
        assert_eq!(code(&link), ErrorCode::NotAFile);
        symlink(&top_path, top_path.join("folder")).unwrap();
        assert_eq!(code(&top_path.join("folder/c")), ErrorCode::Io);
        assert_eq!(code(&top_path.join("none/c")), ErrorCode::FileMissing);
    }
}
