//! bubblewrap: its arguments from a plan, and its start with the keeper inside.

use std::ffi::CString;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::ports::ReachAddress;
use cofferdam_core::spec::{
    self, EnclosureSpec, LandlockSpec, Mount, Network, SeccompSpec, SocketFamilies,
};

use crate::error::SandboxError;
use crate::landlock::{Access, LandlockPlan, PathRule};
use crate::memory::sealed_memory;
use crate::mounts::SetupMount;
use crate::seccomp::{SeccompOptions, UnixSockets};
use crate::spawn::{Identity, Program, Spawn, Spawned, spawn};

/// Where the private layers of caches are reached until they are mounted.
const STAGING: &[u8] = b"/.cofferdam";

/// The keeper's channel, inside and outside of bubblewrap.
const CHANNEL: RawFd = 3;
const KEEPER: RawFd = 4;
const ARGUMENTS: RawFd = 5;
const STATUS: RawFd = 6;
const FIRST_CONTENT: RawFd = 7;

/// What whoever mounts an overlay has to hold: mounting, and changing files in the layers, whose
/// working directory nobody else may enter.
pub const OVERLAY_CAPABILITIES: [&str; 6] = [
    "CAP_SYS_ADMIN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_CHOWN",
    "CAP_FSETID",
    // To empty the bounding set afterwards.
    "CAP_SETPCAP",
];

/// The first port on which everybody may listen.
const FIRST_FREE_PORT: u16 = 1024;

/// Lists the addresses of what is reached at which only the privileged may listen.
pub fn low_listeners(spec: &EnclosureSpec) -> Vec<SocketAddr> {
    let all = spec.ports.reach.iter().flat_map(ReachAddress::sockets);
    all.filter(|at| at.port() < FIRST_FREE_PORT).collect()
}

/// Holds what bubblewrap is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BwrapArguments {
    /// The arguments, without the program to run.
    pub arguments: Vec<Vec<u8>>,
    /// What descriptors 7, 8 and so on hold, as the arguments name them.
    pub contents: Vec<Vec<u8>>,
}

/// Translates a plan into bubblewrap's arguments.
///
/// Mounts come in order of depth, so that a parent never hides what was mounted below it.
pub fn bwrap_arguments(spec: &EnclosureSpec) -> BwrapArguments {
    let mut made = BwrapArguments {
        arguments: Vec::new(),
        contents: Vec::new(),
    };
    made.flag(&["--unshare-all", "--unshare-user"]);
    if spec.network == Network::Full {
        made.flag(&["--share-net"]);
    }
    made.flag(&["--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"]);
    let low_ports = !low_listeners(spec).is_empty();
    if low_ports {
        // Only until the keeper listens there, before it serves.
        made.flag(&["--cap-add", "CAP_NET_BIND_SERVICE"]);
    }
    if !spec.caches.is_empty() {
        // Only until the keeper has mounted the layers; it gives these up before it serves. The
        // kernel keeps them for its own work on the layers, which is done in the name of whoever
        // mounted them.
        for capability in OVERLAY_CAPABILITIES {
            made.flag(&["--cap-add", capability]);
        }
    } else if low_ports {
        // To empty the bounding set afterwards.
        made.flag(&["--cap-add", "CAP_SETPCAP"]);
    } else if !spec.seccomp.nested_sandbox {
        made.flag(&["--disable-userns"]);
    }
    let mut mounts: Vec<&Mount> = spec.mounts.iter().collect();
    // What becomes read-only does so when everything below it has its place.
    mounts.sort_by_key(|mount| {
        (
            matches!(mount, Mount::ReadOnly { .. }),
            mount.target().depth(),
        )
    });
    let read_only = mounts
        .iter()
        .filter(|mount| matches!(mount, Mount::ReadOnly { .. }))
        .count();
    let closing = mounts.split_off(mounts.len() - read_only);
    for mount in &mounts {
        made.mount(mount);
    }
    for (number, cache) in spec.caches.iter().enumerate() {
        let path = cache.path.as_bytes();
        made.pair("--ro-bind", path, path);
        made.pair("--bind", cache.store.as_bytes(), &staging(number));
    }
    for mount in &closing {
        made.mount(mount);
    }
    if !mounts
        .iter()
        .chain(&closing)
        .any(|mount| mount.target().depth() == 0)
    {
        // The root that everything was mounted into; what is mounted stays as it is.
        made.one("--remount-ro", b"/");
    }
    made
}

impl BwrapArguments {
    fn flag(&mut self, words: &[&str]) {
        self.arguments
            .extend(words.iter().map(|word| word.as_bytes().to_vec()));
    }

    fn one(&mut self, word: &str, value: &[u8]) {
        self.arguments
            .extend([word.as_bytes().to_vec(), value.to_vec()]);
    }

    fn pair(&mut self, word: &str, first: &[u8], second: &[u8]) {
        self.one(word, first);
        self.arguments.push(second.to_vec());
    }

    fn permissions(&mut self, mode: u32) {
        self.one("--perms", format!("{:04o}", mode & 0o7777).as_bytes());
    }

    fn mount(&mut self, mount: &Mount) {
        let target = mount.target().as_bytes();
        match mount {
            Mount::Bind {
                source,
                access,
                optional,
                ..
            } => {
                let word = match (access, optional) {
                    (spec::Access::Read, false) => "--ro-bind",
                    (spec::Access::Read, true) => "--ro-bind-try",
                    (spec::Access::Write, false) => "--bind",
                    (spec::Access::Write, true) => "--bind-try",
                };
                self.pair(word, source.as_bytes(), target);
            }
            Mount::Temporary { mode, .. } => {
                self.permissions(*mode);
                self.one("--tmpfs", target);
            }
            Mount::Directory { mode, .. } => {
                self.permissions(*mode);
                self.one("--dir", target);
            }
            Mount::Symlink { link, .. } => self.pair("--symlink", link.as_bytes(), target),
            Mount::Content { content, .. } => {
                let number = usize::try_from(FIRST_CONTENT).unwrap_or(0) + self.contents.len();
                self.contents.push(content.as_bytes().to_vec());
                self.permissions(0o444);
                self.pair("--ro-bind-data", number.to_string().as_bytes(), target);
            }
            Mount::ReadOnly { .. } => self.one("--remount-ro", target),
            Mount::Proc { .. } => self.one("--proc", target),
            Mount::Devices { .. } => self.one("--dev", target),
            Mount::Mask {
                directory: true, ..
            } => {
                self.permissions(0o555);
                self.one("--tmpfs", target);
                self.one("--remount-ro", target);
            }
            // A bind forbids devices, so opening it is refused; git passes over devices.
            Mount::Mask {
                directory: false, ..
            } => self.pair("--ro-bind", b"/dev/null", target),
        }
    }
}

fn staging(number: usize) -> Vec<u8> {
    [STAGING, b"/", number.to_string().as_bytes()].concat()
}

/// Gives the mounts that the keeper has to make inside before it serves.
pub fn setup_mounts(spec: &EnclosureSpec) -> Vec<SetupMount> {
    let mut mounts = Vec::new();
    for (number, cache) in spec.caches.iter().enumerate() {
        let store = staging(number);
        let path = cache.path.as_bytes().to_vec();
        mounts.push(SetupMount::Overlay {
            lower: path.clone(),
            upper: [&store[..], b"/upper"].concat(),
            work: [&store[..], b"/work"].concat(),
            target: path,
        });
        mounts.push(SetupMount::Detach { target: store });
    }
    mounts
}

/// Translates the Landlock part of a plan. An empty list of paths leaves files ungoverned.
pub fn landlock_plan(spec: &LandlockSpec) -> LandlockPlan {
    let rule = |rule: &spec::PathRule| PathRule {
        path: rule.path.as_bytes().to_vec(),
        access: match rule.access {
            spec::PathAccess::List => Access::List,
            spec::PathAccess::Read => Access::Read,
            spec::PathAccess::ReadExecute => Access::ReadExecute,
            spec::PathAccess::Write => Access::Write,
            spec::PathAccess::Device => Access::Device,
        },
    };
    LandlockPlan {
        files: (!spec.paths.is_empty()).then(|| spec.paths.iter().map(rule).collect()),
        deny_tcp: spec.deny_tcp,
        scope_signals: spec.scope_signals,
        scope_abstract_sockets: spec.scope_abstract_sockets,
    }
}

/// Translates the seccomp part of a plan; `None` where no filter is wanted.
pub fn seccomp_options(spec: &SeccompSpec) -> Option<SeccompOptions> {
    let (internet_sockets, unix_sockets) = match spec.sockets {
        SocketFamilies::Namespaced | SocketFamilies::Host => (true, UnixSockets::Named),
        SocketFamilies::HostPairs => (true, UnixSockets::PairsOnly),
        SocketFamilies::PairsOnly => (false, UnixSockets::PairsOnly),
    };
    spec.enabled.then_some(SeccompOptions {
        internet_sockets,
        unix_sockets,
        ptrace: spec.ptrace,
        nested_namespaces: spec.nested_sandbox,
    })
}

impl From<&spec::Identity> for Identity {
    fn from(identity: &spec::Identity) -> Self {
        Self {
            uid: identity.uid,
            gid: identity.gid,
            groups: identity.groups.clone(),
        }
    }
}

/// Describes the start of bubblewrap with the keeper as its first process.
#[derive(Debug, Clone)]
pub struct BwrapStart<'a> {
    /// The program, by absolute path.
    pub program: &'a BytePath,
    /// What it is told.
    pub arguments: &'a BwrapArguments,
    /// The keeper's program, an executable memory file or an open file.
    pub keeper: BorrowedFd<'a>,
    /// The keeper's end of its channel.
    pub channel: BorrowedFd<'a>,
    /// Where bubblewrap writes its JSON status (`child-pid` and more): the end of a pipe.
    pub status: BorrowedFd<'a>,
    /// Where it writes what goes wrong.
    pub log: BorrowedFd<'a>,
    /// What it reads: nothing, so usually `/dev/null`.
    pub null: BorrowedFd<'a>,
    /// As whom it runs; the caller when absent.
    pub identity: Option<&'a Identity>,
    /// A Landlock ruleset without rules on files, since those forbid mounting.
    pub landlock: Option<BorrowedFd<'a>>,
    /// `cgroup.procs` of each control group to join.
    pub control_groups: Vec<BorrowedFd<'a>>,
}

/// Starts bubblewrap with the keeper inside.
///
/// Has to be called on a thread that lives as long as the enclosure: bubblewrap's
/// `--die-with-parent` is tied to it.
pub fn start_bwrap(start: &BwrapStart<'_>) -> Result<Spawned, SandboxError> {
    let mut text = Vec::new();
    for argument in &start.arguments.arguments {
        text.extend_from_slice(argument);
        text.push(0);
    }
    let listing = sealed_memory("cofferdam-arguments", &text)?;
    let contents = start
        .arguments
        .contents
        .iter()
        .map(|content| sealed_memory("cofferdam-content", content))
        .collect::<Result<Vec<OwnedFd>, SandboxError>>()?;
    let invalid =
        |_| SandboxError::at(crate::Step::Prepare, start.program.as_bytes(), libc::EINVAL);
    let program = CString::new(start.program.as_bytes()).map_err(invalid)?;
    let words = [
        "bwrap".to_owned(),
        "--args".to_owned(),
        ARGUMENTS.to_string(),
        "--json-status-fd".to_owned(),
        STATUS.to_string(),
        "--".to_owned(),
        format!("/proc/self/fd/{KEEPER}"),
        CHANNEL.to_string(),
    ];
    let words = words
        .into_iter()
        .map(CString::new)
        .collect::<Result<Vec<_>, _>>();
    let mut spawning = Spawn::new(Program::Paths(vec![program]), words.map_err(invalid)?);
    spawning.descriptors = vec![
        (start.null, 0),
        (start.log, 1),
        (start.log, 2),
        (start.channel, CHANNEL),
        (start.keeper, KEEPER),
        (listing.as_fd(), ARGUMENTS),
        (start.status, STATUS),
    ];
    spawning
        .descriptors
        .extend(contents.iter().map(AsFd::as_fd).zip(FIRST_CONTENT..));
    spawning.identity = start.identity.cloned();
    spawning.new_session = true;
    spawning.landlock = start.landlock;
    spawning.control_groups.clone_from(&start.control_groups);
    spawn(&spawning)
}

#[cfg(test)]
pub(crate) mod tests {
    use cofferdam_core::spec::{
        CacheOverlay, Identity, LandlockSpec, ProviderKind, ResourceLimits,
    };

    use super::*;

    pub(crate) fn spec() -> EnclosureSpec {
        let bind = |path: &str, access| Mount::Bind {
            source: path.into(),
            target: path.into(),
            access,
            optional: false,
        };
        EnclosureSpec {
            provider: ProviderKind::Bwrap,
            program: Some("/usr/bin/bwrap".into()),
            workspace: "/srv/work".into(),
            workspace_source: "/srv/work".into(),
            identity: Identity {
                uid: 1000,
                gid: 1000,
                groups: Vec::new(),
            },
            scratch: BytePath::default(),
            mounts: vec![
                bind("/srv/work", spec::Access::Write),
                Mount::Mask {
                    target: "/srv/work/.env".into(),
                    directory: false,
                    passing: None,
                },
                Mount::Mask {
                    target: "/srv/work/private".into(),
                    directory: true,
                    passing: None,
                },
                bind("/usr", spec::Access::Read),
                Mount::Symlink {
                    link: "usr/lib".into(),
                    target: "/lib".into(),
                },
                Mount::Content {
                    target: "/etc/hosts".into(),
                    content: "127.0.0.1 x".into(),
                },
                Mount::Temporary {
                    target: "/tmp".into(),
                    mode: 0o1777,
                },
                Mount::ReadOnly {
                    target: "/srv".into(),
                },
                Mount::Proc {
                    target: "/proc".into(),
                },
                Mount::Devices {
                    target: "/dev".into(),
                },
            ],
            egress: None,
            caches: Vec::new(),
            network: Network::None,
            ports: cofferdam_core::ports::PortPlan::default(),
            landlock: LandlockSpec::default(),
            seccomp: SeccompSpec {
                enabled: true,
                sockets: SocketFamilies::Namespaced,
                nested_sandbox: false,
                ptrace: false,
            },
            protections: Vec::new(),
            environment: Vec::new(),
            limits: ResourceLimits::default(),
            enforced_by: Vec::new(),
            gaps: Vec::new(),
        }
    }

    fn text(made: &BwrapArguments) -> String {
        let words: Vec<_> = made
            .arguments
            .iter()
            .map(|word| String::from_utf8_lossy(word))
            .collect();
        words.join(" ").replace(" --", "\n--")
    }

    #[test]
    fn a_plan_becomes_arguments_parents_first_and_read_only_last() {
        let made = bwrap_arguments(&spec());
        insta::assert_snapshot!(text(&made), @r"
        --unshare-all
        --unshare-user
        --die-with-parent
        --as-pid-1
        --cap-drop ALL
        --disable-userns
        --ro-bind /usr /usr
        --symlink usr/lib /lib
        --perms 1777
        --tmpfs /tmp
        --proc /proc
        --dev /dev
        --bind /srv/work /srv/work
        --perms 0444
        --ro-bind-data 7 /etc/hosts
        --ro-bind /dev/null /srv/work/.env
        --perms 0555
        --tmpfs /srv/work/private
        --remount-ro /srv/work/private
        --remount-ro /srv
        --remount-ro /
        ");
        assert_eq!(made.contents, [b"127.0.0.1 x".to_vec()]);
    }

    #[test]
    fn caches_need_capabilities_until_they_are_mounted() {
        let mut spec = spec();
        spec.network = Network::Full;
        spec.mounts.clear();
        spec.caches = vec![CacheOverlay {
            path: "/c".into(),
            store: "/s".into(),
        }];
        insta::assert_snapshot!(text(&bwrap_arguments(&spec)), @r"
        --unshare-all
        --unshare-user
        --share-net
        --die-with-parent
        --as-pid-1
        --cap-drop ALL
        --cap-add CAP_SYS_ADMIN
        --cap-add CAP_DAC_OVERRIDE
        --cap-add CAP_FOWNER
        --cap-add CAP_CHOWN
        --cap-add CAP_FSETID
        --cap-add CAP_SETPCAP
        --ro-bind /c /c
        --bind /s /.cofferdam/0
        --remount-ro /
        ");
        let store = b"/.cofferdam/0";
        let overlay = SetupMount::Overlay {
            lower: b"/c".to_vec(),
            upper: [&store[..], b"/upper"].concat(),
            work: [&store[..], b"/work"].concat(),
            target: b"/c".to_vec(),
        };
        let detach = SetupMount::Detach {
            target: store.to_vec(),
        };
        assert_eq!(setup_mounts(&spec), [overlay, detach]);
    }
}
