//! What each provider can do here, asked once and remembered.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::facts::ProviderFacts;
use cofferdam_core::spec::{Identity, ProviderKind};
use cofferdam_sandbox::{
    BwrapProblem, LANDLOCK_ABI_WANTED, bwrap_version, find_program, landlock_abi, probe_bwrap,
};
use serde::{Deserialize, Serialize};

use crate::container::found_socket;

/// `f_type` of file systems on which no overlay can have its upper layer.
const NO_UPPER: &[i64] = &[
    0x794c_7630, // overlay
    0x6969,      // NFS
    0x6573_5546, // FUSE
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
];

/// What was found out about bubblewrap, and for which state of the host it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remembered {
    boot_id: String,
    kernel: String,
    uid: u32,
    program: BytePath,
    device: u64,
    inode: u64,
    modified: (i64, i64),
    version: Option<String>,
}

/// What the probes say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Probed {
    pub(super) kernel: String,
    pub(super) providers: Vec<ProviderFacts>,
    pub(super) landlock_abi: u32,
    pub(super) overlay: bool,
}

/// Asks what works here. Only what works is remembered: what does not may be put right at any time.
pub(super) fn probe(
    data_dir: &Path,
    identity: &Identity,
    path: Option<&OsStr>,
    docker_host: Option<&OsStr>,
    distrusted: &[&Path],
) -> Probed {
    let kernel = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let abi = landlock_abi();
    let plain = |provider, problem| ProviderFacts {
        provider,
        problem,
        program: None,
        version: None,
    };
    let providers = vec![
        plain(ProviderKind::Direct, None),
        bwrap(data_dir, identity, path, distrusted, &kernel),
        plain(ProviderKind::Landlock, landlock_problem(abi)),
        engine(docker_host),
        plain(ProviderKind::Memory, None),
    ];
    Probed {
        overlay: overlay(data_dir, &kernel),
        kernel,
        providers,
        landlock_abi: abi,
    }
}

fn landlock_problem(abi: u32) -> Option<Problem> {
    (abi < LANDLOCK_ABI_WANTED).then(|| {
        let found = if abi == 0 {
            "the kernel has no Landlock, or it is switched off".to_owned()
        } else {
            format!("the kernel's Landlock has interface {abi}, {LANDLOCK_ABI_WANTED} is needed")
        };
        Problem::new(ErrorCode::LandlockUnavailable, found)
            .with_hint("use a kernel from 6.12 on with landlock in the lsm= list")
    })
}

/// Tells whether an engine for containers listens. What it can do shows when a container is put up:
/// to put one up for each look would cost everybody who never asks for one.
fn engine(docker_host: Option<&OsStr>) -> ProviderFacts {
    let mut facts = ProviderFacts {
        provider: ProviderKind::Container,
        problem: None,
        program: None,
        version: None,
    };
    let missing = |message: String| {
        Problem::new(ErrorCode::EngineMissing, message)
            .with_hint("start Docker or Podman, or name its socket: DOCKER_HOST=unix:///PATH")
    };
    let uid = rustix::process::geteuid().as_raw();
    let Some(socket) = found_socket(docker_host, uid) else {
        facts.problem = Some(missing(
            match docker_host.filter(|named| !named.is_empty()) {
                // What is mounted has to be on this machine, so the engine has to be, too.
                Some(named) => format!(
                    "DOCKER_HOST names {}, which is no Unix socket of this machine",
                    named.to_string_lossy()
                ),
                None => "no Docker or Podman engine listens on this machine".to_owned(),
            },
        ));
        return facts;
    };
    if let Err(error) = UnixStream::connect(&socket) {
        let message = format!(
            "the engine at {} cannot be reached: {error}",
            socket.display()
        );
        facts.problem = Some(missing(message));
    }
    facts.program = Some(BytePath::from(socket));
    facts
}

/// Tells a refusal of bubblewrap with its code and remedy.
pub(crate) fn problem_of(problem: &BwrapProblem) -> Problem {
    let code = match problem {
        BwrapProblem::Missing => ErrorCode::BwrapMissing,
        BwrapProblem::UsernsNoCaps { .. } => ErrorCode::UsernsNoCaps,
        BwrapProblem::NamespacesFiltered { .. } => ErrorCode::NamespacesFiltered,
        BwrapProblem::ProcMountRefused { .. } => ErrorCode::ProcMountRefused,
        BwrapProblem::RootWithoutSetfcap { .. } => ErrorCode::RootWithoutSetfcap,
        BwrapProblem::UsernsExhausted { .. } => ErrorCode::UsernsExhausted,
        BwrapProblem::Hung => ErrorCode::BwrapHung,
        BwrapProblem::Failed { .. } => ErrorCode::BwrapFailed,
    };
    let told = Problem::new(code, problem.to_string());
    match problem.remedy() {
        Some(remedy) => told.with_hint(remedy),
        None => told,
    }
}

fn bwrap(
    data_dir: &Path,
    identity: &Identity,
    path: Option<&OsStr>,
    distrusted: &[&Path],
    kernel: &str,
) -> ProviderFacts {
    let mut facts = ProviderFacts {
        provider: ProviderKind::Bwrap,
        problem: None,
        program: None,
        version: None,
    };
    let usual = OsStr::new("/usr/local/bin:/usr/bin:/bin");
    let Some(program) = find_program("bwrap", path.unwrap_or(usual), distrusted) else {
        facts.problem = Some(problem_of(&BwrapProblem::Missing));
        return facts;
    };
    facts.program = Some(BytePath::from(program.as_path()));
    let Ok(found) = std::fs::metadata(&program) else {
        facts.problem = Some(problem_of(&BwrapProblem::Missing));
        return facts;
    };
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut state = Remembered {
        boot_id: boot_id.trim().to_owned(),
        kernel: kernel.to_owned(),
        uid: identity.uid,
        program: BytePath::from(program.as_path()),
        device: found.dev(),
        inode: found.ino(),
        modified: (found.mtime(), found.mtime_nsec()),
        version: None,
    };
    let file = data_dir.join("probe.json");
    let remembered = super::files::read_small(&file, 64 * 1024)
        .and_then(|text| serde_json::from_slice::<Remembered>(&text).ok());
    if let Some(remembered) = remembered {
        state.version.clone_from(&remembered.version);
        if remembered == state {
            facts.version = remembered.version;
            return facts;
        }
    }
    let other = (rustix::process::geteuid().as_raw() != identity.uid).then(|| {
        cofferdam_sandbox::Identity {
            uid: identity.uid,
            gid: identity.gid,
            groups: identity.groups.clone(),
        }
    });
    match probe_bwrap(&program, other.as_ref()) {
        Ok(()) => {
            state.version = bwrap_version(&program);
            facts.version.clone_from(&state.version);
            remember(&file, &state);
        }
        Err(problem) => facts.problem = Some(problem_of(&problem)),
    }
    facts
}

/// Writes what was found out. A probe that cannot be remembered is done again, nothing worse.
fn remember(file: &Path, state: &Remembered) {
    let Ok(text) = serde_json::to_vec(state) else {
        return;
    };
    let fresh = file.with_extension(format!("json.{}", std::process::id()));
    let written = std::fs::File::create(&fresh)
        .and_then(|mut opened| opened.write_all(&text))
        .and_then(|()| std::fs::rename(&fresh, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
}

/// Tells whether caches can have a layer of their own: overlays in user namespaces came with 5.11,
/// and not every file system can hold the upper layer.
fn overlay(data_dir: &Path, kernel: &str) -> bool {
    let mut numbers = kernel
        .split(|letter: char| !letter.is_ascii_digit())
        .map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let known = std::fs::read_to_string("/proc/filesystems")
        .is_ok_and(|text| text.lines().any(|line| line.ends_with("\toverlay")));
    let holds_upper =
        rustix::fs::statfs(data_dir).is_ok_and(|found| !NO_UPPER.contains(&found.f_type));
    version >= (5, 11) && known && holds_upper
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_is_named_and_not_here_is_said_by_its_name() {
        for named in ["tcp://10.0.0.1:2375", "unix:///nowhere/d.sock"] {
            let facts = engine(Some(OsStr::new(named)));
            let problem = facts.problem.expect("a reason");
            assert_eq!(problem.code, ErrorCode::EngineMissing);
            assert!(problem.message.contains(named), "{}", problem.message);
            assert_eq!(facts.program, None);
        }
    }

    #[test]
    fn fc_01_a_broken_bwrap_is_told_by_its_reason_and_not_remembered() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        let program = base.join("bwrap");
        let text = "#!/bin/sh\necho 'bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted' >&2\nexit 1\n";
        std::fs::write(&program, text).expect("written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("set");
        let identity = Identity {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: Vec::new(),
        };
        let ask = |distrusted: &[&Path]| {
            bwrap(&base, &identity, Some(base.as_os_str()), distrusted, "6.1")
        };
        let facts = ask(&[]);
        assert_eq!(
            facts.problem.map(|one| one.code),
            Some(ErrorCode::UsernsNoCaps)
        );
        assert!(!base.join("probe.json").exists());
        // One that hangs is given up, and told apart.
        std::fs::write(&program, "#!/bin/sh\nsleep 300\n").expect("written");
        let began = std::time::Instant::now();
        let code = ask(&[]).problem.map(|one| one.code);
        assert_eq!(code, Some(ErrorCode::BwrapHung));
        assert!(began.elapsed() < std::time::Duration::from_secs(30));
        // FC-41: a program in a directory that a command can write is none.
        let missing = ask(&[&base]).problem.map(|one| one.code);
        assert_eq!(missing, Some(ErrorCode::BwrapMissing));
    }
}
