//! Whether anything in a tree has changed: the kernel tells, and a look that finds nothing costs one
//! system call, however large the tree.
//!
//! Every directory that git would look into has a watch. What tells of nothing may be believed: a
//! write, a truncation, a change of mode, a new, removed or renamed entry each leave a word, also
//! where they were done through a mount of the same directory in another namespace. What was written
//! through a mapping is told when the file is closed. Not seen is what others do on a network file
//! system.

use std::collections::{BTreeSet, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::inotify;
use rustix::io::Errno;

use super::WorkspaceError;
use crate::git::{GitCall, GitError};
use crate::tool::Input;

/// Directories that are watched at most; a user has some ten thousand watches as a rule.
const MOST: usize = 20_000;

const EVENTS: inotify::WatchFlags = inotify::WatchFlags::CREATE
    .union(inotify::WatchFlags::DELETE)
    .union(inotify::WatchFlags::MODIFY)
    .union(inotify::WatchFlags::CLOSE_WRITE)
    .union(inotify::WatchFlags::ATTRIB)
    .union(inotify::WatchFlags::MOVED_FROM)
    .union(inotify::WatchFlags::MOVED_TO)
    .union(inotify::WatchFlags::DELETE_SELF)
    .union(inotify::WatchFlags::MOVE_SELF)
    .union(inotify::WatchFlags::ONLYDIR)
    .union(inotify::WatchFlags::DONT_FOLLOW);

/// The directories of a checkout, watched.
#[derive(Debug)]
pub(super) struct TreeWatch {
    inotify: OwnedFd,
    seen: Seen,
}

/// What was told since the last look at all files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    /// Something changed.
    changed: bool,
    /// There may be directories without a watch.
    new_directories: bool,
}

impl TreeWatch {
    /// Watches a checkout; `git` makes a call that sees the index in which all its files are.
    ///
    /// Fails where there are more directories than can be watched.
    pub(super) fn start<'a>(
        top: &Path,
        git: &dyn Fn() -> GitCall<'a>,
    ) -> Result<Self, WorkspaceError> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let unwatched = |error: Errno| WorkspaceError::State {
            why: format!(
                "the directories of {} cannot be watched: {error}",
                top.display()
            ),
        };
        let inotify = inotify::init(flags).map_err(unwatched)?;
        let ignored = ignored(top, git)?;
        let mut waiting = vec![top.to_owned()];
        // Files that git holds may lie in a directory that it ignores.
        waiting.extend(held_below_ignored(top, git)?);
        let mut known: HashSet<PathBuf> = waiting.iter().skip(1).cloned().collect();
        let mut count = 0_usize;
        while let Some(directory) = waiting.pop() {
            match inotify::add_watch(&inotify, &directory, EVENTS) {
                Ok(_) => {}
                // Gone meanwhile, which its parent tells; or closed to us, and to git as well.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => continue,
                Err(error) => return Err(unwatched(error)),
            }
            count += 1;
            if count > MOST {
                return Err(WorkspaceError::State {
                    why: format!("{} has more than {MOST} directories", top.display()),
                });
            }
            if known.contains(&directory) {
                continue;
            }
            // Read after it is watched: what comes between the two is told.
            for entry in std::fs::read_dir(&directory)
                .into_iter()
                .flatten()
                .flatten()
            {
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let path = entry.path();
                let is_git = entry.file_name() == ".git";
                if is_directory && !is_git && !ignored.contains(&path) && !known.contains(&path) {
                    waiting.push(path);
                }
            }
        }
        known.clear();
        Ok(Self {
            inotify,
            seen: Seen::default(),
        })
    }

    /// Tells whether anything may have changed since the last [`TreeWatch::forget`].
    pub(super) fn has_changed(&mut self) -> bool {
        let mut buffer = [const { MaybeUninit::uninit() }; 16 * 1024];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    self.seen.changed = true;
                    let flags = event.events();
                    let is_new = flags.intersects(
                        inotify::ReadFlags::CREATE
                            | inotify::ReadFlags::MOVED_TO
                            | inotify::ReadFlags::MOVED_FROM,
                    );
                    self.seen.new_directories |= flags.contains(inotify::ReadFlags::QUEUE_OVERFLOW)
                        || (is_new && flags.contains(inotify::ReadFlags::ISDIR));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // What cannot be read says nothing: look.
                Err(_) => {
                    self.seen = Seen {
                        changed: true,
                        new_directories: true,
                    };
                    break;
                }
            }
        }
        self.seen.changed
    }

    /// Tells whether there may be directories without a watch.
    pub(super) const fn has_new_directories(&self) -> bool {
        self.seen.new_directories
    }

    /// Begins anew: what was told so far is about to be looked at.
    pub(super) fn forget(&mut self) {
        self.seen = Seen::default();
    }

    /// Has a look that failed done again.
    pub(super) fn remember(&mut self) {
        self.seen.changed = true;
    }
}

/// Lists the directories that git ignores as such, so that nothing new in them is ever its.
fn ignored<'a>(top: &Path, git: &dyn Fn() -> GitCall<'a>) -> Result<HashSet<PathBuf>, GitError> {
    let listed = git()
        .args([
            "ls-files",
            "-z",
            "--others",
            "--ignored",
            "--exclude-standard",
            "--directory",
        ])
        .output()?;
    let mut asked = Vec::new();
    for name in listed.split(|byte| *byte == 0) {
        if let Some(name) = name.strip_suffix(b"/") {
            asked.extend_from_slice(name);
            asked.push(0);
        }
    }
    if asked.is_empty() {
        return Ok(HashSet::new());
    }
    // One in which everything is ignored is listed too, though something new in it would not be.
    let answer = git()
        .args(["check-ignore", "-z", "--stdin"])
        .input(Input::Bytes(&asked))
        .run()?;
    Ok(paths(top, &answer.stdout).collect())
}

/// Lists the directories of files that git holds although it would ignore them.
fn held_below_ignored<'a>(
    top: &Path,
    git: &dyn Fn() -> GitCall<'a>,
) -> Result<BTreeSet<PathBuf>, GitError> {
    let listed = git()
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--ignored",
            "--exclude-standard",
        ])
        .output()?;
    Ok(paths(top, &listed)
        .filter_map(|path| path.parent().map(Path::to_owned))
        .filter(|directory| directory != top)
        .collect())
}

fn paths(top: &Path, list: &[u8]) -> impl Iterator<Item = PathBuf> {
    list.split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| top.join(std::ffi::OsString::from_vec(name.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::{Git, GitOptions};

    struct Desk {
        top: tempfile::TempDir,
        git: Git,
    }

    impl Desk {
        fn new() -> Self {
            let top = tempfile::tempdir().expect("a directory");
            let home = top.path().join("home");
            std::fs::create_dir(&home).expect("made");
            let options = GitOptions {
                search_path: "/usr/local/bin:/usr/bin:/bin".into(),
                home: home.into(),
                ..GitOptions::default()
            };
            let desk = Self {
                git: Git::find(&options).expect("git"),
                top,
            };
            let repo = desk.repo();
            std::fs::create_dir_all(repo.join("src/deep")).expect("made");
            std::fs::create_dir_all(repo.join("target/debug")).expect("made");
            std::fs::create_dir_all(repo.join("only/ignored/here")).expect("made");
            std::fs::create_dir_all(repo.join("build/new")).expect("made");
            desk.write("src/a", "1");
            desk.write("build/out", "1");
            desk.write("target/debug/held", "1");
            desk.write("only/ignored/here/x.o", "1");
            desk.write(".gitignore", "target\nbuild\n*.o\n");
            for words in [
                &["init", "-q"][..],
                &["add", "--all"],
                &["add", "-f", "target/debug/held"],
            ] {
                desk.call().args(words).output().expect("git");
            }
            desk
        }

        fn repo(&self) -> PathBuf {
            self.top.path().join("repo")
        }

        fn call(&self) -> GitCall<'_> {
            let repo = self.repo();
            self.git
                .call(self.top.path())
                .args(["-C".as_ref(), repo.as_os_str()])
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.repo().join(name), text).expect("written");
        }

        fn watch(&self) -> TreeWatch {
            TreeWatch::start(&self.repo(), &|| self.call()).expect("watched")
        }
    }

    type Change<'a> = (&'a str, &'a dyn Fn());

    #[test]
    fn every_kind_of_change_is_told_and_nothing_else() {
        let desk = Desk::new();
        let repo = desk.repo();
        let mut watch = desk.watch();
        assert!(!watch.has_changed());
        // Neither what git ignores, nor its own directory, nor what is only read.
        desk.write("build/more", "1");
        desk.write("build/new/more", "1");
        desk.write(".git/anything", "1");
        std::fs::read(repo.join("src/a")).expect("read");
        assert!(!watch.has_changed());

        let changes: [Change<'_>; 9] = [
            ("written", &|| desk.write("src/a", "2")),
            ("new at depth", &|| desk.write("src/deep/b", "2")),
            ("held though ignored", &|| {
                desk.write("target/debug/held", "2");
            }),
            ("where all is ignored", &|| {
                desk.write("only/ignored/here/y", "2");
            }),
            ("renamed", &|| {
                std::fs::rename(repo.join("src/a"), repo.join("src/c")).expect("renamed");
            }),
            ("mode", &|| {
                use std::os::unix::fs::PermissionsExt as _;
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(repo.join("src/c"), mode).expect("changed");
            }),
            ("truncated by its path", &|| {
                let file = std::fs::OpenOptions::new()
                    .write(true)
                    .open(repo.join("src/c"));
                file.and_then(|file| file.set_len(0)).expect("cut");
            }),
            ("a link", &|| {
                std::os::unix::fs::symlink("c", repo.join("src/link")).expect("made");
            }),
            ("removed", &|| {
                std::fs::remove_file(repo.join("src/c")).expect("removed");
            }),
        ];
        for (what, change) in changes {
            change();
            assert!(watch.has_changed(), "{what}");
            assert!(watch.has_changed(), "{what}, until it was looked at");
            assert!(!watch.has_new_directories(), "{what}");
            watch.forget();
            assert!(!watch.has_changed(), "{what}, twice");
        }
        std::fs::create_dir_all(repo.join("new/below")).expect("made");
        assert!(watch.has_changed() && watch.has_new_directories());
        let mut watch = desk.watch();
        desk.write("new/below/file", "1");
        assert!(watch.has_changed());
    }
}
