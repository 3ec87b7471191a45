//! Gathering what a plan depends on: one function, one value.
//!
//! [`gather`] looks at the host and gives [`HostFacts`]; nothing else of the plane asks the host what
//! it is like. It starts no program once bubblewrap has been tried, and takes less than a
//! millisecond on an ordinary repository.

mod data_dir;
mod dev_hosts;
mod files;
mod git;
mod git_config;
mod git_index;
mod git_portable;
mod names;
mod paths;
mod person;
mod policy_files;
mod probes;
mod protected;
mod roots;
mod sockets;
mod surroundings;
mod system;
mod toolchains;
mod withheld;
mod workspace;

use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::facts::{HostFacts, PathFact, PathKind, SocketFacts, WorkspaceFacts};
use cofferdam_core::plan::{is_inheritable, looks_secret};
use cofferdam_core::policy::{EffectivePolicy, Sourced};
use cofferdam_core::spec::{Network, Variable};

pub use data_dir::data_dir;
pub(crate) use git_index::holds as index_holds;
pub(crate) use paths::pattern_of;
pub use paths::{wanted_file, wanted_path};
pub use policy_files::{
    MANAGED_POLICY, PROJECT_POLICY, PolicyFile, policy_files, read_layer, read_policy_layers,
};
pub(crate) use probes::problem_of;
pub(crate) use protected::is_env_file;
pub use protected::{protected_lines, release_name};
pub use surroundings::Surroundings;
pub(crate) use withheld::remember_made;
pub use workspace::{Workspace, resolve_workspace};

/// Shortest value that is worth masking; shorter ones would mask ordinary text.
const SECRET_BYTES: usize = 6;

/// What [`gather`] looks at.
#[derive(Debug, Clone, Copy)]
pub struct GatherRequest<'a> {
    /// Environment and directory of the caller.
    pub surroundings: &'a Surroundings,
    /// The workspace.
    pub workspace: &'a Workspace,
    /// The data directory.
    pub data_dir: &'a Path,
    /// The policy in effect: it says which variables come along and which paths matter.
    pub policy: &'a EffectivePolicy,
    /// Where the tree really lies, when a task has one of its own in the workspace's place.
    pub tree: Option<&'a Path>,
}

/// Gathers everything that a plan may depend on besides policy, workspace and command.
pub fn gather(request: &GatherRequest<'_>) -> HostFacts {
    let GatherRequest {
        surroundings,
        workspace,
        data_dir,
        policy,
        tree,
    } = *request;
    let accounts = person::accounts();
    let caller = person::caller(surroundings, &accounts);
    let owner = person::owner(&caller, workspace.uid, &accounts);
    let is_own = owner == caller;
    let home = owner.home.as_path().to_owned();
    let root = workspace.root.as_path();
    let homes = workspace::homes(surroundings, &accounts);

    let repository = git::find(root)
        .filter(|found| !workspace::holds_home(&found.top_level, &homes) && git::belongs(found));
    let git = repository
        .as_ref()
        .map(|found| git::git_facts(found, surroundings, &home, is_own));
    let git_config = match &git {
        Some(git) => git.portable_config.clone(),
        None => git::portable_config(surroundings, &home, is_own),
    };
    let mut tool_homes: Vec<PathBuf> = Vec::new();
    let written = accounts
        .iter()
        .find(|one| one.uid == owner.identity.uid)
        .map(|one| one.home.clone());
    for candidate in std::iter::once(home.clone()).chain(written) {
        if candidate != Path::new("/") && !tool_homes.contains(&candidate) {
            tool_homes.push(candidate);
        }
    }
    let (system_secrets, system_listings) = system::system_secrets(&owner.identity);
    let probed = probes::probe(
        data_dir,
        &owner.identity,
        surroundings.get("PATH"),
        surroundings.get("DOCKER_HOST"),
        &[root, data_dir],
    );
    let mut network = dev_hosts::look(&dev_hosts::Look {
        surroundings,
        data_dir,
        policy,
        owner: &owner,
        is_own,
        root,
        repository: repository.as_ref(),
    });
    network.names = names::look(policy);
    if !policy.network_rules.is_empty() || !policy.secrets.is_empty() {
        (network.roots, network.more_roots) = roots::look(surroundings);
    }
    let shell = ["/bin/bash", "/usr/bin/bash"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .unwrap_or("/bin/sh");
    let paths = paths::path_facts(
        policy,
        paths::Bases {
            home: &home,
            workspace: root,
            tree: tree.unwrap_or(root),
        },
    );
    let toolchains = toolchains::toolchains(surroundings, is_own, &tool_homes, root);
    let mut shown: Vec<PathBuf> = toolchains
        .iter()
        .flat_map(|one| one.read.iter().chain(&one.caches))
        .map(|path| path.as_path().to_owned())
        .collect();
    // In the host's network what commands bind stands in the same list as what others do.
    if policy.network.value != Network::Full {
        shown.push(tree.unwrap_or(root).to_owned());
        let git = git.iter().flat_map(|git| [&git.top_level, &git.common_dir]);
        shown.extend(git.map(|path| path.as_path().to_owned()));
    }
    let sockets = look_for_sockets(policy, &paths, shown);
    HostFacts {
        kernel: probed.kernel,
        data_dir: BytePath::from(data_dir),
        providers: probed.providers,
        landlock_abi: probed.landlock_abi,
        overlay: probed.overlay,
        system: system::system_paths(),
        system_secrets,
        system_listings,
        toolchains,
        environment: environment(surroundings, policy),
        secret_names: secret_names(surroundings),
        workspace: WorkspaceFacts {
            root: BytePath::from(root),
            spellings: workspace
                .spellings
                .iter()
                .map(|path| BytePath::from(path.as_path()))
                .collect(),
            protected: protected::protected_names(data_dir, root, git.as_ref()),
            env_files: protected::env_files(
                data_dir,
                root,
                workspace.directory.as_deref(),
                git.as_ref(),
            ),
            git,
        },
        paths,
        sockets,
        shell: BytePath::from(shell),
        network,
        git_config,
        caller,
        owner,
    }
}

/// Looks for sockets of the host in the directories that the policy shows, and in those that are
/// shown anyway.
fn look_for_sockets(
    policy: &EffectivePolicy,
    paths: &[PathFact],
    mut shown: Vec<PathBuf>,
) -> SocketFacts {
    let named = |list: &[Sourced<BytePath>]| -> Vec<PathBuf> {
        paths
            .iter()
            .filter(|fact| fact.kind == PathKind::Directory)
            .filter(|fact| list.iter().any(|one| one.value == fact.written))
            .map(|fact| {
                fact.real
                    .as_ref()
                    .unwrap_or(&fact.path)
                    .as_path()
                    .to_owned()
            })
            .collect()
    };
    if policy.network.value != Network::Full {
        shown.extend(named(&policy.write));
    }
    let read: Vec<PathBuf> = named(&policy.read)
        .into_iter()
        .filter(|path| !shown.iter().any(|top| path.starts_with(top)))
        .collect();
    sockets::look(&read, &shown)
}

/// Takes the variables that the policy lets come along.
fn environment(surroundings: &Surroundings, policy: &EffectivePolicy) -> Vec<Variable> {
    surroundings
        .variables()
        .iter()
        .filter(|(name, _)| {
            name.to_str()
                .is_some_and(|name| is_inheritable(policy, name))
        })
        .map(|(name, value)| Variable {
            name: BytePath::from(name.as_os_str()),
            value: BytePath::from(value.as_os_str()),
        })
        .collect()
}

fn secret_names(surroundings: &Surroundings) -> Vec<String> {
    surroundings
        .variables()
        .keys()
        .filter_map(|name| name.to_str())
        .filter(|name| looks_secret(name))
        .map(str::to_owned)
        .collect()
}

/// Gives the values of the caller's variables whose names look like secrets, for masking what is
/// recorded. They stand in no fact and no plan.
pub fn secret_values(surroundings: &Surroundings) -> Vec<(String, Vec<u8>)> {
    surroundings
        .variables()
        .iter()
        .filter_map(|(name, value)| {
            let name = name.to_str().filter(|name| looks_secret(name))?;
            let value = value.as_encoded_bytes();
            (value.len() >= SECRET_BYTES).then(|| (name.to_owned(), value.to_vec()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::policy::{Layer, LayerDocument, PolicyDocument, merge};
    use cofferdam_core::spec::ProtectedState;

    /// A home directory with a repository in it, and the surroundings of somebody who stands there.
    fn scene() -> (tempfile::TempDir, Surroundings, Workspace) {
        let place = tempfile::tempdir().expect("a directory");
        let base = place.path().canonicalize().expect("real");
        let root = base.join("home/src/app");
        for path in [
            "home/src/app/.git/hooks",
            "home/src/app/sub",
            "home/.cargo/bin",
            "data",
        ] {
            std::fs::create_dir_all(base.join(path)).expect("made");
        }
        std::fs::write(root.join(".git/HEAD"), "ref: refs/heads/main\n").expect("written");
        std::fs::write(root.join(".env"), "KEY=1\n").expect("written");
        std::fs::write(base.join("home/.gitconfig"), "[user]\n\tname = Ann\n").expect("written");
        let home = base.join("home");
        let surroundings = Surroundings::new(
            [
                ("HOME", home.as_os_str()),
                ("PATH", std::ffi::OsStr::new("/usr/bin:/bin")),
                ("MY_API_KEY", std::ffi::OsStr::new("very secret value")),
                ("EDITOR", std::ffi::OsStr::new("ed")),
            ],
            root.join("sub"),
        );
        let workspace = resolve_workspace(&surroundings, None, None).expect("found");
        (place, surroundings, workspace)
    }

    fn look(
        place: &tempfile::TempDir,
        surroundings: &Surroundings,
        workspace: &Workspace,
        policy: &EffectivePolicy,
    ) -> HostFacts {
        gather(&GatherRequest {
            surroundings,
            workspace,
            data_dir: &place.path().join("data"),
            policy,
            tree: None,
        })
    }

    #[test]
    fn one_look_finds_what_a_plan_depends_on() {
        let (place, surroundings, workspace) = scene();
        let facts = look(
            &place,
            &surroundings,
            &workspace,
            &EffectivePolicy::built_in(),
        );
        let root = workspace.root.as_path();
        assert_eq!(facts.workspace.root, BytePath::from(root));
        assert_eq!(workspace.directory, Some(root.join("sub")));
        let git = facts.workspace.git.as_ref().expect("a repository");
        assert_eq!(git.hooks_path, BytePath::from(root.join(".git/hooks")));
        assert!(facts.git_config.contains("Ann"));
        assert_eq!(
            facts.workspace.env_files,
            [BytePath::from(root.join(".env"))]
        );
        let hooks = facts
            .workspace
            .protected
            .iter()
            .find(|one| one.rule == "git hooks")
            .expect("listed");
        assert_eq!(hooks.state, ProtectedState::Directory);
        assert!(facts.toolchains.iter().any(|one| one.name == "cargo"));
        assert!(facts.paths.is_empty());
    }

    #[test]
    fn fc_62_no_secret_stands_in_the_facts() {
        let (place, surroundings, workspace) = scene();
        let facts = look(
            &place,
            &surroundings,
            &workspace,
            &EffectivePolicy::built_in(),
        );
        let text = serde_json::to_string(&facts).expect("written");
        assert!(!text.contains("very secret value"));
        assert_eq!(facts.secret_names, ["MY_API_KEY"]);
        let values = secret_values(&surroundings);
        assert_eq!(
            values,
            [("MY_API_KEY".to_owned(), b"very secret value".to_vec())]
        );
    }

    #[test]
    fn the_policy_says_which_paths_are_looked_at() {
        let (place, surroundings, workspace) = scene();
        let document = PolicyDocument {
            read: Some(vec![BytePath::from("~/.cargo"), BytePath::from("/none")]),
            deny_read: Some(vec![BytePath::from("sub"), BytePath::from("*.pem")]),
            ..PolicyDocument::default()
        };
        let layers = [LayerDocument::new(Layer::CommandLine, document)];
        let policy = merge(EffectivePolicy::built_in(), &layers).expect("good");
        std::fs::write(workspace.root.join("sub/a.pem"), "").expect("written");
        let facts = look(&place, &surroundings, &workspace, &policy);
        let found: Vec<_> = facts
            .paths
            .iter()
            .map(|one| (one.written.to_string(), one.kind))
            .collect();
        let expected = [
            ("~/.cargo", PathKind::Directory),
            ("/none", PathKind::Absent),
            ("sub", PathKind::Directory),
            ("*.pem", PathKind::File),
        ];
        assert_eq!(
            found,
            expected.map(|(written, kind)| (written.to_owned(), kind))
        );
    }
}
