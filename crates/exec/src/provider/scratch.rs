//! Directories on the host that belong to one enclosure and go with it.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::spec::{CacheOverlay, EnclosureSpec, Identity, Mount};
use rustix::fs::{Gid, Mode, Uid};

/// The scratch directory of an enclosure; dropping it removes it.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes the directory with `home` and `tmp` in it, for nobody but the identity.
    pub(crate) fn make(spec: &EnclosureSpec) -> Result<Self, Problem> {
        let path = spec.scratch.as_path();
        let identity = &spec.identity;
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| problem(parent, &error))?;
        }
        private_directory(path, identity)?;
        let scratch = Self(path.to_owned());
        for name in ["home", "tmp"] {
            private_directory(&path.join(name), identity)?;
        }
        for mount in &spec.mounts {
            // What a mount namespace would show stands here as a file.
            if let Mount::Content { target, content } = mount
                && target.is_within(&spec.scratch)
            {
                let file = target.as_path();
                std::fs::write(file, content.as_bytes()).map_err(|error| problem(file, &error))?;
                own(file, identity)?;
            }
        }
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove_tree(&self.0);
    }
}

/// Removes a tree of ours, also where a command took its own permissions away.
pub(crate) fn remove_tree(path: &Path) {
    if std::fs::remove_dir_all(path).is_ok() || !path.exists() {
        return;
    }
    open_up(path);
    // What still cannot be removed is found again, and said, by the sweep at the next start.
    let _ = std::fs::remove_dir_all(path);
}

fn open_up(directory: &Path) {
    let _ = rustix::fs::chmod(directory, Mode::RWXU);
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// Enclosures that may stand over one workspace at once, each with layers of its own.
const LAYERS: usize = 1024;

/// The private layers of an enclosure's caches, held for as long as it stands.
///
/// Two mounts must not share a layer, so every cache has numbered ones: an enclosure takes the first
/// that nobody holds, and the kernel lets go of it when the plane dies.
#[derive(Debug)]
pub(crate) struct CacheLayers {
    /// The caches, each with the store that this enclosure got.
    pub(crate) caches: Vec<CacheOverlay>,
    locks: Vec<File>,
}

impl CacheLayers {
    pub(crate) fn take(caches: &[CacheOverlay], identity: &Identity) -> Result<Self, Problem> {
        let mut taken = Self {
            caches: Vec::with_capacity(caches.len()),
            locks: Vec::new(),
        };
        for cache in caches {
            let store = cache.store.as_path();
            make_owned(store, identity)?;
            let (number, lock) = free_layer(store)?;
            let layer = store.join(number.to_string());
            for name in ["upper", "work"] {
                make_owned(&layer.join(name), identity)?;
            }
            own(&layer, identity)?;
            forget_volatile(&layer.join("work").join("work"));
            taken.caches.push(CacheOverlay {
                path: cache.path.clone(),
                store: layer.into(),
            });
            taken.locks.push(lock);
        }
        Ok(taken)
    }
}

fn free_layer(store: &Path) -> Result<(usize, File), Problem> {
    for number in 0..LAYERS {
        let path = store.join(format!("{number}.lock"));
        let file = File::options().create(true).append(true).open(&path);
        let file = file.map_err(|error| problem(&path, &error))?;
        match file.try_lock() {
            Ok(()) => return Ok((number, file)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(problem(&path, &error)),
        }
    }
    Err(Problem::new(
        ErrorCode::StorageExhausted,
        format!("{LAYERS} enclosures stand over this workspace already"),
    ))
}

impl Drop for CacheLayers {
    fn drop(&mut self) {
        for cache in &self.caches {
            forget_volatile(&cache.store.as_path().join("work").join("work"));
        }
    }
}

/// Takes the mark away by which the kernel refuses a layer that was mounted as volatile before: it
/// stands for a loss of power that nothing here needs to survive, the layer being a cache.
///
/// Done when a layer is given back, since the kernel leaves the directory without any permission and
/// an ordinary user could not remove the data directory; and when one is taken, since the plane that
/// had it may have been killed.
fn forget_volatile(work: &Path) {
    let mark = work.join("incompat");
    if rustix::fs::chmod(work, Mode::RWXU).is_ok() && std::fs::symlink_metadata(&mark).is_ok() {
        remove_tree(&mark);
    }
}

fn make_owned(path: &Path, identity: &Identity) -> Result<(), Problem> {
    if !path.is_dir() {
        std::fs::create_dir_all(path).map_err(|error| problem(path, &error))?;
        own(path, identity)?;
    }
    Ok(())
}

/// Tells whether a spec needs a scratch directory on the host.
pub(crate) fn needs_scratch(spec: &EnclosureSpec) -> bool {
    !spec.scratch.is_empty()
}

fn private_directory(path: &Path, identity: &Identity) -> Result<(), Problem> {
    rustix::fs::mkdir(path, Mode::RWXU)
        .map_err(|error| problem(path, &std::io::Error::from(error)))?;
    own(path, identity)
}

fn own(path: &Path, identity: &Identity) -> Result<(), Problem> {
    if rustix::process::geteuid().as_raw() == identity.uid {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    rustix::fs::chown(path, Some(uid), Some(gid))
        .map_err(|error| problem(path, &std::io::Error::from(error)))
}

fn problem(path: &Path, error: &std::io::Error) -> Problem {
    let full = error.kind() == std::io::ErrorKind::StorageFull;
    let code = if full {
        ErrorCode::StorageExhausted
    } else {
        ErrorCode::Io
    };
    Problem::new(code, format!("cannot make {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_layer_given_back_can_be_removed_by_its_owner() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = CacheOverlay {
            path: "/nowhere".into(),
            store: directory.path().into(),
        };
        let identity = Identity {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: Vec::new(),
        };
        let layers = CacheLayers::take(&[cache], &identity).expect("taken");
        // As the kernel leaves a volatile mount.
        let work = directory.path().join("0/work/work");
        let mark = work.join("incompat/volatile");
        std::fs::create_dir_all(&mark).expect("made");
        for path in [&mark, &work.join("incompat"), &work] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o000)).expect("closed");
        }
        drop(layers);
        let mode = std::fs::metadata(&work)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(!work.join("incompat").exists());
    }
}
