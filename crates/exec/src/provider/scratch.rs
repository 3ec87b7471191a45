//! Directories on the host that belong to one enclosure and go with it.

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

/// Makes the upper and work directories of the caches.
pub(crate) fn make_cache_stores(
    caches: &[CacheOverlay],
    identity: &Identity,
) -> Result<(), Problem> {
    for cache in caches {
        let store = cache.store.as_path();
        for name in ["upper", "work"] {
            let path = store.join(name);
            if !path.is_dir() {
                std::fs::create_dir_all(&path).map_err(|error| problem(&path, &error))?;
                own(store, identity)?;
                own(&path, identity)?;
            }
        }
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
