//! Compares protected names with their snapshot and puts them back.

use std::io::Write as _;
use std::os::fd::AsFd;
use std::path::Path;

use cofferdam_core::bytes::BytePath;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::{Change, Name, Node, Snapshot, What, place, snapshot};

/// Puts everything back that is not as it was, and tells what that was.
///
/// `quarantine` takes what is in the way. A name that cannot be put back is told with
/// `undone = false`; the caller must not pass over it.
pub(crate) fn restore(snapshot: &Snapshot, quarantine: &Path) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut number = 0;
    let mut walker = place::Walker::default();
    for name in &snapshot.names {
        let restored = restore_name(&mut walker, name, quarantine, &mut number);
        if !matches!(restored, Ok(None)) {
            walker.forget();
        }
        match restored {
            Ok(None) => {}
            Ok(Some(what)) => changes.push(change(name, what, name.undo)),
            Err(_) => changes.push(change(name, What::Changed, false)),
        }
    }
    changes
}

fn change(name: &Name, what: What, undone: bool) -> Change {
    Change {
        path: name.path.clone(),
        rule: name.rule.clone(),
        what,
        undone,
    }
}

fn restore_name(
    walker: &mut place::Walker,
    name: &Name,
    quarantine: &Path,
    number: &mut usize,
) -> Result<Option<What>, Errno> {
    let walked = walker.walk(&name.path)?;
    if !walked.complete {
        // The walk stopped above the name: at nothing, or at something that is no directory.
        let blocker = snapshot::read(&*walked.directory, &walked.name, &mut 0)?;
        if name.was == Node::Absent {
            let harmless = matches!(blocker, Node::Absent)
                || walked.depth < name.existing
                || !leads_somewhere(&blocker);
            if harmless {
                return Ok(None);
            }
            if name.undo {
                *number += 1;
                place::quarantine(&*walked.directory, &walked.name, quarantine, *number)?;
            }
            return Ok(Some(What::Created));
        }
        if !name.undo {
            return Ok(Some(What::Removed));
        }
        if blocker != Node::Absent {
            *number += 1;
            place::quarantine(&*walked.directory, &walked.name, quarantine, *number)?;
        }
        rebuild_from(&walked, name)?;
        return Ok(Some(What::Removed));
    }
    let is =
        snapshot::read(&*walked.directory, &walked.name, &mut 0).or_else(|error| match error {
            // More than a snapshot may hold: certainly not what it was.
            Errno::OVERFLOW => Ok(Node::Other { kind: 0 }),
            other => Err(other),
        })?;
    if is == name.was {
        return Ok(None);
    }
    let what = match (&name.was, &is) {
        (Node::Absent, _) => What::Created,
        (_, Node::Absent) => What::Removed,
        _ => What::Changed,
    };
    if !name.undo {
        return Ok(Some(what));
    }
    put_back(
        &*walked.directory,
        &walked.name,
        &is,
        &name.was,
        quarantine,
        number,
    )?;
    if name.was == Node::Absent {
        remove_made_parents(name);
    }
    Ok(Some(what))
}

/// Tells whether a blocker could lead the host to another place by the protected name.
const fn leads_somewhere(node: &Node) -> bool {
    matches!(node, Node::Symlink { .. })
}

/// Makes `name` in `at` what it was.
fn put_back(
    at: impl AsFd,
    name: &[u8],
    is: &Node,
    was: &Node,
    quarantine: &Path,
    number: &mut usize,
) -> Result<(), Errno> {
    match (is, was) {
        (Node::Directory { .. }, Node::Directory { mode, entries }) => {
            let directory = place::open_directory(&at, name)?;
            let mut present = place::names(&directory, usize::MAX)?;
            for (entry, node) in entries {
                present.retain(|found| found != entry.as_bytes());
                let now = snapshot::read(&directory, entry.as_bytes(), &mut 0)?;
                if now != *node {
                    put_back(&directory, entry.as_bytes(), &now, node, quarantine, number)?;
                }
            }
            for extra in present {
                *number += 1;
                place::quarantine(&directory, &extra, quarantine, *number)?;
            }
            rustix::fs::fchmod(&directory, Mode::from_raw_mode(*mode))
        }
        (_, Node::LargeFile { .. } | Node::Other { .. }) => Err(Errno::NOTSUP),
        _ => {
            if *is != Node::Absent {
                *number += 1;
                place::quarantine(&at, name, quarantine, *number)?;
            }
            create(at, name, was)
        }
    }
}

/// Makes `name` in `at` from a snapshot; nothing stands there.
fn create(at: impl AsFd, name: &[u8], node: &Node) -> Result<(), Errno> {
    match node {
        Node::Absent => return Ok(()),
        Node::LargeFile { .. } | Node::Other { .. } => return Err(Errno::NOTSUP),
        Node::File { mode, content } => {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&at, name, flags, Mode::RUSR | Mode::WUSR)?;
            let mut file = std::fs::File::from(file);
            file.write_all(content.as_bytes())
                .map_err(|error| place::errno(&error))?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(*mode))?;
        }
        Node::Symlink { target } => rustix::fs::symlinkat(target.as_bytes(), &at, name)?,
        Node::Directory { mode, entries } => {
            rustix::fs::mkdirat(&at, name, Mode::RWXU)?;
            let directory = place::open_directory(&at, name)?;
            for (entry, inner) in entries {
                create(&directory, entry.as_bytes(), inner)?;
            }
            rustix::fs::fchmod(&directory, Mode::from_raw_mode(*mode))?;
        }
    }
    own_like_parent(at, name)
}

/// Gives what was made again to whom the directory around it belongs (root works for others).
fn own_like_parent(at: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    let parent = rustix::fs::fstat(&at)?;
    let made = rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if made.st_uid == parent.st_uid {
        return Ok(());
    }
    rustix::fs::chownat(
        at,
        name,
        Some(Uid::from_raw(parent.st_uid)),
        Some(Gid::from_raw(parent.st_gid)),
        AtFlags::SYMLINK_NOFOLLOW,
    )
}

/// Makes the directories above a name again, then the name.
fn rebuild_from(walked: &place::Walked, name: &Name) -> Result<(), Errno> {
    let components: Vec<&[u8]> = name
        .path
        .as_bytes()
        .split(|byte| *byte == b'/')
        .filter(|piece| !piece.is_empty())
        .collect();
    let Some((last, above)) = components.split_last() else {
        return Err(Errno::INVAL);
    };
    let mut directory = rustix::io::dup(&*walked.directory)?;
    for component in &above[walked.depth..] {
        rustix::fs::mkdirat(&directory, *component, Mode::from_raw_mode(0o755))?;
        own_like_parent(&directory, component)?;
        directory = place::open_directory(&directory, component)?;
    }
    create(directory, last, &name.was)
}

/// Removes the empty directories that the command made above a name that was absent.
fn remove_made_parents(name: &Name) {
    let mut path = name.path.clone();
    while let Some(parent) = path.parent() {
        if parent.depth() <= name.existing {
            return;
        }
        let Ok(walked) = place::Walker::default().walk(&parent) else {
            return;
        };
        // A directory with something in it stays: that was not asked to be absent.
        if !walked.complete
            || rustix::fs::unlinkat(&*walked.directory, &*walked.name, AtFlags::REMOVEDIR).is_err()
        {
            return;
        }
        path = parent;
    }
}

/// Names what was made where nothing was, and was taken away again.
pub(crate) fn taken_away(changes: &[Change]) -> impl Iterator<Item = &BytePath> {
    changes
        .iter()
        .filter(|change| change.undone && change.what == What::Created)
        .map(|change| &change.path)
}

/// Lists the paths that are as before again.
pub(crate) fn undone(changes: &[Change]) -> Vec<BytePath> {
    changes
        .iter()
        .filter(|change| change.undone)
        .map(|change| change.path.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use cofferdam_core::spec::{Enforce, ProtectedState, Protection};

    use super::super::take;
    use super::*;

    struct Scene {
        directory: tempfile::TempDir,
        quarantine: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let scene = Self {
                directory: tempfile::tempdir().expect("a directory"),
                quarantine: tempfile::tempdir().expect("a directory"),
            };
            std::fs::create_dir(scene.at("hooks")).expect("made");
            std::fs::write(scene.at("hooks/sample"), "#!/bin/sh\n").expect("written");
            std::fs::write(scene.at("config"), "[core]\n").expect("written");
            scene
        }

        fn at(&self, name: &str) -> std::path::PathBuf {
            self.directory
                .path()
                .canonicalize()
                .expect("a path")
                .join(name)
        }

        fn snapshot(&self, names: &[&str]) -> Snapshot {
            let protections: Vec<_> = names
                .iter()
                .map(|name| Protection {
                    path: self.at(name).into(),
                    state: ProtectedState::Absent,
                    enforce: Enforce::Undo,
                    rule: "test".to_owned(),
                })
                .collect();
            take(&protections).expect("readable")
        }

        fn restore(&self, snapshot: &Snapshot) -> Vec<(What, bool)> {
            restore(snapshot, self.quarantine.path())
                .into_iter()
                .map(|change| (change.what, change.undone))
                .collect()
        }
    }

    #[test]
    fn nothing_changed_is_nothing_done() {
        let scene = Scene::new();
        let snapshot = scene.snapshot(&["hooks", "config", ".vscode/tasks.json"]);
        assert_eq!(scene.restore(&snapshot), []);
    }

    #[test]
    fn fc_16_a_planted_file_goes_and_its_directory_too() {
        let scene = Scene::new();
        let snapshot = scene.snapshot(&[".vscode/tasks.json"]);
        std::fs::create_dir(scene.at(".vscode")).expect("made");
        std::fs::write(scene.at(".vscode/tasks.json"), "{}").expect("written");
        assert_eq!(scene.restore(&snapshot), [(What::Created, true)]);
        assert!(!scene.at(".vscode").exists());
        assert_eq!(
            std::fs::read_dir(scene.quarantine.path())
                .expect("readable")
                .count(),
            2,
            "the file, and where it stood"
        );
    }

    #[test]
    fn a_link_on_the_way_is_removed_and_not_followed() {
        let scene = Scene::new();
        let elsewhere = tempfile::tempdir().expect("a directory");
        std::fs::write(elsewhere.path().join("tasks.json"), "mine").expect("written");
        let snapshot = scene.snapshot(&[".vscode/tasks.json"]);
        symlink(elsewhere.path(), scene.at(".vscode")).expect("linked");
        assert_eq!(scene.restore(&snapshot), [(What::Created, true)]);
        assert!(std::fs::symlink_metadata(scene.at(".vscode")).is_err());
        let kept = std::fs::read_to_string(elsewhere.path().join("tasks.json"));
        assert_eq!(kept.expect("still there"), "mine");
    }

    #[test]
    fn fc_40_changes_below_a_protected_directory_are_put_back() {
        let scene = Scene::new();
        let snapshot = scene.snapshot(&["hooks", "config"]);
        std::fs::write(scene.at("hooks/pre-commit"), "evil").expect("written");
        std::fs::write(scene.at("hooks/sample"), "evil").expect("written");
        std::fs::set_permissions(scene.at("hooks/sample"), PermissionsExt::from_mode(0o777))
            .expect("set");
        std::fs::remove_file(scene.at("config")).expect("removed");
        assert_eq!(
            scene.restore(&snapshot),
            [(What::Changed, true), (What::Removed, true)]
        );
        assert!(!scene.at("hooks/pre-commit").exists());
        let content = std::fs::read_to_string(scene.at("hooks/sample")).expect("there");
        assert_eq!(content, "#!/bin/sh\n");
        assert_eq!(
            std::fs::read_to_string(scene.at("config")).expect("there"),
            "[core]\n"
        );
        assert_eq!(scene.restore(&snapshot), []);
    }

    #[test]
    fn a_directory_that_was_moved_away_is_made_again() {
        let scene = Scene::new();
        let snapshot = scene.snapshot(&["hooks"]);
        std::fs::rename(scene.at("hooks"), scene.at("other")).expect("moved");
        symlink("/", scene.at("hooks")).expect("linked");
        assert_eq!(scene.restore(&snapshot), [(What::Changed, true)]);
        assert!(scene.at("hooks/sample").exists());
    }
}
