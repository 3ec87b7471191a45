//! Bounds of what a place may use: which of them hold here, by what means, and when one was met.
//!
//! Memory and tasks of a whole place are bounded by a control group where one can be made, else each
//! process by itself. Nothing is made where nothing is asked for.

use std::os::fd::BorrowedFd;

use cofferdam_core::outcome::{Hint, LimitHolder, LimitInEffect, LimitReason, LimitedResource};
use cofferdam_core::spec::{EnclosureSpec, ProviderKind, ResourceLimits};
use cofferdam_sandbox::{
    ControlGroup, ControlTrees, GroupEvents, GroupLimits, GroupPlan, Hierarchy, Limit, Resource,
};

use crate::backend::{Ended, Exit};

/// Tasks of our own that live in a place: bubblewrap, its keeper, supervisors.
const OWN_TASKS: u64 = 8;

/// Plans the control group of a place; `None` where none is asked for or none can be made.
pub(crate) fn plan(
    trees: impl FnOnce() -> ControlTrees,
    spec: &EnclosureSpec,
    name: &str,
) -> Option<GroupPlan> {
    let limits = GroupLimits {
        memory: spec.limits.memory_bytes,
        tasks: spec
            .limits
            .tasks
            .map(|tasks| tasks.saturating_add(OWN_TASKS)),
    };
    // An engine makes a group of its own for each container.
    let has_own = matches!(
        spec.provider,
        ProviderKind::Memory | ProviderKind::Container
    );
    if limits == GroupLimits::default() || has_own {
        return None;
    }
    trees().plan(name, limits)
}

/// What bounds a place.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    group: Option<ControlGroup>,
    /// What each process is bounded by itself.
    each: ResourceLimits,
    effective: Vec<LimitInEffect>,
}

impl Limiter {
    /// Makes the group that was planned and tells what holds.
    pub(crate) fn set_up(plan: Option<&GroupPlan>, spec: &EnclosureSpec) -> Self {
        // Whoever cannot make it has the bounds of single processes, and says so.
        let group = plan.and_then(|plan| ControlGroup::create(plan).ok());
        let asked = &spec.limits;
        let mut each = asked.clone();
        let memory = group.as_ref().and_then(ControlGroup::memory);
        let tasks = group.as_ref().and_then(ControlGroup::tasks);
        let by_engine = spec.provider == ProviderKind::Container;
        if memory.is_some() || by_engine {
            // Programs that reserve much and use little would fail for nothing.
            each.memory_bytes = None;
        }
        if tasks.is_some() || by_engine {
            each.tasks = None;
        }
        let held = |hierarchy| {
            if by_engine {
                LimitHolder::Engine
            } else {
                held(hierarchy)
            }
        };
        let root = spec.identity.uid == 0;
        let effective = [
            (
                LimitedResource::Memory,
                asked.memory_bytes,
                Some(held(memory)),
            ),
            (
                LimitedResource::Tasks,
                asked.tasks,
                // The kernel does not count root's processes.
                (tasks.is_some() || by_engine || !root).then(|| held(tasks)),
            ),
            (
                LimitedResource::Cpu,
                asked.cpu_seconds,
                Some(LimitHolder::Rlimit),
            ),
            (
                LimitedResource::OpenFiles,
                asked.open_files,
                Some(LimitHolder::Rlimit),
            ),
            (
                LimitedResource::FileSize,
                asked.file_bytes,
                Some(LimitHolder::Rlimit),
            ),
            (
                LimitedResource::Output,
                asked.output_bytes,
                Some(LimitHolder::Plane),
            ),
        ]
        .into_iter()
        .filter_map(|(limit, requested, by)| {
            requested.map(|requested| LimitInEffect {
                limit,
                requested,
                effective: by.map(|_| requested),
                by,
            })
        })
        .collect();
        Self {
            group,
            each,
            effective,
        }
    }

    /// Lends what a process joins that shall be bounded, and everything below it.
    pub(crate) fn processes(&self) -> Vec<BorrowedFd<'_>> {
        self.group
            .as_ref()
            .map(ControlGroup::processes)
            .unwrap_or_default()
    }

    /// Tells whether a control group holds something.
    pub(crate) const fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// Ends everything in the group; true where there is one and the kernel did so at once.
    pub(crate) fn kill(&self) -> bool {
        self.group.as_ref().is_some_and(ControlGroup::kill)
    }

    /// Gives what each process of a command is bounded by itself.
    pub(crate) fn of_process(&self, command: &ResourceLimits) -> Vec<Limit> {
        let mut command = command.clone();
        // What a group bounds is bounded once.
        let own = |one: LimitedResource| {
            let holds =
                |held: &&LimitInEffect| held.limit == one && held.by != Some(LimitHolder::Rlimit);
            self.effective.iter().any(|held| holds(&held))
        };
        if own(LimitedResource::Memory) {
            command.memory_bytes = None;
        }
        if own(LimitedResource::Tasks) {
            command.tasks = None;
        }
        merged(&self.each, &command)
    }

    /// Lists what was asked for and what holds.
    pub(crate) fn effective(&self) -> &[LimitInEffect] {
        &self.effective
    }

    /// Looks at what was met so far.
    pub(crate) fn look(&self) -> GroupEvents {
        self.group
            .as_ref()
            .map(ControlGroup::events)
            .unwrap_or_default()
    }

    /// Names the bounds that were met since an earlier look.
    pub(crate) fn met_since(&self, earlier: GroupEvents) -> Vec<LimitReason> {
        let met = self.look().since(earlier);
        let mut reasons = Vec::new();
        if met.oom_kills > 0 {
            reasons.push(LimitReason::Oom);
        }
        if met.refused_tasks > 0 {
            reasons.push(LimitReason::PidsLimit);
        }
        reasons
    }
}

/// Guesses which bound of single processes was met: the kernel does not tell.
pub(crate) fn guess(output: &str, ended: Option<&Ended>, limits: &[LimitInEffect]) -> Vec<Hint> {
    let says = |words: &[&str]| words.iter().any(|word| output.contains(word));
    let used = ended.map_or(0, |one| (one.usage.user_ms + one.usage.system_ms) / 1000);
    let killed = ended.is_some_and(|one| matches!(one.exit, Exit::Signal(9 | 24)));
    limits
        .iter()
        .filter(|one| one.by == Some(LimitHolder::Rlimit))
        .filter_map(|one| {
            let (text, field) = match one.limit {
                LimitedResource::Memory
                    if says(&[
                        "Cannot allocate memory",
                        "MemoryError",
                        "out of memory",
                        "bad_alloc",
                    ]) =>
                {
                    ("a process may have met the bound of its memory", "memory")
                }
                LimitedResource::Tasks
                    if says(&["Resource temporarily unavailable", "Cannot fork"]) =>
                {
                    ("the bound of processes may have been met", "tasks")
                }
                LimitedResource::Cpu if killed && used >= one.requested => {
                    ("a process may have used up its processor time", "cpu")
                }
                LimitedResource::OpenFiles if says(&["Too many open files"]) => (
                    "a process may have met the bound of open files",
                    "open_files",
                ),
                _ => return None,
            };
            Some(Hint {
                text: text.to_owned(),
                allow: Some(format!("limits.{field} = more than {}", one.requested)),
            })
        })
        .collect()
}

const fn held(hierarchy: Option<Hierarchy>) -> LimitHolder {
    match hierarchy {
        Some(Hierarchy::Unified) => LimitHolder::CgroupV2,
        Some(Hierarchy::Legacy) => LimitHolder::CgroupV1,
        None => LimitHolder::Rlimit,
    }
}

/// Makes resource limits of the process from those of the enclosure and of the command; the
/// smaller of two holds.
fn merged(place: &ResourceLimits, command: &ResourceLimits) -> Vec<Limit> {
    let smaller = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    [
        (
            Resource::AddressSpace,
            smaller(place.memory_bytes, command.memory_bytes),
        ),
        (Resource::Processes, smaller(place.tasks, command.tasks)),
        (
            Resource::Cpu,
            smaller(place.cpu_seconds, command.cpu_seconds),
        ),
        (
            Resource::OpenFiles,
            smaller(place.open_files, command.open_files),
        ),
        (
            Resource::FileSize,
            smaller(place.file_bytes, command.file_bytes),
        ),
    ]
    .into_iter()
    .filter_map(|(resource, value)| value.map(|value| Limit { resource, value }))
    .collect()
}
