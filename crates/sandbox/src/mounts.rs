//! Mounts that the keeper makes for itself before it gives its capabilities up.

use std::ffi::CString;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount,
    mount_bind, mount_change, mount_remount, move_mount, unmount,
};
use serde::{Deserialize, Serialize};

use crate::error::{SandboxError, Step};

/// One mount of a set-up, paths as the mounting process sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetupMount {
    /// A writable layer over a directory. What it takes survives the end of processes, not the loss
    /// of power; whoever mounts the layer again first removes `work/incompat` below `work`.
    Overlay {
        /// What is read.
        lower: Vec<u8>,
        /// What takes the changes; made if it is not there.
        upper: Vec<u8>,
        /// An empty directory on the same file system as `upper`; made if it is not there.
        work: Vec<u8>,
        /// Where the result is seen; may be `lower` itself.
        target: Vec<u8>,
    },
    /// Takes a mount away, such as the one through which `upper` and `work` were reached.
    Detach {
        /// Where it is.
        target: Vec<u8>,
    },
    /// Covers files in a mount namespace of the caller's own, so that nothing it starts can open
    /// them. Who may not make one has none of the files covered: root without CAP_SYS_ADMIN.
    Hide {
        /// The files; those that are not there are passed over.
        targets: Vec<Vec<u8>>,
    },
}

/// Makes the mounts of a set-up in order; needs CAP_SYS_ADMIN in the caller's user namespace.
///
/// Where the mount namespace belongs to another user namespace (bubblewrap makes a second one for an
/// ordinary user), the caller first gets a mount namespace of its own, which its children inherit.
pub fn apply_mounts(mounts: &[SetupMount]) -> Result<(), SandboxError> {
    let mut own = false;
    for mount in mounts {
        match apply(mount) {
            Err(error) if error.errno == libc::EPERM && !own => {
                // SAFETY: changes the view of the calling thread; nothing of ours is shared by it.
                if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
                    return Err(error);
                }
                own = true;
                apply(mount)?;
            }
            other => other?,
        }
    }
    Ok(())
}

fn apply(mount: &SetupMount) -> Result<(), SandboxError> {
    match mount {
        SetupMount::Overlay {
            lower,
            upper,
            work,
            target,
        } => overlay(lower, upper, work, target),
        SetupMount::Hide { targets } => hide(targets),
        SetupMount::Detach { target } => match unmount(c_path(target)?, UnmountFlags::DETACH) {
            Ok(()) => Ok(()),
            // It came with the namespace and is locked: it is covered for good.
            Err(Errno::INVAL) => cover(target),
            Err(errno) => Err(SandboxError::at(Step::Mount, target, errno.raw_os_error())),
        },
    }
}

/// Covers files by a device that a mount forbids to open.
fn hide(targets: &[Vec<u8>]) -> Result<(), SandboxError> {
    // SAFETY: changes the view of the calling thread; nothing of ours is shared by it.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return match crate::error::last_errno() {
            libc::EPERM => Ok(()),
            errno => Err(SandboxError::new(Step::Mount, errno)),
        };
    }
    let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change(c"/", propagation)
        .map_err(|errno| SandboxError::at(Step::Mount, b"/", errno.raw_os_error()))?;
    for target in targets {
        let failed = |errno: Errno| SandboxError::at(Step::Mount, target, errno.raw_os_error());
        let path = c_path(target)?;
        match mount_bind(c"/dev/null", &*path) {
            Err(Errno::NOENT) => continue,
            other => other.map_err(failed)?,
        }
        let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::BIND;
        mount_remount(&*path, flags, c"").map_err(failed)?;
    }
    Ok(())
}

/// Puts an empty file system that nobody can write over a directory.
fn cover(target: &[u8]) -> Result<(), SandboxError> {
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
    mount(
        c"none",
        c_path(target)?,
        c"tmpfs",
        flags,
        Some(c"mode=0555,size=4k"),
    )
    .map_err(|errno| SandboxError::at(Step::Mount, target, errno.raw_os_error()))
}

fn overlay(lower: &[u8], upper: &[u8], work: &[u8], target: &[u8]) -> Result<(), SandboxError> {
    let failed = |errno: Errno| SandboxError::at(Step::Mount, target, errno.raw_os_error());
    for directory in [upper, work] {
        match rustix::fs::mkdir(c_path(directory)?, rustix::fs::Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => {
                return Err(SandboxError::at(
                    Step::Mount,
                    directory,
                    errno.raw_os_error(),
                ));
            }
        }
    }
    let context = fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed)?;
    // The layers' own attributes: the trusted ones are not for user namespaces.
    fsconfig_set_flag(&context, c"userxattr").map_err(failed)?;
    // Without it the end of the namespace waits until the disk holds everything: tens of milliseconds
    // for a cache. Kernels before 5.10 do not know it.
    let _ = fsconfig_set_flag(&context, c"volatile");
    for (key, path) in [
        (c"lowerdir", lower),
        (c"upperdir", upper),
        (c"workdir", work),
    ] {
        fsconfig_set_string(&context, key, escape(path)?).map_err(failed)?;
    }
    fsconfig_create(&context).map_err(failed)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
    let made = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(failed)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&made, c"", CWD, c_path(target)?, flags).map_err(failed)
}

/// A layer's path as overlayfs reads it: a colon would begin the next layer.
fn escape(path: &[u8]) -> Result<CString, SandboxError> {
    let mut escaped = Vec::with_capacity(path.len());
    for byte in path {
        if matches!(byte, b':' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    c_path(&escaped)
}

fn c_path(path: &[u8]) -> Result<CString, SandboxError> {
    CString::new(path).map_err(|_| SandboxError::at(Step::Mount, path, libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlayfs_would_take_apart_is_escaped() {
        assert_eq!(
            escape(b"/a:b\\c,d").expect("no NUL"),
            c"/a\\:b\\\\c,d".to_owned()
        );
    }
}
