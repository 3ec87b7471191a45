//! Containers: what a plan asks of a container engine, as plain data.
//!
//! The root of the container holds nothing but directories and links; everything else is mounted, so
//! that a command sees the same files at the same places as behind bubblewrap. What the engine mounts
//! by itself is narrowed where it shows more than that.

use std::collections::BTreeSet;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::spec::{Access, EnclosureSpec, Mount, Network};
use serde::Serialize;

/// Where the keeper's program and the socket of its channel stand inside until it serves.
pub const CONTAINER_STAGING: &str = "/.cofferdam";

/// What the engine hides of `/proc` beside what the plan hides there.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
];

/// What nobody writes in `/proc`.
const READ_ONLY: &[&str] = &[
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// What a container engine is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContainerPlan {
    /// What the root holds, parents first.
    pub root: Vec<RootEntry>,
    /// What is mounted, parents first.
    pub mounts: Vec<ContainerMount>,
    /// Contents that mounts name by their place in this list.
    pub contents: Vec<BytePath>,
    /// What of `/proc` is hidden.
    pub masked: Vec<String>,
    /// What of `/proc` can only be read.
    pub read_only: Vec<String>,
    /// Whether the host's network is shared; else there is an own one with loopback alone.
    pub shares_network: bool,
}

/// Something that stands in the root itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RootEntry {
    /// An empty directory.
    Directory {
        /// Where.
        path: BytePath,
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Where.
        path: BytePath,
        /// Where it points.
        link: BytePath,
    },
}

/// Something that is mounted into the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ContainerMount {
    /// Something of the host.
    Host {
        /// Path on the host.
        source: BytePath,
        /// Path inside.
        target: BytePath,
        /// Whether it may be written.
        writable: bool,
        /// Whether a missing source is passed over.
        optional: bool,
    },
    /// A file with given content, readable only.
    Content {
        /// Its place among the contents.
        index: usize,
        /// Path inside.
        target: BytePath,
    },
    /// An empty file system in memory.
    Memory {
        /// Path inside.
        target: BytePath,
        /// Permission bits of its root.
        mode: u32,
        /// Whether nothing can be written once everything below it has its place.
        read_only: bool,
    },
}

impl ContainerMount {
    /// Gives the place inside.
    pub const fn target(&self) -> &BytePath {
        match self {
            Self::Host { target, .. }
            | Self::Content { target, .. }
            | Self::Memory { target, .. } => target,
        }
    }
}

/// Translates a plan into what a container engine is asked for.
pub fn container_plan(spec: &EnclosureSpec) -> ContainerPlan {
    let mut steps: Vec<&Mount> = spec.mounts.iter().collect();
    steps.sort_by_key(|mount| mount.target().depth());
    let closed: BTreeSet<&BytePath> = steps
        .iter()
        .filter(|mount| matches!(mount, Mount::ReadOnly { .. }))
        .map(|mount| mount.target())
        .collect();
    let (proc, sys) = (BytePath::from("/proc"), BytePath::from("/sys"));
    let mut plan = ContainerPlan {
        root: Vec::new(),
        // The engine shows all of it; what the plan shows of it is mounted into this.
        mounts: vec![ContainerMount::Memory {
            target: sys,
            mode: 0o555,
            read_only: true,
        }],
        contents: Vec::new(),
        masked: MASKED.iter().map(ToString::to_string).collect(),
        read_only: READ_ONLY.iter().map(ToString::to_string).collect(),
        shares_network: spec.network == Network::Full,
    };
    for mount in steps {
        let target = mount.target();
        if target.is_within(&proc) {
            if let Mount::Mask { .. } = mount {
                plan.masked.push(target.to_string());
            }
            continue;
        }
        let is_mounted = plan
            .mounts
            .iter()
            .any(|other| target.is_within(other.target()));
        match mount {
            Mount::Proc { .. } | Mount::Devices { .. } | Mount::ReadOnly { .. } => {}
            Mount::Bind {
                source,
                access,
                optional,
                ..
            } => plan.mounts.push(ContainerMount::Host {
                source: source.clone(),
                target: target.clone(),
                writable: *access == Access::Write,
                optional: *optional,
            }),
            Mount::Temporary { mode, .. } => plan.mounts.push(ContainerMount::Memory {
                target: target.clone(),
                mode: *mode,
                read_only: closed.contains(target),
            }),
            Mount::Directory { mode, .. } if is_mounted => {
                plan.mounts.push(ContainerMount::Memory {
                    target: target.clone(),
                    mode: *mode,
                    read_only: false,
                });
            }
            Mount::Directory { mode, .. } => plan.root.push(RootEntry::Directory {
                path: target.clone(),
                mode: *mode,
            }),
            // Another name of the workspace in a private place: an engine makes no links there.
            Mount::Symlink { .. } if is_mounted => {}
            Mount::Symlink { link, .. } => plan.root.push(RootEntry::Link {
                path: target.clone(),
                link: link.clone(),
            }),
            Mount::Content { content, .. } => {
                plan.mounts.push(ContainerMount::Content {
                    index: plan.contents.len(),
                    target: target.clone(),
                });
                plan.contents.push(content.clone());
            }
            Mount::Mask { directory, .. } => plan.mounts.push(if *directory {
                ContainerMount::Memory {
                    target: target.clone(),
                    mode: 0o555,
                    read_only: true,
                }
            } else {
                ContainerMount::Host {
                    source: BytePath::from("/dev/null"),
                    target: target.clone(),
                    writable: false,
                    optional: false,
                }
            }),
        }
    }
    plan.mounts.sort_by_key(|mount| mount.target().depth());
    plan.masked.sort_unstable();
    plan.masked.dedup();
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bwrap::tests::spec;

    fn lines(plan: &ContainerPlan) -> String {
        let access = |writable: bool| if writable { "rw" } else { "ro" };
        let root = plan.root.iter().map(|entry| match entry {
            RootEntry::Directory { path, mode } => format!("directory {path} {mode:o}"),
            RootEntry::Link { path, link } => format!("link {path} -> {link}"),
        });
        let mounts = plan.mounts.iter().map(|mount| match mount {
            ContainerMount::Host {
                source,
                target,
                writable,
                ..
            } => format!("host {source} {target} {}", access(*writable)),
            ContainerMount::Content { index, target } => format!("content {index} {target}"),
            ContainerMount::Memory {
                target,
                mode,
                read_only,
            } => format!("memory {target} {mode:o} {}", access(!read_only)),
        });
        root.chain(mounts).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_plan_becomes_what_an_engine_mounts_parents_first() {
        let mut spec = spec();
        spec.mounts.extend([
            Mount::Directory {
                target: "/tmp/private".into(),
                mode: 0o700,
            },
            Mount::Mask {
                target: "/proc/kpagecount".into(),
                directory: false,
                passing: None,
            },
            // Inside of /proc an engine mounts nothing; this one it makes read-only itself.
            Mount::Bind {
                source: "/proc/sys".into(),
                target: "/proc/sys".into(),
                access: Access::Read,
                optional: true,
            },
            // Nor does it make links in what is mounted.
            Mount::Symlink {
                link: "/srv/work".into(),
                target: "/tmp/name".into(),
            },
        ]);
        let plan = container_plan(&spec);
        insta::assert_snapshot!(lines(&plan), @r"
        link /lib -> usr/lib
        memory /sys 555 ro
        host /usr /usr ro
        memory /tmp 1777 rw
        host /srv/work /srv/work rw
        content 0 /etc/hosts
        memory /tmp/private 700 rw
        host /dev/null /srv/work/.env ro
        memory /srv/work/private 555 ro
        ");
        assert_eq!(plan.contents, [BytePath::from("127.0.0.1 x")]);
        assert!(plan.masked.contains(&"/proc/kpagecount".to_owned()));
        assert!(!plan.shares_network);
    }
}
