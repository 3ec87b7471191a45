//! Where control groups can be made: the caller's own places in the mounted hierarchies.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// The two kinds of hierarchies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 2: one for everything.
    Unified,
    /// Version 1: one for each controller.
    Legacy,
}

/// What a group bounds, over everything in it together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupLimits {
    /// Bytes of memory, without swap.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub tasks: Option<u64>,
}

impl GroupLimits {
    const fn is_empty(&self) -> bool {
        self.memory.is_none() && self.tasks.is_none()
    }
}

/// One directory of a group that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDirectory {
    /// Where.
    pub path: PathBuf,
    /// Of which kind its hierarchy is.
    pub hierarchy: Hierarchy,
    /// What is bounded there.
    pub limits: GroupLimits,
}

/// A group that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPlan(pub Vec<GroupDirectory>);

impl GroupPlan {
    /// Lists the directories, to be written down before they are made.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|one| one.path.as_path())
    }
}

/// The caller's own places in the hierarchies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlTrees {
    /// The mount point of the unified hierarchy, and the caller's place below it.
    unified: Option<(PathBuf, PathBuf)>,
    memory: Option<PathBuf>,
    tasks: Option<PathBuf>,
}

impl ControlTrees {
    /// Looks where the calling process is.
    pub fn find() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self::find_in(
            &read("/proc/self/mountinfo"),
            &read("/proc/self/cgroup"),
            Path::new("/"),
        )
    }

    /// The same from the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`, in a tree that
    /// stands at `root`.
    pub fn find_in(mounts: &str, groups: &str, root: &Path) -> Self {
        let mut trees = Self::default();
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let mut words = left.split(' ').skip(3);
            let (Some(top), Some(point)) = (words.next(), words.next()) else {
                continue;
            };
            let mut kinds = right.split(' ');
            let (kind, options) = (kinds.next(), kinds.nth(1).unwrap_or_default());
            let has = |name: &str| options.split(',').any(|one| one == name);
            let point = root.join(point.trim_start_matches('/'));
            let own = |controller: &str| own_place(groups, controller, top, &point);
            match kind {
                Some("cgroup2") => {
                    trees.unified = own("").map(|own| (point.clone(), own));
                }
                Some("cgroup") => {
                    if has("memory") {
                        trees.memory = own("memory");
                    }
                    if has("pids") {
                        trees.tasks = own("pids");
                    }
                }
                _ => {}
            }
        }
        trees
    }

    /// Plans a group with these bounds; `None` where nothing of it can be made here.
    ///
    /// In the unified hierarchy the place is the nearest one, from the caller's own upwards, that
    /// hands the controllers down and may be written. A group that only ends what is in it goes with
    /// those of the older hierarchies, where the unified one can be written.
    pub fn plan(&self, name: &str, limits: GroupLimits) -> Option<GroupPlan> {
        if limits.is_empty() || name.contains('/') {
            return None;
        }
        let name = format!("{}{name}", super::NAME);
        if let Some(place) = self.handing_down(limits) {
            return Some(GroupPlan(vec![GroupDirectory {
                path: place.join(name),
                hierarchy: Hierarchy::Unified,
                limits,
            }]));
        }
        let mut directories = Vec::new();
        let memory = limits.memory.and(self.memory.as_ref());
        let tasks = limits.tasks.and(self.tasks.as_ref());
        for (place, limits) in [
            (
                memory,
                GroupLimits {
                    tasks: None,
                    ..limits
                },
            ),
            (
                tasks,
                GroupLimits {
                    memory: None,
                    ..limits
                },
            ),
        ] {
            if let Some(place) = place.filter(|place| may_write(place)) {
                directories.push(GroupDirectory {
                    path: place.join(&name),
                    hierarchy: Hierarchy::Legacy,
                    limits,
                });
            }
        }
        if directories.is_empty() {
            return None;
        }
        if let Some((_, own)) = &self.unified
            && may_write(own)
        {
            directories.push(GroupDirectory {
                path: own.join(&name),
                hierarchy: Hierarchy::Unified,
                limits: GroupLimits::default(),
            });
        }
        Some(GroupPlan(directories))
    }

    fn handing_down(&self, limits: GroupLimits) -> Option<&Path> {
        let (point, own) = self.unified.as_ref()?;
        own.ancestors()
            .take_while(|place| place.starts_with(point))
            .find(|place| {
                let text = std::fs::read_to_string(place.join("cgroup.subtree_control"))
                    .unwrap_or_default();
                let has = |name: &str| text.split_whitespace().any(|one| one == name);
                (limits.memory.is_none() || has("memory"))
                    && (limits.tasks.is_none() || has("pids"))
                    && may_write(place)
            })
    }
}

fn may_write(place: &Path) -> bool {
    access(place, Access::WRITE_OK | Access::EXEC_OK).is_ok()
        && access(place.join("cgroup.procs"), Access::WRITE_OK).is_ok()
}

/// Finds the caller's place for a controller; what is mounted may be a part of the hierarchy, in a
/// container. The empty name is the unified hierarchy.
fn own_place(groups: &str, controller: &str, top: &str, point: &Path) -> Option<PathBuf> {
    let own = groups.lines().find_map(|line| {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        names
            .split(',')
            .any(|name| name == controller)
            .then_some(path)
    })?;
    let below = if top == "/" {
        own
    } else {
        own.strip_prefix(top)
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))?
    };
    Some(point.join(below.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "42 31 0:39 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n";
    const BOTH: GroupLimits = GroupLimits {
        memory: Some(1),
        tasks: Some(2),
    };

    /// A tree on disk with the files that the kernel would have there.
    fn tree(places: &[(&str, &str)]) -> tempfile::TempDir {
        let top = tempfile::tempdir().expect("a directory");
        for (place, handed) in places {
            let path = top.path().join(place);
            std::fs::create_dir_all(&path).expect("made");
            std::fs::write(path.join("cgroup.procs"), "").expect("written");
            std::fs::write(path.join("cgroup.subtree_control"), handed).expect("written");
        }
        top
    }

    fn places(root: &Path, plan: Option<GroupPlan>) -> Vec<(String, Hierarchy)> {
        plan.into_iter()
            .flat_map(|plan| plan.0)
            .map(|one| {
                let below = one.path.strip_prefix(root).expect("below");
                (below.display().to_string(), one.hierarchy)
            })
            .collect()
    }

    #[test]
    fn the_nearest_place_that_hands_the_controllers_down_is_taken() {
        let top = tree(&[
            ("sys/fs/cgroup", "cpu memory pids"),
            ("sys/fs/cgroup/user", "memory pids"),
            ("sys/fs/cgroup/user/app", ""),
        ]);
        let find = |groups| ControlTrees::find_in(UNIFIED, groups, top.path());
        let plan = find("0::/user/app\n").plan("a", BOTH);
        assert_eq!(
            places(top.path(), plan),
            [(
                "sys/fs/cgroup/user/cofferdam-a".to_owned(),
                Hierarchy::Unified
            )]
        );
        assert_eq!(
            find("0::/user/app\n").plan("a", GroupLimits::default()),
            None
        );
        assert_eq!(find("").plan("a", BOTH), None);
    }

    #[test]
    fn the_older_hierarchies_take_what_they_have() {
        let mounts = "1 1 0:1 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      2 1 0:2 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      3 1 0:3 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let top = tree(&[
            ("sys/fs/cgroup/memory/x", ""),
            ("sys/fs/cgroup/pids", ""),
            ("sys/fs/cgroup/unified", "hugetlb"),
        ]);
        let trees = ControlTrees::find_in(mounts, "8:pids:/\n4:memory:/x\n0::/\n", top.path());
        assert_eq!(
            places(top.path(), trees.plan("a", BOTH)),
            [
                (
                    "sys/fs/cgroup/memory/x/cofferdam-a".to_owned(),
                    Hierarchy::Legacy
                ),
                (
                    "sys/fs/cgroup/pids/cofferdam-a".to_owned(),
                    Hierarchy::Legacy
                ),
                (
                    "sys/fs/cgroup/unified/cofferdam-a".to_owned(),
                    Hierarchy::Unified
                ),
            ]
        );
    }

    #[test]
    fn a_part_of_the_hierarchy_in_a_container_is_found() {
        let part = "42 31 0:39 /box /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        let top = tree(&[("sys/fs/cgroup/a", "memory pids")]);
        let plan = |groups| ControlTrees::find_in(part, groups, top.path()).plan("x", BOTH);
        assert!(plan("0::/box/a\n").is_some());
        assert_eq!(plan("0::/elsewhere\n"), None);
        assert_eq!(plan("0::/boxes/a\n"), None);
    }
}
