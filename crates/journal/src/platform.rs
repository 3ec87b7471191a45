//! What differs between systems: modes, unnamed files, kinds of file systems, boot and start times.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Opens a file for reading and writing that only its owner may read, and makes it where it is not.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    private_options().create(true).truncate(false).open(path)
}

/// Makes a file that only its owner may read; fails where one stands.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    private_options().create_new(true).open(path)
}

fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

/// Makes a directory, with those above it, that only its owner may enter; leaves one that is there.
pub(crate) fn create_private_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Makes the passing names of one process differ.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Makes a file without a name, or with a passing one where the file system cannot.
pub(crate) fn create_unnamed(directory: &Path) -> io::Result<(File, Option<PathBuf>)> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, Mode, OFlags, openat};
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(file) = openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR) {
            return Ok((file.into(), None));
        }
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!(".unfinished-{}-{number}", std::process::id()));
    create_private(&path).map(|file| (file, Some(path)))
}

/// Gives a file from [`create_unnamed`] its name; fails with `AlreadyExists` where one stands.
pub(crate) fn give_name(file: &File, unfinished: Option<&Path>, path: &Path) -> io::Result<()> {
    if let Some(unfinished) = unfinished {
        return fs::hard_link(unfinished, path);
    }
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;

        use rustix::fs::{AtFlags, CWD, linkat};
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Names the network file system on which a directory lies, if it lies on one.
pub(crate) fn network_file_system(path: &Path) -> Option<&'static str> {
    #[cfg(target_os = "linux")]
    {
        let found = rustix::fs::statfs(path).ok()?;
        // The kernel's word is 32 bits wide; the type of the field differs between architectures.
        network_kind(found.f_type as u32)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        None
    }
}

/// Names a network file system by its magic number, from statfs(2).
#[cfg(target_os = "linux")]
pub(crate) const fn network_kind(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "nfs",
        0x517B => "smb",
        0xFF53_4D42 => "cifs",
        0xFE53_4D42 => "smb2",
        0x0102_1997 => "9p",
        0x5346_414F => "afs",
        0x7375_7245 => "coda",
        0x00C3_6400 => "ceph",
        0x564C => "ncp",
        0x0BD0_0BD0 => "lustre",
        0x4750_4653 => "gpfs",
        0x1983_0326 => "beegfs",
        0x7461_636F => "ocfs2",
        0x0116_1970 => "gfs2",
        _ => return None,
    })
}

/// Tells what is wrong with owner or mode of a data directory.
pub(crate) fn directory_fault(path: &Path) -> io::Result<Option<String>> {
    let there = fs::metadata(path)?;
    if !there.is_dir() {
        return Ok(Some("it is no directory".to_owned()));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let own = rustix::process::geteuid().as_raw();
        if there.uid() != own {
            return Ok(Some(format!(
                "it belongs to uid {}, and this is uid {own}",
                there.uid()
            )));
        }
        let mode = there.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Ok(Some(format!("its mode is {mode:04o}, others may enter")));
        }
    }
    Ok(None)
}

/// Names this boot of the machine; empty where there is no such name.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// Tells when this process started, in the kernel's ticks since boot; 0 where that is not told.
pub(crate) fn start_ticks() -> u64 {
    // The name in parentheses may hold anything; what follows the last one is fields by spaces, and
    // the start time is the twentieth of them (field 22 of proc_pid_stat(5)).
    fs::read_to_string("/proc/self/stat")
        .ok()
        .and_then(|stat| {
            let (_, fields) = stat.rsplit_once(')')?;
            fields.split_whitespace().nth(19)?.parse().ok()
        })
        .unwrap_or_default()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_kinds_are_told_from_local_ones() {
        assert_eq!(network_kind(0x6969), Some("nfs"));
        assert_eq!(network_kind(0xFF53_4D42), Some("cifs"));
        // ext4, tmpfs, btrfs, xfs, overlayfs
        for local in [0xEF53, 0x0102_1994, 0x9123_683E, 0x5846_5342, 0x794C_7630] {
            assert_eq!(network_kind(local), None);
        }
    }

    #[test]
    fn own_start_is_known() {
        assert!(start_ticks() > 0);
        assert_eq!(boot_id().len(), 36);
    }
}
