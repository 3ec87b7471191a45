//! Enclosures by hand-made specs: direct, Landlock and bubblewrap, warm and cold.

use std::sync::Arc;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::event::Subject;
use cofferdam_core::outcome::{CommandOutcome, IsolationLevel, Status};
use cofferdam_core::plan::{WorkspaceView, prepare};
use cofferdam_core::policy::{
    EffectivePolicy, Layer, LayerDocument, PolicyDocument, ProviderChoice, merge,
};
use cofferdam_core::spec::*;
use cofferdam_exec::{CommandIo, Control, Enclosure, Plane, PlaneOptions, Run, host};
use cofferdam_journal::{MemoryJournal, SystemAmbient};

pub(crate) fn plane(data: &std::path::Path) -> Plane {
    let ambient = Arc::new(SystemAmbient::new());
    Plane::open(PlaneOptions {
        data: Some(cofferdam_journal::DataDir::open(data.join("data")).expect("a data directory")),
        masker: cofferdam_core::mask::Masker::default(),
        journal: Arc::new(MemoryJournal::new(ambient.clone())),
        ambient,
        script: Some(cofferdam_exec::Script::everyday()),
    })
    .expect("a plane")
}

/// The plan of the default policy over a workspace, made as the product makes it.
pub(crate) fn default_spec(
    provider: ProviderKind,
    workspace: &std::path::Path,
    data: &std::path::Path,
    home: &std::path::Path,
) -> EnclosureSpec {
    planned(
        provider,
        &Outside {
            workspace,
            data,
            home,
            docker_host: None,
        },
    )
}

/// What stands around a plan.
pub(crate) struct Outside<'a> {
    pub(crate) workspace: &'a std::path::Path,
    pub(crate) data: &'a std::path::Path,
    pub(crate) home: &'a std::path::Path,
    /// The engine for containers, as its own client would be told of it.
    pub(crate) docker_host: Option<&'a str>,
}

/// The same with all that stands around it.
pub(crate) fn planned(provider: ProviderKind, outside: &Outside<'_>) -> EnclosureSpec {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let Outside {
        workspace,
        data,
        home,
        docker_host,
    } = *outside;
    let surroundings = host::Surroundings::new(
        [
            ("HOME", home.as_os_str()),
            ("PATH", "/usr/local/bin:/usr/bin:/bin".as_ref()),
            ("DOCKER_HOST", docker_host.unwrap_or_default().as_ref()),
        ],
        workspace,
    );
    let found = host::resolve_workspace(&surroundings, Some(workspace), Some(data));
    let found = found.expect("a workspace");
    let document = PolicyDocument {
        provider: Some(match provider {
            ProviderKind::Direct => ProviderChoice::Direct,
            ProviderKind::Landlock => ProviderChoice::Landlock,
            ProviderKind::Bwrap => ProviderChoice::Bwrap,
            ProviderKind::Container => ProviderChoice::Container,
            _ => ProviderChoice::Memory,
        }),
        ..PolicyDocument::default()
    };
    let layers = [LayerDocument::new(Layer::CommandLine, document)];
    let policy = merge(EffectivePolicy::built_in(), &layers).expect("a policy");
    let facts = host::gather(&host::GatherRequest {
        surroundings: &surroundings,
        workspace: &found,
        data_dir: data,
        policy: &policy,
        tree: None,
    });
    let view = WorkspaceView::live(&facts.workspace);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let scratch = BytePath::from(data.join("scratch").join(number.to_string()));
    prepare(&policy, &view, &facts, &scratch).expect("a plan")
}

pub(crate) fn spec(provider: ProviderKind, workspace: &std::path::Path) -> EnclosureSpec {
    let workspace = BytePath::from(workspace);
    let identity = Identity {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: Vec::new(),
    };
    let bind = |path: &str, access| Mount::Bind {
        source: path.into(),
        target: path.into(),
        access,
        optional: false,
    };
    let walls = provider != ProviderKind::Direct;
    let bwrap = provider == ProviderKind::Bwrap;
    EnclosureSpec {
        provider,
        program: bwrap.then(|| "/usr/bin/bwrap".into()),
        workspace: workspace.clone(),
        workspace_source: workspace.clone(),
        identity,
        scratch: BytePath::default(),
        mounts: if bwrap {
            vec![
                bind("/", Access::Read),
                Mount::Proc {
                    target: "/proc".into(),
                },
                Mount::Devices {
                    target: "/dev".into(),
                },
                Mount::Temporary {
                    target: "/tmp".into(),
                    mode: 0o1777,
                },
                bind(&workspace.to_text(), Access::Write),
            ]
        } else {
            Vec::new()
        },
        caches: Vec::new(),
        egress: None,
        network: if walls { Network::None } else { Network::Full },
        ports: cofferdam_core::ports::PortPlan::default(),
        landlock: LandlockSpec {
            paths: if provider == ProviderKind::Landlock {
                vec![
                    PathRule {
                        path: "/".into(),
                        access: PathAccess::ReadExecute,
                    },
                    PathRule {
                        path: "/dev/null".into(),
                        access: PathAccess::Device,
                    },
                    PathRule {
                        path: workspace,
                        access: PathAccess::Write,
                    },
                ]
            } else {
                Vec::new()
            },
            deny_tcp: false,
            scope_signals: walls,
            scope_abstract_sockets: walls,
        },
        seccomp: SeccompSpec {
            enabled: walls,
            sockets: if bwrap {
                SocketFamilies::Namespaced
            } else {
                SocketFamilies::PairsOnly
            },
            nested_sandbox: false,
            ptrace: false,
        },
        protections: Vec::new(),
        environment: vec![Variable {
            name: "PATH".into(),
            value: "/usr/bin:/bin".into(),
        }],
        limits: ResourceLimits::default(),
        enforced_by: Vec::new(),
        gaps: Vec::new(),
    }
}

pub(crate) fn command(workspace: &std::path::Path, words: &[&str]) -> CommandSpec {
    CommandSpec {
        argv: words.iter().map(|word| BytePath::from(*word)).collect(),
        cwd: workspace.into(),
        environment: Vec::new(),
        streams: StreamPlan::Pipes,
        timeout_ms: Some(20_000),
        idle_timeout_ms: None,
        limits: ResourceLimits::default(),
    }
}

pub(crate) fn capture(enclosure: &Enclosure, command: CommandSpec) -> CommandOutcome {
    enclosure.run(Run {
        command,
        subject: Subject::default(),
        io: CommandIo::Capture { input: None },
        control: Control::new(),
        timeout_clamped: false,
    })
}

fn both_streams_and_exit_codes(provider: ProviderKind) {
    let data = tempfile::tempdir().expect("a directory");
    let workspace = tempfile::tempdir().expect("a directory");
    let plane = plane(data.path());
    let level = IsolationLevel {
        provider: Some(provider),
        network: Network::None,
    };
    let enclosure = plane
        .enclose(spec(provider, workspace.path()), level, &Subject::default())
        .expect("walls");
    for _ in 0..3 {
        let outcome = capture(
            &enclosure,
            command(
                workspace.path(),
                &["sh", "-c", "echo out; echo err >&2; exit 3"],
            ),
        );
        assert_eq!(
            (outcome.status, outcome.return_code),
            (Status::Failed, Some(3)),
            "{outcome:?}"
        );
        assert_eq!((&*outcome.stdout, &*outcome.stderr), ("out\n", "err\n"));
    }
    let missing = capture(&enclosure, command(workspace.path(), &["/no/such/program"]));
    assert_eq!(missing.exit_code(), 127, "{missing:?}");
    let mut slow = command(
        workspace.path(),
        &["sh", "-c", "setsid sleep 300 & sleep 300"],
    );
    slow.timeout_ms = Some(200);
    let late = capture(&enclosure, slow);
    assert_eq!(late.status, Status::Timeout, "{late:?}");
    assert!(late.elapsed_ms < 2_000, "{late:?}");
    assert!(capture(&enclosure, command(workspace.path(), &["true"])).success);
}

#[test]
fn direct_runs_commands() {
    both_streams_and_exit_codes(ProviderKind::Direct);
}

#[test]
fn landlock_runs_commands() {
    both_streams_and_exit_codes(ProviderKind::Landlock);
}

#[test]
fn bwrap_runs_commands() {
    if !std::path::Path::new("/usr/bin/bwrap").exists() {
        println!("skipped: bubblewrap is not installed");
        return;
    }
    both_streams_and_exit_codes(ProviderKind::Bwrap);
}

/// Counts what this process has sent to a disk, in bytes.
fn written_to_disk() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").expect("readable");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|number| number.parse().ok())
        .expect("a number")
}

#[test]
fn c54_the_double_starts_nothing_writes_nothing_and_logs_each_call() {
    let script = cofferdam_exec::Script::everyday();
    let plane = Plane::in_memory(script.clone()).expect("a plane");
    let workspace = std::path::Path::new("/nowhere");
    let mut spec = spec(ProviderKind::Direct, workspace);
    spec.provider = ProviderKind::Memory;
    let level = IsolationLevel {
        provider: Some(ProviderKind::Memory),
        network: Network::None,
    };
    let before = written_to_disk();
    let enclosure = plane
        .enclose(spec, level, &Subject::default())
        .expect("a place");
    let outcome = capture(&enclosure, command(workspace, &["echo", "hello"]));
    assert_eq!(outcome.stdout, "hello\n");
    assert_eq!(
        capture(&enclosure, command(workspace, &["false"])).return_code,
        Some(1)
    );
    drop(enclosure);
    let own = std::fs::read_to_string(format!(
        "/proc/self/task/{}/children",
        rustix::thread::gettid().as_raw_nonzero()
    ));
    assert_eq!(own.expect("readable"), "", "a process was started");
    assert_eq!(written_to_disk(), before, "something was written");
    let calls: Vec<_> = script
        .calls()
        .iter()
        .map(|one| one.argv[0].to_string())
        .collect();
    assert_eq!(calls, ["echo", "false"]);
}
