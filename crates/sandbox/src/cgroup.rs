//! A control group around an enclosure: the strongest handle there is to end it.
//!
//! Only the unified hierarchy, and only where the caller may write it; everybody else has the
//! keeper's sweep.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{SandboxError, Step};

/// How long a group's processes may take to be gone after they were killed.
const EMPTYING: Duration = Duration::from_secs(2);

/// Holds a control group of its own. Dropping it ends what is in it and removes it.
#[derive(Debug)]
pub struct ControlGroup {
    path: PathBuf,
    processes: File,
}

fn failed(path: &Path, error: &std::io::Error) -> SandboxError {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    SandboxError::at(Step::ControlGroup, path.as_os_str().as_bytes(), errno)
}

impl ControlGroup {
    /// Makes a group below the caller's own.
    ///
    /// # Errors
    ///
    /// `ENOENT` where there is no unified hierarchy, `EACCES` where it may not be written, `ENOSYS`
    /// where the kernel cannot end a group at once.
    pub fn create(name: &str) -> Result<Self, SandboxError> {
        let absent = SandboxError::new(Step::ControlGroup, libc::ENOENT);
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(SandboxError::new(Step::ControlGroup, libc::EINVAL));
        }
        let path = own_group().ok_or(absent)?.join(name);
        std::fs::create_dir(&path).map_err(|error| failed(&path, &error))?;
        let listing = path.join("cgroup.procs");
        let opened = if path.join("cgroup.kill").exists() {
            OpenOptions::new()
                .write(true)
                .open(&listing)
                .map_err(|error| failed(&listing, &error))
        } else {
            Err(SandboxError::new(Step::ControlGroup, libc::ENOSYS))
        };
        match opened {
            Ok(processes) => Ok(Self { path, processes }),
            Err(error) => {
                // Nobody is in it yet.
                let _ = std::fs::remove_dir(&path);
                Err(error)
            }
        }
    }

    /// Bounds the number of processes and threads in the group.
    ///
    /// # Errors
    ///
    /// `ENOENT` where the controller is not handed down to this group.
    pub fn limit_tasks(&self, most: u64) -> Result<(), SandboxError> {
        self.write("pids.max", &most.to_string())
    }

    /// Bounds the memory of the group, in bytes, without swap.
    ///
    /// # Errors
    ///
    /// `ENOENT` where the controller is not handed down to this group.
    pub fn limit_memory(&self, most: u64) -> Result<(), SandboxError> {
        self.write("memory.max", &most.to_string())?;
        // Not every kernel counts swap.
        let _ = self.write("memory.swap.max", "0");
        Ok(())
    }

    /// Ends every process in the group at once.
    pub fn kill(&self) -> Result<(), SandboxError> {
        self.write("cgroup.kill", "1")
    }

    /// Tells whether nobody is in the group.
    pub fn is_empty(&self) -> bool {
        std::fs::read_to_string(self.path.join("cgroup.events"))
            .is_ok_and(|text| text.lines().any(|line| line == "populated 0"))
    }

    fn write(&self, file: &str, value: &str) -> Result<(), SandboxError> {
        let path = self.path.join(file);
        OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut opened| opened.write_all(value.as_bytes()))
            .map_err(|error| failed(&path, &error))
    }
}

impl AsFd for ControlGroup {
    /// Lends `cgroup.procs`, for [`crate::Spawn::control_group`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.processes.as_fd()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + EMPTYING;
        while let Err(error) = std::fs::remove_dir(&self.path) {
            if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() > deadline {
                // What is left is empty and ours by its name; the next start finds it.
                return;
            }
            let _ = self.kill();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Finds the caller's own group in the unified hierarchy.
fn own_group() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    place(&mounts, &groups)
}

fn place(mounts: &str, groups: &str) -> Option<PathBuf> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        if right.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut words = left.split(' ').skip(3);
        let (root, point) = (words.next()?, words.next()?);
        // What is mounted may be a part of the hierarchy, in a container.
        let below = if root == "/" {
            own
        } else {
            own.strip_prefix(root)?
        };
        Some(Path::new(point).join(below.trim_start_matches('/')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_also_in_a_part_of_the_hierarchy() {
        let mounts = "22 1 0:20 / /sys rw - sysfs sysfs rw\n\
                      42 31 0:39 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let at = |mounts, groups| place(mounts, groups);
        assert_eq!(
            at(mounts, "1:cpu:/x\n0::/user/a\n"),
            Some(PathBuf::from("/sys/fs/cgroup/unified/user/a"))
        );
        assert_eq!(
            at(mounts, "0::/\n"),
            Some(PathBuf::from("/sys/fs/cgroup/unified/"))
        );
        let part = "42 31 0:39 /box /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(
            at(part, "0::/box/a\n"),
            Some(PathBuf::from("/sys/fs/cgroup/a"))
        );
        assert_eq!(at(part, "0::/elsewhere\n"), None);
        assert_eq!(at("", "0::/\n"), None);
    }
}
