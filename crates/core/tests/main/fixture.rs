//! A host that does not exist, for plans that are made anywhere.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::facts::{
    GitFacts, HostFacts, Listing, NetworkFacts, PathFact, PathKind, Person, ProtectedName,
    ProviderFacts, SocketFacts, SystemPath, SystemSecret, Toolchain, WorkspaceFacts,
};
use cofferdam_core::policy::{
    EffectivePolicy, Layer, LayerDocument, PolicyDocument, PolicyFormat, merge, read_policy,
};
use cofferdam_core::spec::{Identity, ProtectedState, ProviderKind, Variable};

pub(crate) fn path(text: &str) -> BytePath {
    BytePath::from(text)
}

fn variable(name: &str, value: &str) -> Variable {
    Variable {
        name: path(name),
        value: path(value),
    }
}

/// A person with an own home, or root.
fn person(uid: u32) -> Person {
    let (name, home) = if uid == 0 {
        ("root", "/root")
    } else {
        ("ann", "/home/ann")
    };
    Person {
        identity: Identity {
            uid,
            gid: uid,
            groups: Vec::new(),
        },
        name: name.to_owned(),
        home: path(home),
    }
}

fn protected(name: &str, state: ProtectedState, rule: &str) -> ProtectedName {
    ProtectedName {
        path: path("/home/ann/src/app").join(name),
        state,
        rule: rule.to_owned(),
        tracked: false,
    }
}

/// An everyday host: a plain checkout in the home directory, cargo and go.
pub(crate) fn facts(uid: u32) -> HostFacts {
    let root = uid == 0;
    let works = |provider, program: Option<&str>| ProviderFacts {
        provider,
        problem: None,
        program: program.map(path),
        version: None,
    };
    let system = |text: &str, link: Option<&str>| SystemPath {
        path: path(text),
        link: link.map(path),
    };
    HostFacts {
        sockets: SocketFacts::default(),
        network: NetworkFacts::default(),
        kernel: "6.12.0".to_owned(),
        caller: person(uid),
        owner: person(uid),
        data_dir: path("/data"),
        providers: vec![
            works(ProviderKind::Direct, None),
            works(ProviderKind::Bwrap, Some("/usr/bin/bwrap")),
            works(ProviderKind::Landlock, None),
            works(ProviderKind::Memory, None),
        ],
        landlock_abi: 6,
        overlay: true,
        system: vec![
            system("/bin", Some("usr/bin")),
            system("/etc", None),
            system("/usr", None),
            system("/run/systemd/resolve/stub-resolv.conf", None),
        ],
        system_secrets: if root {
            vec![
                SystemSecret {
                    path: path("/etc/shadow"),
                    directory: false,
                },
                SystemSecret {
                    path: path("/proc/kpagecount"),
                    directory: false,
                },
            ]
        } else {
            Vec::new()
        },
        system_listings: if root {
            vec![Listing {
                path: path("/etc"),
                entries: vec![path("/etc/passwd"), path("/etc/shadow")],
            }]
        } else {
            Vec::new()
        },
        toolchains: vec![
            Toolchain {
                name: "cargo".to_owned(),
                read: vec![path("/home/ann/.cargo/bin")],
                caches: vec![path("/home/ann/.cargo/registry")],
                needs_cache: false,
                in_use: true,
                secrets: Vec::new(),
                environment: vec![variable("CARGO_HOME", "/home/ann/.cargo")],
            },
            Toolchain {
                name: "go cache".to_owned(),
                read: Vec::new(),
                caches: vec![path("/home/ann/.cache/go-build")],
                needs_cache: true,
                in_use: true,
                secrets: Vec::new(),
                environment: vec![variable("GOCACHE", "/home/ann/.cache/go-build")],
            },
        ],
        environment: vec![
            variable(
                "PATH",
                "/home/ann/src/app/node_modules/.bin:.:/home/ann/.cargo/bin:/home/ann/none:/usr/bin",
            ),
            variable("TERM", "xterm"),
            variable("GITHUB_TOKEN", "not for anybody"),
        ],
        secret_names: vec!["GITHUB_TOKEN".to_owned()],
        workspace: WorkspaceFacts {
            root: path("/home/ann/src/app"),
            spellings: vec![path("/home/ann/app")],
            git: Some(plain_git()),
            protected: vec![
                protected(
                    ".claude",
                    ProtectedState::Directory,
                    "start-up files of agents",
                ),
                protected(
                    ".mcp.json",
                    ProtectedState::Absent,
                    "start-up files of agents",
                ),
                protected(
                    ".vscode/tasks.json",
                    ProtectedState::File,
                    "start-up files of editors",
                ),
                protected(".git/hooks", ProtectedState::Directory, "git hooks"),
                protected(".git/config", ProtectedState::File, "git config"),
                protected(".githooks", ProtectedState::Absent, "git hooks"),
            ],
            env_files: vec![path("/home/ann/src/app/.env")],
        },
        paths: Vec::new(),
        git_config: "[user]\n\tname = \"Ann\"\n".to_owned(),
        shell: path("/bin/bash"),
    }
}

fn plain_git() -> GitFacts {
    GitFacts {
        top_level: path("/home/ann/src/app"),
        git_dir: path("/home/ann/src/app/.git"),
        common_dir: path("/home/ann/src/app/.git"),
        linked: false,
        hooks_path: path("/home/ann/src/app/.githooks"),
        portable_config: "[user]\n\tname = \"Ann\"\n".to_owned(),
        left_out: vec!["credential.helper".to_owned()],
    }
}

/// The same with the workspace as a linked tree of a repository elsewhere.
pub(crate) fn linked_facts() -> HostFacts {
    let mut facts = facts(1000);
    let git = facts.workspace.git.as_mut().expect("a repository");
    git.git_dir = path("/srv/repo/.git/worktrees/side");
    git.common_dir = path("/srv/repo/.git");
    git.linked = true;
    facts.workspace.protected = vec![
        protected(".git", ProtectedState::File, "git directory pointers"),
        ProtectedName {
            path: path("/srv/repo/.git/worktrees/side/commondir"),
            state: ProtectedState::File,
            rule: "git directory pointers".to_owned(),
            tracked: false,
        },
    ];
    facts.workspace.env_files.clear();
    facts
}

/// Says that a provider does not work here.
pub(crate) fn without(mut facts: HostFacts, kind: ProviderKind, code: ErrorCode) -> HostFacts {
    for provider in &mut facts.providers {
        if provider.provider == kind {
            provider.problem = Some(Problem::new(code, format!("{kind} does not work")));
        }
    }
    facts
}

/// Adds what stands at a path that a policy names.
pub(crate) fn with_path(
    mut facts: HostFacts,
    written: &str,
    at: &str,
    kind: PathKind,
) -> HostFacts {
    facts.paths.push(PathFact {
        written: path(written),
        path: path(at),
        real: None,
        kind,
    });
    facts
}

pub(crate) fn read(layer: Layer, text: &str) -> Result<PolicyDocument, Problem> {
    read_policy(
        &format!("schema = 1\n{text}"),
        PolicyFormat::Toml,
        layer,
        "the policy",
    )
}

/// Lays layers of TOML text over the built-in values.
pub(crate) fn lay(layers: &[(Layer, &str)]) -> Result<EffectivePolicy, Problem> {
    let mut documents = Vec::new();
    for (layer, text) in layers {
        documents.push(LayerDocument::new(*layer, read(*layer, text)?));
    }
    merge(EffectivePolicy::built_in(), &documents)
}

/// What the owner says on the command line.
pub(crate) fn owner(text: &str) -> EffectivePolicy {
    lay(&[(Layer::CommandLine, text)]).expect("a good policy")
}
