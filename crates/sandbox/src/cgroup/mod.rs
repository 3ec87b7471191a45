//! A control group around an enclosure: bounds of memory and tasks for all that is in it together,
//! and the strongest handle there is to end it.
//!
//! It is made in the unified hierarchy where that hands the controllers down, else in the older
//! hierarchies, each by itself; and only where the caller may write. Everybody else has limits of
//! single processes and the keeper's sweep.

mod find;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::error::{SandboxError, Step};
pub use find::{ControlTrees, GroupDirectory, GroupLimits, GroupPlan, Hierarchy};

/// How long a group's processes may take to be gone after they were killed.
const EMPTYING: Duration = Duration::from_secs(2);
/// With what the name of every group of ours begins.
const NAME: &str = "cofferdam-";

/// Holds a control group of its own. Dropping it ends what is in it and removes it.
#[derive(Debug)]
pub struct ControlGroup(Vec<Made>);

/// A directory of the group in one hierarchy.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    processes: File,
    hierarchy: Hierarchy,
    memory: bool,
    tasks: bool,
}

/// How often a bound was met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupEvents {
    /// Processes that were ended because memory ran out.
    pub oom_kills: u64,
    /// Processes and threads that were refused.
    pub refused_tasks: u64,
}

impl GroupEvents {
    /// Gives what came since an earlier look.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            oom_kills: self.oom_kills.saturating_sub(earlier.oom_kills),
            refused_tasks: self.refused_tasks.saturating_sub(earlier.refused_tasks),
        }
    }
}

fn failed(path: &Path, error: &std::io::Error) -> SandboxError {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    SandboxError::at(Step::ControlGroup, path.as_os_str().as_bytes(), errno)
}

fn write(path: &Path, value: &str) -> Result<(), SandboxError> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut opened| opened.write_all(value.as_bytes()))
        .map_err(|error| failed(path, &error))
}

impl Made {
    /// Makes one directory and sets its bounds. Nothing of it is left when that fails.
    fn make(planned: &GroupDirectory) -> Result<Self, SandboxError> {
        std::fs::create_dir(&planned.path).map_err(|error| failed(&planned.path, &error))?;
        Self::set_up(planned).inspect_err(|_| {
            // Nobody is in it yet.
            let _ = std::fs::remove_dir(&planned.path);
        })
    }

    fn set_up(planned: &GroupDirectory) -> Result<Self, SandboxError> {
        let at = |file: &str| planned.path.join(file);
        let limits = &planned.limits;
        match planned.hierarchy {
            Hierarchy::Unified => {
                if let Some(most) = limits.memory {
                    write(&at("memory.max"), &most.to_string())?;
                    // Not every kernel counts swap.
                    let _ = write(&at("memory.swap.max"), "0");
                }
            }
            Hierarchy::Legacy => {
                if let Some(most) = limits.memory {
                    write(&at("memory.limit_in_bytes"), &most.to_string())?;
                    let _ = write(&at("memory.memsw.limit_in_bytes"), &most.to_string());
                }
            }
        }
        if let Some(most) = limits.tasks {
            write(&at("pids.max"), &most.to_string())?;
        }
        let listing = at("cgroup.procs");
        let processes = OpenOptions::new()
            .write(true)
            .open(&listing)
            .map_err(|error| failed(&listing, &error))?;
        Ok(Self {
            path: planned.path.clone(),
            processes,
            hierarchy: planned.hierarchy,
            memory: limits.memory.is_some(),
            tasks: limits.tasks.is_some(),
        })
    }

    /// Ends every process in it; true when the kernel does so at once.
    fn kill(&self) -> bool {
        if self.hierarchy == Hierarchy::Unified
            && write(&self.path.join("cgroup.kill"), "1").is_ok()
        {
            return true;
        }
        kill_listed(&self.path);
        false
    }

    fn events(&self) -> GroupEvents {
        let number = |file: &str, name: &str| {
            let text = std::fs::read_to_string(self.path.join(file)).unwrap_or_default();
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
                .unwrap_or(0)
        };
        let memory = match self.hierarchy {
            Hierarchy::Unified => "memory.events",
            Hierarchy::Legacy => "memory.oom_control",
        };
        GroupEvents {
            oom_kills: if self.memory {
                number(memory, "oom_kill ")
            } else {
                0
            },
            refused_tasks: if self.tasks {
                number("pids.events", "max ")
            } else {
                0
            },
        }
    }

    fn remove(&self) -> bool {
        remove(&self.path, || {
            self.kill();
        })
    }
}

impl ControlGroup {
    /// Makes a group as it was planned: in as many of its hierarchies as can be written.
    ///
    /// # Errors
    ///
    /// The last failure, where nothing of it could be made.
    pub fn create(plan: &GroupPlan) -> Result<Self, SandboxError> {
        let mut made = Vec::with_capacity(plan.0.len());
        let mut last = SandboxError::new(Step::ControlGroup, libc::ENOENT);
        for planned in &plan.0 {
            match Made::make(planned) {
                Ok(one) => made.push(one),
                Err(error) => last = error,
            }
        }
        if made.is_empty() {
            return Err(last);
        }
        Ok(Self(made))
    }

    /// Tells in which hierarchy memory is bounded.
    pub fn memory(&self) -> Option<Hierarchy> {
        self.0
            .iter()
            .find(|one| one.memory)
            .map(|one| one.hierarchy)
    }

    /// Tells in which hierarchy the number of tasks is bounded.
    pub fn tasks(&self) -> Option<Hierarchy> {
        self.0.iter().find(|one| one.tasks).map(|one| one.hierarchy)
    }

    /// Lends each `cgroup.procs`, for [`crate::Spawn::control_groups`].
    pub fn processes(&self) -> Vec<BorrowedFd<'_>> {
        self.0.iter().map(|one| one.processes.as_fd()).collect()
    }

    /// Ends every process in the group; true when the kernel did so at once, for all of them.
    pub fn kill(&self) -> bool {
        // One hierarchy holds them all.
        self.0
            .iter()
            .find(|one| one.hierarchy == Hierarchy::Unified)
            .or_else(|| self.0.first())
            .is_some_and(Made::kill)
    }

    /// Counts how often its bounds were met so far.
    pub fn events(&self) -> GroupEvents {
        self.0.iter().fold(GroupEvents::default(), |all, one| {
            let own = one.events();
            GroupEvents {
                oom_kills: all.oom_kills + own.oom_kills,
                refused_tasks: all.refused_tasks + own.refused_tasks,
            }
        })
    }

    /// Tells whether nobody is in the group.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|one| {
            std::fs::read_to_string(one.path.join("cgroup.procs"))
                .is_ok_and(|text| text.trim().is_empty())
        })
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for one in &self.0 {
            // What is left is empty and ours by its name; the next start finds it.
            one.remove();
        }
    }
}

/// Ends what is in a group of ours that somebody who died has left, and removes it. True when it is
/// gone, also when it was before.
///
/// Only a directory that has our name and is a control group is touched: give only paths that were
/// written down before the group was made.
pub fn remove_control_group(path: &Path) -> bool {
    let is_ours = path
        .file_name()
        .is_some_and(|name| name.as_bytes().starts_with(NAME.as_bytes()));
    if !is_ours {
        return false;
    }
    if !path.exists() {
        return true;
    }
    path.join("cgroup.procs").exists()
        && remove(path, || {
            if write(&path.join("cgroup.kill"), "1").is_err() {
                kill_listed(path);
            }
        })
}

fn remove(path: &Path, kill: impl Fn()) -> bool {
    let deadline = Instant::now() + EMPTYING;
    while let Err(error) = std::fs::remove_dir(path) {
        if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() > deadline {
            return error.kind() == std::io::ErrorKind::NotFound;
        }
        kill();
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Kills each process that a group lists. Whoever was born meanwhile is met by the next look.
fn kill_listed(path: &Path) {
    let listed = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let pids = listed.lines().filter_map(|line| line.trim().parse().ok());
    for pid in pids.filter_map(Pid::from_raw) {
        // Whoever has gone already needs no signal.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree as the kernel would fill it: the files are there when the directory is.
    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let top = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            std::fs::write(top.path().join(name), text).expect("written");
        }
        top
    }

    fn planned(path: &Path, hierarchy: Hierarchy) -> GroupDirectory {
        GroupDirectory {
            path: path.to_owned(),
            hierarchy,
            limits: GroupLimits {
                memory: Some(1 << 20),
                tasks: Some(9),
            },
        }
    }

    #[test]
    fn bounds_are_written_where_each_hierarchy_has_them() {
        for (hierarchy, memory, swap, events) in [
            (
                Hierarchy::Unified,
                "memory.max",
                "memory.swap.max",
                "memory.events",
            ),
            (
                Hierarchy::Legacy,
                "memory.limit_in_bytes",
                "memory.memsw.limit_in_bytes",
                "memory.oom_control",
            ),
        ] {
            let top = directory(&[
                (memory, ""),
                (swap, ""),
                ("pids.max", ""),
                ("cgroup.procs", ""),
                (events, "low 0\noom_kill_disable 0\noom_kill 2\n"),
                ("pids.events", "max 3\n"),
            ]);
            let made = Made::set_up(&planned(top.path(), hierarchy)).expect("set up");
            let read = |name: &str| std::fs::read_to_string(top.path().join(name)).expect("read");
            assert_eq!(
                (read(memory), read("pids.max")),
                ("1048576".into(), "9".into())
            );
            assert!(!read(swap).is_empty());
            assert_eq!(
                made.events(),
                GroupEvents {
                    oom_kills: 2,
                    refused_tasks: 3
                }
            );
        }
    }

    #[test]
    fn a_missing_controller_is_an_error_and_leaves_nothing() {
        let top = directory(&[]);
        let path = top.path().join("cofferdam-x");
        assert!(Made::make(&planned(&path, Hierarchy::Unified)).is_err());
        assert!(!path.exists());
    }

    #[test]
    fn only_what_has_our_name_and_is_a_group_is_removed() {
        let top = tempfile::tempdir().expect("a directory");
        for name in ["cofferdam-a", "other"] {
            std::fs::create_dir(top.path().join(name)).expect("made");
        }
        assert!(!remove_control_group(&top.path().join("other")));
        assert!(!remove_control_group(&top.path().join("cofferdam-a")));
        assert!(top.path().join("cofferdam-a").exists());
        assert!(remove_control_group(&top.path().join("cofferdam-gone")));
    }
}
